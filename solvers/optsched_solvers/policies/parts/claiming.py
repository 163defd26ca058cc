"""Trials beside claims on what is being saved."""

from collections.abc import Iterator
from contextlib import contextmanager

from optsched.driver import Outlook, Trial

from .demand_queue import arrival_key
from .starting import start_each


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
            trial.take(room, job_id, fit)
            trial.claim(job_id, *fit)
        return fit is not None

    start_each(
        trial,
        sorted(trial.waiting, key=lambda job: arrival_key(trial, job, trial.fastest_finish_s(job))),
        claim,
    )
    trial.start_claimed()
