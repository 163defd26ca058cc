"""Use of the time of `cpsat`: list schedules, prices, then the whole model or list search, by
size."""

import math
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeVar

from optsched.errors import InputError
from optsched.files.certificate import dump_certificate
from optsched.model import Plan
from optsched.plugins.solver import SILENT, Constrain, Report, Request, ignore

from ..scheduling.evaluate import Evaluator
from ..scheduling.gangs import GangBound
from ..scheduling.lagrange import Floats, PriceBound, applies, grid
from ..scheduling.orders import Orders
from ..scheduling.plans import schedule_of
from ..scheduling.problem import Activity, Problem, Schedule
from ..scheduling.schedule_generation import generate, replay
from .beside import Beside
from .clock import Budget
from .direct import solve_whole
from .evolution import Evolution
from .evolution import applies as breeds
from .list_search import ListSearch
from .lists import WORK_PER_JOB, List, Ways, by_tier, by_type, list_of
from .progress import Progress

DIRECT_INTERVALS = 6000
"""Largest model (optional intervals, nodes told apart) that is solved whole."""
DIRECT_JOBS_OF_SUMS = 60
"""Sums over more jobs than this are left to list search: CP-SAT's own bound on them is weak."""
LISTS_SHARE = 0.2
"""Most of the budget that goes to the first list schedules."""
LEFT_BY_LISTS = 0.8
"""Share of the budget that list search leaves to the whole model."""
WHOLE_BEFORE_BREEDING = 0.5
"""Share of the budget for the whole model before orders are bred for the least makespan."""
LISTS_BEFORE_ORDERS, FEW_TO_ORDER = 0.03, 9
"""Share of the budget for list search before all orders of more jobs than this are tried. One that
may be preempted counts twice; the orders of fewer jobs take less time than list search."""
MOST_WAITS = 24
"""Changes of what use costs until which all jobs wait in some of the first list schedules."""
CELLS = 300
"""Cells of the time grid of prices."""
PRICE_WORK, PRICE_STEP_WORK = 3e-9, 1e-5
"""Work of pricing one candidate start once, and of what else a step takes, in CP-SAT's unit of
work."""
GANGS_SHARE, LEAST_GANG_STEPS, MOST_GANG_STEPS = 0.1, 40, 800
"""Most of the budget for prices by job, where it is enough for so many steps, and most steps."""
PACK_WORK, GANG_STEP_WORK = 5e-10, 5e-5
"""Work of one value of a knapsack, and of what else a step of these takes, in the same unit."""
WORK_PER_SET = 1e-4
"""Work of looking at one set of jobs, in the same unit."""

Part = TypeVar("Part", ListSearch, Evolution)
Priced = dict[int, tuple[PriceBound, Floats]]
"""The best prices by GPU type of levels."""


def search(request: Request, report: Report) -> None:
    """Plan `request` by the parts of this package that fit its size."""
    problem = Problem(request.instance, request.objective)
    if not problem.activities:
        report.plan(Plan())
        return
    budget = Budget(request.time_limit_s, request.workers, request.seed)
    if not request.log:
        report = replace(report, log=ignore)
    progress = Progress(problem, Evaluator(problem), report, budget, certify=request.certify)
    if request.constrain is not None:
        _constrained(progress, request.constrain, request.incumbent)
        return
    if request.incumbent is not None:
        progress.offer(_on_grid(problem, request.incumbent))
    _first_lists(progress)
    if problem.partner:  # neither prices nor list search hold pairs that share GPUs
        solve_whole(progress, _intervals(problem) <= DIRECT_INTERVALS)
    else:
        guide, priced = None, Priced()
        if applies(problem) and progress.schedule and request.instance.cluster.total_gpus:
            for level in sorted({0, len(problem.objective.levels) - 1}):
                if applies(problem, level):
                    priced[level] = _price(progress, level)
                    guide = _suggested(progress, level, priced[level][0], ())
        if not _is_proved(progress) and (orders := Orders.of(problem)) is not None:
            _try_orders(progress, orders, guide)
        if not _is_proved(progress):
            _improve(progress, guide, priced)
    if budget.met_clock and request.workers == 1:
        report.note(
            "the wall clock stopped the search, so a repeat may give another plan; allow more time"
        )


def _first_lists(progress: Progress) -> None:
    """Offer a list schedule of each order, and some in which all jobs wait until use costs less."""
    problem, budget = progress.problem, progress.budget
    for priority in _priorities(problem):
        if progress.schedule is not None and budget.fraction_left() < 1 - LISTS_SHARE:
            break
        budget.spend(WORK_PER_JOB * len(priority))
        progress.offer(generate(problem, priority))
        for change_s in problem.changes_s[:MOST_WAITS]:
            budget.spend(WORK_PER_JOB * len(priority))
            waits = dict.fromkeys(range(len(priority)), problem.tick.ceil(change_s))
            progress.offer(generate(problem, priority, not_before=waits))


def _try_orders(progress: Progress, orders: Orders, guide: List | None) -> None:
    """Try all orders of few jobs, for up to half of the budget; the better the schedule is that
    list search finds before, the fewer of them can be better."""
    if progress.schedule is None:
        return
    activities = progress.problem.activities
    if len(activities) + sum(activity.hold is not None for activity in activities) > FEW_TO_ORDER:
        until = progress.budget.fraction_left() - LISTS_BEFORE_ORDERS
        ListSearch(progress, guide).run(until=until)
    until = progress.budget.fraction_left() / 2

    def is_over() -> bool:
        progress.budget.spend(WORK_PER_SET)
        return progress.budget.left_s() <= 0 or progress.budget.fraction_left() < until

    if (answer := orders.least(progress.values[0], is_over)) is not None:
        least, schedule = answer
        progress.proved[0] = max(progress.proved.get(0, -math.inf), least - 1e-9 * abs(least))
        if schedule is not None:
            progress.offer(replay(progress.problem, schedule))
        progress.report.bound(0, progress.proved[0], "orders")


def _constrained(progress: Progress, constrain: Constrain, start: Plan | None) -> None:
    """Solve the whole model with the side constraints; only its own solutions count."""
    problem = progress.problem
    if problem.partner:
        raise InputError("side constraints cannot be used with jobs that share GPUs")
    hint = None if start is None else schedule_of(problem, start)
    solve_whole(progress, True, constrain=constrain, hint=hint)
    progress.report.note(
        f"with side constraints the model plans in steps of {problem.tick.length_s:g} s, and what "
        "it proves holds for plans on that grid"
    )


def _on_grid(problem: Problem, plan: Plan) -> Schedule | None:
    """Return the schedule of a plan with every start moved to the grid, in the plan's order and on
    its nodes."""
    read = schedule_of(problem, plan)
    if read is None or problem.tick.exact:
        return read
    return replay(problem, read)


def _improve(progress: Progress, guide: List | None, priced: Priced) -> None:
    problem, sums = progress.problem, applies(progress.problem)
    jobs = len(problem.activities)
    direct = _intervals(problem) <= DIRECT_INTERVALS and not (sums and jobs > DIRECT_JOBS_OF_SUMS)
    if direct or progress.schedule is None:
        if progress.schedule is not None and sums and jobs > 12:
            until = LEFT_BY_LISTS if len(progress.values) == 1 else 0.6
            _quick_lists(progress, guide).run(until)
        _price_gangs(progress, priced)
        if progress.schedule is not None and breeds(problem):
            if solve_whole(progress, direct, share=WHOLE_BEFORE_BREEDING):
                return
            _ready(progress, lambda: Evolution(progress)).run()
        else:
            solve_whole(progress, direct)
        return
    if any(len(prices.types) > 1 for prices, _ in priced.values()):
        # prices of gangs tell better which type each job should have than prices by GPU
        for level, gangs in _price_gangs(progress, priced).items():
            guide = _suggested(progress, level, gangs, ())
        priced = {}
    search = _quick_lists(progress, guide)
    if search.copies and priced:
        _search_beside_prices(progress, priced, search)
    else:
        _price_gangs(progress, priced)
        search.run(until=0.0)


def _search_beside_prices(progress: Progress, priced: Priced, search: ListSearch) -> None:
    """Search lists while prices by job ascend in a copy of this process."""
    with Beside(partial(_gangs_priced, progress, priced)) as pricing:
        waited_for = True

        def goes_on(wait: bool = False) -> bool:
            nonlocal waited_for
            if waited_for and (wait or pricing.is_done):
                waited_for = False
                _take(progress, pricing.result())
            return waited_for

        search.run(0.0, goes_on)
        goes_on(wait=not all(_is_closed(progress, level) for level in priced))


def _gangs_priced(progress: Progress, priced: Priced) -> tuple[dict[int, float], list[str]]:
    """Ascend on prices by job; return what is proved of levels, and the certificates of that."""
    certificates: list[str] = []
    progress.report = replace(SILENT, certificate=certificates.append)
    _price_gangs(progress, priced)
    return progress.proved, certificates


def _take(progress: Progress, found: tuple[dict[int, float], list[str]] | None) -> None:
    """Report what was proved beside; None where that failed."""
    proved, certificates = found or ({}, [])
    for certificate in certificates:
        progress.report.certificate(certificate)
    for level, bound in proved.items():
        if bound > progress.proved.get(level, -math.inf):
            progress.proved[level] = bound
            progress.report.bound(level, bound, "prices")


def _quick_lists(progress: Progress, guide: List | None) -> ListSearch:
    return _ready(progress, lambda: ListSearch(progress, guide, quick=True))


def _ready(progress: Progress, make: Callable[[], Part]) -> Part:
    """Return a part that is compiled; that happens once on a machine, and takes none of the time
    limit."""
    begun_s = time.monotonic()
    progress.report.more_time_s(math.inf)
    part = make()
    compiled_s = time.monotonic() - begun_s if part.was_compiled else 0.0
    progress.budget.begun_s += compiled_s
    if compiled_s:
        progress.report.log(f"search compiled in {compiled_s:.0f} s, kept for later solves")
    progress.report.more_time_s(compiled_s)
    return part


def _is_proved(progress: Progress) -> bool:
    return len(progress.values) == 1 and _is_closed(progress, 0)


def _is_closed(progress: Progress, level: int) -> bool:
    yardstick, bound = progress.evaluator.yardsticks[level], progress.proved.get(level)
    return yardstick.is_closed(progress.values[level], bound)


def _intervals(problem: Problem) -> int:
    return sum(
        len(a.rooms) if not a.fixed and a.mode.gpus and len(a.rooms) > 1 else 1
        for activity in problem.activities
        for a in activity.alternatives
    ) + 2 * len(problem.changes_s) * sum(len(a.alternatives) for a in problem.activities)


def _priorities(problem: Problem) -> Iterator[list[float]]:
    """Yield orders for list schedules, each tier after those above it."""
    return (by_tier(problem, order) for order in _orders(problem))


def _orders(problem: Problem) -> Iterator[list[float]]:
    """Yield orders: WSPT by area, by run time, by both; shortest first; earliest deadline;
    arrival."""

    def area(activity: Activity) -> float:
        return min(a.seconds * max(a.mode.gpus, 0.1) for a in activity.alternatives)

    def weight(activity: Activity) -> float:
        return max(activity.job.weight, 1e-9)

    def deadline(activity: Activity) -> float:
        return math.inf if activity.job.deadline_s is None else activity.job.deadline_s

    every = problem.activities
    yield [area(a) / weight(a) for a in every]
    yield [math.sqrt(area(a) * a.shortest_s) / weight(a) for a in every]
    yield [a.shortest_s for a in every]
    yield [-a.shortest_s for a in every]
    yield [-area(a) for a in every]
    yield [float(a.release_up) for a in every]
    if any(a.job.deadline_s is not None for a in every):
        yield [deadline(a) for a in every]
        yield [deadline(a) - a.shortest_s for a in every]
    tails = _tails(problem)
    if any(a.before for a in every):
        yield [-tails[a.index] for a in every]


def _tails(problem: Problem) -> list[float]:
    """Return the length of the longest chain of followers of each activity, itself included."""
    tails = [activity.shortest_s for activity in problem.activities]
    for activity in reversed(problem.in_order):
        for i in activity.before:
            own_s = problem.activities[i].shortest_s
            tails[i] = max(tails[i], own_s + tails[activity.index])
    return tails


def guide_by_prices(progress: Progress, level: int, pinned: Collection[int] = ()) -> List:
    """Ascend on prices for a level; report the bound; return the best list of those that the prices
    suggest, with the running jobs but `pinned` that they preempt or those that the best schedule so
    far does, and of that schedule."""
    prices, _ = _price(progress, level)
    return _suggested(progress, level, prices, pinned)


def _price(progress: Progress, level: int) -> tuple[PriceBound, Floats]:
    """Ascend on prices by GPU type for a level; report the bound; return it and the prices."""
    problem, budget, proved = progress.problem, progress.budget, progress.proved
    report = progress.report
    assert progress.schedule is not None
    prices = PriceBound(problem, grid(problem, progress.schedule, CELLS), level)
    until = budget.fraction_left() - (0.15 if len(problem.activities) > 50 else 0.1)
    value, yardstick = progress.values[level], progress.evaluator.yardsticks[level]
    certify = _certifies(progress)
    found = first = prices.start_prices(progress.schedule)
    ascent = prices.ascend(first, value - prices.certain)
    for steps, (best, found) in enumerate(ascent):  # noqa: B007
        budget.spend(PRICE_STEP_WORK + PRICE_WORK * prices.costs.size)
        proved[level] = prices.certain + best - 1e-9 * abs(best)
        if steps % 25 == 0 and not certify:
            report.bound(level, proved[level], "prices")
        if budget.fraction_left() < until or yardstick.is_closed(value, proved[level]):
            break
    if certify:
        gangs = GangBound(problem, prices.grid_s, level)
        _certify(progress, gangs, gangs.of_gangs(found))
    if level in proved:
        report.bound(level, proved[level], "prices")
    return prices, found


def _certifies(progress: Progress) -> bool:
    """Return whether a certificate is wanted, and there are such of the objective."""
    return progress.certify and progress.problem.objective.name == "wct"


def _certify(progress: Progress, gangs: GangBound, prices: Floats) -> None:
    if (certificate := gangs.certificate(prices)) is not None:
        progress.report.certificate(dump_certificate(certificate))


def _price_gangs(progress: Progress, priced: Priced) -> dict[int, GangBound]:
    """Ascend on prices by job from those by GPU type, of levels that are not proved; return their
    bounds by level."""
    bounds = {}
    for level, (prices, found) in priced.items():
        if not _is_closed(progress, level):
            gangs = GangBound(progress.problem, prices.grid_s, level)
            if gangs.has_gangs:
                _price_gangs_of(progress, level, gangs, found)
                bounds[level] = gangs
    return bounds


def _price_gangs_of(progress: Progress, level: int, gangs: GangBound, found: Floats) -> None:
    """Ascend on prices by job from those `found` by GPU type; report the bound if it is better."""
    budget, proved = progress.budget, progress.proved
    begun, known, steps = budget.fraction_left(), proved.get(level, -math.inf), 0

    def done() -> float:
        if _is_closed(progress, level):
            return 1.0
        return max((begun - budget.fraction_left()) / GANGS_SHARE, steps / MOST_GANG_STEPS)

    certify, own = _certifies(progress), None
    step_work = GANG_STEP_WORK + PRICE_WORK * gangs.costs.size + PACK_WORK * gangs.packed
    for best, own in gangs.ascend_from(found, done):  # noqa: B007
        steps += 1
        budget.spend(step_work)
        proved[level] = max(known, gangs.certain + best - 1e-9 * abs(best))
        if steps % 25 == 0 and not certify:
            progress.report.bound(level, proved[level], "prices")
        if steps == 1 and done() * LEAST_GANG_STEPS > 2:
            break
    if proved.get(level, known) > known:
        if certify and own is not None:
            _certify(progress, gangs, own)
        progress.report.bound(level, proved[level], "prices")


def _suggested(progress: Progress, level: int, prices: PriceBound, pinned: Collection[int]) -> List:
    """Return the best list of those that prices suggest, with the running jobs but `pinned` that
    they preempt or those that the best schedule so far does, and of that schedule."""
    problem = progress.problem
    assert progress.schedule is not None
    order, kinds, leaves = prices.suggestion()
    leaves = leaves.difference(pinned)
    ways: Ways = {}
    lowest = problem.objective.tier_of_level(level)
    for activity in problem.activities:
        kind = kinds[activity.index]
        if problem.objective.tier(activity.job.priority) > lowest:
            order[activity.index] = float(progress.schedule[activity.index].start)
        elif kind is not None and (of_type := by_type(activity, prices.types[kind])):
            ways[activity.index] = of_type
    waits = {}
    if problem.changes_s:
        waits = {j: problem.tick.floor(start_s) for j, start_s in enumerate(order)}
    lists = [list_of(problem, progress.schedule)]
    order = by_tier(problem, order)
    lists += [
        List(order, kept_to, preempted, until)
        for preempted in dict.fromkeys((leaves, lists[0].preempted))
        for kept_to in (ways, {})
        for until in ([waits, {}] if waits else [{}])
    ]
    return min(lists, key=lambda code: _offered(progress, code))


def _offered(progress: Progress, code: List) -> tuple[float, ...]:
    """Offer the schedule of a list and return its values, infinite where there is none."""
    progress.budget.spend(WORK_PER_JOB * len(code.priority))
    schedule = code.schedule(progress.problem)
    progress.offer(schedule)
    return (math.inf,) if schedule is None else progress.evaluator.values(schedule)
