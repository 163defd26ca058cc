"""Strict priorities in the policy `optsched`: jobs of the highest run as if there were no others,
and no step inverts them."""

from dataclasses import replace

import numpy as np
import pytest

from optsched import Instance
from optsched.driver.trial import Trial
from optsched.driver.world import World
from optsched.model.plan import Plan
from optsched.plugins.registry import policy
from optsched.round.verify_tiers import priority_inversions
from optsched.simulate.run import simulate
from optsched_solvers.policies.optsched import Optsched
from tests.verified import checked

from .test_optsched import WCT, crowded


def tiered(seed: int, *, costs: bool) -> Instance:
    """A crowded cluster, half of whose jobs are of a higher priority."""
    made, rng = crowded(seed, jobs=40), np.random.default_rng(seed)
    jobs = tuple(replace(job, priority=int(rng.choice([0, 5]))) for job in made.jobs)
    if not costs:
        free = {"checkpoint_s": 0.0, "restore_s": 0.0, "startup_s": 0.0}
        jobs = tuple(replace(job, profile=replace(job.profile, **free)) for job in jobs)
    return replace(made, jobs=jobs)


def mean_jct_s(instance: Instance, plan: Plan) -> float:
    """The mean over the jobs of the high priority."""
    ends = {entry.id: entry.segments[-1].end_s for entry in plan.jobs}
    return float(np.mean([ends[job.id] - job.submit_s for job in instance.jobs if job.priority]))


def simulated(instance: Instance) -> Plan:
    plan = simulate(instance, policy("optsched", WCT))
    checked(instance, plan, WCT)
    return plan


@pytest.mark.parametrize("costs", [False, True])
def test_the_highest_run_as_if_there_were_no_others(costs: bool) -> None:
    instance = tiered(1, costs=costs)
    alone = replace(instance, jobs=tuple(job for job in instance.jobs if job.priority))
    strict = mean_jct_s(instance, simulated(instance))
    assert strict == pytest.approx(mean_jct_s(alone, simulated(alone)), rel=0.02)
    equal = replace(instance, jobs=tuple(replace(job, priority=0) for job in instance.jobs))
    assert strict < 0.9 * mean_jct_s(instance, simulated(equal))


@pytest.mark.parametrize("seed", [1, 2])
def test_no_step_inverts_priorities(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a round, by the independent checker, nor a step that looks further ahead."""
    decide, checked = Optsched.decide, {"rounds": 0, "steps": 0}

    def watched(self: Optsched, world: World) -> None:
        decide(self, world)
        if not self._tiered or self.reservations.current is not None:
            return
        if self.decided is not None:
            seen, solution = self.decided
            checked["rounds"] += 1
            assert not priority_inversions(
                seen.instance, solution.jobs, seen.blocked, keep=self._places.unripe or ()
            )
        checked["steps"] += 1
        assert world.claims or self._is_allowed(Trial(world))

    monkeypatch.setattr(Optsched, "decide", watched)
    simulated(tiered(seed, costs=True))
    assert min(checked.values()) > 20
