"""A sharper bound from the same prices where quotas bind, and who fills them: GPUs come in gangs,
and few gangs fill a quota to the last GPU."""

import numpy as np

from optsched.round.model import NO_OPTION, Floats, Ints, RoundModel

MOST_WORK = 20_000_000
"""Most steps: options for each quota, and GPUs of quotas times their jobs."""
PREFERENCE = 1e-4
"""An option that relaxed solutions always take counts for so much more of its value."""


class Filling:
    """What the jobs of a quota are worth at most in it: `value` of each option that is taken, of
    which each takes so many `gpus`, by dynamic programming, job after job, over the GPUs that are
    taken."""

    def __init__(self, model: RoundModel, jobs: Ints, value: Floats, gpus: Ints, most: int) -> None:
        self._model, self._jobs = model, jobs.tolist()
        self._value, self._gpus = value, gpus
        self._within = np.zeros((len(self._jobs) + 1, most + 1))
        for k, j in enumerate(self._jobs):
            self._add(j, self._within[k], self._within[k + 1])

    def _add(self, j: int, best: Floats, with_job: Floats) -> None:
        """Note the largest value with one job more, by the most GPUs that are taken."""
        must, own = self._model.must[j], self._own(j)
        with_job[:] = -np.inf if must else best
        ways: dict[int, float] = {}
        for taken, worth in zip(self._gpus[own].tolist(), self._value[own].tolist(), strict=True):
            if (must or worth > 0) and taken < len(best):
                ways[taken] = max(ways.get(taken, -np.inf), worth)
        for taken, worth in ways.items():
            more, room = best[: len(best) - taken] + worth, with_job[taken:]
            np.maximum(room, more, out=room)

    def _own(self, j: int) -> slice:
        """Return where the options of a job are."""
        own = self._model.options.of(j)
        return slice(own.start, own.stop)

    @property
    def worth(self) -> float:
        """Return the largest total value; -inf where some jobs must be kept that do not fit."""
        return float(self._within[-1, -1])

    def choice(self, weights: Floats) -> dict[int, int]:
        """Return the option of each job, or `NO_OPTION`, for about that value; `weights` say how
        often relaxed solutions take each option."""
        chosen: dict[int, int] = {}
        left = self._within.shape[1] - 1
        for j, best in zip(reversed(self._jobs), reversed(self._within[:-1]), strict=True):
            most = -np.inf if self._model.must[j] else float(best[left])
            chosen[j], taken = NO_OPTION, 0
            own = self._own(j)
            liked = self._value[own] * (1.0 + PREFERENCE * weights[own])
            for k, (gpus, worth) in enumerate(
                zip(self._gpus[own].tolist(), liked.tolist(), strict=True)
            ):
                if gpus <= left and best[left - gpus] + worth > most:
                    most, chosen[j], taken = best[left - gpus] + worth, own.start + k, gpus
            left -= taken
        return chosen


def quota_bound(model: RoundModel, prices: Floats) -> tuple[float, list[Filling]]:
    """Return a proven limit on the value of any choice: that of the prices, but with quotas that
    hold instead of being priced, as far as they have no job in common; and what fills these."""
    rows, options = model.rows, model.options
    reduced = model.reduced_values(prices)
    earned, saved, work = model.best_reduced(reduced), 0.0, 0
    fillings: list[Filling] = []
    used = np.zeros(len(model.jobs), dtype=bool)
    for row in np.flatnonzero(prices > 0).tolist():
        if rows.limits[row].what != "quota":
            continue
        entries = np.flatnonzero(rows.row == row)
        amount = np.zeros(len(model.patterns.gpus))
        amount[rows.pattern[entries]] = rows.amount[entries]
        takes = amount[options.pattern]
        jobs = np.unique(options.job[takes > 0])
        most = int(rows.capacity[row] + 1e-9)
        work += len(takes) + max(0, most) * len(jobs)
        if work > MOST_WORK:
            break
        if used[jobs].any() or most < 0:
            continue
        used[jobs] = True
        value = reduced + prices[row] * takes
        filling = Filling(model, jobs, value, np.floor(takes).astype(np.int64), most)
        priced = prices[row] * rows.capacity[row] + float(earned[jobs].sum())
        if np.isfinite(filling.worth):
            saved += max(0.0, priced - filling.worth)
            fillings.append(filling)
    return model.bound(prices) - saved, fillings
