"""Shares on saturated clusters: how near use comes to entitlement, and what that costs.

    python -m benchmarks.shares [--seeds 1,2,3] [--policy optsched]

Three tenants are entitled to 50, 30 and 20 % of 32 GPUs and ask, all the time, for more or less
than that, together for about 22 % more than there is; each has two users. Each trace is simulated
without shares and with them, at a half-life of a quarter of the time in which jobs come. `off` is
the largest distance of a tenant's part of the decayed use from its entitlement, in points of all,
over the last half-life of that time (after three); `jct` the mean completion time relative to that
without shares, over all jobs to the end of the last.
"""

import math
import random
from collections.abc import Iterable
from typing import Any

from benchmarks.command_line import parser_of, tell
from optsched.driver.shares import DecayedUse
from optsched.model.cluster import Cluster, Node, Tenant
from optsched.model.instance import Instance
from optsched.model.job import Job
from optsched.objectives import parse
from optsched.plugins import registry
from optsched.simulate.record import Record
from optsched.simulate.run import Simulation

GPUS, HOURS, HALF_LIVES, LOOKS = 32, 64.0, 4, 20
WEIGHTS = {"a": 5.0, "b": 3.0, "c": 2.0}
LOADS = {1: (0.60, 0.38, 0.24), 2: (0.62, 0.34, 0.25), 3: (0.62, 0.35, 0.25), 4: (0.45, 0.45, 0.35)}
"""What the tenants ask for, in parts of all GPUs, by seed; the last is far from what is due."""


def drawn(seed: int) -> Instance:
    """Return a trace in which jobs come evenly, with lognormal lengths."""
    draw = random.Random(seed)
    jobs: list[Job] = []
    for tenant, load in zip(WEIGHTS, LOADS[(seed - 1) % len(LOADS) + 1], strict=True):
        asked_s = load * GPUS * HOURS * 3600
        while asked_s > 0:
            gpus = draw.choices((1, 2, 4, 8), (50, 25, 20, 5))[0]
            length_s = min(4 * 3600.0, max(120.0, math.exp(draw.gauss(math.log(1800), 1.0))))
            asked_s -= gpus * length_s
            jobs.append(
                Job(
                    id=f"{tenant}-{len(jobs)}",
                    gpus=gpus,
                    duration_s=length_s,
                    submit_s=draw.uniform(0, HOURS * 3600),
                    tenant=tenant,
                    user=f"{tenant}-{draw.randrange(2)}",
                )
            )
    return Instance(
        name=f"shares {seed}",
        cluster=Cluster(nodes=tuple(Node(name=f"n{i}", gpus=8) for i in range(GPUS // 8))),
        tenants=tuple(Tenant(name=name, weight=weight) for name, weight in WEIGHTS.items()),
        jobs=tuple(sorted(jobs, key=lambda job: job.submit_s)),
    )


def simulated(instance: Instance, policy: str, half_life_s: float | None) -> Record:
    """Return what happened to the end of the last job."""
    simulation = Simulation(
        instance, registry.policy(policy, parse("wct"), {}), half_life_s=half_life_s
    )
    simulation.run()
    return simulation.record()


def mean_jct_s(instance: Instance, record: Record) -> float:
    """Return the mean of completion less submission."""
    ends = dict(sorted(zip(record.job.tolist(), record.end_s.tolist(), strict=True)))
    return math.fsum(ends[i] - job.submit_s for i, job in enumerate(instance.jobs)) / len(ends)


def off(instance: Instance, record: Record, half_life_s: float, at_s: Iterable[float]) -> float:
    """Return the largest distance of a tenant's part of the decayed use from its entitlement."""
    total, worst = sum(WEIGHTS.values()), 0.0
    for now_s in at_s:
        ledger = DecayedUse(half_life_s)
        columns = (record.job, record.gpus, record.start_s, record.end_s)
        for job, gpus, begin_s, end_s in zip(*(own.tolist() for own in columns), strict=True):
            ledger.hold((instance.jobs[job].tenant, None), gpus, begin_s, min(end_s, now_s))
        used = {str(use.tenant): use.gpu_s for use in ledger.at(now_s)}
        parts = ((used[name] / sum(used.values()), WEIGHTS[name] / total) for name in WEIGHTS)
        worst = max(worst, *(abs(part - entitled) for part, entitled in parts))
    return worst


def measure(seed: int, policy: str) -> dict[str, Any]:
    """Return one trace without shares and with them."""
    instance = drawn(seed)
    half_life_s = HOURS * 3600 / HALF_LIVES
    looks = [half_life_s * (3 + (k + 1) / LOOKS) for k in range(LOOKS)]
    without = simulated(instance, policy, None)
    shared = simulated(instance, policy, half_life_s)
    return {
        "seed": seed,
        "jobs": len(instance.jobs),
        "policy": policy,
        "off_without": off(instance, without, half_life_s, looks),
        "off": off(instance, shared, half_life_s, looks),
        "jct": mean_jct_s(instance, shared) / mean_jct_s(instance, without),
    }


def main() -> None:
    given = parser_of(__doc__, seeds=[1, 2, 3], policy="optsched").parse_args()
    for seed in given.seeds:
        tell(measure(seed, given.policy))


if __name__ == "__main__":
    main()
