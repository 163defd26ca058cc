"""Whole plans for the jobs that are here, found by list search, and what they say to do now."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from optsched.driver.playout import Playouts
from optsched.driver.snapshot import Snapshot
from optsched.driver.trial import Trial
from optsched.driver.world import World
from optsched.frozen import record
from optsched.model import Job, Mode, Placement
from optsched.objectives import Objective
from optsched.physics import TIME_TOLERANCE_S
from optsched.plugins.solver import SILENT

from ...cpsat import SOLVER, free_times
from ...cpsat.clock import Budget
from ...cpsat.list_search import ListSearch
from ...cpsat.lists import List
from ...cpsat.progress import Progress
from ...cpsat.search import guide_by_prices
from ...scheduling.evaluate import Evaluator
from ...scheduling.lagrange import applies
from ...scheduling.plans import plan_of
from ...scheduling.problem import Problem
from ...scheduling.schedule_generation import preempted_in

QUICK, BOLD = 0.3, 0.9
"""Share of the counted work where lists are decoded by free times, which takes more seconds a unit;
and in a bold search, which needs more lists."""
WORK_PER_JOB = 2e-6
"""Counted work of placing one job in a list by free times, which sets how many lists are tried."""
LATE_S = 1e-3
"""A job that starts or ends later than planned by more than this has left the plan."""

Outline = tuple[Mapping[str, float], Collection[str]]
"""About when each job starts, and which running jobs are preempted now."""


@record
class Agenda:
    """A plan: when, in which mode and where jobs start, and when each completes."""

    starts: Mapping[str, tuple[float, Mode, Placement]]
    ends_s: Mapping[str, float]

    def step(
        self, world: World, pinned: Collection[str], victims: Iterable[str] = ()
    ) -> Trial | None:
        """Return what is to be done now, after `victims` are preempted; None where the world is not
        as planned."""
        here = {**world.waiting, **world.running, **world.saving}
        if any(job_id not in self.ends_s for job_id in here) or any(
            self._is_off(world, job_id) for job_id in world.running if job_id not in victims
        ):
            return None
        trial = Trial(world, pinned)
        trial.ends_s = self.ends_s
        for job_id in victims:
            if not trial.may_preempt(job_id):
                return None
            trial.preempt(job_id)
        for job_id, (start_s, mode, placement) in self.starts.items():
            if start_s > world.now_s + TIME_TOLERANCE_S or job_id not in trial.waiting:
                continue
            option = next((o for o in world.options(job_id) if o.mode == mode), None)
            if option is None or start_s < world.now_s - LATE_S:
                return None
            if trial.free.holds(trial.need(job_id, option), placement):
                trial.start(job_id, option, placement)
        return trial

    def _is_off(self, world: World, job_id: str) -> bool:
        """Return whether a running job has started sooner or elsewhere than planned, or ends
        later."""
        start_s, _, placement = self.starts.get(job_id, (-math.inf, None, None))
        return (
            start_s > world.now_s + LATE_S
            or placement not in (None, world.placement(job_id))
            or world.expected_release_s(job_id) > self.ends_s[job_id] + LATE_S
        )

    def next_start_s(self, now_s: float) -> float | None:
        """Return when the next job starts."""
        soon_s = now_s + TIME_TOLERANCE_S
        later = (start_s for start_s, _, _ in self.starts.values() if start_s > soon_s)
        return min(later, default=None)


def outline(world: World, playouts: Playouts, trial: Trial) -> Outline:
    """Return about when each job starts after a trial, and whom it preempts."""
    ends_s = playouts.completions_s(trial)
    starts_s = {
        job_id: float(ends_s[i]) - world.fastest_finish_s(job_id)
        for job_id, i in playouts.place.items()
    }
    return starts_s, trial.victims


def search(
    world: World,
    now: Snapshot,
    objective: Objective,
    outlines: Iterable[Outline],
    limit_s: float,
    coming: Sequence[Job] = (),
    *,
    bold: bool = False,
) -> tuple[Agenda, list[str]] | None:
    """Return the best plan that list search finds from some outlines in `limit_s` of counted work
    for the jobs that are here and those that are known to be `coming`, and whom it preempts `now`;
    None where that knows no plans. A `bold` search strays further from what it begins with."""
    here = now.instance.only({*world.waiting, *world.running})
    instance = replace(here, jobs=(*here.jobs, *coming)) if coming else here
    # Whom a window ends is the driver's to say, not a plan's.
    if now.blocked or instance.cluster.windows or SOLVER.supports(instance, objective) is not None:
        return None
    problem = Problem(instance, objective)
    if problem.partner or not problem.activities:
        return None
    if free_times.applies(problem):
        limit_s *= BOLD if bold else QUICK
    progress = Progress(problem, Evaluator(problem), SILENT, Budget(limit_s, 1, 0))
    index = {activity.job.id: activity.index for activity in problem.activities}
    for starts_s, victims in outlines:
        order = [starts_s[activity.job.id] for activity in problem.activities]
        code = List(order, {}, frozenset(index[job_id] for job_id in victims), {})
        progress.offer(code.schedule(problem))
    if progress.schedule is None:
        return None
    stay = [
        index[job_id]
        for job_id in world.running
        if job_id in now.pinned or not world.may_preempt(job_id)
    ]
    priced = applies(problem) and world.cluster.total_gpus
    guide = guide_by_prices(progress, 0, stay) if priced else None
    search = ListSearch(progress, guide, stay, quick=True, bold=bold, work_per_job=WORK_PER_JOB)
    search.run(until=0.0)
    plan = plan_of(problem, progress.schedule)
    leave = preempted_in(problem, progress.schedule)
    starts, ends_s = {}, {}
    for activity, entry in zip(problem.activities, plan.jobs, strict=True):
        last = entry.segments[-1]
        ends_s[entry.id] = last.end_s
        if activity.running is None or activity.index in leave:
            starts[entry.id] = last.start_s, last.mode, last.placement
    victims = [a.job.id for a in problem.activities if a.index in leave]
    return Agenda(starts, ends_s), victims
