"""Windows to come that leave less of a resource or quota: who starts fits them together, beside
those that go on."""

from typing import Any

import pytest

from optsched import Cluster, Instance, Job, Mode, Node, Running, Slot
from optsched.model.cluster import Tenant, Window
from optsched.round.decide import decide
from optsched.round.plan import JobRound
from optsched.round.verify import verify_round

LICENCE = Mode(gpus=1, resources={"licence": 1.0})
ON = (Slot(node="n", gpus=1),)


def job(name: str, priority: int = 0, **fields: Any) -> Job:
    usual = {"duration_s": 600.0, "resources": {"licence": 1.0}, "preemptible": False}
    return Job(id=name, gpus=1, priority=priority, tenant="team", **{**usual, **fields})


def soon(*jobs: Job, runs: tuple[str, ...] = (), **lowers: Any) -> Instance:
    """A window in 20 s on one node with room and licences for all; some jobs run already."""
    window = Window(from_s=20.0, to_s=60.0, **(lowers or {"resources": {"licence": 1.0}}))
    return Instance(
        cluster=Cluster(
            nodes=(Node(name="n", gpus=4),), resources={"licence": 4.0}, windows=(window,)
        ),
        tenants=(Tenant(name="team", gpu_quota=4),),
        jobs=jobs,
        running=tuple(
            Running(job=name, mode=LICENCE, placement=ON, remaining_s=500.0) for name in runs
        ),
    )


def decisions(instance: Instance, solver: str = "price") -> dict[str, str]:
    found = decide(instance, solver=solver)
    assert not found.notes and found.status == "optimal"
    return {entry.id: entry.decision for entry in found.jobs}


@pytest.mark.parametrize("solver", ["price", "highs"])
@pytest.mark.parametrize("lowers", [{"resources": {"licence": 1.0}}, {"quotas": {"team": 1}}])
def test_jobs_that_cannot_save_start_only_as_far_as_a_window_leaves_enough(
    lowers: dict[str, Any], solver: str
) -> None:
    done = job("done by then", duration_s=15.0)
    found = decisions(soon(job("a"), job("b"), done, **lowers), solver)
    assert found == {"a": "start", "b": "wait", "done by then": "start"}


def test_the_verifier_counts_who_starts_together_and_who_goes_on() -> None:
    a, b, saves = job("a"), job("b"), job("saves", preemptible=True)

    def faults(instance: Instance, **said: str) -> list[str]:
        mode = {"a": LICENCE, "b": LICENCE, "saves": LICENCE}
        jobs = [JobRound(id=i, decision=d, mode=mode[i], placement=ON) for i, d in said.items()]
        return [str(fault) for fault in verify_round(instance, jobs)]

    (fault,) = faults(soon(a, b), a="start", b="start")
    assert "2 licence of 1 when maintenance begins at 20 s" in fault
    assert faults(soon(a, b, runs=("a",)), a="continue", b="start")
    assert not faults(soon(a, saves), a="start", saves="start")
    assert not faults(soon(a, b, runs=("a", "b")), a="continue", b="continue")


def test_a_tier_counts_what_those_above_it_hold_in_a_window_to_come() -> None:
    assert decisions(soon(job("high", 5), job("low"), runs=("high",)))["low"] == "wait"


def test_no_job_starts_beside_lower_ones_that_hold_what_a_window_leaves() -> None:
    """It is no inversion: it may once these have saved."""
    low = job("low", preemptible=True)
    assert decisions(soon(job("high", 5), low, runs=("low",)))["high"] == "wait"
    assert decisions(soon(job("high", 5), low))["high"] == "start"
