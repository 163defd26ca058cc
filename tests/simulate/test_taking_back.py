"""Borrowed GPUs over time: a lender gets its quota at once, and who borrowed goes on later."""

from dataclasses import replace

import pytest

from optsched import Cluster, Instance, Job, Profile, Tenant
from optsched.driver.world import World
from optsched.model.plan import Plan
from optsched.objectives import parse
from optsched.plugins.registry import policy
from optsched.round.verify_tiers import priority_inversions
from optsched.simulate.run import simulate
from optsched_solvers.policies.optsched import Optsched
from tests.clusters import equal_nodes
from tests.policies.test_optsched import WCT, crowded
from tests.verified import checked

SAVES_S = 20.0


def lent(saves_s: float = SAVES_S, **owner: float) -> Instance:
    """A tenant that borrows all there is, until the other, who has half of it, comes back."""
    profile = Profile(checkpoint_s=saves_s, restore_s=saves_s)
    borrowed = tuple(
        Job(id=f"a{k}", gpus=2, duration_s=4000.0, weight=50.0, tenant="a", profile=profile)
        for k in range(4)
    )
    owned = tuple(
        Job(
            id=f"b{k}",
            gpus=2,
            **{"duration_s": 9000.0, "submit_s": 1000.0, **owner},
            tenant="b",
            profile=profile,
        )
        for k in range(3)
    )
    return Instance(
        cluster=Cluster(nodes=equal_nodes(2, gpus=4)),
        tenants=(Tenant(name="a", gpu_quota=4, borrow_gpus=4), Tenant(name="b", gpu_quota=4)),
        jobs=(*borrowed, *owned),
    )


def spans(plan: Plan) -> dict[str, list[tuple[float, float]]]:
    return {entry.id: [(s.start_s, s.end_s) for s in entry.segments] for entry in plan.jobs}


def simulated(instance: Instance) -> Plan:
    plan = simulate(instance, policy("optsched", WCT))
    checked(instance, plan, WCT)
    return plan


@pytest.mark.parametrize("saves_s", [0.0, SAVES_S])
def test_a_lender_has_its_quota_within_one_saving_and_the_others_go_on_later(
    saves_s: float,
) -> None:
    instance = lent(saves_s)
    of = spans(simulated(instance))
    assert all(of[f"a{k}"][0][0] == 0.0 for k in range(4))  # all is borrowed
    begun = sorted(of[f"b{k}"][0][0] for k in range(3))
    assert all(start <= 1000.0 + saves_s + 1e-3 for start in begun[:2])
    assert begun[2] >= 4000.0  # beyond its quota, b may not borrow
    stayed = [name for name in ("a0", "a1", "a2", "a3") if len(of[name]) == 1]
    assert stayed == ["a0", "a1"]  # the last to come gave back
    assert all(of[name][1][0] >= 4000.0 for name in ("a2", "a3"))
    free = replace(instance, tenants=(replace(instance.tenants[0], borrow_gpus=0),))
    free = replace(free, jobs=tuple(replace(job, tenant=None) for job in free.jobs))
    waited = spans(simulated(free))
    assert min(waited[f"b{k}"][0][0] for k in range(3)) >= 4000.0  # what it is worth decides


def test_nobody_is_preempted_for_who_has_no_right_to_more() -> None:
    instance = lent(weight=1e4)
    first, second, third = (job for job in instance.jobs if job.tenant == "b")
    later = replace(third, submit_s=1100.0)
    of = spans(simulated(replace(instance, jobs=(*instance.jobs[:4], first, second, later))))
    assert [len(of[f"a{k}"]) for k in range(4)] == [1, 1, 2, 2]


def test_no_decision_leaves_to_borrowers_what_lenders_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = crowded(1, jobs=30)
    gpus = made.cluster.total_gpus
    instance = replace(
        made,
        tenants=tuple(Tenant(name=n, gpu_quota=gpus // 4, borrow_gpus=gpus) for n in "abcd"),
        jobs=tuple(
            replace(job, tenant="abcd"[k * k % 7 % 4], priority=k % 5 // 4)
            for k, job in enumerate(made.jobs)
        ),
    )
    decide, rounds, loans = Optsched.decide, [0], [0]

    def watched(self: Optsched, world: World) -> None:
        decide(self, world)
        if self._tiered and self.reservations.current is None and self.decided is not None:
            seen, solution = self.decided
            rounds[0] += 1
            loans[0] += any(tier.borrows for tier in solution.tiers)
            assert not priority_inversions(
                seen.instance, solution.jobs, seen.blocked, keep=self._places.unripe or ()
            )

    monkeypatch.setattr(Optsched, "decide", watched)
    plan = simulate(instance, policy("optsched", parse("wct")))
    checked(instance, plan, WCT)
    assert rounds[0] > 20 and loans[0] > 10
