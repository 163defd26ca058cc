"""The rows of a record by job, joined to stays, and the waits before them."""

from dataclasses import fields, replace

import numpy as np

from ...driver import Ending
from ...frozen import entity
from ...model import Instance
from ...physics import TIME_TOLERANCE_S, is_one_stay
from ..record import Floats, Ints, Record

NEW = -1
"""The job never ran before."""
WENT_ON = -2
"""The job ran at `Instance.now_s` and goes on."""

NOT_BY_ROW = {"instance", "modes", "placements", "decision_s", "decision_wall_s"}


def by_job(record: Record) -> Record:
    """Return the same rows in the order of the jobs, those of a job in the order of time."""
    order = np.argsort(record.job, kind="stable")
    columns = {
        field.name: getattr(record, field.name)[order]
        for field in fields(Record)
        if field.name not in NOT_BY_ROW
    }
    return replace(
        record, **columns, placements=tuple(map(record.placements.__getitem__, order.tolist()))
    )


@entity
class Stays:
    """A stay is what a job holds from a start until it leaves: rows of which all but the last end
    by GOES_ON.

    `of_row` is the stay of each row. The other columns have one entry a stay: its job, its first
    row, its times, why it ended, and `before`: why the job did not run before it (`Ending`, NEW or
    WENT_ON).
    """

    of_row: Ints
    first_row: Ints
    job: Ints
    start_s: Floats
    end_s: Floats
    ending: Ints
    before: Ints


def stays(rows: Record) -> Stays:
    """Join rows that are in the order of `by_job`."""
    count = rows.rows
    new_job = np.ones(count, dtype=bool)
    new_job[1:] = rows.job[1:] != rows.job[:-1]
    begins = new_job.copy()
    begins[1:] |= rows.ending[:-1] != Ending.GOES_ON
    first_row = np.flatnonzero(begins)
    last_row = np.append(first_row[1:], count)[: len(first_row)] - 1
    before = np.full(len(first_row), NEW, dtype=np.int64)
    ending = rows.ending[last_row]
    before[1:] = ending[:-1]
    of_job_first = new_job[first_row]
    before[of_job_first] = _before_now(
        rows, rows.job[first_row][of_job_first], first_row[of_job_first]
    )
    return Stays(
        of_row=np.cumsum(begins) - 1,
        first_row=first_row,
        job=rows.job[first_row],
        start_s=rows.start_s[first_row],
        end_s=rows.end_s[last_row],
        ending=ending,
        before=before,
    )


def _before_now(rows: Record, jobs: Ints, first_row: Ints) -> Ints:
    """Return why each of these jobs did not run before its first row."""
    instance = rows.instance
    before = np.full(len(jobs), NEW, dtype=np.int64)
    if not instance.running and not instance.suspended:
        return before
    position = instance.position
    begun = [entry.job for entry in instance.suspended] + [entry.job for entry in instance.running]
    place = np.searchsorted(jobs, [position[job_id] for job_id in begun])
    before[place] = Ending.PREEMPTED
    failed = np.array([not entry.preemptions for entry in instance.suspended], dtype=bool)
    before[place[: len(failed)][failed]] = Ending.FAILED
    for i, entry in zip(place[len(instance.suspended) :], instance.running, strict=True):
        row = first_row[i]
        job, mode = instance.job[entry.job], rows.modes[rows.mode[row]]
        if rows.start_s[row] <= instance.now_s + TIME_TOLERANCE_S and is_one_stay(
            job, entry.mode, entry.placement, mode, rows.placements[row]
        ):
            before[i] = WENT_ON
    return before


def ready_s(instance: Instance, release_s: Floats, completion_s: Floats) -> Floats:
    """Return when each job could have run: released, and its predecessors complete."""
    at_s, position = release_s.copy(), instance.position
    begun = {*instance.running_job, *instance.suspended_job}
    for i, job in enumerate(instance.jobs):
        if job.after and job.id not in begun:
            at_s[i] = max(at_s[i], *(completion_s[position[before]] for before in job.after))
    return at_s
