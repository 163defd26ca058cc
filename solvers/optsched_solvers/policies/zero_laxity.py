"""Smallest service first, until a limit on makespan or finish-time fairness leaves a job no time to
lose."""

import math
from typing import Annotated

from annotated_types import Ge, Gt

from optsched.driver import World
from optsched.physics import TIME_TOLERANCE_S, setup_s
from optsched.plugins.options import Duration, PluginOptions, declared_options

from .parts.preemptive import Preemptive

URGENT = 1e9
"""Taken off the laxity of urgent jobs, in seconds, so that they rank before all others: 30
years."""


class ZeroLaxity(Preemptive):
    """The jobs that are cheapest to finish run first, as long as everybody can still be done in
    time.

    The laxity of a job is the time until its due date less what it still has to run. Jobs with at
    most `margin` of it are urgent: they come first, the least laxity first. The others follow in
    order of the GPU time that they have left for each unit of weight. A running job counts as
    nearer to its end, or shorter of time, by what a preemption would cost it. Two limits make due
    dates, the earlier one counts:

    - All are to be done within `makespan` times what the jobs need at least. Whenever jobs come,
      the longest one, and the GPU time that all have left over the number of GPUs, bound the end of
      the jobs there are.
    - A job is to take at most `fairness` times as long as with its fair share: its run time alone,
      times the number of jobs that have come so far for each GPU, at least 1. That is how
      Shockwave's simulator measures finish-time fairness; of a gang it asks as much as of one GPU.

    So a job that is nearly as long as everything together takes starts at once, and one that would
    be done in time anyway never hinders a shorter one. Where run times are estimates, the limit on
    the makespan counts on jobs that are `doubt` times as long as they are believed to be, and its
    bound on a longest one that is as many times shorter. Nothing is known of jobs to come. A job
    that cannot be in time any more stays urgent. It is decided at every event, when the next
    waiting job becomes urgent, and every `margin` while an urgent job waits; where decisions come
    in rounds, `margin` should be no shorter than a round.
    """

    name = "zero-laxity"
    title = "least GPU time left first, until a limit on makespan or fairness leaves a job no time to lose"  # noqa: E501

    @declared_options
    class Options(PluginOptions):
        makespan: Annotated[
            float | None, Ge(1), "The limit on the makespan, as a multiple of its bound."
        ] = 1.02
        fairness: Annotated[
            float | None, Gt(0), "The limit on a job's time, as a multiple of its fair one."
        ] = 1.2
        margin_s: Annotated[Duration, "The laxity at which a job becomes urgent."] = 120.0
        doubt: Annotated[
            float,
            Ge(1),
            "Where run times are estimates, the makespan is limited as if each job could run so "
            "many times as long, or as short.",
        ] = 1.5

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.makespan = math.inf if options.makespan is None else options.makespan
        self.fairness = math.inf if options.fairness is None else options.fairness
        self.margin_s, self.doubt = options.margin_s, options.doubt
        self._come: dict[str, None] = {}
        self._end_s = -math.inf

    def decide(self, world: World) -> None:
        """Put all in order anew, then start, claim or evict."""
        first = not self._come
        self._note(world, [*world.take_arrived(), *(world.running if first else ())])
        world.take_released()
        if not world.waiting:
            return
        self.put_in_order(world, world.waiting)
        moment = self.moment(world)
        moment.decide()
        times_s = [self._next_s(world, job_id) for job_id in world.waiting]
        wake_s = min([moment.recheck_s, *times_s])
        if world.now_s < wake_s < math.inf and not world.idle:
            world.wake_at(wake_s)

    def rank(self, world: World, job_id: str) -> float:
        """Return laxity, far below 0, of an urgent job, else GPU-seconds left for each unit of
        weight."""
        job, left_s = world.job(job_id), _left_s(world, job_id)
        pause_s = job.profile.checkpoint_s + setup_s(job, True) if job_id in world.running else 0.0
        laxity_s = self._laxity_s(world, job_id, left_s)
        if laxity_s <= self.margin_s + TIME_TOLERANCE_S:
            return laxity_s - pause_s - URGENT
        return (
            world.service_gpus(job_id) * max(0.0, left_s - pause_s) / job.weight
            if job.weight > 0
            else math.inf
        )

    def _laxity_s(self, world: World, job_id: str, left_s: float) -> float:
        """Return how long a job with `left_s` to run can wait; infinite without a limit."""
        laxity_s, start_s = math.inf, world.instance.now_s
        if self.makespan < math.inf:
            due_s = start_s + self.makespan * max(0.0, self._end_s - start_s)
            laxity_s = due_s - world.now_s - left_s * self._doubted(world)
        if self.fairness < math.inf and world.options(job_id):
            jobs = max(1.0, len(self._come) / max(1, world.cluster.total_gpus))
            alone_s = world.believed_work_s(job_id) / world.fastest(job_id).rate
            due_s = world.order(job_id)[0] + self.fairness * jobs * alone_s
            laxity_s = min(laxity_s, due_s - world.now_s - left_s)
        return laxity_s

    def _doubted(self, world: World) -> float:
        """Return how many times as long as believed a job may run."""
        return 1.0 if world.knows_run_times else self.doubt

    def _next_s(self, world: World, job_id: str) -> float:
        """Return when a waiting job will become urgent; if it is, when to see whether it has become
        more so than others."""
        left_s = world.fastest_finish_s(job_id)
        spare_s = self._laxity_s(world, job_id, left_s) - self.margin_s
        return world.now_s + (spare_s if spare_s > TIME_TOLERANCE_S else max(1.0, self.margin_s))

    def _note(self, world: World, jobs: list[str]) -> None:
        """Note who has come, and what they say of the earliest end of all there are."""
        new = [job_id for job_id in jobs if job_id not in self._come]
        if not new:
            return
        self._come.update(dict.fromkeys(new))
        gpu_s = longest_s = 0.0
        for job_id in (*world.waiting, *world.running):
            if world.options(job_id):
                left_s = _left_s(world, job_id)
                longest_s = max(longest_s, left_s / self._doubted(world))
                gpu_s += left_s * world.fastest(job_id).mode.gpus
        self._end_s = max(
            self._end_s, world.now_s + max(longest_s, gpu_s / max(1, world.cluster.total_gpus))
        )


def _left_s(world: World, job_id: str) -> float:
    """Return seconds to completion: of a running job where it is, else in the fastest option."""
    if job_id in world.running:
        return world.expected_release_s(job_id) - world.now_s
    return world.fastest_finish_s(job_id)
