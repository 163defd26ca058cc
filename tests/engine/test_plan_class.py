"""What lies outside the plan class, over which solvers prove their bounds."""

from optsched.engine.plan_class import outside_class
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
