"""How long gangs wait in a stream of small jobs, and what keeping places for them costs.

    python -m benchmarks.gang [--seeds 1,2,3,4,5] [--policy optsched] [--load 0.8]
        [--estimates oracle]

For twelve hours jobs of one GPU and 10 min on average, which cannot save, come to two nodes of
eight GPUs and keep the share `load` of them busy; every four hours a gang comes that needs a node
for an hour, twice in all. A row has the mean wait of the gangs, until their start and after
preemptions, under EASY (`backfill`), under the policy, and under the policy where it never keeps a
place for anybody, and the mean completion time of all jobs over that where no place is kept (`jct`)
and over that under EASY (`jct_easy`). All go by the same `estimates` of run times.
"""

import random
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

from benchmarks.command_line import parser_of, tell
from optsched.driver.reservation import Reservations
from optsched.estimates.parse import parse as parse_estimates
from optsched.model.cluster import Cluster, Node
from optsched.model.instance import Instance
from optsched.model.job import Job
from optsched.objectives import parse
from optsched.plugins import registry
from optsched.simulate.metrics import measure as measured_of
from optsched.simulate.run import Simulation

NODES, EACH = 2, 8
LAST_S, APART_S = 12 * 3600.0, 4 * 3600.0
SMALL_S, GANG_S = 600.0, 3600.0
EASY = "backfill"


def drawn(seed: int, load: float) -> Instance:
    """Return the stream with its gangs."""
    draw = random.Random(seed)
    jobs, at_s = list[Job](), 0.0
    while (at_s := at_s + draw.expovariate(load * NODES * EACH / SMALL_S)) < LAST_S:
        length_s = max(10.0, draw.expovariate(1 / SMALL_S))
        name = f"small-{len(jobs)}"
        jobs.append(Job(id=name, gpus=1, duration_s=length_s, submit_s=at_s, preemptible=False))
    gangs = [
        Job(id=f"gang-{k}", gpus=EACH, duration_s=GANG_S, submit_s=k * APART_S)
        for k in range(1, int(LAST_S / APART_S))
    ]
    return Instance(
        name=f"stream {seed}",
        cluster=Cluster(nodes=tuple(Node(name=f"n{i}", gpus=EACH) for i in range(NODES))),
        jobs=tuple(sorted((*jobs, *gangs), key=lambda job: job.submit_s)),
    )


def times_s(
    instance: Instance, policy: str, estimates: str, *, keeps: bool = True
) -> tuple[float, float]:
    """Return the mean wait of the gangs, and the mean completion time of all jobs."""
    chosen = registry.policy(policy, parse("wct"), {})
    simulation = Simulation(instance, chosen, estimates=parse_estimates(estimates))
    nobody: Any = patch.object(Reservations, "entitled", lambda self, world: [])
    with nullcontext() if keeps else nobody:
        simulation.run()
    measured = measured_of(simulation.record())
    gangs = [i for i, job in enumerate(instance.jobs) if job.gpus == EACH]
    return float(measured.waiting_s[gangs].mean()), float(measured.jct_s.mean())


def measure(seed: int, policy: str, load: float, estimates: str) -> dict[str, Any]:
    """Return one stream under EASY, and under the policy with and without kept places."""
    instance = drawn(seed, load)
    easy_s, easy_jct_s = times_s(instance, EASY, estimates)
    wait_s, jct_s = times_s(instance, policy, estimates)
    none_s, without_s = times_s(instance, policy, estimates, keeps=False)
    return {
        "seed": seed,
        "jobs": len(instance.jobs),
        "policy": policy,
        "estimates": estimates,
        "easy_s": round(easy_s),
        "wait_s": round(wait_s),
        "none_s": round(none_s),
        "ratio": round(wait_s / easy_s, 2),
        "jct": round(jct_s / without_s, 3),
        "jct_easy": round(jct_s / easy_jct_s, 3),
    }


def main() -> None:
    """Measure some streams."""
    given = parser_of(
        __doc__, seeds=[1, 2, 3, 4, 5], policy="optsched", load=0.8, estimates="oracle"
    ).parse_args()
    for seed in given.seeds:
        tell(measure(seed, given.policy, given.load, given.estimates))


if __name__ == "__main__":
    main()
