"""`optsched list`: what is installed, and what it is."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import click

from ..errors import perhaps
from ..picture.text import table
from ..plugins import registry
from ..plugins.options import DeclaredOption
from ..plugins.policy import Source
from .parts.arguments import flag_option
from .parts.out import Json, Out, Parts, answers
from .parts.policy_page import options_page, page

GROUPS: dict[str, tuple[str, "registry.Group"]] = {
    "solvers": ("solver", "solvers"),
    "rounds": ("round solver", "rounds"),
    "policies": ("policy", "policies"),
    "executors": ("executor", "executors"),
    "formats": ("format", "importers"),
}
"""Kinds of plug-ins as the command line calls them: one of them, and its group."""
KINDS = ("solvers", "rounds", "policies", "formats", "objectives", "executors")


@click.command("list")
@click.argument("kind", metavar=f"{'|'.join(KINDS)}|NAME")
@flag_option("--markdown", "Print the policies with their sources, as in docs/policies.md.")
@answers
def command(kind: str, markdown: bool, out: Out) -> None:
    """List what there is to choose from, or everything about NAME with its options. With --quiet,
    only names.

    \b
    solvers      plan a whole instance and prove how good the plan is     (solve --solver)
    rounds       decide who runs now and prove how good that is           (round --solver)
    policies     rules that decide now; simulated, they make a plan too   (solve --solver)
    formats      traces and benchmarks that `optsched import` reads
    objectives   what a plan can minimise                                 (solve --objective)
    executors    what starts and watches jobs on real nodes               (run)

    A guarantee "exact" proves an optimum given time, "bound" proves a limit, "none" gives a plan
    alone. How sure it is that a policy is what was published: "verified" against public code or
    text, "derived" from a stated model, or "reconstructed" from an abstract.
    """
    if markdown:
        if kind not in GROUPS:
            raise click.UsageError(f"--markdown is for plug-ins, not for {kind}")
        listed = registry.listed(GROUPS[kind][1])
        click.echo(page(listed) if kind == "policies" else options_page(kind, listed), nl=False)
        return
    if kind not in KINDS:
        show_plug_ins(kind, out)
        return
    rows = entries(kind)
    if out.quiet and not out.as_json:
        _echo(row["name"] for row in rows)
        return
    heads = [head for head in rows[0] if head != "cite"] if rows else ["name"]
    cells = ([text(row[head]) for head in heads] for row in rows)
    folded = ("what it is", "needs") if kind == "policies" else ()
    out.answer(lambda: rows, lambda: [table(*heads, rows=cells, folded=folded)])


def _echo(names: Iterable[str]) -> None:
    for name in names:
        click.echo(name)


def entries(kind: str) -> list[Json]:
    """Return one object for each thing of a kind, with the same keys throughout."""
    if kind == "objectives":
        from ..objectives import TERMS

        return [
            {"name": term.name, "what it is": term.title, "unit": term.unit}
            for term in TERMS.values()
        ]
    return [
        {"name": plug_in.name, "what it is": plug_in.title}
        | ({"guarantee": plug_in.guarantee} if kind == "solvers" else {})
        | (facts(plug_in.source) if kind == "policies" else {})
        | {"available": "yes" if plug_in.unavailable is None else f"no: {plug_in.unavailable}"}
        for plug_in in registry.listed(GROUPS[kind][1])
    ]


def show_plug_ins(name: str, out: Out) -> None:
    """Show every plug-in of that name, or the names of its options. Raises UsageError where there
    is none."""
    every = [(kind, row) for kind, group in GROUPS.values() for row in registry.listed(group)]
    named = [(kind, row) for kind, row in every if row.name == name]
    if not named:
        known = [*KINDS, *(row.name for _, row in every)]
        raise click.UsageError(
            f"{name!r} is unknown{perhaps(name, known)}; choose from {', '.join(KINDS)}, or a name "
            "that one of these shows"
        )
    if out.quiet and not out.as_json:
        _echo(dict.fromkeys(option.name for _, row in named for option in row.options))
        return
    out.answer(
        lambda: [
            {"kind": kind, **asdict(row), "options": [_option(option) for option in row.options]}
            for kind, row in named
        ],
        lambda: (part for kind, row in named for part in _parts(kind, row)),
    )


def _option(option: DeclaredOption) -> dict[str, str]:
    return {
        "option": option.name,
        "value": option.expected,
        "default": option.default,
        "meaning": option.meaning,
    }


def _parts(kind: str, plug_in: registry.Listed) -> Parts:
    yield f"{kind} {plug_in.name}: {plug_in.title}"
    if plug_in.source is not None:
        yield f"{plug_in.source.cite} ({plug_in.source.sureness})"
    if plug_in.unavailable is not None:
        yield f"not available here: {plug_in.unavailable}"
    if plug_in.options:
        rows = [_option(option) for option in plug_in.options]
        cells = (row.values() for row in rows)
        yield table(*rows[0], rows=cells, folded=("value", "meaning"))
    else:
        yield "no options"


def facts(source: Source | None) -> Json:
    """Return when a policy was published, what it reads of an instance, how sure it is that this is
    it, and what to cite."""
    names = ("year", "needs", "sureness", "cite")
    known = {name: getattr(source, name, None) for name in names}
    return known | {"needs": [*(known["needs"] or ())]}


def text(value: Any) -> str:
    """Return a value in a table."""
    if isinstance(value, list):
        return ", ".join(value) or "-"
    return "-" if value is None else str(value)
