"""What all jobs buy at given prices, many jobs at once: the arithmetic of `priced` on arrays, for the search for prices.

By duality of the job's own little program the cheapest W seconds of work cost max over mu of

    mu W - sum_i len_i max(0, max_a (mu speed_a - cost_ai))

over the intervals i and ways a it may use: mu is what the last second of work costs. The sum over i is tabulated once for
all jobs with the same ways, at all mu where it bends.
"""

from dataclasses import dataclass

import numpy as np

from .market import Market, Way
from .ways import Floats, Ints

TIE = 1e-9
"""Relative difference of prices that counts as none."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What every job pays, at least, in total, the GPU-seconds that it buys of each type in each interval."""

    total: float
    bought: Floats


class Purchases:
    """The jobs of a market on a grid of instants, ready for any prices. `due_s` None: jobs pay for their weighted
    completion; else they must be done by then and pay for nothing else."""

    def __init__(self, market: Market, grid_s: Floats, due_s: Floats | None = None) -> None:
        self.lengths = np.diff(grid_s)
        self.capacity = np.array(market.capacity)[:, None]
        alike: dict[tuple[Way, ...], list[int]] = {}
        for j, one in enumerate(market.buyers):
            if one.weight > 0 or due_s is not None:
                alike.setdefault(one.ways, []).append(j)
        self._kinds = [_Kind(market, grid_s, ways, np.array(jobs), due_s) for ways, jobs in alike.items()]

    def at(self, prices: Floats) -> Cost:
        """The cost of all jobs at prices by GPU type and interval. Infinite where a job cannot be done in time."""
        bought = np.zeros_like(prices)
        total = sum(kind.buy(prices, bought) for kind in self._kinds)
        return Cost(float(total), bought)

    def worth(self, prices: Floats) -> float:
        """What all GPU-seconds of the grid are worth."""
        return float((self.capacity * self.lengths * prices).sum())


class _Table:
    """For one set of ways at given prices: `mu` where the sum bends, `unit` and `slope` of each interval there (to the
    right), `act` the way in use to the right (-1 for none); `total`, `slopes` their sums over the intervals before."""

    def __init__(self, cost: Floats, speed: Floats, lengths: Floats, highest: float) -> None:
        ways = len(speed)
        bends = [(cost[a] / speed[a])[None, :] for a in range(ways)]
        for a in range(ways):
            for b in range(a):
                if speed[a] > speed[b]:
                    bends.append(((cost[a] - cost[b]) / (speed[a] - speed[b]))[None, :])
        at = np.concatenate(bends)
        if ways > 1:  # only where the largest of the lines changes
            gain = at[:, None, :] * speed[None, :, None] - cost[None, :, :]
            best = np.maximum(gain.max(axis=1), 0.0)
            near = TIE * (1.0 + np.abs(at))
            on = (np.abs(gain - best[:, None, :]) <= near[:, None, :]).sum(axis=1) + (best <= near)
            at = at[(at >= 0) & (on >= 2)]
        found = np.unique(np.concatenate([np.ravel(at), [0.0]]))
        self.mu = found[np.append(True, np.diff(found) > TIE * found[1:])]  # else rounding would tell which is higher
        self.mu = np.append(self.mu, max(highest, 2 * float(self.mu[-1]) + 1.0))
        middle = np.append((self.mu[:-1] + self.mu[1:]) / 2, 2 * self.mu[-1])
        best, self.act = np.zeros((cost.shape[1], len(self.mu))), np.full((cost.shape[1], len(self.mu)), -1, np.int8)
        for a in range(ways):
            gain = middle[None, :] * speed[a] - cost[a][:, None]
            better = gain > best
            self.act[better] = a
            best = np.where(better, gain, best)
        used = self.act >= 0
        held = np.maximum(self.act, 0)
        self.slope = np.where(used, speed[held], 0.0)
        rows = np.arange(cost.shape[1])[:, None]
        self.unit = np.where(used, np.maximum(self.mu[None, :] * speed[held] - cost[held, rows], 0.0), 0.0)
        zero = np.zeros((1, len(self.mu)))
        self.total = np.concatenate([zero, np.cumsum(self.unit * lengths[:, None], axis=0)])
        self.slopes = np.concatenate([zero, np.cumsum(self.slope * lengths[:, None], axis=0)])


class _Kind:
    """Jobs with the same ways."""

    def __init__(
        self, market: Market, grid_s: Floats, ways: tuple[Way, ...], jobs: Ints, due_s: Floats | None
    ) -> None:
        buyers = [market.buyers[j] for j in jobs.tolist()]
        order = sorted(range(len(ways)), key=lambda a: ways[a].speed)
        self.speed = np.array([ways[a].speed for a in order])
        self.gpus = np.array([ways[a].gpus for a in order])
        self.type = np.array([ways[a].gpu_type for a in order])
        self.lengths = np.diff(grid_s)
        self.last = len(self.lengths)
        self.work = np.array([one.work_s for one in buyers])
        self.weight = np.zeros(len(buyers)) if due_s is not None else np.array([one.weight for one in buyers])
        head = np.array([one.head_s for one in buyers])
        self.first = np.searchsorted(grid_s, head, side="right") - 1
        ends = np.append(grid_s[1:], np.inf)
        self.head_length = np.where(self.first < self.last, ends[self.first] - head, 0.0)
        self.due_s = None if due_s is None else due_s[jobs]
        self.head_s, self.grid_s = head, grid_s
        self.endless = 2 * float(self.work.max(initial=1.0))
        self.best_end: Ints | None = None
        if self.due_s is not None:
            end = np.searchsorted(grid_s, self.due_s, side="left") - 1
            self.best_end = np.minimum(np.maximum(end, self.first), self.last)

    def buy(self, prices: Floats, bought: Floats) -> float:
        cost = np.where(self.type[:, None] >= 0, prices[self.type] * self.gpus[:, None], 0.0)
        top = float(cost.max(initial=0.0) + self.weight.max(initial=0.0)) / float(self.speed.min()) * 2 + 1.0
        table = _Table(cost, self.speed, self.lengths, top)
        jobs = np.arange(len(self.work))
        cost = np.concatenate([cost, np.zeros((len(cost), 1))], axis=1)
        if self.due_s is not None:
            assert self.best_end is not None
            value, mu = self._value(table, cost, jobs, self.best_end)
            end = self.best_end
        else:
            end, value, mu = self._cheapest_ends(table, cost, jobs)
            self.best_end = end
        if np.isfinite(value).all():
            self._add(table, cost, end, mu, bought)
        return float(value.sum())

    def _cheapest_ends(self, table: _Table, cost: Floats, jobs: Ints) -> tuple[Ints, Floats, Floats]:
        """For each job the interval in which it ends at the least cost, that cost, and its mu."""
        all_ends = np.arange(self.last + 1)
        possible = all_ends[None, :] >= self.first[:, None]
        if self.best_end is not None:
            value, mu = self._value(table, cost, jobs, self.best_end)
            low = self._at_mu(table, cost, np.where(np.isfinite(mu), mu, 0.0))
            possible &= (low < value[:, None]) | (all_ends[None, :] == self.best_end[:, None])
        rows, ends = np.nonzero(possible)
        found, mu_of = self._value(table, cost, rows, ends)
        at = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
        least = np.minimum.reduceat(found, at)
        chosen = np.flatnonzero(found == least[rows])
        _, one = np.unique(rows[chosen], return_index=True)
        chosen = chosen[one]
        return ends[chosen], found[chosen], mu_of[chosen]

    def _at_mu(self, table: _Table, cost: Floats, mu: Floats) -> Floats:
        """A lower bound on the cost of each job for each end: the dual at one mu."""
        r = np.searchsorted(table.mu, mu, side="right") - 1
        beyond = (mu - table.mu[r])[None, :]
        sums = table.total[:, r] + beyond * table.slopes[:, r]
        units = table.unit[:, r] + beyond * table.slope[:, r]
        jobs = np.arange(len(mu))
        head = np.minimum(self.first, self.last - 1)
        before = np.where(
            np.arange(self.last + 1)[:, None] > self.first[None, :],
            sums - sums[np.minimum(self.first + 1, self.last), jobs] + self.head_length * units[head, jobs], 0.0,
        )
        final = np.zeros_like(before)
        for a, speed in enumerate(self.speed):
            final = np.maximum(final, (mu * speed - self.weight)[None, :] - cost[a][:, None])
        start = np.maximum(self.grid_s[:, None], self.head_s[None, :])
        length = np.concatenate([np.broadcast_to(self.lengths[:, None], (self.last, len(mu))),
                                 np.full((1, len(mu)), self.endless)])
        here = self.first < self.last
        length = np.array(length)
        length[self.first[here], jobs[here]] = self.head_length[here]
        found: Floats = (self.weight * start + mu * self.work - before - length * final).T
        return found

    def _value(self, table: _Table, cost: Floats, jobs: Ints, ends: Ints) -> tuple[Floats, Floats]:
        """Least cost of each of `jobs` if it ends in the interval of `ends`, infinite where it cannot, and its mu."""
        first, work, weight = self.first[jobs], self.work[jobs], self.weight[jobs]
        is_later = ends > first
        head_length = np.where(is_later, self.head_length[jobs], 0.0)
        after_head = np.where(is_later, np.minimum(first + 1, self.last), ends)
        head = np.minimum(first, self.last - 1)
        start, length = self._final(jobs, ends)
        own = cost[:, ends]

        def plain(r: Ints) -> Floats:
            found: Floats = table.total[ends, r] - table.total[after_head, r] + head_length * table.unit[head, r]
            return found

        def final(mu: Floats) -> Floats:
            best = np.zeros(len(mu))
            for a, speed in enumerate(self.speed):
                best = np.maximum(best, mu * speed - weight - own[a])
            return length * best

        def dual(r: Ints) -> Floats:
            mu = table.mu[r]
            found: Floats = mu * work - plain(r) - final(mu)
            return found

        top = len(table.mu) - 1
        low, high = np.zeros(len(jobs), np.int64), np.full(len(jobs), top)
        while (low < high).any():  # the first r from which on the concave function does not rise
            middle = (low + high) // 2
            falls = dual(np.minimum(middle + 1, top)) <= dual(middle)
            falls |= middle == top
            high = np.where(falls, middle, high)
            low = np.where(falls, low, np.minimum(middle + 1, high))
        left, right = np.maximum(low - 1, 0), low
        at = table.mu[right]
        plain_at = plain(right)

        def slopes(r: Ints) -> Floats:
            found: Floats = table.slopes[ends, r] - table.slopes[after_head, r] + head_length * table.slope[head, r]
            return found

        rising, falling = slopes(left), slopes(right)
        best_mu, best = at.copy(), at * work - plain_at - final(at)
        lowest, highest = table.mu[left], table.mu[np.minimum(right + 1, top)]
        bends = [(weight + own[a]) / speed for a, speed in enumerate(self.speed)]
        for a in range(len(self.speed)):
            for b in range(a):
                if self.speed[a] > self.speed[b]:
                    bends.append((own[a] - own[b]) / (self.speed[a] - self.speed[b]))
        for bend in bends:
            mu = np.clip(bend, lowest, highest)
            beyond = mu - at
            found = mu * work - plain_at - beyond * np.where(beyond > 0, falling, rising) - final(mu)
            better = found > best
            best, best_mu = np.where(better, found, best), np.where(better, mu, best_mu)
        fastest = float(self.speed.max())
        can = slopes(np.full(len(jobs), top)) + length * fastest >= work * (1 - TIE)
        value = np.where(can, weight * start + np.maximum(best, 0.0), np.inf)
        return value, np.where(can, best_mu, np.inf)

    def _final(self, jobs: Ints, ends: Ints) -> tuple[Floats, Floats]:
        """Start and length of the last interval of each job."""
        start = np.maximum(self.grid_s[ends], self.head_s[jobs])
        until = np.append(self.grid_s[1:], np.inf)[ends]
        if self.due_s is not None:
            until = np.minimum(until, self.due_s[jobs])
        length = np.where(np.isfinite(until), np.maximum(until - start, 0.0), self.endless)
        return start, length

    def _add(self, table: _Table, cost: Floats, ends: Ints, mu: Floats, bought: Floats) -> None:
        """Add what the jobs buy: all that is cheaper than mu, and of what costs just mu the same share of all."""
        jobs = np.arange(len(mu))
        right = np.searchsorted(table.mu, mu * (1 + TIE) + 1e-15, side="right") - 1
        is_bend = table.mu[right] >= mu * (1 - TIE)
        left = np.maximum(np.where(is_bend, right - 1, right), 0)
        _, length = self._final(jobs, ends)
        spans = np.arange(self.last)
        lengths = np.where(
            (spans[None, :] > self.first[:, None]) & (spans[None, :] < ends[:, None]), self.lengths[None, :], 0.0
        )
        later = (ends > self.first)
        lengths[jobs[later], self.first[later]] = self.head_length[later]
        act_left, act_right = table.act[:, left].T, table.act[:, right].T
        if (left != right).any():
            act_left = np.where((mu <= 0)[:, None], -1, act_left)
        own = cost[:, ends]
        final_left, final_right = np.full(len(mu), -1), np.full(len(mu), -1)
        gains = np.array([mu * speed - self.weight - own[a] for a, speed in enumerate(self.speed)])
        best = np.maximum(gains.max(axis=0), 0.0)
        near = TIE * (1.0 + np.abs(mu))
        for a in range(len(self.speed)):
            on = np.abs(gains[a] - best) <= near
            final_right = np.where(on, a, final_right)
        idle = best <= near
        for a in reversed(range(len(self.speed))):
            on = (np.abs(gains[a] - best) <= near) & ~idle
            final_left = np.where(on, a, final_left)
        speed = np.append(self.speed, 0.0)
        done_left = (lengths * speed[act_left]).sum(axis=1) + length * speed[final_left]
        done_right = (lengths * speed[act_right]).sum(axis=1) + length * speed[final_right]
        more = done_right - done_left
        share = np.clip(np.where(more > 0, (self.work - done_left) / np.where(more > 0, more, 1.0), 0.0), 0.0, 1.0)
        in_grid = np.flatnonzero(ends < self.last)
        for a, gpu_type in enumerate(self.type.tolist()):
            if gpu_type < 0:
                continue
            seconds = (lengths * ((act_left == a) * (1 - share)[:, None] + (act_right == a) * share[:, None])).sum(axis=0)
            final = length * ((final_left == a) * (1 - share) + (final_right == a) * share)
            np.add.at(seconds, ends[in_grid], final[in_grid])
            bought[gpu_type] += self.gpus[a] * seconds
