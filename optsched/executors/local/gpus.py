"""The nodes declared on this host, their GPUs and their cores."""

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TypeVar

from ...errors import InputError
from ...frozen import frozen
from ...model import Node
from ..orders import names_folder
from ..supervision.processes import alive, identity
from .driver import Driver, Gpu

Taken = TypeVar("Taken")
MPS = "nvidia-cuda-mps"


@frozen
class LocalNode:
    """A node on this host. With `emulate` its GPUs are names only, with which anything can be tried
    anywhere."""

    node: Node
    emulate: bool = False


@frozen
class Share:
    """What of this host a declared node stands for: GPU ids, and the cores it alone uses (None:
    all, unpinned)."""

    local: LocalNode
    gpu_ids: tuple[str, ...]
    cores: tuple[int, ...] | None


def shares(
    nodes: Sequence[LocalNode], driver: Driver, known: Mapping[str, Sequence[str]]
) -> dict[str, Share]:
    """Divide this host among `nodes`, by name. `known` are the GPUs that each real one had before:
    it keeps them, also those that the `driver` no longer lists, unless others are there in their
    place.

    Raises InputError where names are unusable or twice there, or real GPUs are too few.
    """
    if not nodes:
        raise InputError("the local executor has no nodes; declare at least one")
    for local in nodes:
        name = local.node.name
        if not names_folder(name):
            raise InputError(
                f"node {name!r} cannot be a folder; use up to 63 letters, digits, dots, dashes and "
                "underscores, with a letter or digit at both ends, and not ending in .json"
            )
        if sum(other.node.name == name for other in nodes) > 1:
            raise InputError(f"node {name} is declared twice; give each node a name of its own")
    real = _real_gpus(nodes, driver, known)
    cores = sorted(os.sched_getaffinity(0))
    pinned = sum(local.node.cpus or 0 for local in nodes) <= len(cores)
    made: dict[str, Share] = {}
    for local in nodes:
        node, own = local.node, None
        emulated = tuple(f"EMULATED-{node.name}-{i}" for i in range(node.gpus))
        if pinned and node.cpus is not None:
            own, cores = tuple(cores[: node.cpus]), cores[node.cpus :]
        ids = emulated if local.emulate else real[node.name]
        made[node.name] = Share(local=local, gpu_ids=ids, cores=own)
    return made


def _real_gpus(
    nodes: Sequence[LocalNode], driver: Driver, known: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """Return the GPUs of each node that is not emulated, all of one kind: a gang does not mix whole
    GPUs and instances."""
    real = [local.node for local in nodes if not local.emulate]
    before = {node.name: known.get(node.name, ()) for node in real}
    wanted = sum(node.gpus for node in real)
    if wanted == 0:
        return {node.name: () for node in real}
    try:
        listed = driver.first()
    except LookupError as error:
        if all(len(before[node.name]) >= node.gpus for node in real):
            return {node.name: tuple(before[node.name][: node.gpus]) for node in real}
        raise InputError(
            f"{wanted} GPUs are declared here but {error}; mend that, or set "
            "emulate = true under [[nodes]]"
        ) from None
    chosen, kinds = _divided(real, before, listed)
    _check_kinds(real, kinds)
    return chosen


def _divided(
    real: Sequence[Node], before: Mapping[str, Sequence[str]], listed: Sequence[Gpu]
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Return the GPUs of each node and, where it has any, their kind: of those it had `before`
    first what is `listed`, then others of the kind that nobody had, then what is gone."""
    kind_of = {gpu.id: gpu.kind for gpu in listed}
    kept = {name: [gpu for gpu in had if gpu in kind_of] for name, had in before.items()}
    for node in real:
        del kept[node.name][node.gpus :]
    taken = set(chain(*kept.values()))
    chosen: dict[str, tuple[str, ...]] = {}
    kinds: dict[str, str] = {}
    for node in real:
        had, mine = before[node.name], kept[node.name]
        left = [gpu for gpu in listed if gpu.id not in taken]
        kind = kind_of[mine[0]] if mine else _kind(node, [gpu.kind for gpu in left])
        fresh = [gpu.id for gpu in left if gpu.kind == kind]
        mine += [*fresh, *(gpu for gpu in had if gpu not in kind_of)][: node.gpus - len(mine)]
        if len(mine) < node.gpus:
            raise InputError(_too_few(sum(node.gpus for node in real), listed, node))
        taken.update(mine)
        chosen[node.name] = tuple(sorted(mine, key=[*had, *mine].index))
        if node.gpus:
            kinds[node.name] = kind
    return chosen, kinds


def _kind(node: Node, there: Sequence[str]) -> str:
    """Return the kind whose profile is in the GPU type that the node declares, else whole GPUs,
    else the one there is most of."""
    named = [kind for kind in dict.fromkeys(there) if kind and kind in (node.gpu_type or "")]
    if named or "" in there or not there:
        return named[0] if named else ""
    return max(dict.fromkeys(there), key=there.count)


def _too_few(wanted: int, listed: Sequence[Gpu], node: Node) -> str:
    counts = Counter(gpu.kind for gpu in listed)
    if len(counts) < 2:
        return (
            f"{wanted} GPUs are declared on this host, which has {len(listed)}; declare no more, "
            "or set emulate = true under [[nodes]]"
        )
    have = ", ".join(f"{count} {kind or 'whole'}" for kind, count in sorted(counts.items()))
    return (
        f"node {node.name} declares {node.gpus} GPUs, all of one kind; this host has {have}; "
        "declare a node for each kind, with its profile in gpu_type"
    )


def _check_kinds(real: Sequence[Node], kinds: Mapping[str, str]) -> None:
    """Raise InputError where nodes of one GPU type would have GPUs of several kinds."""
    of_type: dict[str | None, tuple[str, str]] = {}
    for node in real:
        if node.name in kinds:
            first, kind = of_type.setdefault(node.gpu_type, (node.name, kinds[node.name]))
            if kind != kinds[node.name]:
                raise InputError(
                    f"nodes {first} and {node.name} have the same gpu_type but GPUs of different "
                    f"kinds ({kind or 'whole'}, {kinds[node.name] or 'whole'}); give them different"
                    " ones"
                )


def stranger_on(gpu: Gpu) -> int | None:
    """Return a process that still uses a GPU which no attempt holds, None where none does.
    Processes that have ended since the driver was asked do not count, nor those of other
    containers, which have no number here, nor the server of MPS, which waits for its next
    client."""
    for pid in gpu.pids:
        who = identity(pid)
        if who is not None and alive(who):
            with suppress(OSError):
                if not Path(f"/proc/{pid}/comm").read_text().startswith(MPS):
                    return pid
    return None


def free(
    all_of_them: Sequence[Taken], held: Collection[Taken], wanted: int
) -> tuple[Taken, ...] | None:
    """Return the first `wanted` that are not held, None if there are too few."""
    left = [item for item in all_of_them if item not in held]
    return tuple(left[:wanted]) if len(left) >= wanted else None
