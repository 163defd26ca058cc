"""The plan class over which solvers plan and prove."""

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from ..model import Instance, Job, JobPlan, Plan, Segment
from ..physics import TIME_TOLERANCE_S, gpus_by_type

if TYPE_CHECKING:
    from ..driver.world import World
    from ..plugins.policy import Policy


def outside_class(instance: Instance, plan: Plan) -> str | None:
    """Return why a verified plan is outside the plan class, or None.

    A waiting job runs in one piece once started, on GPUs of its own of one type; a running job
    either continues or is preempted at `now_s` and later resumed in one piece. Bounds of solvers
    say nothing about other plans.
    """
    for entry in plan.jobs:
        running = instance.running_job.get(entry.id)
        for segment in entry.segments:
            partner = segment.mode.share_with
            if partner is not None and (running is None or running.mode.share_with != partner):
                return f"job {entry.id} starts to share GPUs with {partner}; in the class each job has its own"  # noqa: E501
            if segment.mode.shared_gpus:
                return f"job {entry.id} shares some of its GPUs; in the class each job has its own"
            mixes = (
                len(gpus_by_type(instance.cluster, segment.placement)) > 1
                if len(segment.placement) > 1
                else False
            )
            if mixes and (running is None or segment.placement != running.placement):
                return f"job {entry.id} starts on GPUs of several types; in the class each gang has one"  # noqa: E501
        first = entry.segments[0].mode
        if running is not None and entry.decision == "continue" and first.size != running.mode.size:
            return f"job {entry.id} changes its cores while it runs; in the class it keeps them"
        pieces = _pieces(entry)
        if pieces > 1 + _saves_first(instance, entry):
            return f"job {entry.id} runs in {pieces} pieces; a plan preempts only jobs that run now, and once"  # noqa: E501
    return None


def in_one_piece(instance: Instance) -> Instance:
    """Return the instance, where there are windows with no waiting job to be preempted for one, and
    no running job twice: in the plan class a job runs before or after it."""
    if not instance.cluster.windows:
        return instance
    return replace(instance, jobs=tuple(_once(instance, job) for job in instance.jobs))


def _once(instance: Instance, job: Job) -> Job:
    running = instance.running_job.get(job.id)
    if running is None:
        return replace(job, preemptible=False)
    most, once_more = job.max_preemptions, running.preemptions + 1
    return (
        job if most is not None and most <= once_more else replace(job, max_preemptions=once_more)
    )


def saved_later(instance: Instance, plan: Plan) -> list[str]:
    """Return the running jobs that the plan preempts later than now, before a window."""
    return [
        entry.id
        for entry in plan.jobs
        if entry.id in instance.running_job
        and _pieces(entry) > 1
        and not _saves_first(instance, entry)
    ]


class PreemptingFirst:
    """Policy: preempt some running jobs now, and go on as another policy does."""

    def __init__(self, job_ids: Collection[str], policy: "Policy") -> None:
        self.name, self.title = policy.name, policy.title
        self._job_ids, self._policy = job_ids, policy

    def decide(self, world: "World") -> None:
        """Preempt those that may be, at the first decision; decide as the other policy."""
        for job_id in self._job_ids:
            if world.may_preempt(job_id):
                world.preempt(job_id)
        self._job_ids = ()
        self._policy.decide(world)


def _pieces(entry: JobPlan) -> int:
    return 1 + sum(
        not _goes_on(a, b) for a, b in zip(entry.segments, entry.segments[1:], strict=False)
    )


def _goes_on(a: Segment, b: Segment) -> bool:
    """Return whether `b` continues `a` without stopping."""
    return (
        abs(b.start_s - a.end_s) <= TIME_TOLERANCE_S
        and a.placement == b.placement
        and a.mode.unshared == b.mode.unshared
    )


def _saves_first(instance: Instance, entry: JobPlan) -> bool:
    """Return whether the first piece is the checkpoint of a running job that is preempted now."""
    running = instance.running_job.get(entry.id)
    if running is None or entry.decision == "continue":
        return False
    first = entry.segments[0]
    return (
        first.start_s <= instance.now_s + TIME_TOLERANCE_S
        and first.placement == running.placement
        and first.mode.size == running.mode.size
    )
