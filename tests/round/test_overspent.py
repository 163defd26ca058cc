"""Running jobs that hold more than there is and may not be preempted: said in one sentence."""

import pytest

from optsched import Cluster, Instance, Job, Mode, Node
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
    with pytest.raises(InputError, match=r"cannot all go on.*may not be preempted"):
        decide(instance, solver=solver)
