"""`optsched list`: what is installed, and what it is."""

import json
from typing import Any, cast

import click

from .arguments import json_option, quiet_option

KINDS = ("solvers", "rounds", "policies", "formats", "objectives")


@click.command("list")
@click.argument("kind", metavar="|".join(KINDS), type=click.Choice(KINDS))
@json_option
@quiet_option
def command(kind: str, as_json: bool, quiet: bool) -> None:
    """What there is to choose from. With --quiet only the names.

    \b
    solvers      plan a whole instance and prove how good the plan is     (solve --solver)
    rounds       decide who runs now and prove how good that is           (round --solver)
    policies     rules that decide now; simulated, they make a plan too   (solve --solver)
    formats      traces and benchmarks that `optsched import` reads
    objectives   what a plan can minimise                                 (solve --objective)

    A guarantee "exact" proves an optimum given time, "bound" proves a limit, "none" gives a plan alone.
    """
    rows = entries(kind)
    if as_json:
        click.echo(json.dumps(rows))
    elif quiet:
        for row in rows:
            click.echo(row["name"])
    else:
        from .table import show, table

        heads = list(rows[0]) if rows else ["name"]
        out = table(*heads)
        for row in rows:
            out.add_row(*(str(value) for value in row.values()))
        show(out)


def entries(kind: str) -> list[dict[str, Any]]:
    """One object for each thing of a kind, with the same keys throughout."""
    if kind == "objectives":
        from ..objectives import TERMS

        return [{"name": term.name, "what it is": term.title, "unit": term.unit} for term in TERMS.values()]
    if kind == "formats":
        from ..traces import FORMATS

        return [{"name": name, "what it is": found.title} for name, found in FORMATS.items()]
    from .. import registry

    group = cast(registry.Group, kind)
    return [
        {"name": one.name, "what it is": one.title}
        | ({"guarantee": one.guarantee} if kind == "solvers" else {})
        | {"available": "yes" if one.unavailable is None else f"no: {one.unavailable}"}
        for one in registry.listed(group)
    ]
