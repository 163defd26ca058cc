"""How much of the cluster was held: GPUs by type, and cores."""

from collections.abc import Iterator

import numpy as np

from ...frozen import entity
from ...model import Cluster, Instance, Node
from ...physics import gpus_by_type
from ..record import SEVERAL_TYPES, Floats, Ints, Record
from .sums import sums


def type_name(gpu_type: str | None) -> str:
    """Return what GPUs of a type are called; those without one are just GPUs."""
    return gpu_type or "GPU"


def gpus_held(rows: Record) -> Floats:
    """Return GPUs that each row holds; of those that two jobs share each holds half."""
    return rows.gpus * _share_held(rows)


def _share_held(rows: Record) -> Floats:
    """Return what each row holds of each of its GPUs in the mean, which it shares or not."""
    overlap = [
        1.0 - sum(mode.shared_gpus.values()) / (2.0 * max(1, mode.gpus)) for mode in rows.modes
    ]
    of_row = np.array(overlap)[rows.mode] if overlap else np.ones(rows.rows)
    return np.where(rows.partner >= 0, 0.5, of_row)


@entity
class Parts:
    """What rows hold of each GPU type: one part for a row on GPUs of one type, more for a gang on
    several.

    `row` is its row, `gpus` how many of the GPUs of that row are of type `gpu_type`; of those that
    two jobs share each has half in `held`. In the order of the rows.
    """

    row: Ints
    gpu_type: Ints
    gpus: Floats
    held: Floats


def parts(rows: Record) -> Parts:
    """Return the parts of all rows with GPUs. O(rows)."""
    whole = np.flatnonzero(rows.gpu_type >= 0)
    several = np.flatnonzero(rows.gpu_type == SEVERAL_TYPES)
    share = _share_held(rows)
    if not len(several):
        gpus = rows.gpus[whole].astype(np.float64)
        return Parts(whole, rows.gpu_type[whole], gpus, gpus * share[whole])
    cluster = rows.instance.cluster
    number = {name: k for k, name in enumerate(cluster.gpu_types)}
    more = [
        (row, number[gpu_type], held)
        for row in several.tolist()
        for gpu_type, held in gpus_by_type(cluster, rows.placements[row]).items()
    ]
    plain = np.stack((whole, rows.gpu_type[whole], rows.gpus[whole]), axis=1)
    every = np.concatenate((plain, np.array(more, dtype=np.int64)))
    row, of_type, count = every[np.argsort(every[:, 0], kind="stable")].T
    gpus = count.astype(np.float64)
    return Parts(row, of_type, gpus, gpus * share[row])


def gpu_seconds(rows: Record, until_s: float) -> Floats:
    """Return GPU-seconds held of each GPU type until an instant; a GPU that two jobs share is held
    once."""
    length_s = np.clip(np.minimum(rows.end_s, until_s) - rows.start_s, 0.0, None)
    part = parts(rows)
    return sums(part.gpu_type, part.held * length_s[part.row], len(rows.instance.cluster.gpu_types))


def gpu_capacity_s(instance: Instance, until_s: float) -> tuple[Floats, Floats]:
    """Return GPU-seconds there are of each GPU type from `now_s` until an instant, and those
    missing while nodes are lost."""
    cluster = instance.cluster
    place = {name: k for k, name in enumerate(cluster.gpu_types)}
    whole, lost = np.zeros(len(place)), np.zeros(len(place))
    length_s = max(0.0, until_s - instance.now_s)
    for node in cluster.nodes:
        if node.gpus:
            whole[place[node.gpu_type]] += node.gpus * length_s
    for node, lost_s in _lost(instance, until_s):
        if node.gpus:
            lost[place[node.gpu_type]] += node.gpus * lost_s
    return whole - lost, lost


def _lost(instance: Instance, until_s: float) -> Iterator[tuple[Node, float]]:
    """Yield each node that is lost before an instant, and how long until then."""
    for entry in instance.outages:
        yield (
            instance.cluster.node[entry.node],
            max(0.0, min(entry.end_s, until_s) - entry.start_s),
        )


def core_seconds(rows: Record, until_s: float) -> tuple[float, float]:
    """Return core-seconds held and there until an instant, on nodes whose cores are modelled and
    that are not lost."""
    instance = rows.instance
    cluster = instance.cluster
    length_s = max(0.0, until_s - instance.now_s)
    there_s = sum(node.cpus or 0 for node in cluster.nodes) * length_s
    for node, lost_s in _lost(instance, until_s):
        there_s -= (node.cpus or 0) * lost_s
    held_s = np.clip(np.minimum(rows.end_s, until_s) - rows.start_s, 0.0, None)
    return float(np.sum(_modelled_cores(rows, cluster) * held_s)), there_s


def _modelled_cores(rows: Record, cluster: Cluster) -> Floats:
    """Return cores of each row on nodes whose cores are modelled."""
    if all(node.cpus is not None for node in cluster.nodes):
        return rows.cpus.astype(np.float64)
    node = cluster.node
    return np.array(
        [
            sum(slot.cpus for slot in slots if node[slot.node].cpus is not None)
            for slots in rows.placements
        ],
        np.float64,
    )
