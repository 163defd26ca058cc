"""`optsched bound`: lower bounds that no plan can beat."""

import json

import click

from .arguments import instance_argument, json_option, load, objective_option, quiet_option


@click.command("bound")
@instance_argument
@objective_option
@json_option
@quiet_option
def command(instance: str, objective: str, as_json: bool, quiet: bool) -> None:
    """Lower bounds on the objective of INSTANCE that need no solver.

    A bound for "any schedule" holds however often jobs are preempted; one for "this plan class" where a
    waiting job runs in one piece and a running job either goes on or is preempted now. The best of each level
    is marked *. With --quiet only the best value of each level is printed.

    \b
    optsched bound cluster.json
    optsched bound cluster.json --objective makespan --json
    """
    from .. import objectives
    from ..bounds import all_bounds
    from ..picture.facts import level_unit
    from .table import show, table, with_length

    goal = objectives.parse(objective)
    found = all_bounds(load(instance), goal)
    names = [objectives.level_name(level) for level in goal.levels]
    best = {
        level: max((one.value for one in found if one.level == level), default=None)
        for level in range(len(names))
    }
    if as_json:
        click.echo(
            json.dumps(
                [
                    {
                        "objective": names[one.level],
                        "value": one.value,
                        "source": one.source,
                        "preemptive": one.preemptive,
                        "best": one.value == best[one.level],
                    }
                    for one in found
                ]
            )
        )
    elif quiet:
        for value in best.values():
            click.echo("none" if value is None else f"{value:.10g}")
    elif not found:
        click.echo(f"no bound is known for {objective}")
    else:
        out = table("", "objective", "bound", "holds for", "proved by", numeric=("bound",))
        for one in sorted(found, key=lambda one: (one.level, -one.value)):
            out.add_row(
                "*" if one.value == best[one.level] else "",
                names[one.level],
                with_length(one.value, level_unit(names[one.level])),
                "any schedule" if one.preemptive else "this plan class",
                one.source,
            )
        show(out)
