"""Needs narrowed to some nodes."""

from dataclasses import replace
from functools import lru_cache

from optsched.driver.layout import Need


@lru_cache(maxsize=5000)
def within(need: Need, nodes: int) -> Need:
    """Return the need on these nodes only, a mask; one object for equal ones, by which a room
    remembers."""
    return replace(need, nodes=need.nodes & nodes) if need.nodes & ~nodes else need
