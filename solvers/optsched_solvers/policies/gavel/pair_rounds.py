"""Gavel's rounds where two jobs may share GPUs."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from optsched.driver.view import PolicyError
from optsched.driver.world import World

from .active import IDLE, Active, Floats, Kinds
from .program import Allocation
from .rounds import Line, RoundOptions, Rounds


@dataclass(slots=True, eq=False)
class Together:
    """What the round mechanism knows of each pair that was given a share, by column and pair: see
    `Active`."""

    pairs: list[tuple[str, str]]
    share: Floats
    time_s: Floats
    deficit_s: Floats


@dataclass(frozen=True, kw_only=True)
class SharingOption(RoundOptions):
    """For policies that can share GPUs."""

    sharing: Annotated[
        Literal["none", "pairs"],
        "With pairs, pairs of jobs on the same GPUs get shares too (column generation, at a "
        "corner).",
    ] = "none"


class PairRounds(Rounds):
    """Base of the policies that have the option `sharing`: with `pairs`, two jobs may run on the
    same GPUs.

    A pair is then a combination like a job alone: it has its share of each GPU type and its time
    received, and is skipped where one of the two was chosen already. A job that is chosen for the
    type on which it runs keeps its GPUs, whoever shares them; of two that are to part, and of two
    that are to come together, the later one moves. Pairs without a share do not fill what is left.
    """

    def __init__(self, options: RoundOptions) -> None:
        super().__init__(options)
        self.paired = isinstance(options, SharingOption) and options.sharing == "pairs"
        nothing = np.zeros((0, 0))
        self._together = Together([], nothing, nothing, nothing)
        self._mate: dict[str, str] = {}
        self._lined = 0
        """Items from this number on are pairs: the jobs when lines were made, to whom others may
        have come since."""

    def allocation(self, world: World, active: Active, kinds: Kinds) -> Allocation:
        """Shares of jobs and pairs, by row and column of `active`."""
        raise NotImplementedError

    def shares(self, world: World, active: Active, kinds: Kinds) -> Floats:
        """Those of the jobs alone."""
        return self.allocation(world, active, kinds).share

    def _share_out(self, world: World, kinds: Kinds) -> None:
        if not self.paired:
            return super()._share_out(world, kinds)
        active, old = self._active, self._together
        owed: dict[tuple[str, str], Floats] = {}
        if self._reset_s is not None:
            deficit_s = (
                old.deficit_s
                + old.share * (world.now_s - self._reset_s)
                - (old.time_s - self.round_s / 2)
            )
            owed = {pair: deficit_s[:, i] for i, pair in enumerate(old.pairs)}
        found = self.allocation(world, active, kinds)
        active.share = np.ascontiguousarray(found.share.T)
        rows = zip(found.first.tolist(), found.second.tolist(), strict=True)
        pairs = [(active.ids[first], active.ids[second]) for first, second in rows]
        number = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
        share = np.zeros((kinds.columns, len(number)))
        numbers = np.array([number[pair] for pair in pairs], dtype=np.int64)
        np.add.at(share, (found.column, numbers), found.fraction)
        deficit = [owed.get(pair, np.zeros(kinds.columns)) for pair in number]
        self._together = Together(
            list(number),
            share,
            np.full_like(share, self.round_s / 2),
            np.column_stack(deficit) if deficit else np.zeros_like(share),
        )
        return None

    def _account(self, now_s: float) -> None:
        if not self.paired:
            return super()._account(now_s)
        active, together = self._active, self._together
        passed_s = now_s - self._last_s
        number = {pair: i for i, pair in enumerate(together.pairs)}
        for i, (job_id, k) in enumerate(zip(active.ids, active.column, strict=True)):
            if k == IDLE:
                continue
            mate = self._mate.get(job_id)
            j = None if mate is None else active.row.get(mate)
            if mate is None or j is None or active.column[j] != k:
                active.time_s[k, i] += passed_s
            elif (job_id, mate) in number:
                together.time_s[k, number[job_id, mate]] += passed_s
        self._last_s = now_s
        return None

    # ----------------------------------------------------------------------------------------------
    # -- leases

    def _line_up(self, kinds: Kinds) -> list[Line]:
        """The pairs come after the jobs."""
        lines = super()._line_up(kinds)
        if not self.paired:
            return lines
        active, together = self._active, self._together
        jobs = self._lined = len(active.ids)
        here = np.array(
            [one in active.row and two in active.row for one, two in together.pairs], dtype=bool
        )
        for k, line in enumerate(lines):
            pairs = ((together.share[k] > 0) & here).nonzero()[0]
            items = np.concatenate([line.rows, pairs + jobs])
            share = np.concatenate([-line.less_share, together.share[k, pairs]])
            deficit = np.concatenate([active.deficit_s[k, line.rows], together.deficit_s[k, pairs]])
            order = np.lexsort((-share, -deficit))
            lines[k] = Line(items[order], -share[order], line.gpus)
        return lines

    def _received_s(self, k: int, items: np.ndarray) -> Floats:
        if not self.paired:
            return super()._received_s(k, items)
        found: Floats = np.concatenate(
            [self._active.time_s[k, : self._lined], self._together.time_s[k]]
        )[items]
        return found

    def _choose(
        self, world: World, lines: list[Line], orders: list[list[int]], left: list[float]
    ) -> tuple[list[int], list[int]]:
        if not self.paired:
            return super()._choose(world, lines, orders, left)
        active = self._active
        chosen, mate, picked = [IDLE] * len(active.ids), [IDLE] * len(active.ids), list[int]()
        pinned = self._pin(world, chosen, mate, left)
        for k, order in enumerate(orders):
            free, need = left[k], lines[k].gpus
            for item in order:
                rows = self._rows(item)
                waiting = [i for i in rows if chosen[i] == IDLE]
                taken = [i for i in rows if chosen[i] != IDLE]
                if not waiting or (
                    taken
                    and not (taken[0] in pinned and chosen[taken[0]] == k and mate[taken[0]] < 0)
                ):
                    continue
                if not taken:
                    if need[rows[0]] > free:
                        continue
                    free -= need[rows[0]]
                for i in waiting:
                    chosen[i] = k
                if len(rows) > 1:
                    mate[rows[0]], mate[rows[1]] = rows[1], rows[0]
                picked += waiting
        self._mate = {active.ids[i]: active.ids[j] for i, j in enumerate(mate) if j != IDLE}
        return chosen, picked

    def _rows(self, item: int) -> list[int]:
        row, jobs = self._active.row, self._lined
        return (
            [item] if item < jobs else [row[job_id] for job_id in self._together.pairs[item - jobs]]
        )

    def _partner(self, world: World, i: int) -> int:
        """The row of the job that shares GPUs with a running one."""
        partner = world.hold(self._active.ids[i]).partner
        return (
            IDLE
            if partner is None or partner not in world.running
            else self._active.row.get(partner, IDLE)
        )

    def _pin(self, world: World, chosen: list[int], mate: list[int], left: list[float]) -> set[int]:
        """Jobs that may not be preempted are chosen for where they are, with each other where they
        share."""
        active = self._active
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

    def _leavers(self, world: World, chosen: list[int]) -> list[int]:
        """Also whoever runs where it was chosen for, but with the wrong one."""
        leave = super()._leavers(world, chosen)
        if not self.paired:
            return leave
        active = self._active
        stay = {
            i
            for i, (new, now) in enumerate(zip(chosen, active.column, strict=True))
            if new == now >= 0
        }
        for i in sorted(stay):
            partner = self._partner(world, i)
            mate = active.row.get(self._mate.get(active.ids[i], ""), IDLE)
            for other in (partner, mate):
                if partner != mate and other in stay and i in stay:
                    victim = max(i, other)
                    if not world.may_preempt(active.ids[victim]):
                        victim = min(i, other)
                    stay.discard(victim)
                    leave.append(victim)
        return leave

    def _start_one(self, world: World, i: int, column: int) -> bool:
        active = self._active
        mate = self._mate.get(active.ids[i])
        if mate is None or mate not in world.running or active.column[active.row[mate]] != column:
            return super()._start_one(world, i, column)
        for way, need in active.kinds[i].ways[column]:
            option = world.options(active.ids[i])[way]
            if need.gpus == world.hold(mate).need.gpus and world.may_share(
                active.ids[i], option, mate
            ):
                try:
                    world.start_sharing(active.ids[i], option, mate)
                except PolicyError:
                    continue
                active.column[i] = column
                return True
        return False

    def _fill(self, world: World, orders: list[list[int]], refused: set[tuple[int, int]]) -> bool:
        """Who could not start beside another may start alone."""
        if self.paired:
            self._mate = {
                one: two
                for one, two in self._mate.items()
                if one in world.running and two in world.running
            }
            orders, refused = (
                [[item for item in order if item < self._lined] for order in orders],
                set(),
            )
        return super()._fill(world, orders, refused)
