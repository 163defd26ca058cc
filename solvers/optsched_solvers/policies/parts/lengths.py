"""Instances in which jobs are as long as a completion of such jobs costs, where beliefs are off."""

from dataclasses import replace

import numpy as np

from optsched.driver.snapshot import of_length, with_its_length
from optsched.driver.world import World
from optsched.model.instance import Instance, Running
from optsched.model.job import Job

from .life_table import LifeTable

GROWN = 0.1
"""The table is drawn up anew when so many more jobs, as a share, have ended."""


class Lengths:
    """What the jobs that have ended teach of the beliefs about others (see `LifeTable`)."""

    def __init__(self) -> None:
        self._table = LifeTable()
        self._believed_s: dict[str, float] = {}
        self._next = 1
        self._known: dict[str, tuple[Job, Job]] = {}

    def arrived(self, world: World, job_id: str) -> None:
        """Note what is believed of a job that has come to wait."""
        if not world.knows_run_times and job_id not in self._believed_s:
            self._believed_s[job_id] = world.believed_work_s(job_id)

    def look(self, world: World) -> None:
        """Learn from those that have ended."""
        released = world.take_released()
        if world.knows_run_times:
            return
        for job_id in dict.fromkeys(released):
            if job_id in self._believed_s and not world.is_active(job_id):
                self._table.add(world.worked_s(job_id) / self._believed_s.pop(job_id))
                self._known.pop(job_id, None)
        if len(self._table) >= self._next:
            self._next = len(self._table) + max(1, round(GROWN * len(self._table)))
            going = [job_id for job_id in self._believed_s if world.is_active(job_id)]
            self._table.renew(
                np.array([world.worked_s(name) / self._believed_s[name] for name in going])
            )

    def indexed(self, world: World, instance: Instance) -> Instance:
        """Return the snapshot `instance` with these lengths."""
        if world.knows_run_times:
            return instance
        names = [job.id for job in instance.jobs]
        for name in names:
            self.arrived(world, name)
        believed_s = np.array([self._believed_s[name] for name in names])
        ages = np.array([world.worked_s(name) for name in names]) / believed_s
        left_s = dict(zip(names, (believed_s * self._table.left(ages)).tolist(), strict=True))
        entries = {**instance.running_job, **instance.suspended_job}
        jobs = []
        for job in instance.jobs:
            left = left_s[job.id]
            if job.id not in entries:
                jobs.append(self._of_length(job, left, left))
            elif left > job.work_s:  # what it has left may be less than its length, not more
                jobs.append(self._of_length(job, left, 4.0 * left))
            else:
                jobs.append(job)
        length = {seen.id: (seen, job) for seen, job in zip(jobs, instance.jobs, strict=True)}
        running = (
            with_its_length(replace(entry, remaining_s=left_s[entry.job]), *length[entry.job])
            for entry in instance.running
        )
        suspended = (replace(entry, remaining_s=left_s[entry.job]) for entry in instance.suspended)
        return replace(
            instance,
            jobs=tuple(jobs),
            running=tuple(entry for entry in running if isinstance(entry, Running)),
            suspended=tuple(suspended),
        )

    def _of_length(self, job: Job, least_s: float, most_s: float) -> Job:
        """Return the job with a length in this range: the same object as long as that will do."""
        known = self._known.get(job.id)
        if known is None or known[0] is not job or not least_s <= known[1].work_s <= most_s:
            wanted = of_length(job, (least_s + most_s) / 2)
            known = self._known[job.id] = job, wanted
        return known[1]
