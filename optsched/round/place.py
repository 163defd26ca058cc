"""Puts a choice of options on real nodes."""

import numpy as np

from ..model import Placement, Slot
from .deadline import NEVER, Deadline
from .model import NO_OPTION, Bools, Floats, Ints, Kind, RoundModel
from .nodes import Nodes, Taken
from .patterns import Columns

LOOKS_EVERY = 64
"""After so many attempts to put an option on nodes the clock is looked at: so something is placed
however short the time."""
SORTED = 1024
"""Options that are put in order at a time."""


def to_placement(model: RoundModel, held: Taken) -> Placement:
    """Return it as slots with node names, in the order of the cluster's nodes."""
    nodes = model.instance.cluster.nodes
    return tuple(Slot(node=nodes[n].name, gpus=gpus, cpus=cpus) for n, gpus, cpus in sorted(held))


class Packing:
    """A choice of options put on real nodes: `chosen` is the option of each job or -1, `held` what
    fresh ones got, `guest` who shares the GPUs of which running job, `left` who made way for a
    partner that stays alone.

    `place_all` follows a wish as far as the nodes allow: kept jobs stay first; then gangs on one
    node, gangs that must lie within a rack, gangs anywhere, single GPUs, the largest first and of
    equals those that would lose most elsewhere; what does not fit tries its job's other options in
    the order of `reduced`. After the `deadline` running jobs are still kept, and nothing else is
    placed.
    """

    def __init__(self, model: RoundModel, *, deadline: Deadline = NEVER) -> None:
        self.model = model
        self._deadline = deadline
        self._attempts = 0
        self._late = False
        self.nodes = Nodes(model)
        self.chosen = np.full(len(model.jobs), -1, dtype=np.int64)
        self.held: dict[int, Taken] = {}
        self.guest: dict[int, int] = {}
        self.left: set[int] = set()

    def place_all(self, wish: Ints, reduced: Floats) -> None:
        """Place all. `wish` is an option or -1 for each job; running jobs that must be kept are,
        whatever it says."""
        model, kept = self.model, self.model.patterns.kept
        keeps, must = model.options.first[kept], model.must[kept]
        stay = (wish[kept] == keeps) | must
        self._keep(np.flatnonzero(must))
        self._keep(np.flatnonzero(stay & ~must))
        self.nodes.index()
        if not self._starts_reserved(wish):
            self.nodes.reserve()
        jobs = np.flatnonzero((wish >= 0) & (self.chosen < 0))
        kinds = model.options.kind[wish[jobs]]
        for j in jobs[(kinds == Kind.ALONE) | (kinds == Kind.BESIDE)].tolist():
            self.put(j, int(wish[j]))
        is_fresh = (kinds == Kind.START) | (kinds == Kind.MOVE)
        self._start(wish, jobs[is_fresh], reduced)
        for j in jobs[~is_fresh].tolist():
            if self.chosen[j] < 0:
                self.put_otherwise(j, reduced)

    def _starts_reserved(self, wish: Ints) -> bool:
        """Start the job for which a place is reserved, if it is to start now and there is room."""
        if self.model.reserved_for is None:
            return False
        return any(
            job.id == self.model.reserved_for
            and self.chosen[j] < 0 <= wish[j]
            and self.put(j, int(wish[j]))
            for j, job in enumerate(self.model.jobs)
        )

    def take_over(self, other: "Packing", but: Bools) -> None:
        """Give all jobs but some what they have in another packing of the same round."""
        kept = self.model.patterns.kept
        stays = other.chosen[kept] == self.model.options.first[kept]
        self._keep(np.flatnonzero(stays & ~but[kept]))
        self.nodes.index()
        for j in np.flatnonzero((other.chosen >= 0) & (self.chosen < 0) & ~but).tolist():
            option = int(other.chosen[j])
            if j in other.held:
                self.nodes.take(option, other.held[j])
                self.held[j], self.chosen[j] = other.held[j], option
            else:
                self.put(j, option)

    def _keep(self, which: Ints) -> None:
        """Leave running jobs, by their number, where they are, hosts before their guests."""
        kept = self.model.patterns.kept[which]
        keeps = self.model.options.first[kept]
        hosted = self.model.options.host[keeps] >= 0
        alone = ~hosted
        if self.nodes.keep_all(which[alone]):
            self.chosen[kept[alone]] = keeps[alone]
            alone[:] = False
        for part in (alone, hosted):
            for k, j, option in zip(
                which[part].tolist(), kept[part].tolist(), keeps[part].tolist(), strict=True
            ):
                if self._is_hosted(option) and self.nodes.keep(k):
                    self._take(j, option)

    def _start(self, wish: Ints, jobs: Ints, reduced: Floats) -> None:
        """Put waiting jobs, and those that move, on free GPUs as they wish, or otherwise."""
        if not len(jobs):
            return
        options, patterns = wish[jobs], self.model.patterns
        pattern = self.model.options.pattern[options]
        bulk = self.model.bulk
        rank = _ranks(patterns.table, bulk)[pattern]
        lost = regret(self.model, options, reduced)
        for at in np.lexsort((jobs, -lost, -bulk[pattern], rank)).tolist():
            j = int(jobs[at])
            if not self.put(j, int(options[at])):
                self.put_otherwise(j, reduced)

    def put(self, j: int, option: int) -> bool:
        """Give a job that does not run an option, if it fits and there is time."""
        self._attempts += 1
        if self._attempts % LOOKS_EVERY == 0:
            self._late = self._deadline.left_s() < 0
        if self._late:
            return False
        number = int(self.model.options.pattern[option]) - len(self.model.patterns.fresh)
        if number >= 0:
            fits = self._is_hosted(option) and self.nodes.can_keep(number)
            if fits and (fits := self.nodes.keep(number)):
                self._take(j, option)
            return fits
        held = self.nodes.place(option)
        if held is not None:
            self._note(j, option, held)
        return held is not None

    def put_on(self, j: int, option: int, held: Taken) -> bool:
        """Give a job that does not run a fresh option on certain nodes, if it fits there; racks and
        uplinks are not looked at."""
        if not self.nodes.can_take(option, held):
            return False
        self.nodes.take(option, held)
        self._note(j, option, held)
        return True

    def _note(self, j: int, option: int, held: Taken) -> None:
        """Note what a fresh option got."""
        if self._is_where_it_was(j, option, held):
            option = int(self.model.options.first[j])
        else:
            self.held[j] = held
        self.chosen[j] = option

    def _is_where_it_was(self, j: int, option: int, held: Taken) -> bool:
        """Return whether a move is onto the job's own nodes in its own mode, and so none: not where
        a partner with which it shared its GPUs stays there."""
        k, entry = self.model.kept_number.get(j), self.model.running[j]
        keep = int(self.model.options.first[j])
        if k is None or entry is None or j in self.left or self.model.options.host[keep] >= 0:
            return False
        mode = self.model.mode(option)
        return mode.size == entry.mode.size and sorted(held) == sorted(self.nodes.place_of(k))

    def put_otherwise(self, j: int, reduced: Floats) -> bool:
        """Try the options of a job from the best on, as long as they are worth their price."""
        options = self.model.options
        keep = int(options.first[j]) if j in self.model.kept_number else NO_OPTION
        for option in options.ranked(j, reduced):
            if self._late or (reduced[option] <= 0 and options.value[option] <= 0):
                break
            if (option == keep or reduced[option] > 0) and self.put(j, option):
                return True
        return False

    def _is_hosted(self, option: int) -> bool:
        """Return whether an option on GPUs of another job is possible: that job is kept and has no
        guest, or is gone; nobody goes on whose partner stays there alone."""
        first = self.model.options.first
        j = int(self.model.options.job[option])
        if option == first[j] and j in self.left:
            return False
        host, rival = int(self.model.options.host[option]), int(self.model.options.rival[option])
        if rival >= 0:
            return bool(self.chosen[rival] != first[rival])
        return host < 0 or bool(self.chosen[host] == first[host] and host not in self.guest)

    def _take(self, j: int, option: int) -> None:
        self.chosen[j] = option
        host, rival = int(self.model.options.host[option]), int(self.model.options.rival[option])
        if host >= 0:
            self.guest[host] = j
        if rival >= 0:
            self.left.add(rival)

    def fill(self) -> None:
        """Give what is left to jobs that do not run, the most valuable for each GPU first; and what
        is reserved to those of them that will be done in time."""
        self._fill(np.inf)
        if self.model.reserved:
            self.nodes.open_reserved()
            self._fill(min(within_s for _, within_s in self.model.reserved))

    def _fill(self, within_s: float) -> None:
        options = self.model.options
        rest = np.flatnonzero((options.value > 0) & (options.finish_s <= within_s))
        rest = rest[self._could(rest)]
        while len(rest) and not self._late:
            best, rest = self._densest(rest)
            while len(best) and not self._late:
                for option in best[:LOOKS_EVERY].tolist():
                    j = int(options.job[option])
                    if self.chosen[j] < 0 and int(options.pattern[option]) not in self.nodes.full:
                        self.put(j, option)
                best = best[LOOKS_EVERY:]
                best = best[self._could(best)]
            rest = rest[self._could(rest)]

    def _densest(self, some: Ints) -> tuple[Ints, Ints]:
        """Return those of some options that are worth most for each GPU, in this order, and the
        others: few are looked at before nothing fits."""
        options, patterns = self.model.options, self.model.patterns
        density = options.value[some] / np.maximum(patterns.gpus[options.pattern[some]], 1.0)
        among = np.ones(len(some), dtype=bool)
        if len(some) > 2 * SORTED:
            among = density >= np.partition(density, -SORTED)[-SORTED]
        best = some[among]
        return best[np.argsort(-density[among], kind="stable")], some[~among]

    def _could(self, some: Ints) -> Bools:
        """Return which options are of jobs that do not run, and might fit as far as is known."""
        options, patterns = self.model.options, self.model.patterns
        fits = np.ones(len(patterns.gpus), dtype=bool)
        fits[: len(patterns.fresh)] = self._might_fit()
        could: Bools = (self.chosen < 0)[options.job[some]] & fits[options.pattern[some]]
        return could

    def _might_fit(self) -> Bools:
        """Return for each pattern whether there are as many free GPUs, on one node where it needs
        that, as far as is known by now."""
        table = self.model.patterns.table
        together, free = self.nodes.most_together(), self.nodes.free_gpus()
        on = [[c for c in range(len(free)) if mask >> c & 1] for mask in table.masks]
        most = np.array([max((together[c] for c in own), default=0) for own in on], dtype=np.int64)
        total = np.array([sum(free[c] for c in own) for own in on], dtype=np.int64)
        anywhere = np.array([bool(own) for own in on], dtype=bool)[table.mask]
        room = np.where(table.together, most[table.mask], total[table.mask])
        fits = (room >= table.gpus) & (anywhere | ~table.together)
        fits[list(self.nodes.full)] = False
        return np.asarray(fits, dtype=bool)

    def worth(self) -> float:
        """Return the value of what is placed."""
        return self.model.worth(self.chosen)


def regret(model: RoundModel, options: Ints, reduced: Floats) -> Floats:
    """Return how much worse the job of each of `options` (its best) would do on other nodes, or not
    running at all."""
    job = model.options.job
    classes = model.patterns.class_sets[model.options.pattern]
    mine = np.full(len(model.jobs), -1, dtype=np.int64)
    mine[job[options]] = classes[options]
    elsewhere = np.where(mine[job] == classes, -np.inf, reduced)
    second = np.maximum.reduceat(elsewhere, model.options.first[:-1])
    return np.asarray(reduced[options] - np.maximum(second, 0.0)[job[options]], dtype=float)


def _ranks(table: Columns, bulk: Floats) -> Ints:
    """Return which come first: gangs on one node and what is as bulky, rack gangs, gangs anywhere,
    then singles and jobs without GPUs."""
    gangs = np.where(table.together, 0, np.where(table.in_rack, 1, 2))
    return np.where(bulk <= 1, 3, gangs)
