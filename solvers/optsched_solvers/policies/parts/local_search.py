"""Local search over first steps, each costed by where it leads."""

import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from optsched.driver.outlook import Outlook
from optsched.driver.playout import Playouts
from optsched.driver.trial import Trial
from optsched.driver.world import World

from .demand_queue import arrival_key
from .starting import start_each

MOST_JOBS = 40
"""Of more jobs a list rule says too little of what follows for changes of one decision to be told
apart by it."""
MOST_TRIED = 500
"""Steps tried in one search."""
CLEARLY = 1e-9
"""A step is better where it costs less by more than this share."""


def improved(
    world: World,
    pinned: Collection[str],
    playouts: Playouts,
    step: Trial,
    allowed: Callable[[Trial], bool],
) -> Trial:
    """Return a step at least as good: from `step` on, preempt one job more or one less, or leave
    one alone that was to share GPUs, as long as that is `allowed` and lowers the cost.

    Those who have most left for each GPU are looked at first. What victims leave goes to whoever
    comes first in the playouts, or is claimed by the shortest.
    """
    may = [job for job in world.running if job not in pinned and world.may_preempt(job)]
    may.sort(key=lambda job: playouts.entry(job), reverse=True)
    tries = MOST_TRIED
    cost, found = playouts.cost_by_tier(step), True
    while found:
        found = False
        for job_id in (*step.joined, *may):
            for other in _changed(world, pinned, step, job_id):
                if tries <= 0:
                    return step
                tries -= 1
                value = playouts.cost_by_tier(other)
                if _is_less(value, cost) and allowed(other):
                    step, cost, found = other, value, True
    return step


@contextmanager
def beside_claims(trial: Trial) -> Iterator[None]:
    """Hide from a trial what its claims will hold, and those who claim it."""
    seized = [
        (slot.node, *trial.free.seize(slot.node, slot.gpus, slot.cpus))
        for _, placement in trial.claims.values()
        for slot in placement
    ]
    claiming = {
        job_id: trial.waiting.pop(job_id) for job_id in trial.claims if job_id in trial.waiting
    }
    saving = dict(trial.saving) if trial.claims else {}  # what is being saved is theirs
    for job_id in saving:
        del trial.saving[job_id]
    yield
    for taken in seized:
        trial.free.let_go(*taken)
    trial.waiting |= claiming
    trial.saving = saving | trial.saving


def claim_what_they_leave(trial: Trial) -> None:
    """Have the shortest waiting jobs claim, and start on, what the victims of a trial leave."""
    room = Outlook(trial, [job_id for job_id in trial.victims if job_id in trial.saving]).room

    def claim(job_id: str) -> bool:
        fit = trial.fit(job_id, room)
        if fit is not None:
            room.take(trial.need(job_id, fit[0]), fit[1])
            trial.claim(job_id, *fit)
        return fit is not None

    start_each(
        trial,
        sorted(trial.waiting, key=lambda job: arrival_key(trial, job, trial.fastest_finish_s(job))),
        claim,
    )
    trial.start_claimed()


def _changed(world: World, pinned: Collection[str], step: Trial, job_id: str) -> Iterator[Trial]:
    """Yield the step with another decision about one job, without and with claims on what its
    victims leave."""
    victims = {*step.victims} ^ ({job_id} & {*world.running})
    for claiming in (False, True):
        trial = Trial(world, pinned)
        with beside_claims(trial):
            for victim in sorted(victims, key=world.order):
                trial.preempt(victim)
            for name, (option, placement) in step.started.items():
                if name in trial.waiting and trial.free.holds(trial.need(name, option), placement):
                    trial.start(name, option, placement)
            for name, (option, partner) in step.joined.items():
                if name != job_id and trial.may_share(name, option, partner):
                    trial.start_sharing(name, option, partner)
            if claiming:
                claim_what_they_leave(trial)
        yield trial


def _is_less(value: tuple[float, ...], than: tuple[float, ...]) -> bool:
    for new, old in zip(value, than, strict=True):
        if not math.isclose(new, old, rel_tol=CLEARLY):
            return new < old
    return False
