"""What a policy may know of how long jobs are."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ..model import Completed, Job


class Estimates(Protocol):
    """A belief about the work of jobs, made afresh for each simulation.

    The simulation tells at its beginning what completed before. Then it asks once for each job,
    when it is released, and tells of each completion, both in the order of time. Beliefs must
    depend on nothing else, so that they are the same in every run.
    """

    name: str

    def remember(self, past: Sequence[Completed]) -> None:
        """Learn from the jobs that completed before the simulation begins."""
        ...

    def work_s(self, job: Job, now_s: float) -> float:
        """Return the reference work that `job`, just released, is believed to be; above 0. A job
        that outruns it is then believed to be twice as long, as often as it takes."""
        ...

    def completed(self, job: Job, worked_s: float, now_s: float) -> None:
        """Learn that `job` has completed after `worked_s` of reference work, that of failed
        attempts included."""
        ...


@runtime_checkable
class Ranks(Protocol):
    """Estimates that know how far they may be off."""

    def rank_s(self, job: Job, done_s: float) -> float:
        """Return the Gittins rank of a released job that has done `done_s` (`Lengths.rank_s`)."""
        ...
