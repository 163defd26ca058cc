"""A plain genetic search with the operators of Pollux's: what its exact solution must not fall
behind."""

import numpy as np
from numpy.typing import NDArray

from optsched_solvers.policies.pollux.state import Parts, State

Ints = NDArray[np.int64]
POPULATION = 100
GENERATIONS = 100


def search(state: State, draw: np.random.Generator) -> tuple[Parts, ...]:
    """The best allocation found; states are GPUs by job and node, on nodes of one GPU type."""
    base = np.array(
        [[dict(job.now).get(node, 0) for node in range(len(state.nodes))] for job in state.jobs]
    )
    room = np.array([node.gpus for node in state.nodes])
    most = np.array([max(gpus for _, gpus in job.alone) for job in state.jobs])
    states = [
        _repair(_mutated(base.copy(), base, room, draw), room, most, draw)
        for _ in range(POPULATION - 1)
    ]
    states.append(base)
    values = [state.total(_parts(one)) for one in states]
    for _ in range(GENERATIONS):
        children = []
        for _ in range(POPULATION // 2):
            a, b = (_winner(values, draw) for _ in range(2))
            point = int(draw.integers(len(base)))
            for one, other in ((a, b), (b, a)):
                child = np.concatenate([states[other][:point], states[one][point:]])
                children.append(_repair(_mutated(child, base, room, draw), room, most, draw))
        states += children
        values += [state.total(_parts(one)) for one in children]
        order = np.argsort(values, kind="stable")[:POPULATION]
        states, values = [states[i] for i in order], [values[i] for i in order]
    return _parts(states[0])


def _winner(values: list[float], draw: np.random.Generator) -> int:
    a, b = draw.integers(len(values), size=2)
    return int(a if values[a] <= values[b] else b)


def _parts(state: Ints) -> tuple[Parts, ...]:
    return tuple(tuple((int(node), int(row[node])) for node in row.nonzero()[0]) for row in state)


def _mutated(state: Ints, base: Ints, room: Ints, draw: np.random.Generator) -> Ints:
    """Some jobs get back what they hold, some lose parts, some parts grow where GPUs are free."""
    state = np.where(draw.random((len(state), 1)) < 0.1, base, state)
    lose = np.where(draw.random((len(state), 1)) < 0.1, 0.1, 0.0)
    state[draw.random(state.shape) < lose] = 0
    may = np.broadcast_to(room - state.sum(axis=0) >= 1, state.shape)
    anywhere = may / np.maximum(may.sum(axis=0), 1)
    more = (state > 0) & may
    there = more / np.maximum(more.sum(axis=0), 1)
    grows = draw.random(state.shape) < anywhere + there - anywhere * there
    state[grows] = draw.integers(state, np.maximum(room, state) + 1)[grows]
    return state


def _repair(state: Ints, room: Ints, most: Ints, draw: np.random.Generator) -> Ints:
    """At most one spread gang on a node, no job over its most, no node over what it has; the
    earlier jobs first."""
    spread = (np.count_nonzero(state, axis=1) > 1)[:, None] & (state > 0)
    state[spread & (spread.cumsum(axis=0) > 1)] = 0
    order = draw.permutation(state.shape[1])
    cut = np.diff(np.minimum(state[:, order].cumsum(axis=1), most[:, None]), axis=1, prepend=0)
    state = np.empty_like(state)
    state[:, order] = cut
    return np.diff(np.minimum(state.cumsum(axis=0), room), axis=0, prepend=0)
