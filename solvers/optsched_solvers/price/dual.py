"""Prices of capacity by a cutting-plane method: the smallest Lagrangian bound of a round, and what
it says of jobs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from optsched.frozen import entity
from optsched.round.model import Floats, Ints, RoundModel

from .columns import by_columns

TOLERANCE = 1e-5
"""Relative distance between the bound and what any prices could still reach at which the search
ends."""
MOST_CUTS = 400
FIRST_RADIUS, NEAR_RADIUS, MANY_JOBS = 1.0, 0.05, 2000
"""Radius of the trust region at first, relative to the prices; around those of a round much like
this one, which saves passes over many options. In a small round it saves nothing, and prices that
stay near the old ones are rounded to choices near the old ones."""
INSIDE, WIDEST = 0.999, 1e3
"""Part of the way to the border of the trust region that is inside of it, and the radius beyond
which no price is expected."""
PLANES_MISSES = 3
"""Trials in a row without success before the trust region shrinks."""
PLANES_LOOK = 50
"""Fewest cuts before prices within a coarse tolerance are yielded, as fewer take no time; none if a
bound can be `enough` and there is only one such tolerance."""
SLACK = 1e-9
"""Excess over the capacity of a row that is taken for rounding."""
MANY_ROWS = 40
"""Most rows for cutting planes."""
MANY_JOBS = 20_000
"""Most jobs for a linear program over options."""
MOST_PASSES, CHECK_PASSES = 2_000, 100
"""Most steps along averaged slopes, and after how many it is looked whether they still help."""
FIRST_PACE, MOST_PACE, LAST_PACE = 0.3, 2.0, 1e-4
"""Pace of these steps, at first, at most, and above which the search does not end."""
MISSES, AHEAD = 10, 0.05
"""Steps in a row without success before the pace slows, and how far below the bound they aim."""
MOST_SHARE, LEAST_SHARE = 0.1, 1e-4
"""Most that a slope counts in the average, which falls as progress does, and the least that this
most becomes."""


@dataclass(slots=True)
class Prices:
    """Prices of the rows, the bound they prove, and for each option how much of it the relaxation
    takes (convex weights of the relaxed solutions whose cuts support the bound)."""

    prices: Floats
    bound: float
    weights: Floats
    cuts: int


@entity
class _Cut:
    """The Lagrangian bound at some prices as a plane, and the options that are taken there."""

    value: float
    slope: Floats
    chosen: Ints


def relaxed(model: RoundModel, prices: Floats) -> tuple[float, Floats, Ints]:
    """Return the Lagrangian bound at `prices`, its slope (capacity less usage) and the option each
    job takes."""
    reduced = model.reduced_values(prices)
    chosen = model.best_options(reduced)
    taken = chosen[chosen >= 0]
    bound = float(np.sum(model.rows.capacity * prices) + reduced[taken].sum())
    return bound, model.rows.capacity - model.usage(taken), chosen


def priced_once(model: RoundModel, prices: Floats) -> Prices:
    """Return what given prices say."""
    bound, _, chosen = relaxed(model, prices)
    return Prices(prices, bound, _taken(model, chosen), 1)


def first_prices(model: RoundModel) -> Floats:
    """Return prices to start from: what a GPU earns at the margin if jobs are served by value for
    each GPU, the same for all GPU rows, and nothing for the other rows."""
    prices = np.zeros(len(model.rows.limits))
    is_gpu = np.array(
        [limit.what == "GPUs" and limit.classes.bit_count() == 1 for limit in model.rows.limits],
        dtype=bool,
    )
    if is_gpu.any():
        gpus = np.maximum(model.patterns.gpus[model.options.pattern], 1.0)
        best, option = model.options.best(model.options.value / gpus)
        order = np.argsort(-best, kind="stable")
        served = np.cumsum(gpus[option[order]])
        marginal = np.searchsorted(served, model.rows.capacity[is_gpu].sum())
        if marginal < len(order):
            prices[is_gpu] = best[order[marginal]]
    return np.minimum(prices, model.dearest)


def optimise(
    model: RoundModel,
    start: Floats | None,
    left_s: Callable[[], float],
    tolerances: Sequence[float] = (TOLERANCE,),
    floor: float = 0.0,
    enough: float = -np.inf,
    radius: float = FIRST_RADIUS,
) -> Iterator[Prices]:
    """Minimise the Lagrangian bound over prices >= 0, from `start`, and yield what is found at each
    of the `tolerances`, parts of what capacity can still cost, or when no time is left, or when the
    bound is `enough`. `floor` is a value that is in hand, `radius` how far prices are looked for at
    first, where rows are few. Deterministic, but for the time.

    Cutting planes converge fast with few rows, but their linear program grows with the rows. Steps
    along an averaged slope cost a pass over the options whatever the rows, and are soon near, but
    never there: the rest is a linear program over the few options that matter then.
    """
    prices = first_prices(model) if start is None else start
    if len(model.rows.limits) <= MANY_ROWS:
        yield from _cutting_planes(model, prices, left_s, tolerances, floor, enough, radius)
    else:
        yield from _steps(model, prices, left_s, tolerances, floor, enough)


def _steps(
    model: RoundModel,
    prices: Floats,
    left_s: Callable[[], float],
    tolerances: Sequence[float],
    floor: float,
    enough: float = -np.inf,
) -> Iterator[Prices]:
    """Take steps along averaged slopes as long as they gain much, then generate columns."""
    if len(model.jobs) > MANY_JOBS:
        yield from _volume(model, prices, left_s, tolerances, floor, enough)
        return
    rough = next(_volume(model, prices, left_s, tolerances, floor, enough))
    yield rough
    yield from _columns(model, rough, left_s, tolerances[-1:], floor, enough)


def _columns(
    model: RoundModel,
    rough: Prices,
    left_s: Callable[[], float],
    tolerances: Sequence[float],
    floor: float,
    enough: float,
    plan: Ints | None = None,
) -> Iterator[Prices]:
    """Generate columns from rough prices on."""
    size = stake(model, rough.bound, floor)
    unit, within = size / len(model.jobs), [part * size for part in tolerances]
    for found in by_columns(model, rough.prices, unit, within, left_s, plan, enough):
        prices, bound, weights, priced = found
        weights = rough.weights if weights is None else weights
        yield Prices(prices, bound, weights, rough.cuts + priced)


def improve(
    model: RoundModel,
    last: Floats,
    plan: Ints,
    left_s: Callable[[], float],
    tolerances: Sequence[float],
    enough: float,
) -> Iterator[Prices]:
    """Minimise the Lagrangian bound as `optimise` does, from prices that were the best of a round
    much like this one: few jobs would rather not do what they do in a `plan`, and the linear
    program over these is small. With few rows cutting planes are as quick; and where running jobs
    hold more than the rows have, the plan is none."""
    floor = max(0.0, model.worth(plan))
    finer = tolerances[1:] or tolerances
    limits = model.rows.capacity * (1 + SLACK) + SLACK
    if len(limits) <= MANY_ROWS or (model.usage(plan[plan >= 0]) > limits).any():
        asked = tolerances if np.isneginf(enough) else finer
        radius = NEAR_RADIUS if len(model.jobs) >= MANY_JOBS else FIRST_RADIUS
        yield from optimise(model, last, left_s, asked, floor, enough, radius)
        return
    rough = priced_once(model, last)
    yield from _columns(model, rough, left_s, finer, floor, enough, plan)


def stake(model: RoundModel, bound: float, floor: float) -> float:
    """Return how much prices can still decide: the bound, less what every job is worth alone where
    capacity takes little of that. One job that is worth a billion hides nothing about the
    others."""
    return max(min(abs(bound), model.alone - floor), 1e-12 * abs(bound), 1e-12)


def _volume(
    model: RoundModel,
    prices: Floats,
    left_s: Callable[[], float],
    tolerances: Sequence[float],
    floor: float,
    enough: float = -np.inf,
) -> Iterator[Prices]:
    """Take subgradient steps along an average of slopes (the volume algorithm of Barahona and
    Anbil, Mathematical Programming 87, 2000). The same average of the relaxed solutions tends to
    the solution of the linear relaxation."""
    unit = 1.0 / np.sqrt(np.maximum(model.rows.capacity, 1.0))
    bound, slope, chosen = relaxed(model, prices)
    size = stake(model, bound, floor)
    mean = slope * unit
    weights = _taken(model, chosen)
    pace, most, misses, passes, checked = FIRST_PACE, MOST_SHARE, 0, 1, bound
    *coarse, finest = tolerances
    while passes < MOST_PASSES and bound > enough and left_s() > 0:
        step = np.where((prices <= 0) & (mean > 0), 0.0, mean)
        norm = float(np.sum(step * step))
        if norm <= 0:
            break
        target = max(floor, bound - AHEAD * size)
        trial = prices - pace * (bound - target) / norm * step * unit
        trial = np.clip(trial, 0.0, model.dearest)
        value, slope, chosen = relaxed(model, trial)
        scaled = slope * unit
        away = mean - scaled
        share = float(np.sum(mean * away)) / max(float(np.sum(away * away)), 1e-300)
        share = min(max(share, most / 10), most)
        mean = share * scaled + (1 - share) * mean
        weights = (1 - share) * weights + share * _taken(model, chosen)
        passes += 1
        if value < bound:
            if np.sum(scaled * step) > 0:
                pace = min(MOST_PACE, 1.1 * pace)
            prices, bound, misses = trial, value, 0
        else:
            misses += 1
            if misses >= MISSES:
                pace, misses = 0.66 * pace, 0
        if passes % CHECK_PASSES == 0:
            if checked - bound <= finest * size and pace < LAST_PACE:
                break
            if coarse and checked - bound <= coarse[0] * size:
                del coarse[0]
                yield Prices(prices, bound, weights, passes)
            if checked - bound < 1e-3 * size:
                most = max(most / 2, LEAST_SHARE)
            checked = bound
    yield Prices(prices, bound, weights, passes)


def _cutting_planes(
    model: RoundModel,
    prices: Floats,
    left_s: Callable[[], float],
    tolerances: Sequence[float],
    floor: float,
    enough: float = -np.inf,
    radius: float = FIRST_RADIUS,
) -> Iterator[Prices]:
    """Run Kelley's cutting planes in a trust region: each relaxed solution gives a cut; a small
    linear program over the prices finds where all cuts are lowest within the region; the region
    grows where the cuts were right and shrinks where they were not."""
    from ortools.linear_solver import pywraplp

    count = len(model.rows.limits)
    bound, slope, chosen = relaxed(model, prices)
    if not count:
        yield Prices(prices, bound, _taken(model, chosen), 1)
        return
    typical = np.maximum(model.rows.capacity, 1.0)
    # a row's unit of price: what is at stake spread over its capacity
    size = stake(model, bound, floor)
    unit = size / typical / count
    dearest = model.dearest / unit
    program = pywraplp.Solver.CreateSolver("GLOP")
    program.SetSolverSpecificParametersAsString("max_number_of_iterations: 2000")  # it may cycle
    variables = [program.NumVar(0.0, program.infinity(), "") for _ in range(count)]
    height = program.NumVar(-program.infinity(), program.infinity(), "")
    program.Minimize(height)
    cuts: list[_Cut] = []
    rows = []

    base = bound

    def add(value: float, at: Floats, slope: Floats, chosen: Ints) -> None:
        cuts.append(_Cut(value, slope, chosen))
        # height >= value + slope (p - at), above the first bound and in units of what is at stake
        least = float((value - base - np.sum(slope * at)) / size)
        row = program.RowConstraint(least, program.infinity(), "")
        row.SetCoefficient(height, 1.0)
        for i in np.flatnonzero(slope):
            row.SetCoefficient(variables[i], -float(slope[i] * unit[i] / size))
        rows.append(row)

    add(bound, prices, slope, chosen)
    misses = 0
    duals = np.zeros(0)
    *coarse, finest = tolerances
    next_look = PLANES_LOOK if len(coarse) > 1 or np.isneginf(enough) else 0
    while len(cuts) < MOST_CUTS and bound > enough and left_s() > 0:
        centre = prices / unit
        reach = radius * np.maximum(1.0, centre)
        for i, variable in enumerate(variables):
            highest = min(centre[i] + reach[i], dearest[i])
            variable.SetBounds(max(0.0, centre[i] - reach[i]), highest)
        if program.Solve() != pywraplp.Solver.OPTIMAL:
            yield from _steps(model, prices, left_s, tolerances, floor, enough)
            return
        duals = np.array([max(0.0, row.dual_value()) for row in rows])
        at = np.array([max(0.0, variable.solution_value()) for variable in variables])
        promised = bound - (base + height.solution_value() * size)
        if promised <= finest * size:
            if radius >= WIDEST or np.all((abs(at - centre) < INSIDE * reach) | (at <= 0)):
                break
            radius *= 10.0  # the region, not the cuts, is what keeps the bound up
            continue
        if coarse and promised <= coarse[0] * size and len(cuts) >= next_look:
            del coarse[0]
            next_look = 2 * len(cuts)
            yield Prices(prices, bound, _weights(model, duals, cuts), len(cuts))
        trial = at * unit
        value, slope, chosen = relaxed(model, trial)
        add(value, trial, slope, chosen)
        if bound - value >= 0.1 * promised:
            if bound - value >= 0.5 * promised:
                radius *= 2.0
            prices, bound, misses = trial, value, 0
        else:
            misses += 1
            if misses >= PLANES_MISSES or value - bound > promised:
                radius, misses = max(radius * 0.5, 1e-6), 0
    yield Prices(prices, bound, _weights(model, duals, cuts), len(cuts))


def _weights(model: RoundModel, duals: Floats, cuts: list[_Cut]) -> Floats:
    """Return convex weights of the cuts that support the lowest point, spread over the options they
    take."""
    total = np.zeros(len(model.options.value))
    if duals.sum() <= 0:
        duals = np.zeros(len(cuts))
        duals[-1] = 1.0
    for weight, cut in zip(duals / duals.sum(), cuts, strict=False):
        if weight > 1e-9:
            total += weight * _taken(model, cut.chosen)
    return total


def _taken(model: RoundModel, chosen: Ints) -> Floats:
    """Return 1 for each option that is chosen, else 0."""
    return np.bincount(chosen[chosen >= 0], minlength=len(model.options.value)).astype(float)
