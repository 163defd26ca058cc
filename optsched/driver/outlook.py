"""What would be free once some jobs have given back what they hold: for reservations and for
choosing victims."""

from collections.abc import Callable, Iterable

from .world import World


class Outlook:
    """A copy of what is free, in which running and saving jobs can be released and put back."""

    def __init__(self, world: World, gone: Iterable[str] = ()) -> None:
        self._world = world
        self._gone: set[str] = set()
        self.room = world.free.copy()
        for job_id in gone:
            self.release(job_id)

    def copy(self) -> "Outlook":
        """Return the same outlook, to suppose more in."""
        new = object.__new__(Outlook)
        new._world, new._gone, new.room = self._world, {*self._gone}, self.room.copy()
        return new

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

    def release_until(
        self, fits: Callable[[], bool], jobs: Iterable[str]
    ) -> tuple[list[str], bool]:
        """Release one job after another until it fits; return those, and whether it does."""
        released = []
        for job_id in jobs:
            self.release(job_id)
            released.append(job_id)
            if fits():
                return released, True
        return released, False

    def only_needed(self, fits: Callable[[], bool], released: list[str]) -> list[str]:
        """Put back those of the released jobs without whose places it fits too, the last but one
        first; return the others."""
        needed = released[:]
        for job_id in released[-2::-1]:  # the last was needed
            self.put_back(job_id)
            if fits():
                needed.remove(job_id)
            else:
                self.release(job_id)
        return needed
