"""What the demonstration showed, in three sentences, with the numbers that were measured."""

from dataclasses import replace

from ..bounds import lower_bounds
from ..control.controller import Controller
from ..control.history import history
from ..control.journal.state import Attempt, LiveJob
from ..duration import human
from ..files import instance_hash
from ..frozen import record
from ..model import Instance, Level, Plan, Solution
from ..objectives import parse
from .scenario import ARRIVALS, PAYS, REFUSED, VICTIMS


@record
class Story:
    """What happened (see `happened`) as a solution to draw, and the sentences about it.

    Mean completion times in seconds: measured, foretold by a simulation of the policy `optsched`
    with the costs that were measured, and of first in, first out. `error` is the mean over jobs of
    |foretold - measured| / measured.
    """

    instance: Instance
    solution: Solution
    sentences: tuple[str, ...]
    measured_s: float
    foretold_s: float
    error: float
    fifo_s: float


def tell(controller: Controller) -> Story:
    """Tell the story of a scenario that was played to its end."""
    jobs = controller.state.jobs
    instance, plan = history(controller.state, controller.cluster, (), name="optsched demo")
    asked = tuple(
        replace(
            jobs[arrival.name].submission.job,
            submit_s=instance.job[arrival.name].submit_s,
            profile=jobs[arrival.name].profile,
        )
        for arrival in ARRIVALS
    )
    stated = Instance(name="demo", cluster=controller.cluster, jobs=asked)
    measured = {
        entry.id: entry.completion_s - instance.job[entry.id].submit_s for entry in plan.jobs
    }
    foretold, fifo = _completion_times(stated, "optsched"), _completion_times(stated, "fifo")
    errors = [abs(foretold[name] - measured[name]) / measured[name] for name in measured]
    mean_s, fifo_s = sum(measured.values()) / len(measured), sum(fifo.values()) / len(fifo)
    sentences = (
        _preemption(jobs[PAYS], jobs[VICTIMS[PAYS]]),
        _refusal(jobs[REFUSED], jobs[VICTIMS[REFUSED]]),
        _sum(list(jobs.values()), mean_s, fifo_s),
    )
    solution = _as_solution(instance, plan, sentences)
    foretold_s = sum(foretold.values()) / len(foretold)
    return Story(
        instance, solution, sentences, mean_s, foretold_s, sum(errors) / len(errors), fifo_s
    )


def _as_solution(instance: Instance, plan: Plan, sentences: tuple[str, ...]) -> Solution:
    """Return what happened, for a picture, with a limit on what any schedule of the measured work
    could have reached."""
    value = sum(entry.completion_s - instance.job[entry.id].submit_s for entry in plan.jobs)
    [bound] = lower_bounds(instance, parse("wct"))
    return Solution(
        instance_name=instance.name,
        instance_hash=instance_hash(instance),
        solver="optsched run",
        seed=0,
        objective="wct",
        status="feasible",
        levels=(Level(name="wct", value=value, bound=bound.value),),
        plan=plan,
        bound_source=bound.source,
        notes=sentences,
    )


def _completion_times(instance: Instance, policy: str) -> dict[str, float]:
    from ..plugins.registry import policy as registered
    from ..simulate.run import simulate

    return {
        entry.id: entry.completion_s - instance.job[entry.id].submit_s
        for entry in simulate(instance, registered(policy)).jobs
    }


def _started_s(attempt: Attempt) -> float:
    return attempt.intended_s if attempt.started_s is None else attempt.started_s


def _preemption(winner: LiveJob, victim: LiveJob) -> str:
    if not victim.preemptions:
        return f"{victim.id} was not preempted for {winner.id}: on this machine it would not have paid."  # noqa: E501
    profile, first, second = victim.profile, victim.attempts[0], victim.attempts[1]
    assert first.ended is not None and first.stop_s is not None
    cost_s = profile.checkpoint_s + profile.restore_s + profile.startup_s
    progress = first.ended.progress
    at = (
        ""
        if progress is None or progress.saved_step is None
        else f" from step {progress.saved_step}"
    )
    wait_s = _started_s(winner.attempts[0]) - winner.submit_s
    return (
        f"{victim.id} was preempted for {winner.id}: saving, starting and loading cost it "
        f"{human(cost_s)}, less than "
        f"the {human(first.ended.left_s)} that {winner.id} would have waited for its end; "
        f"{winner.id} began after "
        f"{human(wait_s)}, and {victim.id} went on{at} "
        f"{human(_started_s(second) - first.stop_s)} later."
    )


def _refusal(waiter: LiveJob, kept: LiveJob) -> str:
    if kept.preemptions:
        return f"{kept.id} was preempted for {waiter.id}: on this machine that paid, too."
    profile, ended = kept.profile, kept.attempts[-1].ended
    assert ended is not None and ended.ended_s is not None
    cost_s = 2 * profile.checkpoint_s + profile.startup_s + profile.restore_s
    left_s, needs_s = ended.ended_s - waiter.submit_s, waiter.submission.job.work_s
    return (
        f"{kept.id} was not preempted for {waiter.id}, though it had {human(left_s)} to go and "
        f"{waiter.id} needs "
        f"{human(needs_s)}: that would have gained {human(left_s - needs_s)} and cost "
        f"{human(cost_s)}, since both "
        "would have waited for it to save, and it would have had to start and load again."
    )


def _sum(jobs: list[LiveJob], mean_s: float, fifo_s: float) -> str:
    count = sum(job.preemptions for job in jobs)
    longer = "" if fifo_s <= mean_s else f", {(fifo_s - mean_s) / mean_s:.0%} longer"
    return (
        f"The {len(jobs)} jobs were done after {human(mean_s)} on average, with {count} "
        f"preemption{'s' * (count != 1)}; first in, first out would have taken "
        f"{human(fifo_s)}{longer}."
    )
