"""Jobs are believed to be as long as earlier ones of the same user and command were."""

from collections.abc import Iterator
from dataclasses import dataclass

from ...job import Elastic, Job
from .commands import similar
from .unknown import FIRST_GUESS_S

NEWEST = 0.2
"""The weight of the newest job in a rolling mean, once there are more than `1 / NEWEST` of them."""

Group = tuple[str | int | None, ...]
"""Jobs that are taken to be alike."""


@dataclass(slots=True)
class Rolling:
    """An exponentially weighted mean, of the first values a plain one."""

    count: int = 0
    mean_s: float = 0.0

    def add(self, value_s: float) -> None:
        """One more value, the newest."""
        self.count += 1
        self.mean_s += (value_s - self.mean_s) * max(1 / self.count, NEWEST)


class History:
    """The rolling estimate of Helios' QSSF (Hu et al., SC 2021, section 4.2): the mean work of completed jobs that are
    most like the new one, the more recent ones counting more.

    Alike are jobs of the same user and command; then of the same user and a similar command (`similar` stands for the
    string distance of the paper); then of other users with this command or a similar one; then of the user; then all.
    In each group those of the same number of GPUs are preferred. The first of these groups in which a job has
    completed counts. Until any job has completed, all are believed to be `FIRST_GUESS_S`.
    """

    name = "history"

    def __init__(self) -> None:
        self._of: dict[Group, Rolling] = {}

    def work_s(self, job: Job, now_s: float) -> float:
        """The mean of the first group of the job in which there is one."""
        for group in groups(job):
            found = self._of.get(group)
            if found is not None:
                return found.mean_s
        return FIRST_GUESS_S

    def completed(self, job: Job, worked_s: float, now_s: float) -> None:
        """Adds to all groups of the job."""
        for group in groups(job):
            found = self._of.get(group)
            if found is None:
                found = self._of[group] = Rolling()
            found.add(worked_s)

    def of(self, group: Group) -> Rolling | None:
        """What has completed of a group, if anything has."""
        return self._of.get(group)


def groups(job: Job) -> Iterator[Group]:
    """The groups that a job belongs to, those most like it first."""
    gpus = gang(job)
    like = None if job.command is None else similar(job.command)
    for user in (job.user, None) if job.user is not None else (None,):
        if job.command is not None:
            yield "command", user, job.command, gpus
            yield "command", user, job.command
        if like is not None:
            yield "similar", user, like, gpus
            yield "similar", user, like
    if job.user is not None:
        yield "user", job.user, gpus
        yield "user", job.user
    yield "all", gpus
    yield ("all",)


def gang(job: Job) -> int:
    """The GPUs a job asks for: the most of an elastic one, those of the first listed mode."""
    if job.modes:
        return job.modes[0].gpus
    return job.gpus.max if isinstance(job.gpus, Elastic) else job.gpus
