"""From prices to a choice that respects every row: who has most to lose for each GPU chooses
first."""

from bisect import bisect_left

import numpy as np

from optsched.round.deadline import NEVER, Deadline
from optsched.round.model import NO_OPTION, Floats, Ints, Kind, RoundModel
from optsched.round.place import regret

LOOKS_EVERY = 64
"""After so many jobs the clock is looked at."""


def round_choice(
    model: RoundModel, best: Ints, reduced: Floats, deadline: Deadline = NEVER
) -> Ints:
    """Return the option of each job, or -1. `best` is the option that each job had best take, or
    -1.

    Jobs come in the order of regret for each GPU; one whose best option no longer fits the rows
    takes its next by reduced value, as long as that is worth its price. Jobs that must be kept come
    first. Those that have not chosen by the deadline get nothing.
    """
    choices = model.options
    chosen = np.where(model.must, choices.first[:-1], NO_OPTION)
    slack = 1e-9 * np.maximum(1.0, model.rows.capacity)
    left = model.rows.capacity - model.usage(chosen[chosen >= 0])
    jobs = np.flatnonzero((best >= 0) & ~model.must)
    options = best[jobs]
    gpus = np.maximum(model.patterns.gpus[choices.pattern[options]], 1.0)
    order = np.argsort(-(regret(model, options, reduced) / gpus), kind="stable")
    jobs, options = jobs[order], options[order]
    at = _all_fit(model, options, left + slack)
    chosen[jobs[:at]] = options[:at]
    room = (left - model.usage(options[:at]) + slack).tolist()
    guest = _guests(model, best)
    known: dict[int, list[tuple[int, float]]] = {}
    for turn, j in enumerate(jobs[at:].tolist()):
        if turn % LOOKS_EVERY == 0 and deadline.left_s() < 0:
            break
        for option in [int(best[j]), *choices.ranked(j, reduced)]:
            if reduced[option] <= 0 and option != best[j]:
                break
            host, pattern = int(choices.host[option]), int(choices.pattern[option])
            if host >= 0 and (best[host] != choices.first[host] or guest.get(host, j) != j):
                continue
            if pattern not in known:
                known[pattern] = model.rows.takes(pattern)
            if all(amount <= room[r] for r, amount in known[pattern]):
                for r, amount in known[pattern]:
                    room[r] -= amount
                chosen[j] = option
                if host >= 0:
                    guest[host] = j
                break
    return chosen


def _guests(model: RoundModel, wish: Ints) -> dict[int, int]:
    """Return who would share the GPUs of whom, by host."""
    options = wish[wish >= 0]
    options = options[model.options.host[options] >= 0]
    hosts, guests = model.options.host[options], model.options.job[options]
    return dict(zip(hosts.tolist(), guests.tolist(), strict=True))


def one_guest_each(model: RoundModel, wish: Ints, reduced: Floats) -> Ints:
    """Return the same choice, but of several jobs that wish to share the GPUs of one, only the one
    that would lose most elsewhere does; the others take their next option, on GPUs of their own or
    beside somebody else."""
    wish, choices = wish.copy(), model.options
    options = wish[wish >= 0]
    options = options[(choices.host[options] >= 0) & (choices.kind[options] != Kind.KEEP)]
    if not len(options):
        return wish
    guest = {host: j for host, j in _guests(model, wish).items() if wish[j] == choices.first[j]}
    for o in options[np.argsort(-regret(model, options, reduced), kind="stable")].tolist():
        j = int(choices.job[o])
        wish[j] = NO_OPTION
        for option in choices.ranked(j, reduced):
            host = int(choices.host[option])
            if reduced[option] <= 0:
                break
            if host < 0 or (wish[host] == choices.first[host] and host not in guest):
                wish[j] = option
                if host >= 0:
                    guest[host] = j
                break
    return wish


def _all_fit(model: RoundModel, options: Ints, left: Floats) -> int:
    """Return how many of `options`, taken in order, fit together before the first one that does
    not."""

    def breaks(count: int) -> bool:
        return bool(np.any(model.usage(options[:count]) > left))

    if not breaks(len(options)):
        return len(options)
    return bisect_left(range(1, len(options) + 1), True, key=breaks)


def preferred(model: RoundModel, reduced: Floats, weights: Floats) -> Ints:
    """Return the option that relaxed solutions take at least half of the time, or -1 where they
    leave a job out as often; else that of largest reduced value, or -1."""
    most, option = model.options.best(weights)
    taken = np.bincount(model.options.job, weights=weights, minlength=len(model.jobs))
    other = np.where(model.must | (taken > 0.5), model.best_options(reduced), NO_OPTION)
    return np.where(most >= 0.5, option, other)
