"""All metrics of a simulation, job by job."""

import numpy as np

from ...driver import Ending
from ...frozen import entity
from ...model import Instance
from ...objectives import LATE_TOLERANCE_S
from ..record import Floats, Ints, Record
from .classes import classes, isolated_s
from .energy import power_parts_w, used
from .losses import GpuTime, failures_by_kind, gpu_time
from .stays import Stays, by_job, ready_s, stays
from .steps import steps
from .sums import counts, sums
from .use import parts
from .utilisation import communication_overhead, gpu_utilisation
from .waiting import REASONS, Waits, waits


@entity
class Metrics:
    """Columns with one entry a job, in the order of the instance; instants on its clock.
    Definitions: docs/concepts.md, Simulation.

    `rows` is the record in the order of the jobs; `stays`, `waits` and `gpu_time` say what its rows
    mean.
    """

    instance: Instance
    rows: Record
    stays: Stays
    waits: Waits
    gpu_time: GpuTime
    gpus: Ints
    gpu_type: Ints
    submit_s: Floats
    release_s: Floats
    ready_s: Floats
    first_start_s: Floats
    completion_s: Floats
    jct_s: Floats
    blocked_s: Floats
    waiting_s: Floats
    waiting_by_reason_s: Floats
    """One column for each of `waiting.REASONS`."""
    held_s: Floats
    held_gpu_s: Floats
    overhead_gpu_s: Floats
    lost_gpu_s: Floats
    restarts: Ints
    preemptions: Ints
    failures: Ints
    out_of_memory: Ints
    node_losses: Ints
    energy_kwh: Floats
    energy_cost: Floats
    """NaN where the cluster has no price of energy, as `carbon_g` without grams for a kWh."""
    carbon_g: Floats
    finish_time_fairness: Floats
    contention_slowdown: Floats
    late_s: Floats
    """NaN for a job without deadline."""
    energy_by_type_kwh: Floats
    failures_by_kind: dict[str, int]
    gpu_utilisation: float | None
    communication_overhead: float | None


def measure(record: Record) -> Metrics:
    """Return everything that is known of a simulation in which every job completed. O(r log r) for
    r rows."""
    instance, jobs = record.instance, record.instance.jobs
    count = len(jobs)
    rows = by_job(record)
    job_classes = classes(instance)
    stay = stays(rows)
    submit_s = np.fromiter((job.submit_s for job in jobs), np.float64, count)
    release_s = np.maximum(submit_s, instance.now_s)
    completion_s = release_s.copy()
    completion_s[rows.job] = (
        rows.end_s
    )  # of a job's rows, which are in the order of time, the last one stays
    ready = ready_s(instance, release_s, completion_s)
    waited = waits(rows, stay, job_classes, ready)
    time = gpu_time(rows, stay, job_classes)
    memory, kinds = failures_by_kind(rows)
    part = parts(rows)
    power_w = power_parts_w(rows, part, job_classes)
    energy = used("energy", rows, part, power_w)
    assert energy is not None

    def of_jobs(objective: str) -> Floats:
        amounts = used(objective, rows, part, power_w)
        return (
            np.full(count, np.nan) if amounts is None else sums(rows.job[part.row], amounts, count)
        )

    last = np.zeros(count, dtype=np.int64)
    last[rows.job] = np.arange(rows.rows)
    work_s = np.fromiter((job.work_s for job in jobs), np.float64, count)
    jct_s = completion_s - submit_s
    reasons_s = np.stack(
        [sums(stay.job, waited.seconds[:, k], count) for k in range(len(REASONS))], axis=1
    )
    return Metrics(
        instance=instance,
        rows=rows,
        stays=stay,
        waits=waited,
        gpu_time=time,
        gpus=rows.gpus[last] if count else rows.gpus,
        gpu_type=rows.gpu_type[last] if count else rows.gpu_type,
        submit_s=submit_s,
        release_s=release_s,
        ready_s=ready,
        first_start_s=_first_start_s(instance, rows, stay),
        completion_s=completion_s,
        jct_s=jct_s,
        blocked_s=ready - release_s,
        waiting_s=reasons_s.sum(1),
        waiting_by_reason_s=reasons_s,
        held_s=sums(rows.job, rows.end_s - rows.start_s, count),
        held_gpu_s=sums(rows.job, time.held, count),
        overhead_gpu_s=sums(rows.job, time.setup + time.checkpoint, count),
        lost_gpu_s=sums(rows.job, time.lost, count),
        restarts=counts(stay.job[stay.before >= 0], count),
        preemptions=_preemptions(instance, stay, count),
        failures=counts(rows.job[rows.ending == Ending.FAILED], count),
        out_of_memory=counts(rows.job[memory], count)
        + counts(rows.job[rows.ending == Ending.OUT_OF_MEMORY], count),
        node_losses=counts(rows.job[rows.ending == Ending.NODE_LOST], count),
        energy_kwh=of_jobs("energy"),
        energy_cost=of_jobs("energy_cost"),
        carbon_g=of_jobs("carbon"),
        finish_time_fairness=jct_s
        / isolated_s(instance, job_classes, work_s, np.full(count, float(count))),
        contention_slowdown=jct_s
        / isolated_s(instance, job_classes, work_s, _contention(release_s, completion_s)),
        late_s=_late_s(instance, completion_s),
        energy_by_type_kwh=sums(part.gpu_type, energy, len(instance.cluster.gpu_types)),
        failures_by_kind=kinds,
        gpu_utilisation=gpu_utilisation(rows, job_classes),
        communication_overhead=communication_overhead(rows, job_classes),
    )


def _first_start_s(instance: Instance, rows: Record, stay: Stays) -> Floats:
    """Return when each job first held anything: of one that runs at `now_s` when it started, before
    that."""
    first_s = np.zeros(len(instance.jobs))
    first_s[stay.job[::-1]] = stay.start_s[::-1]
    if instance.running:
        position = instance.position
        for entry in instance.running:
            first_s[position[entry.job]] = min(entry.started_s, instance.now_s)
    return first_s


def _preemptions(instance: Instance, stay: Stays, count: int) -> Ints:
    """Return stays that ended in a preemption, and those of jobs that ran at `now_s` and left at
    once."""
    preemptions = counts(stay.job[stay.ending == Ending.PREEMPTED], count)
    if instance.running:
        first = np.append(True, stay.job[1:] != stay.job[:-1])
        running = np.fromiter(
            (job.id in instance.running_job for job in instance.jobs), bool, count
        )
        left = stay.job[first & running[stay.job] & (stay.before == Ending.PREEMPTED)]
        preemptions[left] += 1
    return preemptions


def _contention(release_s: Floats, completion_s: Floats) -> Floats:
    """Return the average number of jobs released and not complete during each job's life, itself
    included."""
    ones = np.ones(len(release_s))
    there = steps(np.concatenate((release_s, completion_s)), np.concatenate((ones, -ones)))
    return np.maximum(1.0, there.between(release_s, completion_s) / (completion_s - release_s))


def _late_s(instance: Instance, completion_s: Floats) -> Floats:
    jobs = instance.jobs
    deadlines_s = (np.nan if job.deadline_s is None else job.deadline_s for job in jobs)
    late_s = completion_s - np.fromiter(deadlines_s, np.float64, len(jobs))
    return np.where(late_s > LATE_TOLERANCE_S, late_s, np.where(np.isnan(late_s), np.nan, 0.0))
