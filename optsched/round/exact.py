"""The round as a mixed-integer program over some of its options, exact on the nodes that running
jobs sit on."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from .model import Floats, Ints, Kind, RoundModel, is_second


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """max value x + offset  s.t.  low <= A x <= high, 0 <= x <= upper, x integer.

    The first `len(options)` columns say whether an option is taken; the others count slots on
    nodes. A is given by its entries (row, column, amount), sorted.
    """

    options: Ints
    value: Floats
    offset: float
    upper: Floats
    low: Floats
    high: Floats
    row: Ints
    column: Ints
    amount: Floats
    column_names: tuple[str, ...]
    row_names: tuple[str, ...]

    def choice(self, model: RoundModel, fixed: Ints, x: Floats) -> Ints:
        """The option of each job, from a solution and the jobs that were fixed beforehand."""
        chosen = fixed.copy()
        taken = self.options[x[: len(self.options)] > 0.5]
        chosen[model.job[taken]] = taken
        return chosen


def program(
    model: RoundModel,
    open_options: Ints | None = None,
    fixed: Ints | None = None,
    must_run: Ints | None = None,
    *,
    names: bool = False,
) -> Program:
    """The program over `open_options` (default: all), given the jobs whose option is `fixed` (>= 0)
    already.

    `must_run` are further jobs, besides the ones that must be kept, of which one of the open
    options is taken.

    Slots: on a node n of G GPUs with kept jobs of u GPUs, q[n, s] slots of s GPUs are left, s q +
    sum u keep <= G. Where G and every u are multiples of s this is linear in keep and needs no q;
    else there is a row for each kept job alone, q + (floor(G / s) - floor((G - u) / s)) keep <=
    floor(G / s), which the linear relaxation needs.
    """
    options = np.arange(len(model.value)) if open_options is None else open_options
    fixed = np.full(len(model.jobs), -1, dtype=np.int64) if fixed is None else fixed
    taken = fixed[fixed >= 0]
    column_of = np.full(len(model.value), -1, dtype=np.int64)
    column_of[options] = np.arange(len(options))
    made = _Rows(names)

    # one option a job
    job = model.job[options]
    present, job_row = np.unique(job, return_inverse=True)
    needs = model.must[present].copy()
    if must_run is not None and len(must_run):
        needs |= np.isin(present, must_run)
    for j, need in zip(present.tolist(), needs.tolist(), strict=True):
        made.add(1.0 if need else -np.inf, 1.0, f"job {model.jobs[j].id}" if names else "")
    entry_row, entry_column = [job_row.astype(np.int64)], [np.arange(len(options))]
    entry_amount = [np.ones(len(options))]

    # capacity rows; slot rows get kept jobs exactly below
    is_slot = np.array([row.what == "slots" for row in model.rows], dtype=bool)
    left = model.capacity - model.usage(taken)
    slots = _Slots(model, options, column_of, taken)
    row_number = np.full(len(model.rows), -1, dtype=np.int64)
    for r, limit in enumerate(model.rows):
        free = slots.capacity(r, taken) if is_slot[r] else float(left[r])
        row_number[r] = made.add(-np.inf, free, limit.name)
    order = np.argsort(model.entry_pattern, kind="stable")
    first = np.searchsorted(model.entry_pattern[order], np.arange(len(model.pattern_gpus) + 1))
    start, count = first[model.pattern[options]], np.diff(first)[model.pattern[options]]
    of_column = np.repeat(np.arange(len(options)), count)
    entry = order[np.arange(len(of_column)) + np.repeat(start - (np.cumsum(count) - count), count)]
    is_kept = model.entry_pattern[entry] >= len(model.patterns)
    counts = ~(is_slot[model.entry_row[entry]] & is_kept)
    entry_row.append(row_number[model.entry_row[entry[counts]]])
    entry_column.append(of_column[counts])
    entry_amount.append(model.entry_amount[entry[counts]])

    # slots of nodes with kept jobs that are still open
    extra_upper: list[float] = []
    extra_names: list[str] = []
    triples: list[tuple[int, int, float]] = []
    for r in np.flatnonzero(is_slot).tolist():
        slot = model.rows[r].slot
        for n, room, users in slots.open_nodes(r):
            if room < slot:
                continue
            if room % slot == 0 and all(gpus % slot == 0 for _, gpus in users):
                triples.extend((int(row_number[r]), column, gpus / slot) for column, gpus in users)
                continue
            q = len(options) + len(extra_upper)
            extra_upper.append(float(room // slot))
            if names:
                extra_names.append(f"slots_{slot}_{model.instance.cluster.nodes[n].name}")
            triples.append((int(row_number[r]), q, -1.0))
            row = made.add(-np.inf, float(room), f"node {n} {slot}" if names else "")
            triples.append((row, q, float(slot)))
            triples.extend((row, column, float(gpus)) for column, gpus in users)
            for column, gpus in users:
                row = made.add(
                    -np.inf, float(room // slot), f"node {n} {slot} {column}" if names else ""
                )
                triples.append((row, q, 1.0))
                triples.append((row, column, float(room // slot - (room - gpus) // slot)))
    # who shares the GPUs of another job needs it to be kept, and is its only guest; who stays alone
    # needs it to leave
    guests: dict[int, list[int]] = defaultdict(list)
    for o in options[(model.host[options] >= 0) | (model.rival[options] >= 0)].tolist():
        guest = int(model.host[o])
        other = int(model.first[guest if guest >= 0 else int(model.rival[o])])
        kept_already = bool(fixed[model.job[other]] == other)
        if guest >= 0:
            guests[guest].append(int(column_of[o]))
            if not kept_already:
                row = made.add(-np.inf, 0.0, f"guest {o}" if names else "")
                triples.append((row, int(column_of[o]), 1.0))
                if column_of[other] >= 0:
                    triples.append((row, int(column_of[other]), -1.0))
        else:
            row = made.add(-np.inf, 0.0 if kept_already else 1.0, f"alone {o}" if names else "")
            triples.append((row, int(column_of[o]), 1.0))
            if column_of[other] >= 0:
                triples.append((row, int(column_of[other]), 1.0))
    taken_by = {int(model.host[o]) for o in taken.tolist() if model.host[o] >= 0}
    for host, columns in guests.items():
        row = made.add(
            -np.inf, 0.0 if host in taken_by else 1.0, f"guests of {host}" if names else ""
        )
        triples.extend((row, column, 1.0) for column in columns)
    if triples:
        rows_, columns_, amounts_ = zip(*triples, strict=True)
        entry_row.append(np.array(rows_, dtype=np.int64))
        entry_column.append(np.array(columns_, dtype=np.int64))
        entry_amount.append(np.array(amounts_, dtype=float))
    # a job that must run is worth at least its least option: HiGHS then sees what is at stake
    value = model.value[options]
    least = np.full(len(present), np.inf)
    np.minimum.at(least, job_row, value)
    least[~needs] = 0.0
    width = len(options) + len(extra_upper)
    cells, where = np.unique(
        np.concatenate(entry_row) * width + np.concatenate(entry_column), return_inverse=True
    )
    return Program(
        options=options,
        value=np.concatenate([value - least[job_row], np.zeros(len(extra_upper))]),
        offset=float(model.value[taken].sum() + least.sum()),
        upper=np.concatenate([np.ones(len(options)), np.array(extra_upper, dtype=float)]),
        low=np.array(made.low),
        high=np.array(made.high),
        row=cells // width,
        column=cells % width,
        amount=np.bincount(
            where, weights=np.concatenate(entry_amount), minlength=len(cells)
        ).astype(float),
        column_names=tuple(
            [f"x_{o}_{model.jobs[int(model.job[o])].id}" for o in options.tolist()] + extra_names
        )
        if names
        else (),
        row_names=tuple(made.names),
    )


class _Rows:
    def __init__(self, names: bool) -> None:
        self.low: list[float] = []
        self.high: list[float] = []
        self.names: list[str] = []
        self._named = names

    def add(self, low: float, high: float, name: str) -> int:
        self.low.append(low)
        self.high.append(high)
        if self._named:
            self.names.append(name)
        return len(self.low) - 1


class _Slots:
    """Who sits on which nodes: kept jobs that are fixed, and keep options that are open."""

    def __init__(self, model: RoundModel, options: Ints, column_of: Ints, taken: Ints) -> None:
        self._model = model
        order = model.instance.cluster.node_order
        size = [node.gpus for node in model.instance.cluster.nodes]
        for placement in model.blocked:
            for slot in placement:
                size[order[slot.node]] -= slot.gpus
        open_users: dict[int, list[tuple[int, int]]] = defaultdict(list)
        fixed = np.zeros(len(model.value), dtype=bool)
        fixed[taken] = True
        stays = [(int(model.first[j]), model.running[j]) for j in model.kept]
        placements = [
            (o, entry.placement) for o, entry in stays if entry is not None and not is_second(entry)
        ]
        alone = np.flatnonzero(model.kind == Kind.ALONE)
        pinned = model.pattern[alone] - len(model.patterns) - len(model.kept)
        placements += [
            (o, model.pinned[p].placement)
            for o, p in zip(alone.tolist(), pinned.tolist(), strict=True)
        ]
        for o, placement in placements:
            if fixed[o]:
                for slot in placement:
                    size[order[slot.node]] -= slot.gpus
            elif column_of[o] >= 0:
                for slot in placement:
                    if slot.gpus:
                        open_users[order[slot.node]].append((int(column_of[o]), slot.gpus))
        self._size, self._open = size, open_users

    def open_nodes(self, r: int) -> list[tuple[int, int, list[tuple[int, int]]]]:
        """(node, GPUs left, keep columns with their GPUs there) of the row's class, where some are
        open."""
        members = next(c for c in self._model.classes if c.bit == self._model.rows[r].classes).nodes
        return [(n, self._size[n], self._open[n]) for n in members if n in self._open]

    def capacity(self, r: int, taken: Ints) -> float:
        """Slots of the row on nodes where nothing is open, and on those where kept jobs only take
        whole slots."""
        model, slot = self._model, self._model.rows[r].slot
        members = next(c for c in model.classes if c.bit == model.rows[r].classes).nodes
        total = 0
        for n in members:
            users = self._open.get(n)
            if not users or (
                self._size[n] % slot == 0 and all(gpus % slot == 0 for _, gpus in users)
            ):
                total += self._size[n] // slot
        fresh = taken[model.pattern[taken] < len(model.patterns)]
        used = sum(
            model.patterns[p].slot // slot
            for p in model.pattern[fresh].tolist()
            if model.patterns[p].together and model.patterns[p].classes == model.rows[r].classes
        )
        return float(total - used)
