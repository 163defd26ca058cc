"""Plans of policies with options, verified, by job."""

from typing import Any

from optsched import Cluster, Instance, Job, JobPlan, Node
from optsched.files import check_instance
from optsched.objectives import parse
from optsched.plugins.registry import policy
from optsched.simulate.run import simulate
from tests.verified import checked

WCT = parse("wct")


def plan_of(
    name: str,
    *jobs: Job,
    nodes: tuple[Node, ...],
    options: dict[str, str] | None = None,
    round_s: float | None = None,
    **held: Any,
) -> dict[str, JobPlan]:
    """The verified plan of a policy, by job."""
    instance = Instance(cluster=Cluster(nodes=nodes), jobs=jobs, **held)
    check_instance(instance)
    plan = simulate(instance, policy(name, options=options), round_s=round_s)
    checked(instance, plan)
    return {entry.id: entry for entry in plan.jobs}


def times(entry: JobPlan) -> list[tuple[float, float]]:
    """Start and end of each segment, without the hair's breadth by which a plan tells a new
    start."""
    return [(round(segment.start_s, 3), round(segment.end_s, 3)) for segment in entry.segments]


def where(entry: JobPlan) -> list[dict[str, int]]:
    """GPUs by node, for each segment."""
    return [{slot.node: slot.gpus for slot in segment.placement} for segment in entry.segments]
