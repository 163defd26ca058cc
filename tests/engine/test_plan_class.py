"""What lies outside the plan class, over which solvers prove their bounds."""

from dataclasses import replace

from optsched import Cluster, Node, Running
from optsched.engine import solve
from optsched.engine.plan_class import outside_class
from optsched.model.cluster import Window
from optsched.model.instance import Instance, Slot
from optsched.model.job import Job, Mode
from optsched.model.plan import JobPlan, Plan, Segment
from optsched.model.profile import Profile, Sharing
from optsched.objectives import parse
from optsched.verify import verify
from tests.clusters import one_node


def test_a_pair_that_starts_to_share_is_outside() -> None:
    """It can be better than any plan with GPUs of their own, so it must not be held against a
    solver's bound."""
    shares = Profile(name="p", sharing=Sharing(partners={"p": 0.9}))
    instance = Instance(
        cluster=one_node(gpus=1),
        jobs=tuple(Job(id=name, duration_s=9, profile=shares) for name in "ab"),
    )
    plan = Plan(
        jobs=tuple(
            JobPlan(
                id=name,
                decision="start",
                segments=(
                    Segment(
                        start_s=0,
                        end_s=10,
                        mode=Mode(gpus=1, share_with=partner),
                        placement=(Slot(node="n", gpus=1),),
                    ),
                ),
            )
            for name, partner in ("ab", "ba")
        )
    )
    assert verify(instance, plan, parse("makespan")).values == (10.0,)  # apart they need 18 s
    assert "share" in (outside_class(instance, plan) or "")


def test_there_is_a_plan_where_no_solver_knows_the_instance_and_a_window_comes() -> None:
    """The policies let `long` run until the window; in the class it is preempted now, or never."""
    cluster = Cluster(
        nodes=tuple(Node(name=name, gpus=2, rack=name) for name in "ab"),
        rack_uplink_gbps={"a": 10.0, "b": 10.0},
        windows=(Window(nodes=("a", "b"), from_s=50.0, to_s=80.0),),
    )
    sends = Profile(network_gbps=5.0, checkpoint_s=2.0, restore_s=1.0)
    long, gang = (Job(id=name, gpus=2, duration_s=100.0, profile=sends) for name in ("long", "new"))
    placed = (Slot(node="a", gpus=2),)
    held = Running(job="long", mode=Mode(gpus=2), placement=placed, remaining_s=90.0)
    instance = Instance(cluster=cluster, jobs=(long, replace(gang, gpus=4)), running=(held,))
    solution = solve(instance, isolate=False)
    assert solution.plan is not None and "uplinks" in (solution.fallback or "")
    assert [entry.decision for entry in solution.plan.jobs] == ["preempt", "wait"]
    assert min(entry.segments[-1].start_s for entry in solution.plan.jobs) == 80.0
    kept = replace(instance, jobs=(replace(long, preemptible=False), instance.jobs[1]))
    stays = solve(kept, isolate=False).plan
    assert stays is not None and stays.jobs[0].decision == "continue"
