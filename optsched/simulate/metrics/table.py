"""The jobs of a simulation as a table: what `jobs.csv` and `jobs.parquet` hold."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...physics import gpus_by_type
from ..record import SEVERAL_TYPES
from .measure import Metrics
from .use import type_name
from .waiting import REASONS

Column = Callable[[Metrics], list[Any]]


def _numbers(*names: str) -> dict[str, Column]:
    return {name: lambda metrics, name=name: getattr(metrics, name).tolist() for name in names}  # type: ignore[misc]


def _type(metrics: Metrics) -> list[str | None]:
    cluster, rows = metrics.instance.cluster, metrics.rows
    names = [*(type_name(name) for name in cluster.gpu_types), None]
    several = {
        rows.job[row]: "+".join(map(type_name, gpus_by_type(cluster, rows.placements[row])))
        for row in np.flatnonzero(rows.gpu_type == SEVERAL_TYPES)
    }
    return [
        several[j] if k == SEVERAL_TYPES else names[k]
        for j, k in enumerate(metrics.gpu_type.tolist())
    ]


def _where_said(*names: str) -> dict[str, Column]:
    """Return columns of numbers, empty where these are NaN."""
    return {
        name: lambda metrics, name=name: [  # type: ignore[misc]
            None if math.isnan(number) else number for number in getattr(metrics, name).tolist()
        ]
        for name in names
    }


COLUMNS: dict[str, Column] = {
    "id": lambda metrics: [job.id for job in metrics.instance.jobs],
    "tenant": lambda metrics: [job.tenant for job in metrics.instance.jobs],
    "user": lambda metrics: [job.user for job in metrics.instance.jobs],
    **_numbers("gpus"),
    "gpu_type": _type,
    **_numbers(
        *("submit_s", "ready_s", "first_start_s", "completion_s"),
        *("jct_s", "blocked_s", "waiting_s"),
    ),
    **{
        f"waiting_{name}_s": lambda metrics, k=k: metrics.waiting_by_reason_s[:, k].tolist()  # type: ignore[misc]
        for k, name in enumerate(REASONS)
    },
    **_numbers(
        *("held_s", "held_gpu_s", "overhead_gpu_s", "lost_gpu_s"),
        *("restarts", "preemptions", "failures", "out_of_memory", "node_losses", "energy_kwh"),
    ),
    **_where_said("energy_cost", "carbon_g"),
    **_numbers("finish_time_fairness", "contention_slowdown"),
    **_where_said("late_s"),
}
"""Each column by name. Empty (null) where it says nothing: no tenant, no GPU, no deadline."""


TEXTS = ("id", "tenant", "user", "gpu_type")


def columns(metrics: Metrics) -> dict[str, list[Any]]:
    """Return all columns, one entry a job in the order of the instance."""
    return {name: make(metrics) for name, make in COLUMNS.items()}
