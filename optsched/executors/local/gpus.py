"""The nodes declared on this host, their GPUs and their cores."""

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TypeVar

from ...cluster import Node
from ...errors import InputError

Taken = TypeVar("Taken")

NODE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""Names of nodes here are names of folders too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNode:
    """A node on this host. With `emulate` its GPUs are names only, with which anything can be tried anywhere."""

    node: Node
    emulate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What of this host a declared node stands for: GPU ids, and the cores it alone uses (None: all, unpinned)."""

    local: LocalNode
    gpu_ids: tuple[str, ...]
    cores: tuple[int, ...] | None


def shares(nodes: Sequence[LocalNode]) -> dict[str, Share]:
    """Divide this host among `nodes`, by name.

    Raises InputError where names are unusable or twice there, or real GPUs are too few.
    """
    if not nodes:
        raise InputError("the local executor has no nodes; declare at least one")
    for local in nodes:
        name = local.node.name
        if not NODE_NAME.fullmatch(name) or name.endswith(".json"):
            raise InputError(
                f"node {name!r} cannot be a folder; use up to 63 letters, digits, dots, dashes and underscores, "
                "with a letter or digit at both ends, and not ending in .json"
            )
        if sum(other.node.name == name for other in nodes) > 1:
            raise InputError(f"node {name} is declared twice; give each node a name of its own")
    real = _real_gpus(nodes)
    cores = sorted(os.sched_getaffinity(0))
    pinned = sum(local.node.cpus or 0 for local in nodes) <= len(cores)
    found: dict[str, Share] = {}
    for local in nodes:
        node, ids = local.node, tuple(f"EMULATED-{local.node.name}-{i}" for i in range(local.node.gpus))
        if not local.emulate:
            ids, real = real[: node.gpus], real[node.gpus :]
        own = None
        if pinned and node.cpus is not None:
            own, cores = tuple(cores[: node.cpus]), cores[node.cpus :]
        found[node.name] = Share(local=local, gpu_ids=ids, cores=own)
    return found


def _real_gpus(nodes: Sequence[LocalNode]) -> tuple[str, ...]:
    wanted = sum(local.node.gpus for local in nodes if not local.emulate)
    if wanted == 0:
        return ()
    try:
        found = driver_gpus()
    except LookupError as error:
        raise InputError(f"{wanted} GPUs are declared here but {error}; mend that, or set emulate = true") from None
    if len(found) < wanted:
        raise InputError(
            f"{wanted} GPUs are declared on this host, which has {len(found)}; declare no more, or set emulate = true"
        )
    return found


def driver_gpus() -> tuple[str, ...]:
    """Ids of the GPUs of this host, in the driver's order; of a GPU that is divided (MIG) its instances instead.

    Raises LookupError, with a clause that says why they cannot be listed.
    """
    try:
        import pynvml
    except ImportError:
        raise LookupError("nvidia-ml-py is not installed (pip install optsched)") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise LookupError(f"NVIDIA's management library does not answer ({error})") from None
    try:
        found: list[str] = []
        for i in range(pynvml.nvmlDeviceGetCount()):
            gpu = pynvml.nvmlDeviceGetHandleByIndex(i)
            found += _instances(pynvml, gpu) or [str(pynvml.nvmlDeviceGetUUID(gpu))]
        return tuple(found)
    except pynvml.NVMLError as error:
        raise LookupError(f"NVIDIA's management library cannot list them ({error})") from None
    finally:
        pynvml.nvmlShutdown()


def _instances(pynvml: ModuleType, gpu: object) -> list[str]:
    try:
        if not pynvml.nvmlDeviceGetMigMode(gpu)[0]:
            return []
    except pynvml.NVMLError:  # a GPU that cannot be divided
        return []
    found = []
    for i in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            found.append(str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i))))
        except pynvml.NVMLError:  # no instance has this number
            continue
    return found


def free(all_of_them: Sequence[Taken], held: Collection[Taken], wanted: int) -> tuple[Taken, ...] | None:
    """The first `wanted` that are not held, None if there are too few."""
    left = [one for one in all_of_them if one not in held]
    return tuple(left[:wanted]) if len(left) >= wanted else None
