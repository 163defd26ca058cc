"""The publications that the policies come from, as `sources.toml` has them."""

import tomllib
from importlib.resources import files
from typing import Any

from optsched.plugins.policy import Source


def _read() -> dict[str, Source]:
    said = tomllib.loads(files(__package__).joinpath("sources.toml").read_text(encoding="utf-8"))
    sources: dict[str, Source] = {}
    for name, own in said["policies"].items():
        paper = said["papers"].get(own.pop("paper", ""), {})
        table: dict[str, Any] = {"link": None, **paper, **own}
        sources[name] = Source(**{**table, "needs": tuple(table.get("needs", ()))})
    return sources


SOURCES = _read()
"""Of each policy, by its name."""
