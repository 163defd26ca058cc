"""`optsched simulate`: what a policy would do, checked and measured."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..errors import InputError
from .parts.arguments import (
    check_outputs,
    flag_option,
    gantt_option,
    instance_argument,
    load,
    objective_option,
    option,
    pairs_option,
    path_option,
    time_option,
)
from .parts.out import Out, answers
from .parts.progress import completed_jobs, prices_found


@click.command("simulate")
@instance_argument
@option("--policy NAME", "A name from `optsched list policies`.", required=True)
@objective_option
@time_option(
    "--round TIME",
    "Decide only every TIME, such as 60, 60s or 5m; by default at every event.",
    "round_s",
)
@time_option(
    "--spacing TIME",
    "Decide at events, but at least TIME after the previous decision.",
    "spacing_s",
)
@flag_option(
    "--charge-solver-time",
    "Let the cluster carry on while the policy thinks: each decision is delayed by the time "
    "the previous one took.",
)
@flag_option(
    "--timing",
    "With --json or -o, also report how long decisions took on this machine, the only figures "
    "that differ between runs.",
)
@flag_option(
    "--curves",
    "With --json or -o, also report the distribution of JCTs and the GPUs held over time, at "
    "most 200 points each.",
)
@flag_option(
    "--utility",
    "With --json or -o, also report the mean utility of what is done: the logarithm of the share "
    "of each job's work, until the last submission.",
)
@option(
    "--estimates KIND",
    "What the policy knows of run times: oracle, noisy:SIGMA, history, learned or none.",
    default="oracle",
)
@time_option(
    "--half-life TIME",
    "Weigh jobs by the decayed use of their tenants and users; after TIME use counts half.",
    "half_life_s",
)
@flag_option(
    "--rigid",
    "Run elastic jobs on the GPUs that they asked for, where their rate is 1, and jobs with listed "
    "modes in the first.",
)
@flag_option(
    "--prices",
    "Hold the result against the bound that a search for prices of GPU time proves, as `optsched "
    "bound --prices` does (wct, makespan and ftf): slower, and usually much closer.",
)
@pairs_option("policy")
@flag_option(
    "--price-of-priorities",
    "Also simulate the same jobs as if all had one priority, and report what it costs that "
    "higher ones go first.",
    "priced",
)
@path_option(
    "-o, --output DIR",
    "Write summary.json, jobs.csv, plan.json, rounds.csv and report.html to this directory.",
)
@flag_option("--resume", "Resume the interrupted simulation in the directory given by -o.")
@gantt_option
@answers
def command(
    instance: str,
    policy: str,
    objective: str,
    spacing_s: float | None,
    timing: bool,
    curves: bool,
    utility: bool,
    priced: bool,
    output: Path | None,
    resume: bool,
    gantt: Path | None,
    out: Out,
    **settings: Any,
) -> int:
    """Simulate what a policy does with the jobs of INSTANCE (a file, or - for stdin) until all are
    done.

    The resulting plan is checked independently before it is shown, next to bounds that hold for any
    schedule, however often it preempts. JCT is the time from submission to completion; its
    q-quantile over n jobs is the ceil(q n)-th smallest. docs/concepts.md defines the other numbers.
    Exit status: 0 with a plan, 1 without one, 2 for bad input.

    With -o, a long simulation saves its state once a minute and on Ctrl-C; --resume continues from
    there.

    \b
    optsched simulate cluster.json --policy srtf
    optsched simulate cluster.json --policy las --round 5m -o las
    optsched simulate cluster.json --policy srtf --estimates history
    optsched simulate cluster.json --policy fifo --json | jq .jct_s.p99
    """
    from ..api.outcome import Setting, Simulated
    from ..api.priorities import in_words, price_of_priorities
    from ..bounds.by_prices import STEPS
    from ..driver import PolicyError
    from ..picture import can_draw
    from ..picture.text_simulation import simulation_parts
    from ..simulate import output as directory
    from ..simulate.run import StalledError
    from ..simulate.saved import STATE, RunInterruptedError, run_saving, take_up

    if settings["round_s"] and spacing_s:
        raise InputError(
            "--round and --spacing are two ways to say when to decide; give one of them"
        )
    if resume and output is None:
        raise InputError("--resume goes on with the simulation in a directory; name it with -o DIR")
    setting = Setting.of(policy, objective, spacing_s=spacing_s or 0.0, **settings)
    if output is not None:
        directory.check_directory(output)
    check_outputs({"--gantt": gantt}, instance)
    draw = None if gantt is None else can_draw(gantt)
    loaded = load(instance)
    asked = setting.asked(loaded)
    state = None if output is None else output / STATE
    if resume and state is not None:
        simulation = take_up(state, asked)
    else:
        simulation = setting.simulation(loaded)
    try:
        with completed_jobs(len(loaded.jobs), wanted=not out.quiet) as on_progress:
            if state is None:
                simulation.run(on_progress)
            else:
                run_saving(simulation, state, asked, on_progress)
        follow = prices_found(setting.objective, STEPS, None, wanted=not out.quiet)
        simulated = Simulated(
            setting, simulation, timing=timing, curves=curves, utility=utility, follow=follow
        )
        price = price_of_priorities(setting, simulated) if priced else None
    except (StalledError, PolicyError) as error:
        click.echo(f"optsched: no plan: {error}", err=True)
        return 1
    except RunInterruptedError:
        done = f"{simulation.done:,} of {len(loaded.jobs):,} jobs completed"
        click.echo(
            f"optsched: interrupted, {done}; the same command with --resume goes on from there",
            err=True,
        )
        return 130
    if price is not None:
        simulated.metrics["price_of_priorities"] = price
    if output is not None:
        files = (simulated.measured, simulated.metrics, simulated.solution, simulated.rounds)
        out.attempt(partial(directory.write, output, *files))
    if draw is not None:
        out.write("picture", gantt, partial(draw, loaded, simulated.solution))
    out.answer(
        lambda: json.dumps(simulated.metrics, allow_nan=False),
        lambda: [*simulation_parts(simulated), *([] if price is None else in_words(price))],
    )
    out.finish()
    return 0
