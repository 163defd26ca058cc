"""The round as a mixed-integer program over some of its options, exact on the nodes that running
jobs sit on.

x[j,o] = 1      job j runs this round by option o: kept where it is, or by a mode on fresh GPUs
q[n,s]          slots of s GPUs that are left on node n, where running jobs sit

max   sum value x
s.t.  sum_o x[j,o] <= 1                             each job (= 1 where it must be kept)
      sum take x <= capacity                        GPUs, cores, memory, resources, budgets, quotas
      sum floor(size / s) x <= free slots + sum q   gangs on one node, each node class and slot size
      s q[n,s] + sum_kept GPUs x <= GPUs            each node where running jobs sit
      x[guest] <= x[host,keep], sum_guests x <= 1   each job that others may share GPUs with
"""

from collections import defaultdict

import numpy as np

from ..frozen import entity
from .model import NO_OPTION, Floats, Ints, RoundModel

Users = dict[int, list[tuple[int, int]]]
"""(option, GPUs) of the running jobs on each node."""


@entity
class Program:
    """max value x + offset  s.t.  low <= A x <= high, 0 <= x <= upper, x integer.

    The first `len(options)` columns say whether an option is taken; the others, `slots`, count
    slots on nodes. The first `len(jobs)` rows are of jobs, by position, the others have the names
    `rows`. A is given by its entries (row, column, amount), sorted.
    """

    options: Ints
    slots: list[str]
    jobs: Ints
    rows: list[str]
    value: Floats
    offset: float
    upper: Floats
    low: Floats
    high: Floats
    row: Ints
    column: Ints
    amount: Floats

    def choice(self, model: RoundModel, fixed: Ints | None, x: Floats) -> Ints:
        """Return the option of each job, from a solution and the jobs that were fixed
        beforehand."""
        chosen = np.full(len(model.jobs), NO_OPTION) if fixed is None else fixed.copy()
        taken = self.options[x[: len(self.options)] > 0.5]
        chosen[model.options.job[taken]] = taken
        return chosen


def sitters(model: RoundModel) -> Users:
    """Return who has GPUs of which node if running jobs stay there: those that are kept, and those
    that stay without their sharing partner."""
    held, fresh = model.held, len(model.patterns.fresh)
    option = {
        int(pattern) - fresh: o
        for o, pattern in enumerate(model.options.pattern.tolist())
        if pattern >= fresh
    }
    users: Users = defaultdict(list)
    for owner, n, gpus in zip(
        held.owner.tolist(), held.node.tolist(), held.gpus.tolist(), strict=True
    ):
        if gpus:
            users[n].append((option[owner], gpus))
    return users


def program(
    model: RoundModel,
    open_options: Ints | None = None,
    fixed: Ints | None = None,
    must_run: Ints | None = None,
) -> Program:
    """Return the program over `open_options` (default: all), given the jobs whose option is `fixed`
    (>= 0) already. `must_run` are further jobs, besides the ones that must be kept, of which one of
    the open options is taken."""
    made = _Formulation(
        model,
        np.arange(len(model.options.value)) if open_options is None else open_options,
        np.full(len(model.jobs), -1, dtype=np.int64) if fixed is None else fixed,
    )
    made.one_option_a_job(np.zeros(0, dtype=np.int64) if must_run is None else must_run)
    made.capacities()
    made.slots()
    made.sharing()
    return made.program()


class _Formulation:
    """Rows low <= sum of amount x <= high, one method for each kind."""

    def __init__(self, model: RoundModel, options: Ints, fixed: Ints) -> None:
        self._model, self._options, self._fixed = model, options, fixed
        self._taken = fixed[fixed >= 0]
        self._column = np.full(len(model.options.value), -1, dtype=np.int64)
        self._column[options] = np.arange(len(options))
        self._value = model.options.value[options]
        self._offset = float(model.options.value[self._taken].sum())
        self._upper: list[float] = []
        self._slot_names: list[str] = []
        self._row_names: list[str] = []
        self._entries: list[tuple[Ints, Ints, Floats]] = []
        self._single: list[tuple[int, int, float]] = []

    def _row(self, name: str, high: float, terms: list[tuple[int, float]]) -> None:
        """Add a row with (column, amount) terms."""
        self._row_names.append(name)
        self._single.extend((len(self._high), column, amount) for column, amount in terms)
        self._low.append(-np.inf)
        self._high.append(high)

    def one_option_a_job(self, must_run: Ints) -> None:
        """Allow at most one; exactly one of jobs that must run, of which only what is better than
        the least of them counts: then the solver sees what is at stake."""
        options = self._model.options
        jobs, row = np.unique(options.job[self._options], return_inverse=True)
        needs = self._model.must[jobs] | np.isin(jobs, must_run)
        self._jobs, self._high = jobs, [1.0] * len(jobs)
        self._low = np.where(needs, 1.0, -np.inf).tolist()
        self._entries.append((row, np.arange(len(row)), np.ones(len(row))))
        least = np.full(len(jobs), np.inf)
        np.minimum.at(least, row, self._value)
        least[~needs] = 0.0
        self._value = self._value - least[row]
        self._offset += float(least.sum())

    def capacities(self) -> None:
        """Limit GPUs, cores, memory, resources, budgets and quotas; and slots, less those on nodes
        where running jobs sit (see `slots`)."""
        model, rows = self._model, self._model.rows
        left = rows.capacity - model.usage(self._taken)
        self._free = self._nodes_left()
        first = len(self._high)
        for r, limit in enumerate(rows.limits):
            high = self._whole_slots(r) if limit.what == "slots" else float(left[r])
            self._row(f"{r}_{limit.name}", high, [])
        entry, position = rows.entries(model.options.pattern[self._options])
        is_slot = np.array([limit.what == "slots" for limit in rows.limits], dtype=bool)
        counts = ~is_slot[rows.row[entry]] | (rows.pattern[entry] < len(model.patterns.fresh))
        entry, position = entry[counts], position[counts]
        self._entries.append((first + rows.row[entry], position, rows.amount[entry]))
        self._first_capacity = first

    def _nodes_left(self) -> list[int]:
        """Return the GPUs of each node that jobs which are fixed there leave, and note who else may
        stay."""
        room: list[int] = self._model.held.room_gpus.tolist()
        taken = set(self._taken.tolist())
        self._users: Users = defaultdict(list)
        for n, users in sitters(self._model).items():
            for o, gpus in users:
                if o in taken:
                    room[n] -= gpus
                elif self._column[o] >= 0:
                    self._users[n].append((int(self._column[o]), gpus))
        return room

    def _is_whole(self, n: int, slot: int) -> bool:
        """Return whether jobs that may stay on a node only take whole slots."""
        return self._free[n] % slot == 0 and all(gpus % slot == 0 for _, gpus in self._users[n])

    def _members(self, r: int) -> tuple[int, ...]:
        mask = self._model.rows.limits[r].classes
        return next(kind.nodes for kind in self._model.classes if kind.bit == mask)

    def _whole_slots(self, r: int) -> float:
        """Return the slots of a row on nodes where nobody may stay, or only on whole slots."""
        model, limit = self._model, self._model.rows.limits[r]
        total = sum(
            self._free[n] // limit.slot
            for n in self._members(r)
            if n not in self._users or self._is_whole(n, limit.slot)
        )
        fresh = model.patterns.fresh
        taken = [p for p in model.options.pattern[self._taken].tolist() if p < len(fresh)]
        return float(
            total
            - sum(
                fresh[p].slot // limit.slot
                for p in taken
                if fresh[p].together and fresh[p].classes == limit.classes
            )
        )

    def slots(self) -> None:
        """Limit slots. On a node n of G GPUs with kept jobs of u GPUs, q[n, s] slots of s GPUs are
        left, s q + sum u keep <= G. Where G and every u are multiples of s this is linear in keep
        and needs no q; else there is a row for each kept job alone, q + (floor(G / s) - floor((G -
        u) / s)) keep <= floor(G / s), which the linear relaxation needs."""
        for r, limit in enumerate(self._model.rows.limits):
            if limit.what == "slots":
                for n in self._members(r):
                    if n in self._users and self._free[n] >= limit.slot:
                        self._slots_on(n, self._first_capacity + r, limit.slot)

    def _slots_on(self, n: int, row: int, slot: int) -> None:
        room, users = self._free[n], self._users[n]
        if self._is_whole(n, slot):
            self._single.extend((row, column, gpus / slot) for column, gpus in users)
            return
        name = f"{slot}_on_{n}_{self._model.instance.cluster.nodes[n].name}"
        q, most = len(self._options) + len(self._upper), room // slot
        self._upper.append(float(most))
        self._slot_names.append(f"slots_of_{name}")
        self._single.append((row, q, -1.0))
        self._row(f"node_{name}", room, [(q, slot), *users])
        for column, gpus in users:
            broken = most - (room - gpus) // slot
            self._row(f"node_{name}_with_{column}", most, [(q, 1.0), (column, broken)])

    def sharing(self) -> None:
        """Add the rows of sharing. Who shares the GPUs of another job needs it to be kept, and is
        its only guest; who stays alone needs it to leave."""
        options, own = self._model.options, self._options
        guests: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for o in own[options.host[own] >= 0].tolist():
            host, column = int(options.host[o]), int(self._column[o])
            guests[host].append((column, 1.0))
            if not self._is_fixed(keep := int(options.first[host])):
                self._row(f"{o}_beside_{host}", 0.0, [(column, 1.0), *self._term(keep, -1.0)])
        for o in own[options.rival[own] >= 0].tolist():
            keep = int(options.first[int(options.rival[o])])
            high = 0.0 if self._is_fixed(keep) else 1.0
            terms = [(int(self._column[o]), 1.0), *self._term(keep, 1.0)]
            self._row(f"alone_{o}", high, terms)
        taken = set(options.host[self._taken].tolist())
        for host, terms in guests.items():
            self._row(f"guests_of_{host}", 0.0 if host in taken else 1.0, terms)

    def _is_fixed(self, option: int) -> bool:
        return bool(self._fixed[self._model.options.job[option]] == option)

    def _term(self, option: int, amount: float) -> list[tuple[int, float]]:
        """Return the term of an option, nothing if it is not open."""
        return [(int(self._column[option]), amount)] if self._column[option] >= 0 else []

    def program(self) -> Program:
        """Return what was added, amounts for the same row and column together."""
        single = np.array(self._single, dtype=float).reshape(-1, 3)
        rows, columns = single[:, 0].astype(np.int64), single[:, 1].astype(np.int64)
        parts = [*self._entries, (rows, columns, single[:, 2])]
        row, column, amount = (np.concatenate([part[i] for part in parts]) for i in range(3))
        width = len(self._options) + len(self._upper)
        cells, where = np.unique(row * width + column, return_inverse=True)
        return Program(
            options=self._options,
            slots=self._slot_names,
            jobs=self._jobs,
            rows=self._row_names,
            value=np.concatenate([self._value, np.zeros(len(self._upper))]),
            offset=self._offset,
            upper=np.concatenate([np.ones(len(self._options)), np.array(self._upper)]),
            low=np.array(self._low, dtype=float),
            high=np.array(self._high, dtype=float),
            row=cells // width,
            column=cells % width,
            amount=np.bincount(where, weights=amount, minlength=len(cells)).astype(float),
        )
