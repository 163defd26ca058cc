"""The round mechanism that all Gavel policies share: shares of GPU types, given out as leases of
one round."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from optsched.driver.view import PolicyError
from optsched.driver.world import World
from optsched.physics import TIME_TOLERANCE_S
from optsched.plugins.options import PluginOptions, PositiveDuration

from .active import IDLE, Active, Floats, Ints, Kinds

Start = tuple[int, int]
"""Row and column."""


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """Who may run in a column: rows in the order of ties, their shares (negative, to be sorted),
    and all rows' GPUs."""

    rows: Ints
    less_share: Floats
    gpus: list[float]


@dataclass(frozen=True, kw_only=True)
class RoundOptions(PluginOptions):
    """What may be set of every policy of Gavel."""

    round_s: Annotated[PositiveDuration, "Length of a round."] = 360.0
    reset_s: Annotated[
        PositiveDuration, "Least time from one computation of the shares to the next."
    ] = 1920.0


class Rounds:
    """Base of Gavel's policies: `shares` says which fraction of the time each job should run on
    each GPU type.

    At each round the jobs of a GPU type are taken in order of share / time received there since the
    shares were computed; whoever fits into the GPUs that are left runs for the round, the earlier
    GPU types of the cluster first. Jobs whose share of a type is 0 come last, so that no GPU idles
    that somebody could use. Ties go to the job that earlier shares owe more time, then to the
    larger share, then to the earlier job. A job that runs on a type and is chosen for it again
    keeps its GPUs; the others are placed, the largest gangs first.

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
    """Whether jobs with a share of 0 may use what is left."""

    def __init__(self, options: RoundOptions) -> None:
        self.round_s, self.reset_s = options.round_s, options.reset_s
        self._kinds: Kinds | None = None
        self._active = Active(0)
        self._due_s: float | None = None
        self._last_s = 0.0
        self._changed = False
        self._reset_s: float | None = None
        self._pending: list[tuple[str, int]] = []
        self._lines: list[Line] | None = None

    def shares(self, world: World, active: Active, kinds: Kinds) -> Floats:
        """The fraction of time of each job in each column."""
        raise NotImplementedError

    # ----------------------------------------------------------------------------------------------
    # -- rounds

    def decide(self, world: World) -> None:
        """At a round choose anew who runs; in between start those whose GPUs have come free."""
        if self._kinds is None:
            self._kinds = Kinds(world)
            self._active = Active(self._kinds.columns)
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
        """A job that runs already when the simulation starts."""
        active = self._active
        active.add(world.job(job_id), kinds.of(world, job_id), self.round_s / 2)
        held = [slot.node for slot in world.hold(job_id).placement if slot.gpus]
        active.column[-1] = (
            kinds.gpu_types.index(world.cluster.node[held[0]].gpu_type)
            if held
            else kinds.columns - 1
        )
        self._changed = True

    def _note(self, world: World, kinds: Kinds) -> None:
        """Who has come, who is gone."""
        active = self._active
        gone = []
        for job_id in dict.fromkeys(world.take_released()):
            row = active.row.get(job_id)
            if row is None or job_id in world.running:
                continue
            if job_id in world.waiting:
                active.column[row] = IDLE
            else:
                gone.append(row)
        if gone:
            active.remove(gone)
            self._changed, self._lines = True, None
        for job_id in world.take_arrived():
            if (
                job_id not in active.row and job_id in world.waiting
            ):  # else it has been here, and is done by now
                active.add(world.job(job_id), kinds.of(world, job_id), self.round_s / 2)
                self._changed = True

    def _account(self, now_s: float) -> None:
        """Count the time that jobs have run since this was last done."""
        active = self._active
        columns = np.array(active.column, dtype=np.int64)
        running = (columns >= 0).nonzero()[0]
        active.time_s[columns[running], running] += now_s - self._last_s
        self._last_s = now_s

    def _renew(self, world: World, kinds: Kinds) -> bool:
        """Compute the shares if they are due; whether they are up to date."""
        if not self._changed:
            return True
        now_s, active = world.now_s, self._active
        if self._reset_s is not None:
            if now_s - self._reset_s < self.reset_s and (world.running or world.saving):
                return False
            active.deficit_s += active.share * (now_s - self._reset_s) - (
                active.time_s - self.round_s / 2
            )
        active.time_s[:] = self.round_s / 2
        self._share_out(world, kinds)
        active.known[:] = True
        self._changed, self._lines = False, None
        self._reset_s = now_s
        return True

    def _share_out(self, world: World, kinds: Kinds) -> None:
        self._active.share = np.ascontiguousarray(self.shares(world, self._active, kinds).T)

    # ----------------------------------------------------------------------------------------------
    # -- leases

    def _lease(self, world: World, kinds: Kinds) -> bool:
        """Choose who runs in this round, preempt the others, start the new ones; whether any
        started."""
        active, ids = self._active, self._active.ids
        lines = self._lines = self._lines or self._line_up(kinds)
        orders = [
            line.rows[
                (line.less_share / self._received_s(k, line.rows)).argsort(kind="stable")
            ].tolist()
            for k, line in enumerate(lines)
        ]
        chosen, picked = self._choose(world, lines, orders, kinds.workers.tolist())
        column = active.column
        for i in self._leavers(world, chosen):
            try:
                world.preempt(ids[i])
            except PolicyError:  # it is about to end
                continue
            column[i] = IDLE
        starts = [(i, chosen[i]) for i in picked if column[i] == IDLE]
        starts.sort(key=lambda start: -lines[start[1]].gpus[start[0]])
        self._pending = []
        started = self._start(world, starts)
        if self._pending and not world.saving:
            failed, self._pending = self._pending, []
            started |= self._fill(
                world,
                orders,
                {(active.kinds[active.row[job_id]].number, k) for job_id, k in failed},
            )
        return started

    def _received_s(self, k: int, rows: Ints) -> Floats:
        """Time that these have run in a column since shares were computed."""
        found: Floats = self._active.time_s[k, rows]
        return found

    def _leavers(self, world: World, chosen: list[int]) -> list[int]:
        """Rows that run where they were not chosen for."""
        return [
            i
            for i, (new, now) in enumerate(zip(chosen, self._active.column, strict=True))
            if new != now >= 0
        ]

    def _line_up(self, kinds: Kinds) -> list[Line]:
        """Who may run where until shares or jobs change."""
        active = self._active
        able = (kinds.rate[active.kind].T > 0) & active.known
        if not self.fills:
            able &= active.share > 0
        gpus = kinds.gpus[active.kind].T
        lines = []
        for k in range(kinds.columns):
            rows = able[k].nonzero()[0]
            rows = rows[np.lexsort((-active.share[k, rows], -active.deficit_s[k, rows]))]
            lines.append(Line(rows, -active.share[k, rows], gpus[k].tolist()))
        return lines

    def _choose(
        self, world: World, lines: list[Line], orders: list[list[int]], left: list[float]
    ) -> tuple[list[int], list[int]]:
        """The column of each row in this round, and the rows chosen for one, in order."""
        active = self._active
        chosen = [IDLE] * len(active.ids)
        picked: list[int] = []
        for i, (bound, column) in enumerate(zip(active.bound, active.column, strict=True)):
            if bound and column >= 0 and not world.may_preempt(active.ids[i]):
                chosen[i] = column
                left[column] -= world.hold(active.ids[i]).need.gpus
        for k, order in enumerate(orders):
            free, need = left[k], lines[k].gpus
            limited = k < len(orders) - 1
            for i in order:
                if chosen[i] < 0 and need[i] <= free:
                    chosen[i] = k
                    picked.append(i)
                    free -= need[i]
                    if limited and free < 1:
                        break
        return chosen, picked

    def _start(self, world: World, starts: list[Start]) -> bool:
        """Start waiting jobs where they fit; whether any did. The others are kept as pending."""
        active = self._active
        started = False
        for i, column in starts:
            if active.ids[i] in world.waiting and self._start_one(world, i, column):
                started = True
            else:
                self._pending.append((active.ids[i], column))
        return started

    def _start_one(self, world: World, i: int, column: int) -> bool:
        active = self._active
        for way, need in active.kinds[i].ways[column]:
            placement = world.free.place(need)
            if placement is not None:
                world.start(active.ids[i], world.options(active.ids[i])[way], placement)
                active.column[i] = column
                return True
        return False

    def _fill(self, world: World, orders: list[list[int]], refused: set[tuple[int, int]]) -> bool:
        """Give what some could not use (quotas, cores, fragments) to the next in order; `refused`
        are the kinds and columns that do not fit."""
        active = self._active
        started = False
        for k, order in enumerate(orders):
            for i in order:
                key = active.kinds[i].number, k
                if active.column[i] != IDLE or active.ids[i] not in world.waiting or key in refused:
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
