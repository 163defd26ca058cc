"""Windows: in which nobody is on a node but those for whom it is kept."""

import math
from collections.abc import Callable, Iterator

from ..model import Instance, Job, JobPlan, Mode, Placement, Plan, Window
from ..physics import TIME_TOLERANCE_S, hold_to_save_s, placed_rate, setup_s
from ..physics.catalogue import catalogue_of
from ..physics.unschedulable import why_never
from ..physics.windows import least_stay_s
from .capacity import AMOUNT_TOLERANCE, MOMENT_S, quotas_over
from .progress import Stretch, stays_first, stretches_of
from .violation import Violation, broken


def windows(instance: Instance, plan: Plan, *, replay: bool) -> Iterator[Violation]:
    """Check that in a window only those are on its nodes for whom they are kept.

    A job that runs already, or in a replay one that was believed to be done in time, may stay as
    long as it cannot save: the window then begins late for it.
    """
    for window in instance.cluster.windows:
        for entry in plan.jobs:
            job = instance.job[entry.id]
            if job.tenant not in window.tenants and job.user not in window.users:
                yield from _job(instance, window, job, entry, replay)


def _job(
    instance: Instance, window: Window, job: Job, entry: JobPlan, replay: bool
) -> Iterator[Violation]:
    goes_on = stays_first(instance, entry)
    for k, stretch in enumerate(stretches_of(job, entry.segments)):
        moment_s = _moment_s(replay)
        there = [slot.node for slot in stretch[0].placement if slot.node in window.nodes]
        from_s = max(stretch[0].start_s, window.from_s)
        if not there or min(stretch[-1].end_s, window.to_s) - from_s <= moment_s:
            continue
        stays = goes_on and k == 0
        came_before = stays or stretch[0].start_s < window.from_s
        until_s = window.from_s
        if came_before and (stays or replay):
            until_s = max(until_s, _saved_s(instance, job, entry, k, stretch, stays))
        if min(stretch[-1].end_s, window.to_s) - until_s > moment_s:
            kept = f"which is not there for it from {window.from_s:.12g} to {window.to_s:.12g} s"
            says = f"is on node {there[0]} at {from_s:.12g} s, {kept} ({window.name})"
            yield broken("window", job.id, says, from_s, there[0])


def lower_capacity(instance: Instance, plan: Plan, *, replay: bool) -> Iterator[Violation]:
    """Check that in a window jobs hold no more of a resource or quota than there is then, those
    aside that cannot have saved yet: beside them nobody takes any of what is short."""
    over = {own.name: quotas_over(instance, own) for own in instance.tenants}

    def drawn(name: str) -> Callable[[Job, Mode], float]:
        return lambda _, mode: mode.resources.get(name, 0.0)

    def counted(tenant: str) -> Callable[[Job, Mode], float]:
        return lambda job, mode: mode.gpus if tenant in over.get(job.tenant or "", ()) else 0

    for window in instance.cluster.windows:
        for name, most in window.resources.items():
            yield from _lower(instance, plan, window, (name, most, drawn(name)), replay)
        for tenant, gpus in window.quotas.items():
            what = f"GPUs of the quota of {tenant}"
            yield from _lower(instance, plan, window, (what, gpus, counted(tenant)), replay)


def _lower(
    instance: Instance,
    plan: Plan,
    window: Window,
    limit: tuple[str, float, Callable[[Job, Mode], float]],
    replay: bool,
) -> Iterator[Violation]:
    name, most, of = limit
    events: list[tuple[float, int, bool, str, float, bool]] = []
    moment_s = _moment_s(replay)
    for entry in plan.jobs:
        job, goes_on = instance.job[entry.id], stays_first(instance, entry)
        for k, stretch in enumerate(stretches_of(job, entry.segments)):
            stays = goes_on and k == 0
            saved_s = -math.inf
            if (stays or replay) and (stays or stretch[0].start_s < window.from_s):
                saved_s = _saved_s(instance, job, entry, k, stretch, stays)
            before = 0.0
            for segment in stretch:
                amount = of(job, segment.mode)
                held = before if segment.start_s >= window.from_s else math.inf
                takes, before = amount > held and not (stays and segment is stretch[0]), amount
                start_s = max(segment.start_s, window.from_s)
                end_s = min(segment.end_s, window.to_s)
                free_s = min(max(start_s, saved_s), end_s)
                if end_s <= saved_s + moment_s:
                    free_s = end_s
                for from_s, to_s, caught in ((start_s, free_s, True), (free_s, end_s, False)):
                    if amount and to_s - from_s > moment_s:
                        events.append((from_s, 1, takes, entry.id, amount, caught))
                        events.append((to_s - moment_s, 0, takes, entry.id, -amount, caught))
    full, used, others, above = most + AMOUNT_TOLERANCE * max(1.0, most), 0.0, 0.0, False
    for time_s, starts, takes, job_id, amount, caught in sorted(events):
        used += amount
        others += 0.0 if caught else amount
        is_new = takes and not caught and used > full
        if starts and (is_new or (others > full and not above)):
            says = f"holds {name} at {time_s:.12g} s, of which {used:.12g} are held and"
            left = f"{most:.12g} are there until {window.to_s:.12g} s ({window.name})"
            yield broken("window", job_id, f"{says} {left}", time_s)
        above = others > full


def meets_window(
    instance: Instance, job: Job, mode: Mode, placement: Placement
) -> Iterator[Violation]:
    """Check that a job that starts now is on no node in a window, nor on one with a window before
    it would be done on GPUs of its own, or could have saved."""
    now_s, on = instance.now_s, {slot.node for slot in placement}
    windows = [window for window in instance.cluster.windows if not on.isdisjoint(window.nodes)]
    if not windows:
        return
    until_s = needed_until_s(instance, job, mode, placement)
    for window in windows:
        there = sorted(on.intersection(window.nodes))
        if job.tenant in window.tenants or job.user in window.users:
            continue
        if max(now_s, window.from_s) < min(window.to_s, until_s):
            kept = f"which is not there for it from {window.from_s:.12g} to {window.to_s:.12g} s"
            says = f"starts on node {there[0]} at {now_s:.12g} s, {kept} ({window.name})"
            yield broken("window", job.id, says, now_s, there[0])


def needed_until_s(instance: Instance, job: Job, mode: Mode, placement: Placement) -> float:
    """Return until when a job that starts now must be able to stay: until it would be done on GPUs
    of its own, or could have saved."""
    entry = instance.running_job.get(job.id) or instance.suspended_job.get(job.id)
    stay_s = least_stay_s(
        job,
        mode.unshared,
        placed_rate(instance, job, mode.unshared, placement),
        instance.remaining_s(job),
        ran_before=entry is not None,
        preemptions=0 if entry is None else entry.preemptions,
    )
    return instance.now_s + max(MOMENT_S, stay_s - MOMENT_S)


def _moment_s(replay: bool) -> float:
    """Return for how long nothing is said: what happened may miss an instant by more than a plan,
    which would else be better than what is proved by what it may overlap."""
    return MOMENT_S if replay else TIME_TOLERANCE_S


def _saves(job: Job, preempted: int) -> bool:
    """Return whether a job that was preempted so often can still save when it is asked to."""
    every_s = job.profile.checkpoint_every_s
    worn = job.max_preemptions is not None and preempted >= job.max_preemptions
    return job.preemptible and not worn and (every_s is None or every_s < job.work_s)


def _saved_s(
    instance: Instance, job: Job, entry: JobPlan, k: int, stretch: Stretch, stays: bool
) -> float:
    """Return when a job in this stretch can first have saved; infinite if it never can."""
    running, suspended = instance.running_job.get(job.id), instance.suspended_job.get(job.id)
    before = running or suspended
    preempted = (0 if before is None else before.preemptions) + sum(
        earlier[-1].stopped_by is None for earlier in stretches_of(job, entry.segments)[:k]
    )
    if not _saves(job, preempted) or why_never(catalogue_of(instance), job) is not None:
        return math.inf
    start_s = stretch[0].start_s
    began_s = running.started_s if stays and running is not None else start_s
    loads_s = running.setup_s if stays and running is not None else setup_s(job, True)
    ready_s = max(began_s + job.min_run_s, start_s + loads_s + job.profile.fetch_s)
    return ready_s + hold_to_save_s(job)
