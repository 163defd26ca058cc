"""Running jobs that hold more than there is and may not be preempted: said in one sentence."""

import pytest

from optsched import Cluster, Instance, Job, Mode, Node, Tenant
from optsched.errors import InputError
from optsched.model.instance import Running, Slot
from optsched.round.decide import decide


@pytest.mark.parametrize("solver", ["price", "highs", "milp"])
def test_no_decision_is_sound(solver: str) -> None:
    spends = {"money": 2.0}
    instance = Instance(
        cluster=Cluster(nodes=(Node(name="n", gpu_type="a", gpus=4),), budgets={"money": 3.0}),
        jobs=tuple(
            Job(id=f"j{k}", duration_s=10.0, preemptible=False, budgets=spends) for k in range(2)
        ),
        running=tuple(
            Running(
                job=f"j{k}",
                mode=Mode(gpu_type="a", gpus=1, budgets=spends),
                placement=(Slot(node="n", gpus=1),),
                remaining_s=5.0,
            )
            for k in range(2)
        ),
    )
    cause = "the plan uses 4 of budget money, there is 3"
    with pytest.raises(InputError, match=f"cannot all go on.*may not be preempted: {cause}"):
        decide(instance, solver=solver)


def test_the_quota_is_named_and_not_who_might_have_been_preempted() -> None:
    """Rounds that preempt somebody are tried first, and say only that this may not be."""
    one = Mode(gpu_type="a", gpus=2)
    runs = tuple(
        Running(job=f"j{k}", mode=one, placement=(Slot(node="n", gpus=2),), remaining_s=5.0)
        for k in range(2)
    )
    jobs = tuple(
        Job(id=run.job, gpus=2, duration_s=10.0, tenant="t", preemptible=False) for run in runs
    )
    instance = Instance(
        cluster=Cluster(nodes=(Node(name="n", gpu_type="a", gpus=4),)),
        tenants=(Tenant(name="t", gpu_quota=2),),
        jobs=jobs,
        running=runs,
    )
    with pytest.raises(InputError, match=r"tenant t would hold 4 GPUs of its quota of 2"):
        decide(instance)
