"""What would be free once some jobs have given back what they hold: for reservations and for
choosing victims."""

from .world import World


class Outlook:
    """A copy of what is free, in which running and saving jobs can be released and put back."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._gone: set[str] = set()
        self.room = world.free.copy()

    def release(self, job_id: str, *, finished: bool = False) -> None:
        """Suppose that the job has given back what it holds, because it is done or will come back
        later."""
        hold = self._world.hold(job_id)
        with_gpus = hold.partner is None or hold.partner in self._gone
        self._gone.add(job_id)
        self.room.give(hold.need, hold.placement, finished=finished, with_gpus=with_gpus)

    def put_back(self, job_id: str) -> None:
        """Suppose again that an unfinished job holds what it does."""
        hold = self._world.hold(job_id)
        self._gone.discard(job_id)
        with_gpus = hold.partner is None or hold.partner in self._gone
        self.room.take(hold.need, hold.placement, with_gpus=with_gpus)
