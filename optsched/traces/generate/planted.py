"""Planted packings: jobs cut out of a cluster that is busy for ten hours to the last GPU.

The nodes times `HORIZON_S` are a rectangle. It is cut in two again and again, in time (at whole
minutes), between nodes or between the GPUs of a node, until there are as many pieces as jobs; each
piece becomes a job of so many GPUs and so long. All are there at 0, with the same rate anywhere and
without overheads: put back together they end at `HORIZON_S`, and no plan ends sooner, as that is
their GPU time over the GPUs. The least makespan is `HORIZON_S`, whatever the seed.

Where the nodes have a power of two of GPUs all gangs are powers of two; on other nodes they may
have any size. Cuts are those of guillotine packings (Gilmore and Gomory, Operations Research 13,
1965).
"""

import numpy as np

from ...errors import InputError
from ...model import Cluster, Instance, Job, Node
from .ranges import check_ranges

HORIZON_S = 36_000
UNIT_S = 60
GPU_TYPE = "a100"

Piece = tuple[int, int]
"""GPUs and minutes."""


def generate(*, jobs: int, gpus: int, seed: int, gpus_per_node: int = 8) -> Instance:
    """Return an instance whose least makespan is `HORIZON_S`: `jobs` pieces of `gpus` GPUs, in
    whole nodes.

    Raises InputError for arguments out of range, and where the cluster cannot be cut into so few or
    so many jobs.
    """
    check_ranges(jobs=jobs, gpus=gpus, gpus_per_node=gpus_per_node, seed=seed)
    nodes = gpus // gpus_per_node
    if nodes * gpus_per_node != gpus:
        near = " or ".join(str(n * gpus_per_node) for n in (nodes, nodes + 1) if n)
        raise InputError(
            f"generate: {gpus} GPUs are no whole nodes of {gpus_per_node}; ask for {near}, or give "
            "--gpus-per-node"
        )
    rng = np.random.default_rng(seed)
    pieces = _cut(nodes, gpus_per_node, jobs, rng)
    made = tuple(
        Job(id=f"job-{i}", gpus=pieces[k][0], duration_s=float(pieces[k][1] * UNIT_S))
        for i, k in enumerate(rng.permutation(len(pieces)))
    )
    return Instance(
        name=f"planted-{jobs}-jobs-{nodes * gpus_per_node}-gpus-{gpus_per_node}-a-node-seed-{seed}",
        cluster=Cluster(
            nodes=tuple(
                Node(name=f"n{i}", gpu_type=GPU_TYPE, gpus=gpus_per_node) for i in range(nodes)
            )
        ),
        jobs=made,
    )


def _cut(nodes: int, per_node: int, jobs: int, rng: np.random.Generator) -> list[Piece]:
    """Return pieces that fill the rectangle; larger ones are cut more often."""
    gpus, minutes = nodes * per_node, HORIZON_S // UNIT_S
    binary = per_node & (per_node - 1) == 0
    pieces = _powers_of_two(gpus, minutes) if binary else [(gpus, minutes)]
    if not len(pieces) <= jobs <= gpus * minutes:
        raise InputError(
            f"generate: {gpus} GPUs for {HORIZON_S // 3600} h are cut into {len(pieces)} to "
            f"{gpus * minutes:,} jobs, not {jobs}"
        )
    while len(pieces) < jobs:
        area = np.array(
            [0 if piece == (1, 1) else piece[0] * piece[1] for piece in pieces], dtype=float
        )
        k = int(rng.choice(len(pieces), p=area / area.sum()))
        pieces[k : k + 1] = _in_two(pieces[k], per_node, binary, rng)
    return pieces


def _powers_of_two(gpus: int, minutes: int) -> list[Piece]:
    return [(1 << bit, minutes) for bit in reversed(range(gpus.bit_length())) if gpus >> bit & 1]


def _in_two(piece: Piece, per_node: int, binary: bool, rng: np.random.Generator) -> list[Piece]:
    gpus, minutes = piece
    in_time = gpus == 1 or (minutes > 1 and rng.random() < 0.5)
    if in_time:
        first = int(rng.integers(1, minutes))
        return [(gpus, first), (gpus, minutes - first)]
    if binary:
        return [(gpus // 2, minutes)] * 2
    # A piece of several nodes is cut between nodes, so that each gang lies in whole nodes or within
    # one.
    step = per_node if gpus > per_node else 1
    first = step * int(rng.integers(1, gpus // step))
    return [(first, minutes), (gpus - first, minutes)]
