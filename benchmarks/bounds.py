"""Processor time of the combinatorial bounds, a line of JSON for each: `python -m
benchmarks.bounds [--jobs N]`, 100,000 jobs by default.

`python -m benchmarks.bounds --prices [--jobs N] [--steps 0,30,120] [--objectives
wct,makespan,ftf]`: of the bounds by prices, and of checking their certificates; 10,000 jobs by
default. `calls` is how many functions were called, the same on every machine.

Three GPU types, 40 profiles, Philly-like gangs and log-normal durations; released at once or over a
week.
"""

import random
import time

from benchmarks.command_line import parser_of, tell
from benchmarks.reference import calls
from optsched.bounds import lower_bounds, priced_bound
from optsched.model.cluster import Cluster, Node
from optsched.model.instance import Instance
from optsched.model.job import Job
from optsched.model.profile import Locality, Profile
from optsched.objectives import parse
from optsched.verify_bound import recomputed

KINDS = (("a100", 128, 80.0, 96), ("v100", 64, 32.0, 64), ("p100", 64, 16.0, 32))
GANGS, SHARES = (1, 2, 4, 8, 16, 32), (70, 10, 8, 8, 3, 1)


def cluster() -> Cluster:
    """256 nodes: A100, V100 and P100."""
    return Cluster(
        nodes=tuple(
            Node(
                name=f"{gpu_type}-{n}",
                gpu_type=gpu_type,
                gpus=8,
                gpu_memory_gib=memory,
                cpus=cores,
                memory_gib=512.0,
                rack=f"r{n // 16}",
            )
            for gpu_type, count, memory, cores in KINDS
            for n in range(count)
        )
    )


def instance(jobs: int, horizon_s: float, weighted: bool, seed: int = 1) -> Instance:
    """Jobs with one of 40 profiles each, released over `horizon_s`."""
    draw = random.Random(seed)
    profiles = [
        Profile(
            name=f"p{k}",
            rate={"a100": 1.0, "v100": draw.uniform(0.3, 0.6), "p100": draw.uniform(0.1, 0.3)},
            cpus_per_gpu={1: 0.6, 4: 0.9, 8: 1.0},
            locality=Locality(node=1.0, rack=0.9, cluster=0.7),
            gpu_memory_gib=draw.choice((12.0, 24.0, 60.0)),
            startup_s=20.0,
        )
        for k in range(40)
    ]
    return Instance(
        cluster=cluster(),
        jobs=tuple(
            Job(
                id=f"j{k}",
                gpus=draw.choices(GANGS, SHARES)[0],
                duration_s=max(1.0, draw.lognormvariate(6.8, 2.0)),
                submit_s=draw.uniform(0.0, horizon_s),
                weight=draw.choice((1.0, 2.0, 4.0)) if weighted else 1.0,
                profile=draw.choice(profiles),
            )
            for k in range(jobs)
        ),
    )


def prices(jobs: int, steps: list[int], objectives: list[str]) -> None:
    """Print the bounds by prices after so many steps, and how long it takes to find and to check
    them."""
    made = instance(jobs, jobs * 40.0, True)
    for name in objectives:
        [known] = lower_bounds(made, parse(name))
        for count in steps:
            started = time.process_time()
            _, certificate = priced_bound(made, parse(name), count)
            found = time.process_time()
            assert recomputed(made, certificate)[1] == []
            tell(
                {
                    "jobs": jobs,
                    "objective": name,
                    "steps": count,
                    "intervals": len(certificate.grid_s) - 1,
                    "bound": certificate.value,
                    "without_prices": known.value,
                    "found_s": round(found - started, 2),
                    "checked_s": round(time.process_time() - found, 2),
                }
            )


def main() -> None:
    given = parser_of(
        __doc__, jobs=int, prices=False, steps=[0, 30, 120], objectives="wct,makespan,ftf"
    ).parse_args()
    if given.prices:
        prices(given.jobs or 10_000, given.steps, given.objectives.split(","))
        return
    jobs = given.jobs or 100_000
    for horizon_s, weighted in ((0.0, True), (7 * 86400.0, True), (7 * 86400.0, False)):
        made = instance(jobs, horizon_s, weighted)
        made.job  # noqa: B018  (derived once, for whatever uses the instance)
        for name in ("wct", "makespan", "wct,makespan", "lateness", "tail", "cost"):
            started = time.process_time()
            best = lower_bounds(made, parse(name))
            cpu_s = time.process_time() - started
            tell(
                {
                    "jobs": jobs,
                    "released_over_s": horizon_s,
                    "weights": "1 to 4" if weighted else "equal",
                    "objective": name,
                    "cpu_s": round(cpu_s, 2),
                    "calls": calls(lower_bounds, made, parse(name)),
                    "bounds": [bound.value for bound in best],
                    "sources": [bound.source for bound in best],
                }
            )


if __name__ == "__main__":
    main()
