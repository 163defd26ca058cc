"""`optsched bound`: lower bounds that no plan can beat."""

from pathlib import Path

import click

from ..errors import InputError
from .parts.arguments import (
    check_outputs,
    count_option,
    flag_option,
    instance_argument,
    load,
    objective_option,
    option,
    path_option,
)
from .parts.duration import duration
from .parts.out import Out, Parts, answers
from .parts.progress import prices_found


@click.command("bound")
@instance_argument
@objective_option
@flag_option(
    "--prices",
    "Also search for prices of GPU time that prove a better bound (wct, makespan and ftf).",
)
@count_option(
    "--steps N",
    "With --prices: number of search steps (default: 60), the same on every machine.",
    least=0,
)
@option(
    "--time-limit LENGTH",
    "With --prices: a time limit instead of --steps, such as 5m.",
    type=duration,
)
@path_option(
    "-o, --output CERTIFICATE", "With --prices: write the prices for `optsched verify-bound`."
)
@flag_option(
    "--replay", "For schedules in which the attempts of INSTANCE fail, as simulations let them."
)
@answers
def command(
    instance: str,
    objective: str,
    prices: bool,
    steps: int | None,
    time_limit: float | None,
    output: Path | None,
    replay: bool,
    out: Out,
) -> None:
    """Compute lower bounds on the objective of INSTANCE without a solver.

    A bound for "any schedule" holds however often jobs are preempted; one for "this plan class"
    holds if a waiting job runs in one piece and a running job either continues or is preempted now.
    The best bound of each level is marked *. With --quiet, only the best value of each level is
    printed.

    With --prices, GPU time is given prices at which every job buys what it needs: slower, and
    usually much closer. Ctrl-C ends the search and keeps the best bound so far.

    \b
    optsched bound cluster.json
    optsched bound cluster.json --prices --time-limit 5m -o bound.json
    optsched bound cluster.json --objective makespan --json
    """
    from .. import objectives
    from ..bounds import Bound, all_bounds, priced_bound
    from ..bounds.by_prices import SOURCE, STEPS, check_objective
    from ..picture.facts import level_unit
    from ..picture.text import table, with_length

    goal = objectives.parse(objective)
    if not prices and (steps is not None or time_limit is not None or output is not None):
        raise InputError("--steps, --time-limit and -o go with --prices; add it")
    if steps is not None and time_limit is not None:
        raise InputError("--steps and --time-limit are two ends of one search; keep one")
    if prices:
        check_objective(goal)
        check_outputs({"-o": output}, instance)
    loaded = load(instance)
    bounds = all_bounds(loaded, goal, replay=replay)
    if prices:
        follow = prices_found(goal, STEPS if steps is None else steps, time_limit, not out.quiet)
        _, certificate = priced_bound(
            loaded, goal, steps, replay, time_limit_s=time_limit, follow=follow
        )
        bounds.append(Bound(level=0, value=certificate.value, source=SOURCE, preemptive=True))
        if output is not None:
            from ..files import write_text
            from ..files.certificate import dump_certificate

            write_text(output, dump_certificate(certificate))
    names = [objectives.level_name(level) for level in goal.levels]
    best = {
        level: max((bound.value for bound in bounds if bound.level == level), default=None)
        for level in range(len(names))
    }
    if out.quiet and not out.as_json:
        for value in best.values():
            click.echo("none" if value is None else f"{value:.10g}")
        return

    def parts() -> Parts:
        if not bounds:
            yield f"no bound is known for {objective}"
            return
        rows = (
            (
                "*" if bound.value == best[bound.level] else "",
                names[bound.level],
                with_length(bound.value, level_unit(names[bound.level])),
                "any schedule" if bound.preemptive else "this plan class",
                bound.source,
            )
            for bound in sorted(bounds, key=lambda bound: (bound.level, -bound.value))
        )
        heads = ("", "objective", "bound", "holds for", "proved by")
        yield table(*heads, rows=rows, numeric=("bound",))

    out.answer(
        lambda: [
            {
                "objective": names[bound.level],
                "value": bound.value,
                "source": bound.source,
                "preemptive": bound.preemptive,
                "best": bound.value == best[bound.level],
            }
            for bound in bounds
        ],
        parts,
    )
