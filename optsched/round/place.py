"""Puts a choice of options on real nodes."""

from collections.abc import Sequence

import numpy as np

from ..model.instance import Placement, Slot
from .deadline import NEVER, Deadline
from .model import NO_OPTION, Bools, Floats, Ints, Kind, RoundModel
from .nodes import Nodes, Taken
from .patterns import Columns

LOOKS_EVERY = 64
"""After so many attempts to put an option on nodes the clock is looked at: so something is placed
however short the time."""


def to_placement(model: RoundModel, held: Taken) -> Placement:
    """As slots with node names, in the order of the cluster's nodes."""
    nodes = model.instance.cluster.nodes
    return tuple(Slot(node=nodes[n].name, gpus=gpus, cpus=cpus) for n, gpus, cpus in sorted(held))


class Packing:
    """A choice of options put on real nodes: `chosen` is the option of each job or -1, `held` what
    fresh ones got, `guest` who shares the GPUs of which running job.

    `place_all` follows a wish as far as the nodes allow: kept jobs stay first; then gangs that must
    lie within a rack, gangs on one node, gangs anywhere, single GPUs, the largest first and of
    equals those that would lose most elsewhere; what does not fit tries its job's other options in
    the order of `reduced`. With `slots_first` gangs on one node come before those in a rack, and
    with `fragments_first` split gangs take the fullest nodes, not the emptiest: which of the orders
    serves best depends on what is scarce. After the `deadline` running jobs are still kept, and
    nothing else is placed.
    """

    def __init__(
        self,
        model: RoundModel,
        *,
        slots_first: bool = False,
        fragments_first: bool = False,
        deadline: Deadline = NEVER,
    ) -> None:
        self.model = model
        self._deadline = deadline
        self._attempts = 0
        self._late = False
        self._slots_first = slots_first
        self.nodes = Nodes(model, fragments_first)
        self.chosen = np.full(len(model.jobs), -1, dtype=np.int64)
        self.held: dict[int, Taken] = {}
        self.guest: dict[int, int] = {}

    def place_all(self, wish: Ints, reduced: np.ndarray, urgent: Sequence[int] = ()) -> None:
        """`wish` is an option or -1 for each job; running jobs that must be kept are, whatever it
        says. `urgent` jobs come before all that need not be kept, in their order; what is reserved
        is then not looked at."""
        model = self.model
        keeps = model.options.first[model.patterns.kept]
        must = model.must[model.patterns.kept]
        stay = (wish[model.patterns.kept] == keeps) | must
        if urgent:
            self._keep(np.flatnonzero(must))
            self.nodes.index()
            for j in urgent:
                if self.chosen[j] < 0 and not self.put(j, int(wish[j])):
                    self.put_otherwise(j, reduced)
            for k in np.flatnonzero(stay & ~must & (self.chosen[model.patterns.kept] < 0)).tolist():
                self.put(int(model.patterns.kept[k]), int(keeps[k]))
        else:
            self._keep(np.flatnonzero(stay))
            self.nodes.index()
            self.nodes.reserve()
        fresh = np.flatnonzero((wish >= 0) & (self.chosen < 0))
        kinds = model.options.kind[wish[fresh]]
        for j in fresh[(kinds == Kind.ALONE) | (kinds == Kind.BESIDE)].tolist():
            self.put(j, int(wish[j]))
        self._start(wish, fresh[(kinds == Kind.START) | (kinds == Kind.MOVE)], reduced)
        for j in fresh[(kinds != Kind.START) & (kinds != Kind.MOVE)].tolist():
            if self.chosen[j] < 0:
                self.put_otherwise(j, reduced)

    def _keep(self, which: Ints) -> None:
        """Leave running jobs, by their number, where they are, hosts before their guests."""
        model = self.model
        keeps = model.options.first[model.patterns.kept[which]]
        hosted = model.options.host[keeps] >= 0
        for k, option in zip(which[~hosted].tolist(), keeps[~hosted].tolist(), strict=True):
            if self.nodes.keep(k):
                self.chosen[model.patterns.kept[k]] = option
        for k, option in zip(which[hosted].tolist(), keeps[hosted].tolist(), strict=True):
            if self._is_hosted(option) and self.nodes.keep(k):
                self._take(int(model.patterns.kept[k]), option)

    def _start(self, wish: Ints, fresh: Ints, reduced: np.ndarray) -> None:
        """Put waiting jobs, and those that move, on free GPUs as they wish, or otherwise."""
        model = self.model
        if not len(fresh):
            return
        options = wish[fresh]
        rank = _ranks(model.patterns.table, self._slots_first)[model.options.pattern[options]]
        gpus = model.patterns.gpus[model.options.pattern[options]]
        for at in np.lexsort((fresh, -regret(model, options, reduced), -gpus, rank)):
            j = int(fresh[at])
            if not self.put(j, int(options[at])):
                self.put_otherwise(j, reduced)

    def put(self, j: int, option: int) -> bool:
        """Give a job that does not run an option, if it fits and there is time."""
        self._attempts += 1
        if self._attempts % LOOKS_EVERY == 0:
            self._late = self._deadline.left_s() < 0
        if self._late:
            return False
        model = self.model
        if model.options.pattern[option] >= len(model.patterns.fresh):
            k = int(model.options.pattern[option]) - len(model.patterns.fresh)
            if not self._is_hosted(option) or not self.nodes.can_keep(k) or not self.nodes.keep(k):
                return False
            self._take(j, option)
            return True
        held = self.nodes.place(option)
        if held is None:
            return False
        number = self.model.kept_number.get(j)
        if number is not None and self._is_where_it_was(j, number, option, held):
            option = int(model.options.first[j])
        else:
            self.held[j] = held
        self.chosen[j] = option
        return True

    def _is_where_it_was(self, j: int, k: int, option: int, held: Taken) -> bool:
        """A move onto the job's own nodes in its own mode is none."""
        entry = self.model.running[j]
        assert entry is not None
        mode = self.model.patterns.fresh[int(self.model.options.pattern[option])].option.mode
        return mode.size == entry.mode.size and sorted(held) == sorted(self.nodes.place_of(k))

    def put_otherwise(self, j: int, reduced: np.ndarray) -> bool:
        """Try the options of a job from the best on, as long as they are worth their price."""
        model = self.model
        keep = int(model.options.first[j]) if j in model.kept_number else NO_OPTION
        for option in model.options.ranked(j, reduced):
            if self._late or (reduced[option] <= 0 and model.options.value[option] <= 0):
                break
            if (option == keep or reduced[option] > 0) and self.put(j, option):
                return True
        return False

    def _is_hosted(self, option: int) -> bool:
        """Whether an option on GPUs of another job is possible: that job is kept and has no guest,
        or is gone."""
        host, rival = int(self.model.options.host[option]), int(self.model.options.rival[option])
        if rival >= 0:
            return bool(self.chosen[rival] != self.model.options.first[rival])
        return host < 0 or bool(
            self.chosen[host] == self.model.options.first[host] and host not in self.guest
        )

    def _take(self, j: int, option: int) -> None:
        self.chosen[j] = option
        if self.model.options.host[option] >= 0:
            self.guest[int(self.model.options.host[option])] = j

    def fill(self) -> None:
        """Give what is left to jobs that do not run, the most valuable for each GPU first; and what
        is reserved to those of them that will be done in time."""
        self._fill(np.inf)
        if self.model.reserved:
            self.nodes.open_reserved()
            self._fill(min(within_s for _, within_s in self.model.reserved))

    def _fill(self, within_s: float) -> None:
        model = self.model
        if not model.patterns.fresh:
            return
        fits = self._might_fit()
        idle = self.chosen < 0
        able = np.zeros(len(model.options.value), dtype=bool)
        fresh = model.options.pattern < len(model.patterns.fresh)
        able[fresh] = fits[model.options.pattern[fresh]]
        able |= ~fresh
        able &= (
            idle[model.options.job]
            & (model.options.value > 0)
            & (model.options.finish_s <= within_s)
        )
        options = np.flatnonzero(able)
        density = model.options.value[options] / np.maximum(
            model.patterns.gpus[model.options.pattern[options]], 1.0
        )
        options = options[np.argsort(-density, kind="stable")]
        for option, j, p in zip(
            options.tolist(),
            model.options.job[options].tolist(),
            model.options.pattern[options].tolist(),
            strict=True,
        ):
            if self._late:
                break
            if self.chosen[j] < 0 and p not in self.nodes.full:
                self.put(j, option)

    def _might_fit(self) -> Bools:
        """For each pattern whether there are as many free GPUs, on one node where it needs that."""
        table = self.model.patterns.table
        together, free = self.nodes.most_together(), self.nodes.free_gpus()
        bits = [[c for c in range(len(free)) if mask >> c & 1] for mask in table.masks]
        most = np.array(
            [max((together[c] for c in own), default=0) for own in bits], dtype=np.int64
        )
        total = np.array([sum(free[c] for c in own) for own in bits], dtype=np.int64)
        anywhere = np.array([bool(own) for own in bits], dtype=bool)[table.mask]
        room = np.where(table.together, most[table.mask], total[table.mask])
        return (room >= table.gpus) & (anywhere | ~table.together)

    def worth(self) -> float:
        """Value of what is placed."""
        return self.model.worth(self.chosen)


def regret(model: RoundModel, options: Ints, reduced: Floats) -> Floats:
    """How much worse the job of each of `options` (its best) would do on other nodes, or not
    running at all."""
    classes = model.patterns.class_sets[model.options.pattern]
    mine = np.full(len(model.jobs), -1, dtype=np.int64)
    mine[model.options.job[options]] = classes[options]
    same = mine[model.options.job] == classes
    second = np.maximum.reduceat(np.where(same, -np.inf, reduced), model.options.first[:-1])
    return np.asarray(
        reduced[options] - np.maximum(second, 0.0)[model.options.job[options]], dtype=float
    )


def _ranks(table: Columns, slots_first: bool) -> Ints:
    """Which come first: rack gangs, gangs on one node, gangs anywhere, then singles and jobs
    without GPUs."""
    together, in_rack = (0, 1) if slots_first else (1, 0)
    gangs = np.where(table.together, together, np.where(table.in_rack, in_rack, 2))
    return np.where(table.gpus <= 1, 3, gangs)
