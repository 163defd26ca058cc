"""The place that is kept for a live job that has waited too long, by the rule of `Reservations`."""

import math
from collections.abc import Collection, Iterator, Sequence

from ..driver.reservation import Claimed, Reservations, patience_s
from ..driver.world import World
from ..model.cluster import Cluster
from ..model.instance import Instance, Placement, Slot
from ..model.job import Job, first_come
from ..physics.catalogue import Catalogue
from .journal.events import Claim
from .journal.state import LiveJob, State
from .live_world import LiveWorld
from .posing import only
from .present import as_waiting, start_setup_s


def protected(state: State) -> set[str]:
    """Return the jobs that have started on their reservation: they are not preempted."""
    return {
        attempt.key.job
        for attempt in state.live_attempts()
        if attempt.reserved and not attempt.leaving
    }


class LiveReservations(Reservations):
    """Keeps at most one reservation from round to round; after a crash it is made anew."""

    def claim(
        self,
        instance: Instance,
        state: State,
        closed: Collection[str],
        strangers: Sequence[Placement] = (),
    ) -> Claim | None:
        """Keep the reservation there is, or make one for who is entitled to it. Return a claim for
        its job as soon as there is room for that.

        `instance` is the checked present; nodes that are `closed`, or where attempts of
        `strangers` are, give no place.
        """
        kept = None if self.current is None else self.current.job
        runs = instance.running_job
        names = {
            job.id
            for job in instance.jobs
            if job.id in runs or job.id == kept or _waits_long(state, instance, job)
        }
        if len(names) == len(runs):
            self.current = None
            return None
        world = LiveWorld(only(instance, names), state)
        world.follow(world.instance, (), closed)
        self.protected = protected(state)
        self._nowhere.clear()
        claimed = list(_held(instance, state))
        shut = {*closed, *(slot.node for placement in strangers for slot in placement)}
        claimed += [
            ((Slot(node=node.name, gpus=node.gpus, cpus=node.cpus or 0),), math.inf)
            for node in instance.cluster.nodes
            if node.name in shut
        ]
        self.renew(world, claimed=claimed)
        for placement, _ in claimed:
            for slot in placement:
                world.free.seize(slot.node, slot.gpus, slot.cpus)
        found = self.place(world)
        if found is None or self.current is None:
            return None
        job_id, self.current = self.current.job, None
        return Claim(job=job_id, mode=found[0].mode, placement=found[1], reserved=True)

    def entitled(self, world: World) -> list[str]:
        """Return those whose patience is over now, in the order of submission."""
        return [
            job.id
            for job in sorted(world.waiting.values(), key=first_come)
            if world.waited_s(job.id)
            >= patience_s(world.fewest_gpus(job.id), world.fastest_finish_s(job.id))
        ]

    def places(self, now_s: float) -> tuple[tuple[Placement, float], ...]:
        """Return the place that is kept, and in how many seconds it is due."""
        kept = self.current
        return () if kept is None else ((kept.placement, max(0.0, kept.due_s - now_s)),)


def _waits_long(state: State, instance: Instance, job: Job) -> bool:
    """Whether a job has waited for so long that it might be entitled, whatever it runs."""
    gpus = 1 if job.gpus in (0, 1) and not job.modes else 2
    return state.waited_s(state.jobs[job.id], instance.now_s) >= patience_s(gpus, 0.0)


def _held(instance: Instance, state: State) -> Iterator[Claimed]:
    """Yield what is held by attempts that are not in the instance, and what is claimed."""
    now_s, nodes = instance.now_s, instance.cluster.node
    for attempt in state.live_attempts():
        if attempt.key.job not in instance.running_job:
            placement = tuple(slot for slot in attempt.placement if slot.node in nodes)
            leaves_s = math.inf
            if attempt.stop_s is not None:
                leaves_s = max(now_s, attempt.stop_s + attempt.grace_s)
            yield placement, leaves_s
    for claim in state.claims.values():
        if all(slot.node in nodes for slot in claim.placement):
            yield claim.placement, now_s + _runs_s(instance.cluster, state.jobs[claim.job])


def _runs_s(cluster: Cluster, job: LiveJob) -> float:
    """Return how long a job is believed to run at best."""
    rate = max(
        (option.rate for option in Catalogue.of(cluster).options(as_waiting(job))), default=0.0
    )
    return start_setup_s(job) + job.left_s / rate if rate else math.inf
