"""Running jobs that hold more than there is: who leaves, or why that cannot be, in one sentence."""

from dataclasses import replace

import pytest

from optsched import Cluster, Instance, Job, Mode, Node, Profile, Tenant
from optsched.errors import InputError
from optsched.model.instance import Running, Slot
from optsched.plugins import registry
from optsched.round.decide import decide
from optsched.round.model import RoundModel
from optsched.round.solver import RoundRequest
from tests.clusters import one_node


def beyond_a_quota(*jobs: Job) -> Instance:
    """Jobs that run on two GPUs each; their quota was lowered to two."""
    mode = Mode(gpu_type="a", gpus=2)
    return Instance(
        cluster=one_node(gpu_type="a", gpus=4),
        tenants=(Tenant(name="t", gpu_quota=2),),
        jobs=tuple(replace(job, gpus=2, duration_s=1000.0, tenant="t") for job in jobs),
        running=tuple(
            Running(
                job=job.id, mode=mode, placement=(Slot(node="n", gpus=2),), remaining_s=50.0 + k
            )
            for k, job in enumerate(jobs)
        ),
    )


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
    jobs = (Job(id=f"j{k}", preemptible=False) for k in range(2))
    with pytest.raises(InputError, match=r"tenant t would hold 4 GPUs of its quota of 2"):
        decide(beyond_a_quota(*jobs))


@pytest.mark.parametrize("solver", ["price", "highs", "milp"])
def test_who_would_be_done_before_it_is_saved_leaves_where_it_is_worth_least(solver: str) -> None:
    saves = Profile(checkpoint_s=100.0)
    found = decide(
        beyond_a_quota(Job(id="j0", profile=saves), Job(id="j1", weight=5.0, profile=saves)),
        solver=solver,
    )
    assert [entry.decision for entry in found.jobs] == ["preempt", "continue"]
    assert found.status == "optimal" and not found.notes


def test_who_may_be_preempted_makes_way_though_nobody_is_worth_anything() -> None:
    instance = beyond_a_quota(Job(id="j0"), Job(id="j1", preemptible=False))
    found = decide(instance, "cost")
    assert [entry.decision for entry in found.jobs] == ["preempt", "continue"]


@pytest.mark.parametrize("checkpoint_s", [0.0, 9.0])
def test_an_uplink_has_no_room_for_two_and_no_job_beyond_a_quota_hides_the_gap(
    checkpoint_s: float,
) -> None:
    """The bound knows no uplinks: it counts both gangs. What `huge` would be worth, which holds
    more than its tenant may, is no measure of what is open."""
    uses_a = Profile(rate={"a": 1.0}, network_gbps=1.0, checkpoint_s=checkpoint_s)
    gang = Job(id="j0", gpus=2, duration_s=1e3, profile=uses_a)
    two = tuple(Slot(node=name, gpus=1) for name in ("a0", "a1"))
    runs = Running(job="j0", mode=Mode(gpus=2), placement=two, remaining_s=5.0)
    nodes = [Node(name=name, gpu_type=name[0], gpus=2, rack=name) for name in ("a0", "a1", "b0")]
    instance = Instance(
        cluster=Cluster(nodes=tuple(nodes), rack_uplink_gbps={"a0": 1.0}),
        tenants=(Tenant(name="t", gpu_quota=1),),
        jobs=(
            gang,
            replace(gang, id="j1", preemptible=False),
            Job(id="huge", gpus=2, duration_s=1e3, weight=1e9, tenant="t"),
        ),
        running=(
            runs,
            replace(runs, job="j1"),
            replace(runs, job="huge", placement=(Slot(node="b0", gpus=2),)),
        ),
    )
    found = decide(instance, solver="highs", budget_s=60.0)
    assert [entry.decision for entry in found.jobs] == ["preempt", "continue", "preempt"]
    assert found.status == "feasible"


def test_a_bound_that_the_round_refutes_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    class Boastful:
        name = "boastful"
        exact = registry.round_solver("highs")

        def supports(self, model: RoundModel) -> str | None:
            return None

        def solve(self, request: RoundRequest) -> None:
            self.exact.solve(request)
            request.report_bound(0.5 * request.model.alone, "a slip")

    monkeypatch.setattr(registry, "round_solver", lambda name: Boastful())
    found = decide(
        Instance(
            cluster=one_node(gpu_type="a", gpus=1),
            jobs=tuple(Job(id=f"j{k}", duration_s=1.0 + 9.0 * k) for k in range(2)),
        ),
        budget_s=60.0,
    )
    assert "a slip" in found.notes[0] and found.bound > found.value and found.status == "feasible"
