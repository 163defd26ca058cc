"""What a whole decision of `optsched` costs of processor time with many active jobs: all that the
policy does between two events, its look ahead included. One line of JSON for each cluster.

    python -m benchmarks.decisions [--jobs 10000] [--gpus 16384] [--decisions 10] [--gpu-types 1,3]

Jobs and nodes are those of `optsched.traces.generate.synth`. A replay begins with 1.3 times as many
jobs as asked for, half of them running, so that at least that many are still `active` (they wait
or run) at the last decision; ten seconds or more lie between two decisions. Restoring takes
`--restore` times as long as `synth` says: where that is long, the policy looks ahead, and `ahead`
counts the decisions at which it did. `--budget` is the wall clock that its rounds may take.
"""

import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.command_line import parser_of, tell
from benchmarks.round import load_solvers
from optsched.cli.parts.duration import duration
from optsched.driver.world import World
from optsched.model.instance import Instance
from optsched.model.profile import Profile
from optsched.simulate.run import Simulation
from optsched.traces.generate.synth import generate
from optsched_solvers.policies.optsched import Optsched

SPACING_S = 10.0
MORE = 1.3
"""Jobs at first, by those that are to be active at the last decision."""


class Timed(Optsched):
    """The policy, with the processor time of each of its decisions and the jobs it was about."""

    cpu_s: list[float]
    active: list[int]

    def decide(self, world: World) -> None:
        """Decide, and note what it took."""
        self.active.append(len(world.waiting) + len(world.running))
        start_s = time.process_time()
        super().decide(world)
        self.cpu_s.append(time.process_time() - start_s)


def posed(jobs: int, gpus: int, gpu_types: int, restore: float) -> Instance:
    """Return jobs of which half run, and whose state takes so many times as long to restore."""
    instance = generate(jobs=jobs, gpus=gpus, seed=1, gpu_types=gpu_types, running=0.5)
    slower: dict[int, Profile] = {}
    for job in instance.jobs:
        if id(job.profile) not in slower:
            own = job.profile
            slower[id(own)] = replace(own, restore_s=restore * own.restore_s)
    changed = tuple(replace(job, profile=slower[id(job.profile)]) for job in instance.jobs)
    return replace(instance, jobs=changed)


def measure(
    jobs: int, gpus: int, gpu_types: int, restore: float, decisions: int, budget_s: float
) -> dict[str, Any]:
    """Replay until so many decisions have been taken."""
    instance = posed(round(MORE * jobs), gpus, gpu_types, restore)
    policy = Timed(Optsched.Options(budget_s=budget_s))
    policy.cpu_s, policy.active = [], []
    simulation = Simulation(instance, policy, spacing_s=SPACING_S)
    simulation.run(until=lambda: len(policy.cpu_s) >= decisions)
    cpu_s = np.array(policy.cpu_s)
    return {
        "benchmark": "decisions",
        "gpu_types": gpu_types,
        "restore": restore,
        "gpus": instance.cluster.total_gpus,
        "active": min(policy.active),
        "most_active": max(policy.active),
        "decisions": len(cpu_s),
        "ahead": sum(entry.lead is not None for entry in policy.rounds),
        "budget_s": budget_s,
        "median_s": round(float(np.median(cpu_s)), 3),
        "p99_s": round(float(np.percentile(cpu_s, 99)), 3),
        "worst_s": round(float(cpu_s.max()), 3),
        "worst_gap": max((e.gap for e in policy.rounds if e.gap is not None), default=None),
    }


def main() -> None:
    """Print a line for each cluster, without a look ahead and with it."""
    given = parser_of(
        __doc__,
        jobs=10_000,
        gpus=16_384,
        decisions=10,
        gpu_types=[1, 3],
        restore=[1, 20],
        budget="1s",
    ).parse_args()
    load_solvers()
    for gpu_types in given.gpu_types:
        for restore in given.restore:
            tell(
                measure(
                    given.jobs,
                    given.gpus,
                    gpu_types,
                    restore,
                    given.decisions,
                    duration(given.budget),
                )
            )


if __name__ == "__main__":
    main()
