"""The rolling part of Helios' QSSF: mean run times of completed jobs that are like a new one."""

import difflib
from dataclasses import dataclass

from optsched.estimates.history import gang
from optsched.model.job import Job

CUTOFF = 0.6
MATCHES = 2
"""Names closer than the cutoff count as like the new one, so many of them."""
NAMES = 1000
"""So many distinct names, the latest, are compared with a name that is new."""

Group = tuple[str, str | int | None, str | int | None, int | None]


@dataclass(slots=True)
class _Mean:
    count: int = 0
    total_s: float = 0.0


class RollingGpuTime:
    """Expected GPU time of a job: the mean run time of completed jobs of its user and name, times
    its GPUs.

    A name that has not been seen stands for the (up to two) closest ones. Of the user's jobs of
    these names those with as many GPUs are preferred. Without any, those of all users count;
    without a close name, all of the user; else all. Source: the public estimator of Helios (Hu et
    al., SC 2021), which takes plain means over its whole history.
    """

    def __init__(self) -> None:
        self._means: dict[Group, _Mean] = {}
        self._names: dict[str, None] = {}

    def completed(self, job: Job, run_s: float) -> None:
        """One more job, which ran for `run_s`."""
        groups: list[Group] = [("all", None, None, None), ("user", job.user, None, None)]
        if job.command is not None:
            self._names.pop(job.command, None)
            self._names[job.command] = None
            groups += [
                ("name", None, job.command, None),
                ("name", job.user, job.command, None),
                ("name", job.user, job.command, _gpus(job)),
            ]
        for group in dict.fromkeys(groups):
            found = self._means.setdefault(group, _Mean())
            found.count += 1
            found.total_s += run_s

    def gpu_s(self, job: Job) -> float | None:
        """GPU-seconds that a job is expected to take; None while nothing has completed."""
        run_s = self._run_s(job)
        return None if run_s is None else run_s * _gpus(job)

    def _run_s(self, job: Job) -> float | None:
        names = self._like(job.command)
        if names:
            for user, gpus in ((job.user, _gpus(job)), (job.user, None), (None, None)):
                found = self._mean([("name", user, name, gpus) for name in names])
                if found is not None:
                    return found
        own_s = None if job.user is None else self._mean([("user", job.user, None, None)])
        return self._mean([("all", None, None, None)]) if own_s is None else own_s

    def _mean(self, groups: list[Group]) -> float | None:
        """The mean over the groups together, which have no job in common."""
        found = [mean for group in groups if (mean := self._means.get(group)) is not None]
        return (
            sum(mean.total_s for mean in found) / sum(mean.count for mean in found)
            if found
            else None
        )

    def _like(self, command: str | None) -> list[str]:
        if command is None:
            return []
        if command in self._names:
            return [command]
        latest = list(self._names)[-NAMES:]
        return difflib.get_close_matches(command, latest, n=MATCHES, cutoff=CUTOFF)


def _gpus(job: Job) -> int:
    return max(1, gang(job))
