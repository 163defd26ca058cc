"""From an order to what is written down before anything starts: who gets which GPUs and cores, and
all variables."""

import socket
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...model.instance import Slot
from ..attempts.folder import AttemptFolder
from ..base import Order, RefusedError
from ..orders import check, everybodys_environment, recorded, recorded_node, told_on_node
from ..supervision import cgroups
from .gpus import Share, free


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What other attempts hold; `beside` are the GPU ids to use, by node, where it shares those of
    another."""

    gpu_ids: Set[str]
    cores: Set[int]
    ports: Set[int]
    beside: Mapping[str, tuple[str, ...]] | None


def specification(
    order: Order,
    shares: Mapping[str, Share],
    held: Held,
    group_parents: dict[str, str],
    folder: AttemptFolder,
    boot: str,
    outputs: Path | None,
) -> dict[str, Any]:
    """The record of an attempt to be started, whose output is kept below `outputs`, None for beside
    its records. Raises RefusedError."""
    check(order, shares=True)
    names = [slot.node for slot in order.placement]
    port = _free_port(held.ports) if len(names) > 1 else None
    environment = everybodys_environment(order, folder.progress_path)
    if port is not None:
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return {
        **recorded(order),
        "boot": boot,
        "port": port,
        "beside": None if order.beside is None else str(order.beside),
        "environment": environment,
        "nodes": [
            {
                **_node(order, rank, shares.get(slot.node), held, group_parents, folder.path),
                "output": None
                if outputs is None
                else str(outputs / order.key.job / str(order.key.number) / slot.node),
            }
            for rank, slot in enumerate(order.placement)
        ],
    }


def _node(
    order: Order,
    rank: int,
    share: Share | None,
    held: Held,
    group_parents: dict[str, str],
    folder: Path,
) -> dict[str, Any]:
    slot = order.placement[rank]
    if share is None:
        raise RefusedError(f"node {slot.node} is not one of this executor")
    gpu_ids, cores = _gpu_ids(order, slot, share, held), None
    if share.cores is not None and slot.cpus:
        cores = free(share.cores, held.cores, slot.cpus)
        if cores is None:
            raise RefusedError(f"node {slot.node} has fewer than {slot.cpus} cores free")
    return {
        **recorded_node(order, rank),
        "gpu_ids": gpu_ids,
        "cores": cores,
        "environment": {**told_on_node(order, rank), "CUDA_VISIBLE_DEVICES": ",".join(gpu_ids)},
        "cgroups": cgroups.below(group_parents, order.key.job, f"{folder}/{slot.node}"),
    }


def _gpu_ids(order: Order, slot: Slot, share: Share, held: Held) -> tuple[str, ...]:
    if held.beside is not None:
        beside = held.beside.get(slot.node, ())
        if len(beside) != slot.gpus:
            raise RefusedError(
                f"{order.beside}, whose GPUs it shares, has {len(beside)} on {slot.node}, not "
                f"{slot.gpus}"
            )
        return beside
    gpu_ids = free(share.gpu_ids, held.gpu_ids, slot.gpus)
    if gpu_ids is None:
        left = len([gpu for gpu in share.gpu_ids if gpu not in held.gpu_ids])
        raise RefusedError(
            f"node {slot.node} has {left} of its {len(share.gpu_ids)} GPUs free, not {slot.gpus}"
        )
    return gpu_ids


def _free_port(held: Set[int]) -> int:
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in held:
            return port
