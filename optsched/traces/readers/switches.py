"""The clusters of Tiresias and Muri: tables of switches, nodes below each, and what a node has."""

from pathlib import Path

from ...errors import InputError
from ...model import Cluster, Node
from ..clusters import GPU_MEMORY_GIB, MAX_GPUS, cluster_of
from ..tables.table import Table

COLUMNS = ("num_switch", "num_node_p_switch", "num_gpu_p_node", "num_cpu_p_node", "mem_p_node")


def cluster_by_switches(path: Path, gpu_type: str) -> Cluster:
    """Return nodes of `gpu_type` for a table of one row; each switch is a rack. Raises
    InputError."""
    rows = list(Table(path, COLUMNS).rows())
    if len(rows) != 1:
        raise InputError(
            f"{path}: expected one row below the header, with the cluster, not {len(rows)}"
        )
    switches, nodes, gpus, cpus, memory_gb = map(rows[0].whole, COLUMNS)
    if min(switches, nodes, gpus) < 1 or switches * nodes * gpus > MAX_GPUS:
        rows[0].refuse(f"at least one switch, node and GPU, and at most {MAX_GPUS} GPUs")
    return Cluster(
        reference_gpu=gpu_type,
        nodes=tuple(
            Node(
                name=f"node-{i}",
                gpu_type=gpu_type,
                gpus=gpus,
                cpus=cpus or None,
                memory_gib=round(memory_gb * 1e9 / 2**30, 3) or None,
                gpu_memory_gib=GPU_MEMORY_GIB[gpu_type],
                rack=f"switch-{i // nodes}",
            )
            for i in range(switches * nodes)
        ),
    )


def chosen_cluster(
    cluster: str | None, gpus_per_node: int | None, switches: str | Path | None, default: Cluster
) -> Cluster:
    """Return the cluster that the options name, or the default one. Raises InputError where they do
    not go together."""
    gpu_type = default.reference_gpu
    assert gpu_type is not None
    if switches is not None:
        if cluster is not None or gpus_per_node is not None:
            raise InputError(
                "--switches names the whole cluster; leave out --cluster and --gpus-per-node"
            )
        return cluster_by_switches(Path(switches), gpu_type)
    if cluster is None and gpus_per_node is None:
        return default
    return cluster_of(
        cluster or f"{gpu_type}={default.total_gpus}", gpus_per_node or default.nodes[0].gpus
    )
