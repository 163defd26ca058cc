"""What the page draws, in as many points as a reader can tell apart, however many jobs there
are."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...frozen import entity
from ...picture.chart import BLOCKED, SIZES, SMALLEST
from ..metrics import Metrics
from ..metrics.steps import held
from ..metrics.use import gpus_held, parts, type_name
from ..metrics.waiting import REASONS
from ..record import Floats, Ints

STEPS, POINTS, NODE_ROWS, NODE_STEPS = 1000, 400, 120, 400
"""Most steps of a curve over time, points of a distribution, and rows and columns of the map of
nodes."""
THINNED, SAMPLED = 200, 1000
"""Most points of a curve of one simulation among many."""
LONG_TAIL, TAIL_SHOWN, TAIL_STEPS = 2.0, 1.25, 0.2
"""Where the last job completes this many times later than it was submitted, only so much of that is
shown at first; the rest has this share of the steps."""


@entity
class Curves:
    """Means between `edges_s` (seconds from `Instance.now_s`) by name, and what there was to be
    had, where that is known."""

    edges_s: Floats
    means: dict[str, Floats]
    there: Floats | None = None


@entity
class NodeMap:
    """Share of the GPUs of each node, or group of neighbours, that is held between `edges_s`
    (seconds from now)."""

    names: tuple[str, ...]
    edges_s: Floats
    share: NDArray[np.float64]


def size_of(gpus: Ints) -> Ints:
    """Return the position in `SIZES` of gangs of so many GPUs."""
    return np.searchsorted(SMALLEST, gpus, side="right") - 1


def shown_s(metrics: Metrics) -> float:
    """Return how much of the time from now is worth showing at first: a few last jobs may take much
    longer than all others."""
    last_s = float(metrics.completion_s.max()) - metrics.instance.now_s
    arrive_s = float(metrics.release_s.max()) - metrics.instance.now_s
    return TAIL_SHOWN * arrive_s if arrive_s > 0 and last_s > LONG_TAIL * arrive_s else last_s


def edges(metrics: Metrics, most: int) -> Floats:
    """Return instants, on the instance's clock, that cut the simulation into steps, equal ones
    where it is shown at first."""
    now_s, last_s = metrics.instance.now_s, float(metrics.completion_s.max())
    until_s = now_s + shown_s(metrics)
    if until_s >= last_s:
        return np.linspace(now_s, last_s, most + 1)
    tail = int(most * TAIL_STEPS)
    return np.concatenate(
        (np.linspace(now_s, until_s, most - tail + 1), np.linspace(until_s, last_s, tail + 1)[1:])
    )


def gpus_in_use(metrics: Metrics, at_s: Floats | None = None) -> Curves:
    """Return GPUs held of each type, and those there are while nodes may be lost, between the
    instants `at_s`."""
    rows, instance = metrics.rows, metrics.instance
    at_s = edges(metrics, STEPS) if at_s is None else at_s
    part = parts(rows)
    start_s, end_s, amount = rows.start_s[part.row], rows.end_s[part.row], part.held
    means = {}
    for k, name in enumerate(instance.cluster.gpu_types):
        mine = np.flatnonzero(part.gpu_type == k)
        means[type_name(name)] = held(start_s[mine], end_s[mine], amount[mine]).averages(at_s)
    return Curves(at_s - instance.now_s, means, _there(metrics, at_s))


def _there(metrics: Metrics, at_s: Floats) -> Floats:
    instance = metrics.instance
    total = np.full(len(at_s) - 1, float(instance.cluster.total_gpus))
    if not instance.outages:
        return total
    away = [
        (entry.start_s, entry.end_s, float(instance.cluster.node[entry.node].gpus))
        for entry in instance.outages
    ]
    start_s, end_s, gpus = np.array(away).T
    return total - held(start_s, end_s, gpus).averages(at_s)


def jobs_waiting(metrics: Metrics) -> Curves:
    """Return waiting jobs by the size of their gang, and those that wait for other jobs."""
    stays = metrics.stays
    at_s = edges(metrics, STEPS)
    size = size_of(metrics.gpus)[stays.job]
    means = {}
    for k, name in enumerate(SIZES):
        mine = np.flatnonzero((size == k) & (stays.start_s > metrics.waits.from_s))
        if len(mine):
            means[name] = held(
                metrics.waits.from_s[mine], stays.start_s[mine], np.ones(len(mine))
            ).averages(at_s)
    blocked = np.flatnonzero(metrics.blocked_s > 0)
    if len(blocked):
        there = held(metrics.release_s[blocked], metrics.ready_s[blocked], np.ones(len(blocked)))
        means[BLOCKED] = there.averages(at_s)
    return Curves(at_s - metrics.instance.now_s, means)


def distribution(values: Floats) -> tuple[Floats, Floats]:
    """Return the empirical distribution: values in order, and the share of all that are at most so
    large."""
    ordered = np.sort(values)
    count = len(ordered)
    if count <= POINTS:
        return ordered, np.arange(1, count + 1) / count
    rank = np.unique(np.linspace(0, count - 1, POINTS).astype(np.int64))
    return ordered[rank], (rank + 1) / count


def thinned(metrics: Metrics) -> dict[str, Any]:
    """Return curves for figures of many simulations, of at most `THINNED` points each: `jct_s`,
    quantiles that cut the jobs into equal parts, the last of them the largest; `sample_jct_s`, JCT
    of up to `SAMPLED` jobs evenly spaced in the order of the instance, the same jobs under every
    policy; `gpus_held`, the share of the GPUs there that is held between `edges_s` (seconds from
    now), None without GPUs or jobs."""
    ordered = np.sort(metrics.jct_s)
    count = len(ordered)
    parts_of = min(count, THINNED)
    rank = -(-np.arange(1, parts_of + 1) * count // max(1, parts_of)) - 1
    held_gpus = None
    if count and metrics.instance.cluster.total_gpus:
        at_s = edges(metrics, THINNED)
        use, there = gpus_in_use(metrics, at_s), _there(metrics, at_s)
        total = np.sum(list(use.means.values()), axis=0)
        share = np.divide(total, there, out=np.zeros_like(total), where=there > 0)
        held_gpus = {"edges_s": _short(use.edges_s), "share": _short(share)}
    sample = np.linspace(0, count - 1, min(count, SAMPLED)).astype(np.int64)
    return {
        "jct_s": _short(ordered[rank]),
        "sample_jct_s": _short(metrics.jct_s[sample]),
        "gpus_held": held_gpus,
    }


def _short(values: Floats) -> list[float]:
    """Round to six digits, more than a picture shows."""
    return [float(f"{value:.6g}") for value in values.tolist()]


def waiting_by_size(metrics: Metrics) -> tuple[list[str], list[int], NDArray[np.float64]]:
    """Return names of the sizes that occur and `all`, how many jobs each has, and its mean wait for
    each reason in seconds."""
    size = size_of(metrics.gpus)
    there = [k for k in range(len(SIZES)) if (size == k).any()]
    names, masks = [SIZES[k] for k in there], [size == k for k in there]
    names.append("all jobs")
    masks.append(np.ones(len(size), dtype=bool))
    means = np.array([metrics.waiting_by_reason_s[mask].mean(axis=0) for mask in masks])
    return names, [int(mask.sum()) for mask in masks], means.reshape(-1, len(REASONS))


def node_map(metrics: Metrics) -> NodeMap:
    """Return how busy each node was over time; neighbours are taken together where there are too
    many."""
    rows, cluster = metrics.rows, metrics.instance.cluster
    nodes = [node for node in cluster.nodes if node.gpus]
    every = -(-len(nodes) // NODE_ROWS)
    group_of = {node.name: i // every for i, node in enumerate(nodes)}
    count = -(-len(nodes) // every)
    at_s = edges(metrics, NODE_STEPS)
    slots = [
        (group_of[slot.node], slot.gpus, i)
        for i, placement in enumerate(rows.placements)
        for slot in placement
        if slot.gpus
    ]
    groups, gpus, of_row = np.array(slots, dtype=np.int64).reshape(-1, 3).T
    amount = gpus_held(rows)[of_row] * gpus / rows.gpus[of_row]
    capacity = np.bincount(
        [group_of[node.name] for node in nodes], [node.gpus for node in nodes], count
    )
    busy = np.zeros((count, NODE_STEPS))
    for k in range(count):
        mine = np.flatnonzero(groups == k)
        busy[k] = held(rows.start_s[of_row[mine]], rows.end_s[of_row[mine]], amount[mine]).averages(
            at_s
        )
    names = []
    for k in range(count):
        first, last = nodes[k * every], nodes[min(len(nodes), (k + 1) * every) - 1]
        names.append(first.name if first is last else f"{first.name} to {last.name}")
    return NodeMap(tuple(names), at_s - metrics.instance.now_s, busy / capacity[:, None])
