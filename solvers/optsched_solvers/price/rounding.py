"""From prices to a choice that respects every row: who has most to lose for each GPU chooses
first."""

import numpy as np

from optsched.round.deadline import NEVER, Deadline
from optsched.round.model import NO_OPTION, Floats, Ints, Kind, RoundModel
from optsched.round.place import regret

LOOKS_EVERY = 64
"""After so many jobs the clock is looked at."""


def round_choice(
    model: RoundModel, best: Ints, reduced: Floats, deadline: Deadline = NEVER
) -> Ints:
    """Return the option of each job, or -1. `best` is each job's option of largest reduced value,
    or -1.

    Jobs come in the order of regret for each GPU; one whose best option no longer fits the rows
    takes its next, as long as that is worth its price. Jobs that must be kept come first. Those
    that have not chosen by the deadline get nothing.
    """
    chosen = np.where(model.must, model.first[:-1], NO_OPTION)
    left = model.capacity - model.usage(chosen[chosen >= 0])
    slack = 1e-9 * np.maximum(1.0, model.capacity)
    jobs = np.flatnonzero((best >= 0) & ~model.must)
    if not len(jobs):
        return chosen
    options = best[jobs]
    gpus = np.maximum(model.pattern_gpus[model.pattern[options]], 1.0)
    order = np.argsort(-(regret(model, options, reduced) / gpus), kind="stable")
    jobs, options = jobs[order], options[order]
    at = _all_fit(model, options, left + slack)
    chosen[jobs[:at]] = options[:at]
    left = left - model.usage(options[:at]) + slack
    takes = _Entries(model)
    room = left.tolist()
    guest = _guests(model, best)
    for turn, j in enumerate(jobs[at:].tolist()):
        if turn % LOOKS_EVERY == 0 and deadline.left_s() < 0:
            break
        start, end = int(model.first[j]), int(model.first[j + 1])
        own = reduced[start:end]
        for k in np.argsort(-own, kind="stable").tolist():
            if own[k] <= 0:
                break
            host = int(model.host[start + k])
            if host >= 0 and (best[host] != model.first[host] or guest.get(host, j) != j):
                continue
            entries = takes(int(model.pattern[start + k]))
            if all(amount <= room[r] for r, amount in entries):
                for r, amount in entries:
                    room[r] -= amount
                chosen[j] = start + k
                if host >= 0:
                    guest[host] = j
                break
    return chosen


def _guests(model: RoundModel, wish: Ints) -> dict[int, int]:
    """Who would share the GPUs of whom, by host."""
    options = wish[wish >= 0]
    options = options[model.host[options] >= 0]
    return dict(zip(model.host[options].tolist(), model.job[options].tolist(), strict=True))


def one_guest_each(model: RoundModel, wish: Ints, reduced: Floats) -> Ints:
    """The same choice, but of several jobs that wish to share the GPUs of one, only the one that
    would lose most elsewhere does; the others take their next option, on GPUs of their own or
    beside somebody else."""
    wish = wish.copy()
    options = wish[wish >= 0]
    options = options[(model.host[options] >= 0) & (model.kind[options] != Kind.KEEP)]
    if not len(options):
        return wish
    guest = {host: j for host, j in _guests(model, wish).items() if wish[j] == model.first[j]}
    for o in options[np.argsort(-regret(model, options, reduced), kind="stable")].tolist():
        j = int(model.job[o])
        start, end = int(model.first[j]), int(model.first[j + 1])
        wish[j] = NO_OPTION
        for option in (start + np.argsort(-reduced[start:end], kind="stable")).tolist():
            host = int(model.host[option])
            if reduced[option] <= 0:
                break
            if host < 0 or (wish[host] == model.first[host] and host not in guest):
                wish[j] = option
                if host >= 0:
                    guest[host] = j
                break
    return wish


def _all_fit(model: RoundModel, options: Ints, left: Floats) -> int:
    """How many of `options`, taken in order, fit together before the first one that does not."""
    low, high = 0, len(options)
    if np.all(model.usage(options) <= left):
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if np.all(model.usage(options[:middle]) <= left):
            low = middle
        else:
            high = middle - 1
    return low


class _Entries:
    """Rows and amounts of one pattern, found when asked for."""

    def __init__(self, model: RoundModel) -> None:
        self._order = np.argsort(model.entry_pattern, kind="stable")
        self._first = np.searchsorted(
            model.entry_pattern[self._order], np.arange(len(model.pattern_gpus) + 1)
        )
        self._model = model
        self._known: dict[int, list[tuple[int, float]]] = {}

    def __call__(self, pattern: int) -> list[tuple[int, float]]:
        if pattern not in self._known:
            which = self._order[self._first[pattern] : self._first[pattern + 1]]
            self._known[pattern] = list(
                zip(
                    self._model.entry_row[which].tolist(),
                    self._model.entry_amount[which].tolist(),
                    strict=True,
                )
            )
        return self._known[pattern]


def heaviest(model: RoundModel, weights: Floats) -> Ints:
    """The option that relaxed solutions take most often, where that is at least half of the
    time."""
    best = np.maximum.reduceat(weights, model.first[:-1])
    at_best = np.flatnonzero(weights == best[model.job])
    option = np.empty(len(model.jobs), dtype=np.int64)
    option[model.job[at_best[::-1]]] = at_best[::-1]
    return np.where(model.must | (best >= 0.5), option, NO_OPTION)
