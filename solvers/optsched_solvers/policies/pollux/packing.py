"""Placing gangs of given sizes, at most one of those spread over several nodes on each node."""

from .state import Parts, State


def pack(state: State, sizes: list[tuple[int, bool]]) -> tuple[tuple[Parts, ...], bool]:
    """Places for gangs of so many GPUs (on one GPU type), where the flag says that a job keeps what
    it holds, and whether all have one. One that does not fit gets the most that does.

    Gangs larger than a node go first, the largest before, on the emptiest nodes; the others on the
    fullest node that still holds them, the largest before.
    """
    free = [node.gpus for node in state.nodes]
    hosts = [False] * len(free)
    given: list[Parts] = [()] * len(sizes)
    whole = True
    for i, (gpus, keeps) in enumerate(sizes):
        if keeps and _fits(state.jobs[i].now, free, hosts):
            given[i] = state.jobs[i].now
            _take(given[i], free, hosts)
        elif keeps:
            sizes[i] = gpus, False
            whole = False
    largest = max(node.gpus for node in state.nodes)
    order = sorted(
        (i for i, (gpus, _) in enumerate(sizes) if gpus and not given[i]),
        key=lambda i: -sizes[i][0],
    )
    for i in order:
        gpus = sizes[i][0]
        parts = _over_several(gpus, free, hosts) if gpus > largest else _on_one(gpus, free)
        if not parts:
            whole = False
            parts = _smaller(state, i, gpus, free)
        given[i] = parts
        _take(parts, free, hosts)
    return tuple(given), whole


def _fits(parts: Parts, free: list[int], hosts: list[bool]) -> bool:
    return all(gpus <= free[node] and not (len(parts) > 1 and hosts[node]) for node, gpus in parts)


def _take(parts: Parts, free: list[int], hosts: list[bool]) -> None:
    for node, gpus in parts:
        free[node] -= gpus
        hosts[node] |= len(parts) > 1


def _over_several(gpus: int, free: list[int], hosts: list[bool]) -> Parts:
    """Return all of the emptiest nodes, and of the rest of them the fullest that holds the end."""
    parts: list[tuple[int, int]] = []
    open_nodes = [node for node, count in enumerate(free) if count and not hosts[node]]
    open_nodes.sort(key=lambda node: -free[node])
    while open_nodes:
        enough = sorted(node for node in open_nodes if gpus <= free[node])
        if enough:
            parts.append((min(enough, key=lambda node: free[node]), gpus))
            return tuple(sorted(parts))
        node = open_nodes.pop(0)
        parts.append((node, free[node]))
        gpus -= free[node]
    return ()


def _on_one(gpus: int, free: list[int]) -> Parts:
    node = min(
        (node for node, count in enumerate(free) if count >= gpus),
        key=lambda node: free[node],
        default=None,
    )
    return () if node is None else ((node, gpus),)


def _smaller(state: State, i: int, most: int, free: list[int]) -> Parts:
    """The best of the smaller sizes that fit on one node."""
    fitting = [_on_one(gpus, free) for _, gpus in state.jobs[i].alone if gpus < most]
    return min(fitting, key=lambda parts: state.cost(state.jobs[i], parts), default=())
