"""What a packing is shown as: allocation against arrived demand, bounds, decision times, and who
sits where."""

from collections import Counter
from typing import Any

import numpy as np

from .. import files
from ..frozen import record
from ..model import Instance
from .bound import upper_bound
from .engine import Packing, allocated_at
from .problem import WHOLE, Problem
from .verify import Placement

LOADS = (80, 85, 90, 95, 100, 110, 120, 130)
"""Arrived demands, in per cent of the GPUs, of the published table."""
PACKING_FORMAT = "optsched-packing/1"


@record
class Point:
    """GPUs allocated once `load` per cent have been asked for; `bound` is what no rule exceeds
    there, None where it was not asked for. Both in per cent of all GPUs."""

    load: int
    allocated: float
    bound: float | None


def gap_percent(point: Point) -> float | None:
    """Return how far the allocation is below the bound, in per cent of the bound."""
    return (
        None
        if point.bound is None or not point.bound
        else 100 * (point.bound - point.allocated) / point.bound
    )


def points(problem: Problem, packing: Packing, bounds: bool) -> list[Point]:
    """Return the published loads that were reached, and the last one if it is another."""
    total = problem.gpu_units
    reached = np.rint(packing.arrived_units / total * 100)
    last = reached[-1:].astype(int).tolist()
    made = []
    for load in sorted({*LOADS, *last}):
        here = np.flatnonzero(reached == load)
        allocated = allocated_at(packing, total, load)
        if allocated is None:
            continue
        bound = None
        if bounds:
            # The mean over these arrivals is at most what the last of them allows, and what had
            # come in the mean.
            proved = upper_bound(problem, packing.order[: int(here[-1]) + 1]).units
            bound = min(proved, float(packing.arrived_units[here].mean())) / total * 100
        made.append(Point(load=load, allocated=allocated, bound=bound))
    return made


def placements(problem: Problem, packing: Packing) -> list[Placement]:
    """Return every arrival with where it went."""
    return [
        (problem.names[job], problem.nodes[node].name if node >= 0 else None, gpus)
        for job, node, gpus in zip(packing.order, packing.node, packing.gpus, strict=True)
    ]


def heading(instance: Instance, rule: str, load: float, seed: int) -> dict[str, Any]:
    """Return what was packed, and how."""
    named = {"name": instance.name, "hash": files.instance_hash(instance)}
    return {"instance": named, "rule": rule, "load": load, "seed": seed}


def summary(
    heading: dict[str, Any], problem: Problem, packing: Packing, points: list[Point]
) -> dict[str, Any]:
    """Return the numbers as one object; `decision_wall_s` alone differs from run to run."""
    levels = [
        {
            "load": point.load,
            "allocated_percent": point.allocated,
            "bound_percent": point.bound,
            "gap_percent": gap_percent(point),
        }
        for point in points
    ]
    last = levels[-1] if levels else {}
    return {
        **heading,
        "gpus": problem.gpu_units // WHOLE,
        "arrived": len(packing.order),
        "failed": int((packing.node < 0).sum()),
        "failed_by_gpus": _failed_by_gpus(problem, packing),
        **{key: last.get(key) for key in ("allocated_percent", "bound_percent", "gap_percent")},
        "at_load": levels,
        "decision_wall_s": decision_times(packing),
    }


def _failed_by_gpus(problem: Problem, packing: Packing) -> dict[str, int]:
    """Return how many jobs failed, by what they ask for: "0" GPUs, "part" of one, "1", ..."""
    asked = (problem.requests[kind] for kind in problem.kinds[packing.order[packing.node < 0]])
    counts = Counter("part" if request.part else str(request.gpus) for request in asked)
    return dict(sorted(counts.items()))


def decision_times(packing: Packing) -> dict[str, float] | None:
    """Return how long decisions took, in seconds."""
    times = packing.decision_s
    if not len(times):
        return None
    p50, p99 = np.quantile(times, (0.5, 0.99)).tolist()
    return {"mean": float(times.mean()), "p50": p50, "p99": p99, "max": float(times.max())}


def as_file(heading: dict[str, Any], problem: Problem, packing: Packing) -> str:
    """Return the packing as file text, an arrival a line."""
    rows: list[dict[str, Any]] = []
    for (id_, node, gpus), job in zip(placements(problem, packing), packing.order, strict=True):
        part = problem.requests[int(problem.kinds[job])].part
        row: dict[str, Any] = {"job": id_, "node": node}
        if gpus:
            row["gpus"] = list(gpus)
        if gpus and part:
            row["part"] = part / WHOLE
        rows.append(row)
    return files.lines({"format": PACKING_FORMAT, **heading, "arrivals": rows})
