"""First steps that leave GPUs idle for a waiting job until there are enough for it."""

from collections.abc import Collection, Iterator

from optsched.driver.outlook import Outlook
from optsched.driver.playout import Playouts
from optsched.driver.trial import Trial
from optsched.driver.world import World
from optsched.physics import TIME_TOLERANCE_S

from .first_step import Step


def awaiting(world: World, playouts: Playouts, pinned: Collection[str]) -> Iterator[Step]:
    """Yield, for the first waiting job of each demand that does not fit, the step that keeps the
    place it gets as running jobs end, and starts those that are done by then; others start beside
    it. A list rule alone would start on that place whatever fits, however long it runs."""
    line = [job_id for _, _, job_id in playouts.line]
    first = {world.demand(job_id): job_id for job_id in reversed(line)}
    missed = [job_id for job_id in first.values() if world.fit(job_id) is None]
    outlook = Outlook(world)
    for due_s, _, other in playouts.holders:
        if not missed:
            return
        outlook.release(other, finished=True)
        fits = {job_id: world.fit(job_id, outlook.room) for job_id in missed}
        missed = [job_id for job_id in missed if fits[job_id] is None]
        for awaited, fit in fits.items():
            if fit is not None:
                trial = Trial(world, pinned)
                _start_until(trial, [job_id for job_id in line if job_id != awaited], due_s)
                trial.claim(awaited, *fit)
                yield Step(trial, None, awaited=(awaited,))


def _start_until(trial: Trial, line: list[str], due_s: float) -> None:
    """Start those, in order, that fit and are done by a time."""
    for job_id in line:
        if trial.now_s + trial.fastest_finish_s(job_id) <= due_s + TIME_TOLERANCE_S:
            fit = trial.fit(job_id)
            if fit is not None:
                trial.start(job_id, *fit)
