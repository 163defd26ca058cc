"""The totals of a simulation: what `summary.json` holds."""

import math
from typing import Any

import numpy as np

from ...driver import Ending
from ...model import Instance, Steps
from ..record import Floats
from .losses import CAUSES, starts_by_cause
from .measure import Metrics
from .use import core_seconds, gpu_capacity_s, gpu_seconds, type_name
from .waiting import REASONS

QUANTILES = {"median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
UNFAIR = 1.1
"""Finish-time fairness above which a job counts as treated unfairly."""
H = 3600.0


def summary(metrics: Metrics) -> dict[str, Any]:
    """Return totals by name, as docs/formats.md has them; plain numbers, None where there is
    nothing to divide by."""
    instance = metrics.instance
    jobs = len(instance.jobs)
    last_s = float(metrics.completion_s.max()) if jobs else instance.now_s
    submitted_s = float(metrics.release_s.max()) if jobs else instance.now_s
    deadlines = ~np.isnan(metrics.late_s)
    return {
        "jobs": jobs,
        "jct_s": spread(metrics.jct_s),
        "workflow_s": spread(metrics.jct_s[_ends_of_workflows(instance)]),
        "waiting_s": spread(metrics.waiting_s),
        "waiting_mean_s": {
            name: mean(metrics.waiting_by_reason_s[:, k]) for k, name in enumerate(REASONS)
        },
        "waiting_cpu_jobs_s": spread(metrics.waiting_s[metrics.gpus == 0]),
        "blocked_mean_s": mean(metrics.blocked_s),
        "makespan_s": last_s - instance.now_s,
        "use": _use(metrics, last_s),
        "use_until_last_submission": _use(metrics, submitted_s)
        if submitted_s > instance.now_s
        else None,
        "gpu_utilisation": metrics.gpu_utilisation,
        "communication_overhead": metrics.communication_overhead,
        "finish_time_fairness": _fairness(metrics.finish_time_fairness),
        "contention_slowdown": _fairness(metrics.contention_slowdown),
        "preemptions": int(metrics.preemptions.sum()),
        "preempted_jobs": int((metrics.preemptions > 0).sum()),
        "restarts": int(metrics.restarts.sum()),
        "failures": int(metrics.failures.sum()),
        "failures_by_kind": metrics.failures_by_kind,
        "out_of_memory": int(metrics.out_of_memory.sum()),
        "node_losses": int(metrics.node_losses.sum()),
        "deadlines": int(deadlines.sum()),
        "deadlines_missed": int((metrics.late_s[deadlines] > 0).sum()),
        "gpu_h": _gpu_h(metrics, last_s),
        "energy_kwh": _energy(metrics),
        "energy_cost": _said(instance.cluster.energy_price_per_kwh, metrics.energy_cost),
        "carbon_g": _said(instance.cluster.carbon_g_per_kwh, metrics.carbon_g),
    }


def _ends_of_workflows(instance: Instance) -> list[int]:
    """Return the jobs that wait for others and for which no other waits, as positions."""
    awaited = {name for job in instance.jobs for name in job.after}
    return [i for i, job in enumerate(instance.jobs) if job.after and job.id not in awaited]


def mean(values: Floats) -> float | None:
    """Return the average; None without any."""
    return math.fsum(values) / len(values) if len(values) else None


def spread(values: Floats) -> dict[str, float | None]:
    """Return mean and quantiles; the q-quantile of n numbers is the ceil(q n)-th smallest."""
    if not len(values):
        return dict.fromkeys(("mean", *QUANTILES))
    ordered = np.sort(values)
    return {
        "mean": mean(ordered),
        **{
            name: float(ordered[math.ceil(q * len(ordered) - 1e-9) - 1])
            for name, q in QUANTILES.items()
        },
    }


def _fairness(values: Floats) -> dict[str, float | None]:
    if not len(values):
        return dict.fromkeys(("mean", "max", "share_above_1_1"))
    return {
        "mean": mean(values),
        "max": float(values.max()),
        "share_above_1_1": float((values > UNFAIR).mean()),
    }


def _use(metrics: Metrics, until_s: float) -> dict[str, Any]:
    """Return shares held of what was there until an instant."""
    held_s = gpu_seconds(metrics.rows, until_s)
    there_s, _ = gpu_capacity_s(metrics.instance, until_s)
    cores_s, all_cores_s = core_seconds(metrics.rows, until_s)
    types = [type_name(name) for name in metrics.instance.cluster.gpu_types]
    return {
        "gpus": _share(float(held_s.sum()), float(there_s.sum())),
        "gpus_by_type": {
            name: _share(float(held_s[k]), float(there_s[k])) for k, name in enumerate(types)
        },
        "cores": _share(cores_s, all_cores_s),
    }


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _gpu_h(metrics: Metrics, last_s: float) -> dict[str, Any]:
    """Return GPU-hours there were, and where they went: `held` is the sum of all that stands after
    it."""
    time = metrics.gpu_time
    there_s, lost_s = gpu_capacity_s(metrics.instance, last_s)
    first, again = starts_by_cause(metrics.stays, time.setup)
    held, overhead = float(time.held.sum()), float(time.setup.sum() + time.checkpoint.sum())
    causes: dict[str, Any] = {}
    for cause, name in CAUSES.items():
        saved = (
            {"checkpoints": float(time.checkpoint.sum()) / H} if cause == Ending.PREEMPTED else {}
        )
        lost = "starts" if cause == Ending.OUT_OF_MEMORY else "lost_work"
        causes[name] = {**saved, "restarts": again[cause] / H, lost: time.lost_by_cause[cause] / H}
    return {
        "there": float(there_s.sum()) / H,
        "nodes_away": float(lost_s.sum()) / H,
        "held": held / H,
        "work": (held - overhead - float(time.lost.sum())) / H,
        "first_starts": first / H,
        **causes,
    }


def _said(rates: float | Steps | None, amounts: Floats) -> float | None:
    """Return a sum; None where the cluster does not say the rates by which it came."""
    return None if rates is None else float(amounts.sum())


def _energy(metrics: Metrics) -> dict[str, Any]:
    types = metrics.instance.cluster.gpu_types
    return {
        "total": float(metrics.energy_by_type_kwh.sum()),
        "by_type": {
            type_name(name): float(metrics.energy_by_type_kwh[k]) for k, name in enumerate(types)
        },
    }
