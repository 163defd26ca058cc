"""Jobs that are decided in tiers: no job waits for what those of lower priorities hold."""

from collections.abc import Collection

from optsched.driver import Outlook, Trial, World
from optsched.driver.borrowing import priority_of


def is_tiered(world: World) -> bool:
    """Return whether the jobs that are here are decided in tiers."""
    jobs = {**world.waiting, **world.running}
    ranks = {job.priority for name, job in jobs.items() if name not in world.borrowing}
    ranks |= {world.rank(name) for name in world.borrowing & jobs.keys()}
    preempts = world.cluster.preempts
    return len(ranks) > 1 or any(preempts.get(priority_of(r), "any") != "any" for r in ranks)


def is_allowed(trial: Trial, unripe: Collection[str]) -> bool:
    """Return whether no job waits in a trial for what jobs of lower priorities hold that it may
    take; also not where a place is kept for others there."""
    waiting = [job_id for job_id in trial.waiting if job_id not in trial.claims]
    demands = {(trial.rank(name), trial.demand(name).number): name for name in waiting}
    outlooks: dict[int, Outlook] = {}
    for (rank, _), job_id in demands.items():
        if rank not in outlooks:
            outlooks[rank] = Outlook(trial, _lower(trial, rank, unripe))
        if trial.fit(job_id, outlooks[rank].room) is not None:
            return False
    return True


def _lower(trial: Trial, rank: int, unripe: Collection[str]) -> list[str]:
    """Return the running jobs of a trial whose place a job of a higher rank may take."""
    preempts = trial.cluster.preempts.get(priority_of(rank), "any") != "never"
    return [
        name
        for name in trial.running
        if trial.rank(name) < rank
        and trial.hold(name).partner is None
        and (
            name in trial.started
            or (preempts and name not in unripe and trial.origin.may_preempt(name))
        )
    ]
