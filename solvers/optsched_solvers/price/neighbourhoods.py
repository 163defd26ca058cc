"""Node-exact neighbourhoods: a few nodes with the jobs on them and some that wait, decided anew and
exactly, over and over.

x[j,o,n] = 1    job j runs by option o on node n, one of few; or it is kept where it is
x[j,o] = 1      job j runs by option o, split over these nodes: y[o,n] GPUs on each

max   sum value x
s.t.  sum x[j] <= 1                        each job (= 1 where it must be kept)
      sum_n y[o,n] = GPUs x[j,o]           each option that may be split
      sum take x <= what the others leave  GPUs, cores and memory of each node, shared capacities

Jobs that hold something elsewhere too, share GPUs, or mind who else is where stay as they are.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import numpy as np

from optsched.frozen import record
from optsched.physics.capacity import gpus_that_fit
from optsched.round.held import SLACK, Part
from optsched.round.model import NO_OPTION, Bools, Floats, Ints
from optsched.round.nodes import Taken
from optsched.round.place import Packing

from ..native.within import within

NODES, WAITING = 4, 12
"""Nodes of a neighbourhood, and jobs that wait: half of them those to which its nodes are worth
most, half drawn among the next."""
TARGETED = 0.8
"""Part of the neighbourhoods that are drawn around a job that loses much, rather than around nodes
of which much is left that costs something."""
AMONG = 4
"""These are so many times as many."""
WORK = 0.01
"""Deterministic time of CP-SAT for each."""
MISSES = 40
"""After so many neighbourhoods in a row in which nothing was better, larger ones come; in a rough
search after half as many, divided by the square of how much larger they are."""
LARGER = (1, 2, 3)
"""Times as many nodes, with so much more work, until the search ends."""
LEAST_IDLE = 0.02
"""Nodes are drawn by what is free of them, at its price as a part of that of all their capacity, to
which this is added."""
OF_NODES = ("GPUs", "cores", "memory")
"""Rows of what each node has."""
SHARED, TICKS = len(OF_NODES), 1e9
"""The number of capacities that are not of nodes, and the parts of which all that is asked for of a
capacity has so many."""
SAME = 1e-12
"""Values that differ by less than this fraction are equal."""
LARGEST = 1e9
"""What the sum of absolute values is scaled to."""

Plan = dict[int, tuple[int, Taken | None]]
"""The option of each job that runs, and what it gets of nodes unless it is kept."""


@record
class _Choice:
    """An option of a job and what it would get: `parts` of nodes, or where it is `split` as many
    of these as it has GPUs. `held` is what is put down of that, None where the job is kept."""

    job: int
    option: int
    parts: Sequence[Part]
    held: Taken | None = None
    split: bool = False


class Neighbourhoods:
    """A packing, improved step by step. `reduced` are the reduced values of options at the `prices`
    of the rows, which say for whom nodes are worth most, and where something is lost: a job's best
    reduced value less that of what it has, and what is free at its price, add up to the gap."""

    def __init__(self, packing: Packing, reduced: Floats, prices: Floats, seed: int) -> None:
        model = self._model = packing.model
        self._reduced, self._best = reduced, model.best_reduced(reduced)
        self._class_of, self._rack = np.array(model.class_of), np.array(model.held.rack)
        self._chosen, self._held = packing.chosen.copy(), dict(packing.held)
        self._guest, self._left = packing.guest, packing.left
        self._draw, self._size = Random(seed), NODES
        room = [model.held.room_gpus, model.held.room_cpus, model.held.room_memory_gib]
        self._room = np.array(room, dtype=float)
        self._price = self._of_nodes(prices)
        self._costs = np.maximum(self._priced(self._room), 1e-300)
        self._jobs_on: dict[int, set[int]] = defaultdict(set)
        for j in np.flatnonzero(self._chosen >= 0).tolist():
            self._run(j, int(self._chosen[j]), None)
        options, table = model.options, model.patterns.table
        fresh = options.pattern < len(model.patterns.fresh)
        self._pattern = np.where(fresh, options.pattern, 0)
        anyhow = np.array([job.max_nodes is None for job in model.jobs], dtype=bool)
        splits = ~table.together[self._pattern] & anyhow[options.job]
        self._open = fresh & (options.value > 0) & (table.together[self._pattern] | splits)
        self._fixed = self._stays()
        self._waiting = [self._ranked(kind.number, reduced) for kind in model.classes]

    def _stays(self) -> Bools:
        """Return which jobs are left as they are."""
        model, domains = self._model, self._model.held.domains
        shares = {*self._guest, *self._guest.values()}
        return np.array(
            [
                domains.ties(job) is not None
                or j in shares
                or (entry is not None and entry.mode.share_with is not None)
                for j, (job, entry) in enumerate(zip(model.jobs, model.running, strict=True))
            ],
            dtype=bool,
        )

    def _ranked(self, number: int, reduced: Floats) -> Ints:
        """Return the jobs that could run on nodes of a class, those to which they are worth most
        first."""
        model = self._model
        worth = np.where(self._open & self._serves(number), reduced, -np.inf)
        best, _ = model.options.best(worth)
        able = np.flatnonzero(np.isfinite(best) & ~self._fixed & ~model.must)
        return able[np.argsort(-best[able], kind="stable")]

    def _serves(self, number: int) -> Bools:
        """Return which options a node of a class may serve."""
        table = self._model.patterns.table
        inside = np.array([bool(mask >> number & 1) for mask in table.masks], dtype=bool)
        return inside[table.mask][self._pattern]

    def _parts(self, j: int) -> Sequence[Part]:
        """Return (node, GPUs, cores, memory) of what a job holds."""
        model, option = self._model, int(self._chosen[j])
        number = int(model.options.pattern[option]) - len(model.patterns.fresh)
        if number >= 0:
            return model.held.holds[number].parts
        pattern = model.fresh(option)
        each_gib = pattern.memory_gib / max(pattern.gpus, 1)
        return [(n, gpus, cores, each_gib * max(gpus, 1)) for n, gpus, cores in self._held[j]]

    def better(self, seconds_left: Callable[[], float], *, rough: bool) -> Iterator[Packing]:
        """Yield better and better packings until there is no time for more or nothing is found,
        which is sooner so in a `rough` search."""
        took_s = 0.0
        for times in LARGER:
            self._size, misses = times * NODES, 0
            most = MISSES // (2 * times**2) if rough else MISSES
            everything = len(self._costs) <= self._size
            while misses < (1 if everything else most):
                left_s = seconds_left()
                if left_s < 2 * took_s:
                    return
                if self._step(left_s):
                    misses = 0
                    yield self._packing()
                else:
                    misses += 1
                took_s = left_s - seconds_left()
            if everything:
                return

    def _packing(self) -> Packing:
        packing = Packing(self._model)
        packing.chosen, packing.held = self._chosen.copy(), dict(self._held)
        packing.guest, packing.left = dict(self._guest), set(self._left)
        return packing

    def _step(self, limit_s: float) -> bool:
        """Decide one neighbourhood anew; return whether that is better."""
        value, (nodes, targets) = self._model.options.value, self._drawn()
        old = {j: (int(self._chosen[j]), self._held.get(j)) for j in self._free(nodes)}
        for j in old:
            self._leave(j)
        jobs = list(dict.fromkeys([*old, *targets, *self._candidates(nodes)]))
        new = {} if not jobs else self._solved(self._choices(nodes, jobs), old, limit_s)
        before, after = (sum(float(value[o]) for o, _ in plan.values()) for plan in (old, new))
        better = after > before + SAME * abs(before)
        for j, (option, held) in (new if better else old).items():
            self._run(j, option, held)
        return better

    def _run(self, j: int, option: int, held: Taken | None) -> None:
        self._chosen[j] = option
        if held is not None:
            self._held[j] = held
        for n, *amounts in self._parts(j):
            self._room[:, n] -= amounts
            self._jobs_on[n].add(j)

    def _leave(self, j: int) -> None:
        for n, *amounts in self._parts(j):
            self._room[:, n] += amounts
            self._jobs_on[n].discard(j)
        self._chosen[j] = NO_OPTION
        self._held.pop(j, None)

    def _free(self, nodes: list[int]) -> list[int]:
        """Return the jobs that hold something of these nodes alone and may be decided anew."""
        on = set().union(*(self._jobs_on[n] for n in nodes))
        return [
            j
            for j in sorted(on)
            if not self._fixed[j]
            and (j not in self._held or self._open[self._chosen[j]])
            and all(part[0] in nodes for part in self._parts(j))
        ]

    def _of_nodes(self, prices: Floats) -> Floats:
        """Return what GPUs, cores and memory of each node cost."""
        model = self._model
        price = np.zeros((len(OF_NODES), len(model.classes)))
        for row, each in zip(model.rows.limits, prices.tolist(), strict=False):
            if row.what in OF_NODES:
                inside = [bool(row.classes & kind.bit) for kind in model.classes]
                price[OF_NODES.index(row.what), inside] += each
        return price[:, self._class_of]

    def _priced(self, amounts: Floats) -> Floats:
        """Return what so much of each node costs; what has no limit costs nothing."""
        finite = np.where(np.isfinite(amounts), amounts, 0.0)
        cost: Floats = (finite * self._price).sum(axis=0)
        return cost

    def _drawn(self) -> tuple[list[int], list[int]]:
        """Draw nodes, rather those of which much is free that costs something, and mostly for a job
        that loses much: those that it is on, and such as it wants. Return that job too, if it
        waits."""
        count, chosen = len(self._costs), self._chosen
        if count <= self._size:
            return list(range(count)), []
        loss = self._best - np.where(chosen >= 0, self._reduced[chosen], 0.0)
        loss = np.where(self._fixed, 0.0, np.maximum(loss, 0.0))
        idle = LEAST_IDLE + self._priced(self._room) / self._costs
        if self._draw.random() >= TARGETED or not loss.any():
            return self._some(np.arange(count), idle, self._size), []
        j = self._draw.choices(range(len(loss)), loss.tolist())[0]
        own = [part[0] for part in self._parts(j)] if chosen[j] >= 0 else []
        others = self._some(self._wanted(j), idle, max(1, self._size - len(own)))
        return list(dict.fromkeys(own + others)), [j] if chosen[j] < 0 else []

    def _some(self, nodes: Ints, weights: Floats, count: int) -> list[int]:
        """Draw so many of some nodes by their weights."""
        drawn = [self._draw.random() * weight for weight in weights[nodes].tolist()]
        some: list[int] = nodes[np.argsort(drawn)[::-1][:count]].tolist()
        return some

    def _wanted(self, j: int) -> Ints:
        """Return the nodes on which the option of a job that is open and worth most could lie; of
        one that needs a rack, those of a drawn rack."""
        model, own = self._model, self._model.options.of(j)
        at = slice(own.start, own.stop)
        if not self._open[at].any():
            return np.arange(len(model.class_of))
        worth = np.where(self._open[at], self._reduced[at], -np.inf)
        pattern = int(self._pattern[own.start + int(worth.argmax())])
        mask = model.patterns.fresh[pattern].classes
        able = np.isin(self._class_of, [k.number for k in model.classes if k.bit & mask])
        if model.patterns.table.in_rack[pattern] and able.any():
            able &= self._rack == self._draw.choice(np.unique(self._rack[able]).tolist())
        return np.flatnonzero(able)

    def _candidates(self, nodes: list[int]) -> list[int]:
        """Return waiting jobs for some nodes."""
        numbers = sorted({self._model.class_of[n] for n in nodes})
        found: dict[int, None] = {}
        for number in numbers:
            ranked = self._waiting[number]
            waiting = ranked[self._chosen[ranked] < 0].tolist()
            half = WAITING // 2 // len(numbers) + 1
            next_best = waiting[half : half + AMONG * half]
            drawn = self._draw.sample(next_best, min(half, len(next_best)))
            found |= dict.fromkeys(waiting[:half] + drawn)
        return list(found)

    def _choices(self, nodes: list[int], jobs: list[int]) -> list[_Choice]:
        """Return all that these jobs could do here."""
        model, table, held = self._model, self._model.patterns.table, self._model.held
        first, must = model.options.first, model.must
        choices = [
            _Choice(j, int(first[j]), held.holds[k].parts)
            for j in jobs
            if (k := model.kept_number.get(j)) is not None
            and all(part[0] in nodes for part in held.holds[k].parts)
        ]
        ranges = [np.arange(*first[[j, j + 1]]) for j in jobs if not must[j]]
        own = np.concatenate([np.zeros(0, dtype=np.int64), *ranges])
        own = own[self._open[own]]
        pattern = self._pattern[own]
        together, gpus = table.together[pattern], table.gpus[pattern]
        least = np.where(together, gpus, 1)
        takes = np.stack([gpus, table.cpus[pattern], table.memory_gib[pattern] * (1 - SLACK)])
        takes = takes * least / np.maximum(gpus, 1)
        serves = np.stack([self._serves(model.class_of[n])[own] for n in nodes], axis=1)
        serves &= (takes[:, :, None] <= self._room[:, None, nodes]).all(axis=0)
        for i, at in np.argwhere(serves & together[:, None]).tolist():
            option, n = int(own[i]), nodes[at]
            fresh, j = model.fresh(option), int(model.options.job[option])
            part = (n, fresh.gpus, fresh.cpus, fresh.memory_gib)
            choices.append(_Choice(j, option, [part], [part[:3]]))
        one_rack = len({held.rack[n] for n in nodes}) == 1 and held.rack[nodes[0]] >= 0
        split: dict[object, _Choice] = {}
        splits = ~together & (gpus > 0) & (one_rack | ~table.in_rack[pattern])
        for i in np.flatnonzero(splits).tolist():
            option = int(own[i])
            fresh, mode = model.fresh(option), model.mode(option)
            each_gib = fresh.memory_gib / fresh.gpus
            able = [n for n, can in zip(nodes, serves[i].tolist(), strict=True) if can]
            if self._most_on(able, mode.cpus_per_gpu, each_gib) < fresh.gpus:
                continue
            parts: list[Part] = [(n, 1, mode.cpus_per_gpu, each_gib) for n in able]
            choice = _Choice(int(model.options.job[option]), option, parts, [], True)
            takes_too = model.rows.shared.get(int(pattern[i]), ())
            key = choice.job, fresh.gpus, tuple(parts), tuple(takes_too)
            known = split.get(key)  # which differs in nothing here but its rate
            if known is None or model.options.value[option] > model.options.value[known.option]:
                split[key] = choice
        return [*choices, *split.values()]

    def _most_on(self, nodes: list[int], cpus: int, memory_gib: float) -> int:
        """Return how many GPUs with so many cores and so much memory each nodes have room for."""
        return sum(
            gpus_that_fit(int(gpus), cores, gib * (1 + SLACK), cpus, memory_gib)
            for gpus, cores, gib in self._room[:, nodes].T.tolist()
        )

    def _solved(self, choices: list[_Choice], old: Plan, limit_s: float) -> Plan:
        """Return who runs in the best solution found; nobody where there is none."""
        from ortools.sat.python import cp_model

        model, program = self._model, cp_model.CpModel()
        x = [program.new_bool_var("") for _ in choices]
        of_job: dict[int, list[Any]] = defaultdict(list)
        split: dict[int, list[Any]] = {}
        for i, choice in enumerate(choices):
            of_job[choice.job].append(x[i])
            if choice.split:
                gpus = model.fresh(choice.option).gpus
                split[i] = [program.new_int_var(0, gpus, "") for _ in choice.parts]
                program.add(sum(split[i]) == gpus * x[i])
            self._hint(program, choice, x[i], split.get(i, []), old)
        for j, own in of_job.items():
            (program.add_exactly_one if model.must[j] else program.add_at_most_one)(own)
        for room, amounts, takers in self._rows(choices, x, split):
            program.add(cp_model.LinearExpr.weighted_sum(takers, amounts) <= room)
        value = model.options.value[[choice.option for choice in choices]]
        worth = np.rint(value * (LARGEST / max(float(np.abs(value).sum()), 1e-200)))
        program.maximize(cp_model.LinearExpr.weighted_sum(x, worth.astype(np.int64).tolist()))
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.linearization_level = 2
        solver.parameters.symmetry_level = 0
        solver.parameters.cp_model_probing_level = 0
        solver.parameters.max_deterministic_time = WORK * self._size / NODES
        solver.parameters.max_time_in_seconds = limit_s
        status = within(limit_s, lambda: solver.solve(program))
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return {}
        plan: Plan = {}
        for i, choice in enumerate(choices):
            if solver.boolean_value(x[i]):
                got = [solver.value(y) for y in split.get(i, [])]
                pieces = zip(choice.parts, got, strict=False)
                parts = [(n, gpus, gpus * cores) for (n, _, cores, _), gpus in pieces if gpus]
                plan[choice.job] = choice.option, parts if choice.split else choice.held
        return plan

    def _hint(self, program: Any, choice: _Choice, x: Any, split: list[Any], old: Plan) -> None:
        """Tell the solver what the job does so far."""
        option, held = old.get(choice.job, (NO_OPTION, None))
        same = option == choice.option and (choice.split or held == choice.held)
        program.add_hint(x, same)
        got = {n: gpus for n, gpus, _ in held or ()} if same else {}
        for y, (n, *_) in zip(split, choice.parts, strict=False):
            program.add_hint(y, got.get(n, 0))

    def _rows(
        self, choices: list[_Choice], x: list[Any], split: dict[int, list[Any]]
    ) -> Iterator[tuple[int, list[int], list[Any]]]:
        """Yield what is left of each capacity, and how much of it which variables take: in ticks,
        takings rounded up and capacities down."""
        model = self._model
        takes: dict[tuple[int, int], list[tuple[float, float, Any]]] = defaultdict(list)
        for i, choice in enumerate(choices):
            most = model.mode(choice.option).gpus if choice.split else 1
            for (n, *amounts), taker in zip(
                choice.parts, split.get(i, [x[i]] * len(choice.parts)), strict=True
            ):
                for what, each in enumerate(amounts):
                    takes[what, n].append((each, most * each, taker))
            for r, amount in model.rows.shared.get(int(model.options.pattern[choice.option]), ()):
                takes[SHARED, r].append((amount, amount, x[i]))
        left = model.rows.capacity - model.usage(self._chosen[self._chosen >= 0])
        for (what, at), terms in takes.items():
            limit = max(0.0, float(left[at] if what == SHARED else self._room[what, at]))
            total = sum(most for _, most, _ in terms)
            if total > limit:
                ticks = TICKS / total
                ceiling = math.floor(limit * (1 + SLACK) * ticks)
                whole = [math.ceil(amount * ticks * (1 - SLACK)) for amount, _, _ in terms]
                yield ceiling, whole, [taker for _, _, taker in terms]
