"""Random plans with preemptions, migrations, resizings and shared GPUs: all that the verifier
accepts, not only the plan class. They are poor plans; what counts is that no bound may exceed the
value of any of them."""

from dataclasses import dataclass, replace
from random import Random

from optsched.model.instance import Instance
from optsched.model.job import Job
from optsched.model.plan import JobPlan, Plan, Segment
from optsched.objectives import Objective
from optsched.physics import hold_to_save_s, lost_s, placed_rate, run_s, setup_s, unsaved_s
from optsched.verify import decision_now

from .brute_force import Choice, Held, Search, capacities, choices, first_fit, holds


@dataclass
class _Progress:
    """What is left of a job, when it may go on, and how often it was preempted."""

    job: Job
    left: float
    ready_s: float
    ran_before: bool
    preemptions: int
    segments: list[Segment]


def random_plan(
    instance: Instance, objective: Objective, random: Random, share: bool
) -> Plan | None:
    """A plan drawn at random, run by run; None where the draw led nowhere. To be checked by the
    verifier."""
    search = Search(instance, objective, capacities(instance), {})
    held: list[Held] = []
    states = {job.id: _begin(instance, job, random, held) for job in instance.jobs}
    from_s = instance.now_s
    for _ in range(60):
        open_ = [state for state in states.values() if state.left > 0]
        if not open_:
            return _plan(instance, states)
        ready = [
            state for state in open_ if all(states[before].left <= 0 for before in state.job.after)
        ]
        if not ready:
            return None
        state = random.choice(ready)
        found = list(choices(search, state.job, state.left, setup_s(state.job, state.ran_before)))
        if not found:
            return None
        choice = random.choice(found)
        ends = [states[before].segments[-1].end_s for before in state.job.after]
        earliest_s = max(from_s, state.ready_s, *ends)
        partner = random.choice(ready)
        if (
            share
            and partner is not state
            and partner.ready_s <= earliest_s
            and not partner.job.after
        ):
            start_s = _pair(instance, search, state, partner, choice, earliest_s, held)
            if start_s is not None:
                from_s = start_s
                continue
        from_s = first_fit(search, held, choice.holds, earliest_s)
        _run(instance, state, choice, from_s, random, held)
    return None


def _begin(instance: Instance, job: Job, random: Random, held: list[Held]) -> _Progress:
    """A running job goes on to its end or for a while, or is preempted now."""
    entry, now_s = instance.running_job.get(job.id), instance.now_s
    suspended = job.id in instance.suspended_job
    state = _Progress(job, instance.remaining_s(job), instance.release_s(job), suspended, 0, [])
    if suspended:
        state.preemptions = instance.suspended_job[job.id].preemptions
    if entry is None:
        return state
    state.ran_before, state.preemptions = True, entry.preemptions
    speed = placed_rate(instance, job, entry.mode, entry.placement)
    end_s = now_s + entry.setup_s + run_s(job, entry.mode, entry.remaining_s, speed)
    save_s = hold_to_save_s(job)
    if job.preemptible and random.random() < 0.7:
        productive = random.choice((0.0, 0.25, 0.5)) * entry.remaining_s / speed
        state.preemptions += 1
        unsaved = unsaved_s(entry, now_s)
        end_s = now_s + save_s
        if productive:
            end_s += entry.setup_s + productive
            unsaved += productive
        state.left += min(
            lost_s(job, unsaved) * speed, job.work_s - state.left + productive * speed
        )
        state.left -= productive * speed
        state.ready_s = end_s + (0.0 if random.random() < 0.5 else 1.0)
    else:
        state.left = 0.0
    if end_s > now_s:
        state.segments.append(
            Segment(start_s=now_s, end_s=end_s, mode=entry.mode, placement=entry.placement)
        )
        held.append((end_s, holds(instance, job, entry.mode, entry.placement)))
    return state


def _run(
    instance: Instance,
    state: _Progress,
    choice: Choice,
    start_s: float,
    random: Random,
    held: list[Held],
) -> None:
    """One run of a job, to its end or up to a preemption."""
    job = state.job
    end_s = start_s + choice.length_s
    speed = placed_rate(instance, job, choice.mode, choice.placement)
    setup = setup_s(job, state.ran_before)
    stop = job.preemptible and random.random() < 0.5 and len(state.segments) < 4
    if stop:
        productive = random.choice((0.25, 0.5, 0.75)) * state.left / speed
        end_s = start_s + setup + productive + hold_to_save_s(job)
        state.left -= productive * speed
        state.left += min(lost_s(job, productive) * speed, job.work_s - state.left)
        state.preemptions += 1
        state.ready_s = end_s + (0.0 if random.random() < 0.5 else 0.5)
    else:
        state.left = 0.0
    state.ran_before = True
    state.segments.append(
        Segment(start_s=start_s, end_s=end_s, mode=choice.mode, placement=choice.placement)
    )
    held.append((end_s, choice.holds))


def _pair(
    instance: Instance,
    search: Search,
    a: _Progress,
    b: _Progress,
    choice: Choice,
    from_s: float,
    held: list[Held],
) -> float | None:
    """Run two jobs to their ends on the same GPUs, where both have the mode; when they start, or
    None."""
    where = [(slot.node, slot.gpus) for slot in choice.placement]
    same = [
        other
        for other in choices(search, b.job, b.left, 0.0)
        if [(slot.node, slot.gpus) for slot in other.placement] == where
        and other.mode.clock_mhz == choice.mode.clock_mhz
    ]
    if not choice.mode.gpus or not same:
        return None
    both = {
        what: choice.holds.get(what, 0.0) + same[0].holds.get(what, 0.0)
        for what in {**choice.holds, **same[0].holds}
    }
    both.update({what: amount for what, amount in choice.holds.items() if what[0] == "gpus"})
    if any(amount > search.capacity.get(what, amount) for what, amount in both.items()):
        return None
    modes = replace(choice.mode, share_with=b.job.id), replace(same[0].mode, share_with=a.job.id)
    placements = choice.placement, same[0].placement
    runs = list(zip((a, b), modes, placements, strict=True))
    speeds = [placed_rate(instance, state.job, mode, placement) for state, mode, placement in runs]
    if min(speeds) <= 0:
        return None
    start_s = first_fit(search, held, both, from_s)
    setups = [setup_s(state.job, state.ran_before) for state in (a, b)]
    until_s = start_s + min(setups[0] + a.left / speeds[0], setups[1] + b.left / speeds[1])
    if until_s < start_s + max(setups):
        return None
    for (state, mode, placement), setup, speed in zip(runs, setups, speeds, strict=True):
        state.segments.append(
            Segment(start_s=start_s, end_s=until_s, mode=mode, placement=placement)
        )
        state.left -= (until_s - start_s - setup) * speed
        state.ran_before = True
        end_s = until_s
        if state.left > 1e-9:  # its partner is done: it goes on alone
            mode = replace(mode, share_with=None)
            end_s += state.left / placed_rate(instance, state.job, mode, placement)
            state.segments.append(
                Segment(start_s=until_s, end_s=end_s, mode=mode, placement=placement)
            )
        state.left = 0.0
        held.append((end_s, holds(instance, state.job, mode, placement)))
    shared = {what: -amount for what, amount in choice.holds.items() if what[0] == "gpus"}
    held.append((until_s, shared))  # counted once while both run
    return start_s


def _plan(instance: Instance, states: dict[str, _Progress]) -> Plan:
    return Plan(
        jobs=tuple(
            JobPlan(
                id=job.id,
                decision=decision_now(instance, job, tuple(states[job.id].segments)),
                segments=tuple(states[job.id].segments),
            )
            for job in instance.jobs
        )
    )
