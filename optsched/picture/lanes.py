"""Which GPUs of a node, or which lane beside them, each piece of a plan is drawn on."""

import math
from collections import defaultdict
from dataclasses import dataclass

from ..frozen import record
from ..model import Instance, Plan, Segment
from ..physics import TIME_TOLERANCE_S

PAST = -1


@record
class Row:
    """A row of the picture: a GPU of a node (`gpu` its index), or a lane for jobs without GPUs.

    `node` None is the lane group of jobs that need no node.
    """

    node: str | None
    gpu: int | None


@record
class Block:
    """Adjacent rows that one segment of a job holds; `half` 0 or 1 where two jobs share the GPUs.

    `segment` is `PAST` for what a running job has held until now.
    """

    job: int
    segment: int
    first_row: int
    rows: int
    half: int | None = None


@record
class Lanes:
    """All rows, top to bottom, and what is drawn on them."""

    rows: tuple[Row, ...]
    blocks: tuple[Block, ...]


@record
class _Piece:
    """What one segment holds on one node; `later` is false for a job's first segment."""

    start_s: float
    later: bool
    job: int
    s: int
    gpus: int
    segment: Segment


@dataclass(slots=True)
class _Held:
    """Lanes of one node that a segment holds until `end_s`; `kept` are those that it shares with
    each of others, where it shares some of them."""

    end_s: float
    lanes: list[int]
    half: int | None
    kept: dict[str, list[int]]


def assign_lanes(instance: Instance, plan: Plan) -> Lanes:
    """Colour the intervals of each node so that no two overlap on a GPU, gangs side by side where
    possible.

    Segments are taken in order of their start; a verified plan always leaves enough GPUs free.
    """
    job_at = instance.position
    pieces: dict[str | None, list[_Piece]] = defaultdict(list)
    for entry in instance.running:
        past = Segment(
            start_s=-math.inf, end_s=instance.now_s, mode=entry.mode, placement=entry.placement
        )
        _add_pieces(pieces, job_at[entry.job], PAST, past)
    for planned in plan.jobs:
        for s, segment in enumerate(planned.segments):
            _add_pieces(pieces, job_at[planned.id], s, segment)
    rows: list[Row] = []
    blocks: list[Block] = []
    for node in instance.cluster.nodes:
        first = len(rows)
        rows.extend(Row(node.name, i) for i in range(node.gpus))
        blocks.extend(_colour_gpus(instance, node.gpus, pieces[node.name], first))
        _add_cpu_lanes(rows, blocks, node.name, pieces[node.name])
    _add_cpu_lanes(rows, blocks, None, pieces[None])
    return Lanes(tuple(rows), tuple(blocks))


def _add_pieces(pieces: dict[str | None, list[_Piece]], job: int, s: int, segment: Segment) -> None:
    for slot in segment.placement:
        pieces[slot.node].append(_Piece(segment.start_s, s != 0, job, s, slot.gpus, segment))
    if not segment.placement:
        pieces[None].append(_Piece(segment.start_s, s != 0, job, s, 0, segment))


def _in_order(pieces: list[_Piece]) -> list[_Piece]:
    """Return pieces by start; at the same instant first segments come first, so that what runs on
    keeps its lanes."""
    return sorted(pieces, key=lambda piece: (piece.start_s, piece.later, piece.job, piece.s))


def _colour_gpus(
    instance: Instance, gpus: int, pieces: list[_Piece], first_row: int
) -> list[Block]:
    blocks: list[Block] = []
    held: dict[int, _Held] = {}
    for piece in _in_order(pieces):
        start_s, job, count, segment = piece.start_s, piece.job, piece.gpus, piece.segment
        if not count:
            continue
        if segment.mode.shared_gpus:
            drawn = _overlap(instance, gpus, piece, held)
            blocks += [
                Block(job, piece.s, first_row + start, length, half)
                for half, own in drawn
                for start, length in _runs(sorted(own))
            ]
            continue
        partner = segment.mode.share_with
        before = held.get(job)
        other = (
            None
            if partner is None
            else next(
                (
                    holder
                    for key, holder in held.items()
                    if instance.jobs[key].id == partner and _active(holder, start_s)
                ),
                None,
            )
        )
        if other is not None:
            lanes = other.lanes
            half: int | None = 1 - (other.half or 0)
        else:
            taken = {
                lane
                for key, holder in held.items()
                if key != job and _active(holder, start_s)
                for lane in holder.lanes
            }
            same = (
                before is not None and len(before.lanes) == count and not taken & set(before.lanes)
            )
            lanes = before.lanes if same and before is not None else _pick(gpus, taken, count)
            half = None if partner is None else 0
        held[job] = _Held(segment.end_s, lanes, half, {})
        for start, length in _runs(lanes):
            blocks.append(Block(job, piece.s, first_row + start, length, half))
    return blocks


def _overlap(
    instance: Instance, gpus: int, piece: _Piece, held: dict[int, _Held]
) -> list[tuple[int | None, list[int]]]:
    """Hold the lanes of a job that shares some of its GPUs: those that its partners keep for it,
    else its own, of which it keeps some for them. Return them by half."""
    shared, name = piece.segment.mode.shared_gpus, instance.jobs[piece.job].id
    there = {
        instance.jobs[key].id: other
        for key, other in held.items()
        if key != piece.job and _active(other, piece.start_s)
    }
    kept = {
        other: there[other].kept[name]
        for other in shared
        if other in there and name in there[other].kept
    }
    joined = [lane for lanes in kept.values() for lane in lanes]
    taken = {lane for other in there.values() for lane in other.lanes}
    before = held[piece.job].lanes if piece.job in held else []
    own = [lane for lane in before if lane not in taken][: piece.gpus - len(joined)]
    own += _pick(gpus, taken | {*own}, piece.gpus - len(joined) - len(own))
    under, free = list[int](), own
    for other in [other for other in shared if other not in kept]:
        kept[other], free = free[: shared[other]], free[shared[other] :]
        under += kept[other]
    held[piece.job] = _Held(piece.segment.end_s, [*joined, *own], None, kept)
    return [(1, joined), (0, under), (None, free)]


def _active(held: _Held, at_s: float) -> bool:
    return held.end_s > at_s + TIME_TOLERANCE_S


def _pick(gpus: int, taken: set[int], count: int) -> list[int]:
    """Return free lanes: the smallest run of neighbours that is long enough, else the first free
    ones."""
    free = [lane for lane in range(gpus) if lane not in taken]
    long_enough = [run for run in _runs(free) if run[1] >= count]
    if long_enough:
        start, _ = min(long_enough, key=lambda run: (run[1], run[0]))
        return list(range(start, start + count))
    return free[:count]


def _runs(lanes: list[int]) -> list[tuple[int, int]]:
    """Return the first lane and length of each run of neighbours in a sorted list."""
    runs: list[tuple[int, int]] = []
    for lane in lanes:
        if runs and runs[-1][0] + runs[-1][1] == lane:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((lane, 1))
    return runs


def _add_cpu_lanes(
    rows: list[Row], blocks: list[Block], node: str | None, pieces: list[_Piece]
) -> None:
    """Add as many lanes as there are jobs without GPUs at once; each keeps its own or takes the
    first free."""
    first, ends, own = len(rows), list[float](), dict[int, int]()
    for piece in _in_order(pieces):
        if piece.gpus:
            continue
        free = [i for i, busy_s in enumerate(ends) if busy_s <= piece.start_s + TIME_TOLERANCE_S]
        lane = own.get(piece.job, -1)
        if lane not in free:
            lane = free[0] if free else len(ends)
        if lane == len(ends):
            ends.append(0.0)
            rows.append(Row(node, None))
        ends[lane] = piece.segment.end_s
        own[piece.job] = lane
        blocks.append(Block(piece.job, piece.s, first + lane, 1))
