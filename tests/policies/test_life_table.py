"""What beliefs that were off say of the time that jobs have left."""

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.preemption_cost import CASES
from optsched.driver.snapshot import snapshot
from optsched.estimates.parse import parse as estimates
from optsched.simulate.virtual import VirtualWorld
from optsched_solvers.policies.parts.lengths import Lengths
from optsched_solvers.policies.parts.life_table import LifeTable

AGES = np.array([0.0, 0.1, 0.5, 1.0, 2.0, 5.0])


def table(ended: np.ndarray, going: np.ndarray | None = None) -> LifeTable:
    made = LifeTable()
    for age in ended:
        made.add(float(age))
    made.renew(np.empty(0) if going is None else going)
    return made


Draw = Callable[[np.random.Generator], np.ndarray]


@pytest.mark.parametrize(
    ("draw", "ages", "left"),
    [
        (lambda rng: rng.exponential(2.0, 20_000), [0.0, 1.0, 3.0], [2.0, 2.0, 2.0]),
        (lambda rng: rng.pareto(1.5, 20_000), [0.0, 1.0, 5.0], [1 / 1.5, 2 / 1.5, 6 / 1.5]),
        (lambda rng: rng.uniform(0.5, 1.5, 20_000), [0.0, 0.5, 1.0], [1.0, 0.5, 0.25]),
        (lambda rng: rng.choice([0.2, 4.0], 20_000), [0.0, 0.5, 2.0], [0.4, 3.5, 2.0]),
    ],
)
def test_what_is_left_is_one_over_the_gittins_index(
    draw: Draw, ages: list[float], left: list[float]
) -> None:
    """By law: where the hazard never rises one over the hazard now, where it never falls the mean
    that is left, and of two lengths the shorter until it is over."""
    made = table(draw(np.random.default_rng(1)))
    assert made.left(np.array(ages)) == pytest.approx(left, rel=0.2, abs=0.06)


def test_beliefs_that_hold_leave_what_is_left() -> None:
    ages = np.array([0.0, 0.25, 0.5, 0.75])
    assert table(np.full(5000, 1.0)).left(ages) == pytest.approx(1.0 - ages, abs=0.16)


def test_whoever_has_not_ended_yet_counts_as_far_as_seen() -> None:
    """Without them the rule would believe that nobody lives long: only the short have ended."""
    rng = np.random.default_rng(2)
    lives, seen = rng.exponential(2.0, 20_000), rng.exponential(1.0, 20_000)
    ended = lives[lives <= seen]
    made = table(ended, seen[lives > seen])
    assert made.left(AGES[:4]) == pytest.approx(np.full(4, 2.0), rel=0.15)
    assert table(ended).left(AGES[:1])[0] < 1.2


def test_before_any_has_ended_who_outruns_its_belief_is_likely_to_go_on() -> None:
    left = LifeTable().left(np.array([1.0, 2.0, 4.0, 8.0]))
    assert (left[1:] == pytest.approx(2 * left[:-1], rel=1e-6)) and left[0] >= 1.0


def test_a_snapshot_has_these_lengths() -> None:
    """Also where a job has more left than it was believed to be long, and every entry is whole."""
    instance = CASES["heavy"].instance(3, 0.0)
    world = VirtualWorld(instance, estimates("history"))
    lengths = Lengths()
    for _ in range(60):
        if not world.advance():
            break
        lengths.look(world)
        for job_id in world.take_arrived():
            lengths.arrived(world, job_id)
        for job_id in [*world.waiting]:
            fit = world.fit(job_id)
            if fit is not None:
                world.start(job_id, *fit)
        now = snapshot(world).instance
        seen = lengths.indexed(world, now)
        assert [job.id for job in seen.jobs] == [job.id for job in now.jobs]
        for entry in (*seen.running, *seen.suspended):
            assert 0 < entry.remaining_s <= seen.job[entry.job].work_s
    assert lengths.indexed(VirtualWorld(instance), instance) is instance
