"""What a packing is shown as: allocation against arrived demand, bounds, decision times, and who
sits where."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import files
from ..model.instance import Instance
from .bound import upper_bound
from .engine import Packing, allocated_at
from .problem import WHOLE, Problem
from .verify import Placement

LOADS = (80, 85, 90, 95, 100, 110, 120, 130)
"""Arrived demands, in per cent of the GPUs, of the published table."""
PACKING_FORMAT = "optsched-packing/1"


@dataclass(frozen=True, slots=True)
class Point:
    """GPUs allocated once `load` per cent have been asked for; `bound` is what no rule exceeds
    there, None where it was not asked for. Both in per cent of all GPUs."""

    load: int
    allocated: float
    bound: float | None


def gap_percent(point: Point) -> float | None:
    """How far the allocation is below the bound, in per cent of the bound."""
    return (
        None
        if point.bound is None or not point.bound
        else 100 * (point.bound - point.allocated) / point.bound
    )


def points(problem: Problem, packing: Packing, bounds: bool) -> list[Point]:
    """The published loads that were reached, and the last one if it is another."""
    total = problem.gpu_units
    reached = np.rint(packing.arrived_units / total * 100)
    loads = (
        sorted({*(load for load in LOADS if (reached == load).any()), int(reached[-1])})
        if len(reached)
        else []
    )
    found = []
    for load in loads:
        allocated = allocated_at(packing, total, load)
        if allocated is None:
            continue
        bound = None
        if bounds:
            here = np.flatnonzero(reached == load)
            # The mean over these arrivals is at most what the last of them allows, and what had
            # come in the mean.
            proved = upper_bound(problem, packing.order[: int(here[-1]) + 1]).units
            bound = min(proved, float(packing.arrived_units[here].mean())) / total * 100
        found.append(Point(load=load, allocated=allocated, bound=bound))
    return found


def placements(problem: Problem, packing: Packing) -> list[Placement]:
    """Every arrival with where it went."""
    return [
        (problem.names[job], problem.nodes[node].name if node >= 0 else None, gpus)
        for job, node, gpus in zip(packing.order, packing.node, packing.gpus, strict=True)
    ]


def summary(
    instance: Instance,
    problem: Problem,
    packing: Packing,
    found: list[Point],
    rule: str,
    load: float,
    seed: int,
) -> dict[str, Any]:
    """The numbers as one object; `decision_wall_s` alone differs from run to run."""
    last = found[-1] if found else None
    failed = packing.node < 0
    return {
        "instance": {"name": instance.name, "hash": files.instance_hash(instance)},
        "rule": rule,
        "load": load,
        "seed": seed,
        "gpus": problem.gpu_units // WHOLE,
        "arrived": len(packing.order),
        "failed": int(failed.sum()),
        "failed_by_gpus": _by_gpus(problem, packing),
        "allocated_percent": None if last is None else last.allocated,
        "bound_percent": None if last is None else last.bound,
        "gap_percent": None if last is None else gap_percent(last),
        "at_load": [
            {
                "load": one.load,
                "allocated_percent": one.allocated,
                "bound_percent": one.bound,
                "gap_percent": gap_percent(one),
            }
            for one in found
        ],
        "decision_wall_s": decision_times(packing),
    }


def _by_gpus(problem: Problem, packing: Packing) -> dict[str, int]:
    """How many jobs failed, by what they ask for: "0" GPUs, "part" of one, "1", ..."""
    counted: dict[str, int] = {}
    for job, node in zip(packing.order, packing.node, strict=True):
        if node < 0:
            request = problem.requests[int(problem.kinds[job])]
            name = "part" if request.part else str(request.gpus)
            counted[name] = counted.get(name, 0) + 1
    return dict(sorted(counted.items()))


def decision_times(packing: Packing) -> dict[str, float] | None:
    """How long decisions took, in seconds."""
    if not len(packing.decision_s):
        return None
    times = packing.decision_s
    return {
        "mean": float(times.mean()),
        "p50": float(np.quantile(times, 0.5)),
        "p99": float(np.quantile(times, 0.99)),
        "max": float(times.max()),
    }


def as_file(
    instance: Instance, problem: Problem, packing: Packing, rule: str, load: float, seed: int
) -> str:
    """The packing as file text, an arrival a line."""
    rows: list[dict[str, Any]] = []
    for (id_, node, gpus), job in zip(placements(problem, packing), packing.order, strict=True):
        part = problem.requests[int(problem.kinds[job])].part
        row: dict[str, Any] = {"job": id_, "node": node}
        if gpus:
            row["gpus"] = list(gpus)
        if gpus and part:
            row["part"] = part / WHOLE
        rows.append(row)
    return files.lines(
        {
            "format": PACKING_FORMAT,
            "instance": {"name": instance.name, "hash": files.instance_hash(instance)},
            "rule": rule,
            "load": load,
            "seed": seed,
            "arrivals": rows,
        }
    )
