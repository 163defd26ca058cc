"""Workloads on racks with shared uplinks that several gangs together exceed, and a scheduler that
only consolidates."""

import random

from optsched import Cluster, Instance, Job, Locality, Node, Plan, Profile
from optsched.driver.world import World
from optsched.plugins.policy import Policy
from optsched.simulate.run import Simulation
from optsched_solvers.policies.parts.list_scheduling import ListScheduling
from optsched_solvers.policies.parts.locality_gate import LocalityGate, Patience
from tests.verified import checked

KINDS = (("vgg", 0.6, 20.0), ("bert", 0.4, 15.0), ("resnet", 0.1, 5.0), ("lstm", 0.05, 2.0))
"""Name, share of a step on the network, Gbit/s on the uplink."""


def congested(seed: int, jobs: int = 150, load: float = 1.2, uplink_gbps: float = 20.0) -> Instance:
    """Four racks of four nodes with eight GPUs; gangs of 1 to 16, exponential gaps, log-normal
    durations."""
    rng = random.Random(seed)
    nodes = tuple(Node(name=f"n{i}", gpus=8, gpu_type="v100", rack=f"r{i // 4}") for i in range(16))
    found, now_s = [], 0.0
    for i in range(jobs):
        name, duty, gbps = rng.choice(KINDS)
        gpus = rng.choice([1, 1, 2, 4, 4, 8, 8, 16])
        profile = Profile(
            name=name,
            locality=Locality(node=1.0, rack=1 - 0.3 * duty, cluster=1 - 0.6 * duty),
            network_duty=duty,
            network_gbps=gbps if gpus > 1 else 0.0,
            checkpoint_s=10.0,
            restore_s=20.0,
            startup_s=10.0,
        )
        found.append(
            Job(
                id=f"j{i}",
                gpus=gpus,
                duration_s=round(rng.lognormvariate(8, 1), 1),
                submit_s=round(now_s, 1),
                profile=profile,
            )
        )
        now_s += rng.expovariate(load * 128 / (5.5 * 4900))
    uplinks = {f"r{i}": uplink_gbps for i in range(4)}
    return Instance(
        cluster=Cluster(nodes=nodes, rack_uplink_gbps=uplinks, uplinks="shared"), jobs=tuple(found)
    )


def run(instance: Instance, rule: Policy) -> Plan:
    """The verified plan of a policy."""
    simulation = Simulation(instance, rule)
    simulation.run()
    plan = simulation.record().plan()
    checked(instance, plan)
    return plan


def makespan_s(plan: Plan) -> float:
    return max(entry.completion_s for entry in plan.jobs)


def mean_jct_s(instance: Instance, plan: Plan) -> float:
    return sum(entry.completion_s - instance.job[entry.id].submit_s for entry in plan.jobs) / len(
        plan.jobs
    )


class ConsolidationOnly(ListScheduling):
    """First come first served, skipping; a gang that fits one node, or one rack, waits for that for
    ever."""

    name = "consolidation-only"
    title = "gangs only ever start as narrow as they could be"

    def __init__(self) -> None:
        super().__init__()
        self._gate = LocalityGate()

    def rank(self, world: World, job_id: str) -> float:
        return 0.0

    def decide(self, world: World) -> None:
        self.enqueue(world)
        while entry := self._queue.best():
            found = self._gate.find(
                world, entry[1], Patience(rack_s=float("inf"), cluster_s=float("inf")), 0.0
            )
            if found is None:
                self._queue.block()
                continue
            self._queue.pop()
            world.start(entry[1], *found)
