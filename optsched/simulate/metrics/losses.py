"""Where GPU time goes: work that counts, starts, checkpoints, and work that was lost."""

import numpy as np

from ...driver import Ending
from ...frozen import entity
from ...physics import hold_to_save_s, setup_s
from ...verify.fetches import fetches
from ..record import Floats, Ints, Record
from .classes import Classes
from .stays import NEW, Stays
from .sums import sums
from .use import gpus_held

CAUSES = {
    Ending.PREEMPTED: "preemptions",
    Ending.FAILED: "failures",
    Ending.NODE_LOST: "node_losses",
    Ending.OUT_OF_MEMORY: "out_of_memory",
}
"""Why a job stops before it is done, and what that is called in a summary."""


@entity
class GpuTime:
    """GPU-seconds of each row, those of a GPU that two jobs share halved: all it held, and of these
    what start-up and restore took, checkpoints before a preemption, and work that was done and lost
    later.

    A start that ran out of GPU memory is lost with its set-up. `lost_by_cause` is what is lost by
    what lost it.
    """

    held: Floats
    setup: Floats
    checkpoint: Floats
    lost: Floats
    lost_by_cause: dict[Ending, float]


def gpu_time(rows: Record, stays: Stays, job_classes: Classes) -> GpuTime:
    """Return the GPU time of a record in the order of `by_job`."""
    gpus = gpus_held(rows)
    length_s = rows.end_s - rows.start_s
    overhead_s = np.clip(rows.overhead_s, 0.0, length_s)
    checkpoint_s = saving_s(rows, stays, job_classes, overhead_s)
    worked = gpus * (length_s - overhead_s)
    lost, by_cause = _lost(rows, worked)
    held, setup = gpus * length_s, gpus * (overhead_s - checkpoint_s)
    in_vain = rows.ending == Ending.OUT_OF_MEMORY
    lost[in_vain], setup[in_vain] = held[in_vain], 0.0
    by_cause[Ending.OUT_OF_MEMORY] = float(held[in_vain].sum())
    return GpuTime(
        held=held, setup=setup, checkpoint=gpus * checkpoint_s, lost=lost, lost_by_cause=by_cause
    )


def saving_s(rows: Record, stays: Stays, job_classes: Classes, overhead_s: Floats) -> Floats:
    """Return the seconds of each row spent saving: the last ones of a stay that ends in a
    preemption, or is lost meanwhile."""
    save_s = np.array([hold_to_save_s(job) for job in job_classes.examples])
    if not save_s.any():
        return np.zeros(rows.rows)
    setups_s = np.array(
        [[setup_s(job, ran) for ran in (False, True)] for job in job_classes.examples]
    )
    of_class = job_classes.of_job[stays.job]
    of_stay_s = np.add.reduceat(overhead_s, stays.first_row)
    beyond_s = (
        of_stay_s
        - setups_s[of_class, (stays.before != NEW).astype(np.int64)]
        - _fetched_s(rows, stays)
    )
    of_stay_s = np.select(
        [stays.ending == Ending.PREEMPTED, stays.ending == Ending.NODE_LOST],
        [np.minimum(of_stay_s, save_s[of_class]), np.clip(beyond_s, 0.0, save_s[of_class])],
    )
    saves_from_s = (stays.end_s - of_stay_s)[stays.of_row]
    return np.clip(rows.end_s - np.maximum(rows.start_s, saves_from_s), 0.0, overhead_s)


def _fetched_s(rows: Record, stays: Stays) -> Floats:
    """Return seconds for which each stay fetched its model; where nobody fetches, without the plan
    that a replay of the caches takes."""
    if not any(job.profile.fetch_s for job in rows.instance.jobs):
        return np.zeros(len(stays.job))
    fetched = fetches(rows.instance, rows.plan())
    ids = [job.id for job in rows.instance.jobs]
    starts = zip(stays.job.tolist(), stays.start_s.tolist(), strict=True)
    return np.array([fetched.get((ids[job], start_s), 0.0) for job, start_s in starts])


def _lost(rows: Record, worked: Floats) -> tuple[Floats, dict[Ending, float]]:
    """Return GPU-seconds of lost work in the rows where it was done, and all of them by cause.

    What is lost is what was done last: in the row that ends so, and where that did less, in the
    job's rows before it. Work done before the simulation began took no GPU time in it.
    """
    price = np.divide(worked, rows.work_s, out=np.zeros(rows.rows), where=rows.work_s > 0)
    own_s = np.minimum(rows.lost_s, rows.work_s)
    lost_s = own_s.copy()
    by_row = own_s * price
    for row in np.flatnonzero(rows.lost_s > rows.work_s * (1 + 1e-12)):
        left_s = float(rows.lost_s[row] - rows.work_s[row])
        before = row - 1
        while left_s > 0 and before >= 0 and rows.job[before] == rows.job[row]:
            taken_s = min(left_s, float(rows.work_s[before] - lost_s[before]))
            lost_s[before] += taken_s
            by_row[row] += taken_s * price[before]
            left_s -= taken_s
            before -= 1
    by_cause = {cause: float(by_row[rows.ending == cause].sum()) for cause in CAUSES}
    return lost_s * price, by_cause


def starts_by_cause(stays: Stays, setup: Floats) -> tuple[float, dict[Ending, float]]:
    """Return the set-up GPU-seconds of first starts, and of those after each cause; `setup` is that
    of each row."""
    of_stay = sums(stays.of_row, setup, len(stays.job))
    again = {cause: float(of_stay[stays.before == cause].sum()) for cause in CAUSES}
    return float(of_stay[stays.before < 0].sum()), again


def failures_by_kind(rows: Record) -> tuple[Ints, dict[str, int]]:
    """Return the rows that failed out of memory, and the number of failures of each kind
    (`Instance.failures`)."""
    failed = np.flatnonzero(rows.ending == Ending.FAILED)
    entries = rows.instance.failures
    if not len(failed) or not entries:
        return failed[:0], {"unknown": len(failed)} if len(failed) else {}
    names = [*dict.fromkeys(entry.kind or "unknown" for entry in entries)]
    code = {name: k for k, name in enumerate(names)}
    position = rows.instance.position
    job = np.array([position[entry.job] for entry in entries])
    order = np.argsort(job, kind="stable")
    kind = np.array([code[entry.kind or "unknown"] for entry in entries])[order]
    job = job[order]
    of_failed = rows.job[failed]
    rank = np.arange(len(failed)) - np.searchsorted(of_failed, of_failed)
    place = np.minimum(np.searchsorted(job, of_failed) + rank, len(job) - 1)
    kinds = kind[place]
    counts = np.bincount(kinds, minlength=len(names))
    memory = failed[kinds == code.get(OUT_OF_MEMORY, -1)]
    return memory, {name: int(count) for name, count in zip(names, counts, strict=True) if count}


OUT_OF_MEMORY = "out of memory"
"""The kind of failure that is counted apart."""
