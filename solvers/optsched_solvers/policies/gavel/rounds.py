"""The round mechanism that all Gavel policies share: shares of GPU types, given out as leases of
one round."""

from typing import Annotated, Literal, NamedTuple

import numpy as np

from optsched.driver import PolicyError, World
from optsched.physics import TIME_TOLERANCE_S
from optsched.plugins.options import PluginOptions, PositiveDuration, declared_options

from .active import IDLE, Active, Floats, Ints, Kinds, Ledger, empty_ledger
from .program import Allocation

Start = tuple[int, int]
"""Row and column."""


class Line(NamedTuple):
    """What may run in a column: items in the order of ties, their shares (negative, to be sorted),
    and all rows' GPUs. An item is the row of a job, or a pair, numbered after the rows."""

    items: Ints
    less_share: Floats
    gpus: list[float]


@declared_options
class RoundOptions(PluginOptions):
    """Options of every policy of Gavel."""

    round_s: Annotated[PositiveDuration, "Length of a round."] = 360.0
    reset_s: Annotated[
        PositiveDuration, "Least time from one computation of the shares to the next."
    ] = 1920.0


@declared_options
class SharingOption(RoundOptions):
    """For policies that can share GPUs."""

    sharing: Annotated[
        Literal["none", "pairs"],
        "With pairs, pairs of jobs on the same GPUs get shares too (column generation, at a "
        "corner).",
    ] = "none"


class Rounds:
    """Base of Gavel's policies: `allocation` says which fraction of the time each job should run on
    each GPU type.

    At each round the jobs of a GPU type are taken in order of share / time received there since the
    shares were computed; whoever fits into the GPUs that are left runs for the round, the earlier
    GPU types of the cluster first. Jobs whose share of a type is 0 come last, so that no GPU idles
    that somebody could use. Ties go to the job that earlier shares owe more time, then to the
    larger share, then to the earlier job. A job that runs on a type and is chosen for it again
    keeps its GPUs; the others are placed, the largest gangs first.

    With the option `sharing=pairs` two jobs may run on the same GPUs. A pair is then a combination
    like a job alone: it has its share of each GPU type and its time received, and is skipped where
    one of the two was chosen already. A job that is chosen for the type on which it runs keeps its
    GPUs, whoever shares them; of two that are to part, and of two that are to come together, the
    later one moves. Pairs without a share do not fill what is left.

    Shares are computed anew when jobs have come or gone, but at the earliest `reset` seconds after
    the last time, or when nothing runs; a job that comes in between waits. Time received starts at
    half a round for all, so that a new job does not come before all others.

    It keeps its own rounds of `round` seconds: simulate without rounds, or with the same. What
    comes free within a round goes only to jobs that were chosen for it and had to wait for a
    checkpoint.

    Source: D. Narayanan et al., Heterogeneity-aware cluster scheduling policies for deep learning
    workloads, OSDI'20, section 5, and the public simulator for what the paper leaves open.
    """

    name = ""
    title = ""
    fills = True
    """False: jobs with a share of 0 may not use what is left."""

    def __init__(self, options: RoundOptions) -> None:
        self.round_s, self.reset_s = options.round_s, options.reset_s
        self.paired = isinstance(options, SharingOption) and options.sharing == "pairs"
        self._kinds: Kinds | None = None
        self._active = Active(0)
        self._pairs: list[tuple[str, str]] = []
        self._together = empty_ledger(0)
        self._mate: dict[str, str] = {}
        self._due_s: float | None = None
        self._last_s = 0.0
        self._changed = False
        self._reset_s: float | None = None
        self._pending: list[tuple[str, int]] = []
        self._lines: list[Line] | None = None
        self._lined = 0
        """Items from this number on are pairs: the jobs when lines were made, to whom others may
        have come since."""

    def allocation(self, world: World, active: Active, kinds: Kinds) -> Allocation:
        """Return the shares of jobs and pairs, by row and column of `active`."""
        raise NotImplementedError

    # ----------------------------------------------------------------------------------------------
    # -- rounds

    def decide(self, world: World) -> None:
        """Choose anew who runs at a round; in between start those whose GPUs have come free."""
        if self._kinds is None:
            self._kinds = Kinds(world)
            self._active = Active(self._kinds.columns)
            self._together = empty_ledger(self._kinds.columns)
            for job_id in world.running:
                self._take_over(world, job_id, self._kinds)
        self._note(world, self._kinds)
        if self._due_s is not None and world.now_s < self._due_s - TIME_TOLERANCE_S:
            self._start_pending(world)
            world.wake_at(self._due_s)
            return
        self._account(world.now_s)
        if not self._active.ids:
            self._due_s = None  # the next round begins when somebody comes
            return
        fresh = self._renew(world, self._kinds)
        started = self._lease(world, self._kinds)
        start_s = world.instance.now_s
        self._due_s = (
            start_s
            + (int((world.now_s - start_s + TIME_TOLERANCE_S) // self.round_s) + 1) * self.round_s
        )
        if (
            started or world.running or world.saving or not fresh
        ):  # else only what comes can change anything
            world.wake_at(self._due_s)

    def _take_over(self, world: World, job_id: str, kinds: Kinds) -> None:
        """Take over a job that runs already when the simulation starts."""
        active = self._active
        active.add(world.job(job_id), kinds.of(world, job_id), self.round_s / 2)
        held = [slot.node for slot in world.placement(job_id) if slot.gpus]
        active.column[-1] = (
            kinds.gpu_types.index(world.cluster.node[held[0]].gpu_type)
            if held
            else kinds.columns - 1
        )
        self._changed = True

    def _note(self, world: World, kinds: Kinds) -> None:
        """Note who has come and who is gone."""
        active, running, waiting = self._active, world.running, world.waiting
        row_of, column = active.row, active.column
        gone = []
        for job_id in dict.fromkeys(world.take_released()):
            if job_id in running or job_id not in row_of:
                continue
            if job_id in waiting:
                column[row_of[job_id]] = IDLE
            else:
                gone.append(row_of[job_id])
        if gone:
            active.remove(gone)
            self._changed, self._lines = True, None
        for job_id in world.take_arrived():
            if (
                job_id not in active.row and job_id in waiting
            ):  # else it has been here, and is done by now
                active.add(world.job(job_id), kinds.of(world, job_id), self.round_s / 2)
                self._changed = True

    def _account(self, now_s: float) -> None:
        """Count the time that jobs have run, alone or together, since this was last done."""
        active, passed_s = self._active, now_s - self._last_s
        columns = np.array(active.column, dtype=np.int64)
        number = {pair: i for i, pair in enumerate(self._pairs)}
        for pair in self._mate.items():
            i, j = (active.row.get(job_id) for job_id in pair)
            if i is None or j is None or not active.column[i] == active.column[j] != IDLE:
                continue
            columns[i] = IDLE
            if pair in number:
                self._together.time_s[active.column[i], number[pair]] += passed_s
        running = (columns >= 0).nonzero()[0]
        active.ledger.time_s[columns[running], running] += passed_s
        self._last_s = now_s

    def _renew(self, world: World, kinds: Kinds) -> bool:
        """Compute the shares if they are due; return whether they are up to date."""
        if not self._changed:
            return True
        now_s, active = world.now_s, self._active
        if self._reset_s is not None:
            passed_s = now_s - self._reset_s
            if passed_s < self.reset_s and not world.idle:
                return False
            active.ledger.settle(passed_s, self.round_s / 2)
            self._together.settle(passed_s, self.round_s / 2)
        active.ledger.time_s[:] = self.round_s / 2
        allocation = self.allocation(world, active, kinds)
        active.ledger.share = np.ascontiguousarray(allocation.share.T)
        if self.paired:
            self._pair_up(allocation, kinds.columns)
        active.known[:] = True
        self._changed, self._lines = False, None
        self._reset_s = now_s
        return True

    def _pair_up(self, allocation: Allocation, columns: int) -> None:
        """Take over the shares of pairs, with what earlier ones owe the same pairs."""
        ids = self._active.ids
        owed = dict(zip(self._pairs, self._together.deficit_s.T, strict=True))
        rows = zip(allocation.first.tolist(), allocation.second.tolist(), strict=True)
        pairs = [(ids[first], ids[second]) for first, second in rows]
        number = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
        share = np.zeros((columns, len(number)))
        numbers = np.array([number[pair] for pair in pairs], dtype=np.int64)
        np.add.at(share, (allocation.column, numbers), allocation.fraction)
        deficit_s = np.zeros_like(share)
        for pair, i in number.items():
            deficit_s[:, i] = owed.get(pair, 0.0)
        self._pairs = list(number)
        self._together = Ledger(share, np.full_like(share, self.round_s / 2), deficit_s)

    # ----------------------------------------------------------------------------------------------
    # -- leases

    def _lease(self, world: World, kinds: Kinds) -> bool:
        """Choose who runs in this round, preempt the others, start the new ones; return whether any
        started."""
        active, ids = self._active, self._active.ids
        lines = self._lines = self._lines or self._line_up(kinds)
        time_s = active.ledger.time_s
        if self._pairs:
            time_s = np.hstack([time_s[:, : self._lined], self._together.time_s])
        orders = [
            line.items[(line.less_share / time_s[k, line.items]).argsort(kind="stable")].tolist()
            for k, line in enumerate(lines)
        ]
        chosen, picked = self._choose(world, lines, orders, kinds.workers.tolist())
        column = active.column
        for i in self._victims(world, chosen):
            try:
                world.preempt(ids[i])
            except PolicyError:  # it is about to end
                continue
            column[i] = IDLE
        gpus = [line.gpus for line in lines]
        starts = [(i, chosen[i]) for i in picked if column[i] == IDLE]
        starts.sort(key=lambda start: -gpus[start[1]][start[0]])
        self._pending = []
        started = self._start(world, starts)
        if self._pending and not world.saving:
            failed, self._pending = self._pending, []
            started |= self._fill(world, orders, failed)
        return started

    def _victims(self, world: World, chosen: list[int]) -> list[int]:
        """Return the rows that run where they were not chosen for, or with another than they were
        chosen with."""
        active = self._active
        running = [(i, now) for i, now in enumerate(active.column) if now >= 0]
        leave = [i for i, now in running if chosen[i] != now]
        if not self.paired:
            return leave
        stay = [i for i, now in running if chosen[i] == now]
        staying = set(stay)
        for i in stay:
            partner = self._partner(world, i)
            mate = active.row.get(self._mate.get(active.ids[i], ""), IDLE)
            for other in (partner, mate):
                if partner != mate and other in staying and i in staying:
                    victim = max(i, other)
                    if not world.may_preempt(active.ids[victim]):
                        victim = min(i, other)
                    staying.discard(victim)
                    leave.append(victim)
        return leave

    def _line_up(self, kinds: Kinds) -> list[Line]:
        """Return who may run where until shares or jobs change."""
        active, ledger, together = self._active, self._active.ledger, self._together
        self._lined = len(active.ids)
        able = (kinds.rate[active.kind].T > 0) & active.known
        if not self.fills:
            able &= ledger.share > 0
        gpus, share, deficit_s = kinds.gpus[active.kind].T, ledger.share, ledger.deficit_s
        if self._pairs:
            here = np.array([set(pair) <= active.row.keys() for pair in self._pairs], dtype=bool)
            able = np.hstack([able, (together.share > 0) & here])
            share = np.hstack([share, together.share])
            deficit_s = np.hstack([deficit_s, together.deficit_s])
        lines = []
        for k in range(kinds.columns):
            items = able[k].nonzero()[0]
            items = items[np.lexsort((-share[k, items], -deficit_s[k, items]))]
            lines.append(Line(items, -share[k, items], gpus[k].tolist()))
        return lines

    def _choose(
        self, world: World, lines: list[Line], orders: list[list[int]], left: list[float]
    ) -> tuple[list[int], list[int]]:
        """Return the column of each row in this round, and the rows chosen for one, in order."""
        active, jobs = self._active, self._lined
        chosen, mate, picked = [IDLE] * len(active.ids), [IDLE] * len(active.ids), list[int]()
        pinned = self._pin(world, chosen, mate, left)
        row = active.row
        pairs = [(row.get(first, IDLE), row.get(second, IDLE)) for first, second in self._pairs]
        for k, order in enumerate(orders):
            free, need = left[k], lines[k].gpus
            limited = k < len(orders) - 1 and not pairs
            for item in order:
                if item < jobs:
                    if chosen[item] != IDLE or need[item] > free:
                        continue
                    free -= need[item]
                    chosen[item] = k
                    picked.append(item)
                    if limited and free < 1:
                        break
                    continue
                rows = pairs[item - jobs]
                waiting = [i for i in rows if chosen[i] == IDLE]
                taken = [i for i in rows if chosen[i] != IDLE]
                alone = {i for i in pinned.intersection(taken) if chosen[i] == k and mate[i] < 0}
                needed = 0.0 if taken else need[rows[0]]
                if not waiting or needed > free or len(alone) < len(taken):
                    continue
                free -= needed
                for i in waiting:
                    chosen[i] = k
                picked += waiting
                mate[rows[0]], mate[rows[-1]] = rows[-1], rows[0]
        if self.paired:
            self._mate = {active.ids[i]: active.ids[j] for i, j in enumerate(mate) if j != IDLE}
        return chosen, picked

    def _partner(self, world: World, i: int) -> int:
        """Return the row of the job that shares GPUs with a running one."""
        partner = world.hold(self._active.ids[i]).partner if self.paired else None
        if partner is None or partner not in world.running:
            return IDLE
        return self._active.row.get(partner, IDLE)

    def _pin(self, world: World, chosen: list[int], mate: list[int], left: list[float]) -> set[int]:
        """Choose the jobs that may not be preempted for where they are, with each other where they
        share; return them."""
        active = self._active
        if True not in active.bound:
            return set()
        pinned = {
            i
            for i, (bound, column) in enumerate(zip(active.bound, active.column, strict=True))
            if bound and column >= 0 and not world.may_preempt(active.ids[i])
        }
        for i in sorted(pinned):
            chosen[i] = active.column[i]
            partner = self._partner(world, i)
            if partner in pinned:
                mate[i] = partner
            if partner not in pinned or i < partner:
                left[chosen[i]] -= world.hold(active.ids[i]).need.gpus
        return pinned

    def _start(self, world: World, starts: list[Start]) -> bool:
        """Start waiting jobs where they fit; return whether any did. The others become pending."""
        active = self._active
        started = False
        for i, column in starts:
            if active.ids[i] in world.waiting and self._start_one(world, i, column):
                started = True
            else:
                self._pending.append((active.ids[i], column))
        return started

    def _start_one(self, world: World, i: int, column: int) -> bool:
        """Start a job alone, or beside the mate that runs in the column already."""
        active = self._active
        job_id = active.ids[i]
        mate = self._mate.get(job_id)
        if mate is not None and mate in world.running and active.column[active.row[mate]] == column:
            return self._join(world, i, column, mate)
        for way, _ in active.kinds[i].ways[column]:
            fit = world.fit_option(job_id, way)
            if fit is not None:
                world.start(job_id, *fit)
                active.column[i] = column
                return True
        return False

    def _join(self, world: World, i: int, column: int, mate: str) -> bool:
        active = self._active
        job_id = active.ids[i]
        for way, need in active.kinds[i].ways[column]:
            option = world.options(job_id)[way]
            if need.gpus == world.hold(mate).need.gpus and world.may_share(job_id, option, mate):
                try:
                    world.start_sharing(job_id, option, mate)
                except PolicyError:
                    continue
                active.column[i] = column
                return True
        return False

    def _fill(self, world: World, orders: list[list[int]], failed: list[tuple[str, int]]) -> bool:
        """Give what some could not use (quotas, cores, fragments) to the next in order. A kind that
        has `failed` in a column is not tried there again; with pairs it is, as who could not start
        beside another may start alone."""
        active = self._active
        refused = {(active.kinds[active.row[job_id]].number, k) for job_id, k in failed}
        if self.paired:
            refused = set()
            self._mate = {
                first: second
                for first, second in self._mate.items()
                if first in world.running and second in world.running
            }
        started = False
        for k, order in enumerate(orders):
            for i in order:
                if i >= self._lined or active.column[i] != IDLE:
                    continue
                key = active.kinds[i].number, k
                if active.ids[i] not in world.waiting or key in refused:
                    continue
                if self._start_one(world, i, k):
                    started = True
                else:
                    refused.add(key)
        return started

    def _start_pending(self, world: World) -> None:
        """Start jobs whose GPUs have come free since the round began."""
        if not self._pending:
            return
        row = self._active.row
        starts, self._pending = (
            [(row[job_id], k) for job_id, k in self._pending if job_id in row],
            [],
        )
        self._account(world.now_s)
        self._start(world, starts)
