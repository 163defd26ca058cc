"""`optsched list`: what is installed, and what it is."""

from typing import TYPE_CHECKING, Any, cast

import click

from ..errors import perhaps
from .parts.arguments import flag_option, json_option, quiet_option
from .parts.outputs import print_json

if TYPE_CHECKING:
    from ..plugins import registry
    from ..plugins.options import DeclaredOption
    from ..plugins.policy import Source

KINDS = ("solvers", "rounds", "policies", "formats", "objectives", "executors")
GROUPS: dict[str, "registry.Group"] = {
    "solver": "solvers",
    "round solver": "rounds",
    "policy": "policies",
    "executor": "executors",
    "format": "importers",
}


KIND_OF: dict["registry.Group", str] = {
    "solvers": "solvers",
    "rounds": "rounds",
    "policies": "policies",
    "executors": "executors",
    "importers": "formats",
}
"""What a kind of plug-in is called on the command line."""


@click.command("list")
@click.argument("kind", metavar=f"{'|'.join(KINDS)}|NAME")
@flag_option("--markdown", help="Print the policies with their sources, as in docs/policies.md.")
@json_option
@quiet_option
def command(kind: str, markdown: bool, as_json: bool, quiet: bool) -> None:
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
        from ..plugins import registry
        from .parts.policy_page import options_page, page

        group = next((group for group in GROUPS.values() if KIND_OF[group] == kind), None)
        if group is None:
            raise click.UsageError(f"--markdown is for plug-ins, not for {kind}")
        found = registry.listed(group)
        click.echo(page(found) if kind == "policies" else options_page(kind, found), nl=False)
        return
    if kind not in KINDS:
        show_plug_ins(kind, as_json, quiet)
        return
    rows = entries(kind)
    if as_json:
        print_json(rows)
    elif quiet:
        for row in rows:
            click.echo(row["name"])
    else:
        from .parts.table import show, table

        heads = [head for head in rows[0] if head != "cite"] if rows else ["name"]
        out = table(*heads, folded=("what it is", "needs") if kind == "policies" else ())
        for row in rows:
            out.add_row(*(text(row[head]) for head in heads))
        show(out)


def entries(kind: str) -> list[dict[str, Any]]:
    """Return one object for each thing of a kind, with the same keys throughout."""
    if kind == "objectives":
        from ..objectives import TERMS

        return [
            {"name": term.name, "what it is": term.title, "unit": term.unit}
            for term in TERMS.values()
        ]
    from ..plugins import registry

    group = cast(registry.Group, "importers" if kind == "formats" else kind)
    return [
        {"name": one.name, "what it is": one.title}
        | ({"guarantee": one.guarantee} if kind == "solvers" else {})
        | (facts(one.source) if kind == "policies" else {})
        | {"available": "yes" if one.unavailable is None else f"no: {one.unavailable}"}
        for one in registry.listed(group)
    ]


def show_plug_ins(name: str, as_json: bool, quiet: bool) -> None:
    """Show every plug-in of that name, or the names of its options. Raises UsageError where there
    is none."""
    from dataclasses import asdict

    from ..plugins import registry

    every = {kind: registry.listed(group) for kind, group in GROUPS.items()}
    found = [(kind, row) for kind, rows in every.items() for row in rows if row.name == name]
    if not found:
        known = [*KINDS, *(row.name for rows in every.values() for row in rows)]
        raise click.UsageError(
            f"{name!r} is unknown{perhaps(name, known)}; choose from {', '.join(KINDS)}, or a name "
            "that one of these shows"
        )
    if as_json:
        shown = [
            {"kind": kind, **asdict(one)} | {"options": [_option(option) for option in one.options]}
            for kind, one in found
        ]
        print_json(shown)
    elif quiet:
        for name in dict.fromkeys(option.name for _, one in found for option in one.options):
            click.echo(name)
    else:
        for kind, one in found:
            _show_plug_in(kind, one)


def _option(option: "DeclaredOption") -> dict[str, str]:
    return {
        "option": option.name,
        "value": option.expected,
        "default": option.default,
        "meaning": option.meaning,
    }


def _show_plug_in(kind: str, plug_in: "registry.Listed") -> None:
    from .parts.table import show, table

    click.echo(f"{kind} {plug_in.name}: {plug_in.title}")
    if plug_in.source is not None:
        click.echo(f"{plug_in.source.cite} ({plug_in.source.sureness})")
    if plug_in.unavailable is not None:
        click.echo(f"not available here: {plug_in.unavailable}")
    if not plug_in.options:
        click.echo("no options")
        return
    out = table("option", "value", "default", "meaning", folded=("value", "meaning"))
    for option in plug_in.options:
        out.add_row(*_option(option).values())
    show(out)


def facts(source: "Source | None") -> dict[str, Any]:
    """Return when a policy was published, what it reads of an instance, how sure it is that this is
    it, and what to cite."""
    if source is None:
        return {"year": None, "needs": [], "sureness": None, "cite": None}
    return {
        "year": source.year,
        "needs": list(source.needs),
        "sureness": source.sureness,
        "cite": source.cite,
    }


def text(value: Any) -> str:
    """Return a value in a table."""
    if isinstance(value, list):
        return ", ".join(value) or "-"
    return "-" if value is None else str(value)
