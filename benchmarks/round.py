"""One scheduling round at scale: gap, time, memory.

    python -m benchmarks.round --jobs 2000 --gpus 4096 --mix mixed --seed 1 --budget 1s
    python -m benchmarks.round --table
    python -m benchmarks.round --counted

Jobs, nodes and running jobs are those of `optsched.traces.generate.synth.generate` (three node
classes, half of the jobs running), the round is 300 s, nothing is started between rounds. `wall_s`
is the median over `--repeat` runs, each on an instance made anew, and holds everything from the
instance to the verified plan: options, prices, packing, checks. Imports come before. `cpu_s` is
the median of processor time, which says more on a machine that has other work. `peak_mib` is the
largest resident memory of the process. `--counted` has no budget that binds, so that gaps do not
depend on the machine: `reached` says that it is the one asked for; `calls` is how many functions
a round calls, `allocated_mib` the most memory that Python and numpy hold at once for it.
"""

import importlib
import resource
import statistics
import time
import tracemalloc
from dataclasses import replace
from typing import Any

from benchmarks.command_line import parser_of, tell
from benchmarks.reference import calls
from optsched.cli.parts.duration import duration
from optsched.model.instance import Instance, Running, Suspended
from optsched.round.decide import decide
from optsched.round.plan import RoundSolution
from optsched.round.verify import verify_round
from optsched.traces.generate.synth import generate

ROUND_S = 300.0
TABLE = (
    (200, 256, 1.0, 0.0),
    (2_000, 4_096, 1.0, 1e-3),
    (2_000, 4_096, 10.0, 1e-6),
    (10_000, 16_384, 2.0, 1e-3),
    (10_000, 16_384, 10.0, 0.0),
    (100_000, 131_072, 15.0, 1e-2),
)
"""Jobs, GPUs, budget in seconds, and the gap at which to stop."""
COUNTED = ((200, 256, 600.0, 0.0), (2_000, 4_096, 600.0, 1e-4), (10_000, 16_384, 600.0, 1e-4))
"""The same with budgets that are never reached."""


def load_solvers() -> None:
    """Import what the first round would import."""
    importlib.import_module("ortools.sat.python.cp_model")
    decide(generate(jobs=20, gpus=64, seed=0, running=0.5), budget_s=10.0)


def solve(
    instance: Instance, budget_s: float, gap: float, last: RoundSolution | None, solver: str
) -> RoundSolution:
    """One round."""
    return decide(
        instance,
        "wct",
        round_s=ROUND_S,
        refill=False,
        budget_s=budget_s,
        gap=max(gap, 1e-9),
        last=last,
        solver=solver,
    )


def carried_out(instance: Instance, found: RoundSolution, share: float) -> Instance:
    """The cluster once the round has been carried out, `share` of the jobs that run have ended and
    as many new ones have come: copies of jobs that wait."""
    running = []
    for entry in found.jobs:
        before = instance.running_job.get(entry.id)
        if entry.decision == "continue" and before is not None:
            running.append(replace(before, mode=entry.mode or before.mode))
        elif entry.mode is not None:
            running.append(
                Running(
                    job=entry.id,
                    mode=entry.mode,
                    placement=entry.placement,
                    started_s=instance.now_s,
                    remaining_s=instance.remaining_s(instance.job[entry.id]),
                    preemptions=int(before is not None),
                )
            )
    gone = {entry.job for entry in running[:: round(1 / share)]}
    stay = {entry.job for entry in running} - gone
    waiting = [job for job in instance.jobs if job.id not in stay and job.id not in gone]
    come = sum(job.id.startswith("new-") for job in instance.jobs)
    new = [
        replace(job, id=f"new-{come + k}-{job.id}") for k, job in enumerate(waiting[: len(gone)])
    ]
    suspended = [
        Suspended(job=entry.id, remaining_s=instance.remaining_s(instance.job[entry.id]))
        for entry in found.jobs
        if entry.decision == "preempt"
    ]
    return replace(
        instance,
        jobs=(*(job for job in instance.jobs if job.id not in gone), *new),
        suspended=tuple(suspended),
        running=tuple(_alone(entry, stay) for entry in running if entry.job in stay),
    )


def _alone(entry: Running, stay: set[str]) -> Running:
    """A running job, without its sharing partner if that is gone."""
    partner = entry.mode.share_with
    if partner is None or partner in stay:
        return entry
    return replace(entry, mode=entry.mode.unshared)


def measure(
    jobs: int,
    gpus: int,
    mix: str,
    seed: int,
    budget_s: float,
    gap: float,
    repeat: int,
    solver: str = "price",
) -> dict[str, Any]:
    """Medians over `repeat` runs; `warm_over_cold` is the time of the next round, the first carried
    out and 1 % of the jobs changed, over that of the first."""
    walls, cpus, warm, found = [], [], [], None
    verified = True
    for _ in range(repeat):
        instance = generate(jobs=jobs, gpus=gpus, seed=seed, like=mix, running=0.5)  # type: ignore[arg-type]
        started_s = time.process_time()
        found = solve(instance, budget_s, gap, None, solver)
        cpus.append(time.process_time() - started_s)
        verified &= not verify_round(instance, found.jobs)
        walls.append(found.wall_s or 0.0)
        again = solve(carried_out(instance, found, 0.01), budget_s, gap, found, solver)
        warm.append((again.wall_s or 0.0) / walls[-1])
    assert found is not None
    return {
        "jobs": jobs,
        "gpus": gpus,
        "mix": mix,
        "seed": seed,
        "solver": solver,
        "asked": gap,
        "budget_s": budget_s,
        "gap": found.gap,
        "wall_s": round(statistics.median(walls), 4),
        "cpu_s": round(statistics.median(cpus), 4),
        "value": found.value,
        "bound": found.bound,
        "bound_source": found.bound_source,
        "status": found.status,
        "verified": verified,
        "warm_over_cold": round(statistics.median(warm), 3),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def allocated_mib(jobs: int, gpus: int, mix: str, budget_s: float, gap: float) -> float:
    """The most memory that one round holds at once, its instance apart."""
    instance = generate(jobs=jobs, gpus=gpus, seed=1, like=mix, running=0.5)  # type: ignore[arg-type]
    tracemalloc.start()
    solve(instance, budget_s, gap, None, "price")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def main() -> None:
    arguments = parser_of(
        __doc__,
        jobs=2000,
        gpus=4096,
        mix=("mixed", "llm"),
        seed=1,
        budget="1s",
        gap=0.0,
        repeat=5,
        solver="price",
        table=False,
        counted=False,
    ).parse_args()
    load_solvers()
    cases = (
        [
            (jobs, gpus, mix, budget_s, gap)
            for jobs, gpus, budget_s, gap in (TABLE if arguments.table else COUNTED)
            for mix in ("mixed", "llm")
        ]
        if arguments.table or arguments.counted
        else [
            (
                arguments.jobs,
                arguments.gpus,
                arguments.mix,
                duration(arguments.budget),
                arguments.gap,
            )
        ]
    )
    for jobs, gpus, mix, budget_s, gap in cases:
        line = measure(
            jobs, gpus, mix, arguments.seed, budget_s, gap, arguments.repeat, arguments.solver
        )
        if arguments.counted:
            line["reached"] = line["gap"] <= max(gap, 1e-9)
            made = generate(jobs=jobs, gpus=gpus, seed=1, like=mix, running=0.5)  # type: ignore[arg-type]
            line["calls"] = calls(solve, made, budget_s, gap, None, "price")
            line["allocated_mib"] = round(allocated_mib(jobs, gpus, mix, budget_s, gap), 1)
        tell(line)


if __name__ == "__main__":
    main()
