"""The present of a simulation as an instance: what a policy that decides by optimization solves."""

import math
from collections.abc import Iterable, Set
from dataclasses import replace
from functools import partial

from ..files.faults import REMAINING_TOLERANCE
from ..frozen import record
from ..model import Cluster, Instance, Job, Placement, Running, Slot, Suspended, first_come
from ..physics import swap_s
from .blocked import amounts, beneath, blocked_places
from .view import LEAST_RANK_S, PolicyError
from .world import World

TURNS = 7.0
"""While others wait, a running job of rank r whose swap takes c counts as if its rank were
r / (1 + TURNS sqrt(c / r))."""


@record
class Snapshot:
    """The present, and what is not there to be given away.

    `blocked` is what jobs hold that are being preempted, which are not among the jobs of
    `instance`, what is claimed, and nodes that are lost. `pinned` are running jobs that were not to
    be preempted.
    """

    instance: Instance
    blocked: tuple[Placement, ...] = ()
    pinned: Set[str] = frozenset()


def snapshot(
    world: World,
    *,
    jobs: Iterable[str] | None = None,
    known: dict[str, Job] | None = None,
    by_rank: bool = False,
) -> Snapshot:
    """Return the running and the waiting jobs (of these only `jobs`, if given) as an instance whose
    `now_s` is the present. O(jobs), with the cluster, the tenants and most job objects of the
    simulation's own instance.

    - The work of a job and what is left of it is what the policy may know (`World.believed_work_s`,
      `World.remaining_work_s`): a job believed to be longer or shorter than it is has that length.
    - `after` is empty: predecessors have completed. Jobs still to arrive are not there.
    - A budget is what is left of it for these jobs once those not among them have the least they
      need. The cluster is the simulation's own unless it has budgets.
    - A job whose partner is saving appears as if it were alone already.
    - With `by_rank` a job has its rank left (`World.rank_work_s`), not what is believed; a running
      one less (`_ranked_s`).
    - `known` are the jobs as they were in snapshots before; those whose length still fits what they
      have left are the same objects again, so that what was derived from them can be, too.

    Raises PolicyError where one of `jobs` neither waits nor runs.
    """
    seen = world.seen(world.waiting if jobs is None else jobs)
    if seen is not None and not by_rank:
        return seen
    wanted = (
        [*world.waiting]
        if jobs is None
        else [job_id for job_id in jobs if job_id not in world.running]
    )
    for job_id in wanted:
        if job_id not in world.waiting:
            raise PolicyError(
                f"no snapshot with job {job_id} at {world.now_s:g} s: it neither waits nor runs"
            )
    chosen = sorted(
        dict.fromkeys([*wanted, *world.running]), key=lambda job_id: first_come(world.job(job_id))
    )
    left_of = partial(_ranked_s, world) if by_rank else world.remaining_work_s
    left_s = [left_of(name) for name in chosen]
    entries = [world.entry(job_id, left) for job_id, left in zip(chosen, left_s, strict=True)]
    before = {} if known is None else known
    now_known = [
        _as_known(world, job_id, left, entry, before)
        for job_id, left, entry in zip(chosen, left_s, entries, strict=True)
    ]
    if any(job.modes for job in now_known):
        entries = [
            with_its_length(entry, job, world.job(job.id))
            for entry, job in zip(entries, now_known, strict=True)
        ]
    instance = Instance(
        name=f"{world.instance.name} at {world.now_s:.12g}",
        now_s=world.now_s,
        cluster=_with_budgets_left(world, chosen),
        tenants=world.instance.tenants,
        jobs=tuple(now_known),
        running=tuple(entry for entry in entries if isinstance(entry, Running)),
        suspended=tuple(entry for entry in entries if isinstance(entry, Suspended)),
    )
    return Snapshot(instance, _blocked(world))


def _ranked_s(world: World, job_id: str) -> float:
    """Return the rank of a job, of a running one less while others wait: served in turn, jobs of
    uncertain length would pass each other again and again. Where a swap costs c, turns grow with
    sqrt(c x rank) so."""
    rank_s = world.rank_work_s(job_id)
    if job_id not in world.running or not world.waiting:
        return rank_s
    turn_s = swap_s(world.job(job_id))
    return max(LEAST_RANK_S, rank_s / (1 + TURNS * math.sqrt(turn_s / rank_s)))


def _as_known(
    world: World,
    job_id: str,
    left_s: float,
    entry: Running | Suspended | None,
    known: dict[str, Job],
) -> Job:
    """Return the job without its predecessors, as long as it is believed to be, or as is left."""
    job, own = known.get(job_id), world.job(job_id)
    if job is None:
        job = replace(own, after=()) if own.after else own
    elif job.weight != own.weight:
        job = replace(job, weight=own.weight)
    work_s = left_s
    if entry is not None:
        work_s = max(world.believed_work_s(job_id), entry.remaining_s)
    same = abs(work_s - job.work_s) <= REMAINING_TOLERANCE * job.work_s
    known[job_id] = job if same else of_length(job, work_s)
    return known[job_id]


def with_its_length(
    entry: Running | Suspended | None, job: Job, own: Job
) -> Running | Suspended | None:
    """Return the entry of a job that is known to be longer or shorter than its `own` listed modes
    say."""
    if not isinstance(entry, Running) or entry.mode.duration_s is None or job.work_s == own.work_s:
        return entry
    # the mode of the same place in the list: only then is its length the very same number
    place = next(i for i, mode in enumerate(own.modes) if mode.duration_s == entry.mode.duration_s)
    return replace(entry, mode=replace(entry.mode, duration_s=job.modes[place].duration_s))


def of_length(job: Job, work_s: float) -> Job:
    """Return the job with so much work."""
    if not job.modes:
        return replace(job, duration_s=work_s)
    longer = work_s / job.work_s
    modes = tuple(replace(mode, duration_s=(mode.duration_s or 0.0) * longer) for mode in job.modes)
    return replace(job, modes=modes)


def _with_budgets_left(world: World, jobs: list[str]) -> Cluster:
    cluster = world.cluster
    if not cluster.budgets:
        return cluster
    left = list(world.free.left)  # of budgets what is beyond the least that unfinished jobs need
    most_needed = [0.0] * len(left)
    for job_id in jobs:
        for row, amount in world.least_budgets(job_id).items():
            left[row] += amount
            most_needed[row] = max(amount, most_needed[row])
        if job_id in world.running:
            for row, amount in world.hold(job_id).need.budgets:
                left[row] += amount
    budgets = {  # whatever the rounding
        name: max(left[row], most_needed[row])
        for name, row in world.free.layout.table.budgets.items()
    }
    return replace(cluster, budgets=budgets)


def _blocked(world: World) -> tuple[Placement, ...]:
    """Return what is being saved, lost or claimed, on each node the more: claims are mostly on what
    is being saved."""
    saving = (_held_by_saving(world, job_id) for job_id in world.saving)
    taken = amounts(saving, world.held_by_others())
    for name in world.lost:
        node = world.cluster.node[name]
        taken[name] = [node.gpus, node.cpus or 0]
    claimed = amounts(placement for _, placement in world.claims.values())
    return blocked_places(beneath(taken, claimed), world.cluster.node_order)


def _held_by_saving(world: World, job_id: str) -> Placement:
    """Return what a job holds that is being preempted: shared GPUs only where no other is said to
    hold them, a running partner or of two saving ones the last in order."""
    hold = world.hold(job_id)
    partner = hold.partner
    if partner is not None and (partner in world.running or partner > job_id):
        return tuple(Slot(node=slot.node, cpus=slot.cpus) for slot in hold.placement)
    return hold.placement
