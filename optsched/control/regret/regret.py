"""How far what really happened was from what nobody could have beaten who had known everything
beforehand."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain, groupby
from statistics import fmean
from typing import Any

from ...bounds import lower_bounds, priced_bound
from ...errors import InputError
from ...files import check_instance
from ...frozen import frozen
from ...model import Cluster, Instance, Job, Node, Tier
from ...objectives import fastest_s, parse
from ...physics.catalogue import Catalogue
from ..journal.journal import Journal
from ..journal.state import PREEMPTIONS, LiveJob
from ..learned import NEVER_S
from .past import stored
from .spent import PARTS, Past, Spent

HOUR_S = 3600.0
LEAST_WORK_S = 0.001
WCT = "wct"


@frozen
class Slice:
    """Jobs released in one stretch of time: mean seconds from release to completion by what they
    are made of (see `spent.PARTS`), and a bound on the mean had there been no other jobs."""

    from_s: float
    to_s: float
    jobs: int
    mean_s: float
    bound_s: float
    parts_s: dict[str, float]


@frozen
class Regret:
    """What became of the `jobs` jobs that did useful work in the period (Unix times). Of them
    `completed` have completed in it; the others count as if what they had done by then were all
    they had to do, to the end of that.

    `mean_s` is their mean time from release to completion, `bound_s` what no schedule of these very
    jobs on all nodes there were can have less of, even one that knows all arrivals and lengths
    beforehand and loses nothing to failures; `gap` is (mean - bound) / mean. The weighted pair are
    sums of weight times seconds. `parts_s` are means by what the time is made of; the work is split
    into what it takes `alone` at its fastest and what it took longer (`slower`). `instance` has the
    jobs with their true work, `costed` the same with what it costs to preempt them, and whether
    they may be. Of what was before `kept_s` jobs or rounds were dropped.
    """

    from_s: float
    to_s: float
    jobs: int
    completed: int
    left_out: dict[str, int]
    mean_s: float
    bound_s: float
    source: str
    weighted: float | None
    weighted_bound: float | None
    parts_s: dict[str, float]
    preemptions: int
    failures: int
    slices: tuple[Slice, ...]
    instance: Instance
    costed: Instance
    kept_s: float | None = None

    @property
    def gap(self) -> float:
        """Return (mean - bound) / mean."""
        return max(0.0, self.mean_s - self.bound_s) / self.mean_s if self.mean_s else 0.0


def regret(
    journal: Journal,
    *,
    from_s: float | None = None,
    to_s: float | None = None,
    steps: int | None = None,
) -> Regret:
    """Measure a period, the whole journal without one. `steps` is the search for the bound (see
    `bounds.priced_bound`).

    Raises InputError where no job did anything in the period, JournalError where the journal is
    damaged.
    """
    past = Past(journal.entries())
    kept_s = _kept_s(journal)
    begin_s, end_s = _period(journal, past, kept_s, from_s, to_s)
    spent = past.spent(begin_s, end_s)
    if not spent:
        raise InputError(f"{journal.path}: no job did anything in this period")
    cluster, names = _cluster(journal, spent), {own.job.id for own in spent}
    jobs = tuple(_true_job(cluster, own, names) for own in spent)
    instance = Instance(
        name="what happened", now_s=min(own.release_s for own in spent), cluster=cluster, jobs=jobs
    )
    check_instance(instance)
    even = replace(instance, jobs=tuple(replace(job, weight=1.0) for job in jobs))
    mean_s = fmean(own.took_s for own in spent)
    bound, _ = priced_bound(even, parse(WCT), steps)
    weighted = weighted_bound = None
    if any(job.weight != jobs[0].weight for job in jobs):
        weighted = math.fsum(own.job.submission.job.weight * own.took_s for own in spent)
        weighted_bound = min(weighted, priced_bound(instance, parse(WCT), steps)[0].value)
    everyone = past.state.jobs.values()
    preemptions, failures = _stops(everyone, begin_s, end_s)
    return Regret(
        from_s=begin_s,
        to_s=end_s,
        jobs=len(spent),
        completed=sum(own.completed for own in spent),
        left_out=_left_out([job for job in everyone if job.id not in names], begin_s, end_s),
        mean_s=mean_s,
        bound_s=min(mean_s, bound.value / len(spent)),
        source=bound.source,
        weighted=weighted,
        weighted_bound=weighted_bound,
        parts_s=_parts(instance, spent),
        preemptions=preemptions,
        failures=failures,
        slices=tuple(_slices(even, spent)),
        instance=instance,
        costed=replace(instance, jobs=tuple(map(_costed, spent, jobs))),
        kept_s=kept_s,
    )


def _period(
    journal: Journal, past: Past, kept_s: float | None, from_s: float | None, to_s: float | None
) -> tuple[float, float]:
    """Return the ends of the period, of what is there where they are not given."""
    begin_s = past.begin_s if from_s is None else from_s
    if begin_s is None:
        raise InputError(f"{journal.path}: nothing has happened yet")
    if kept_s is not None and begin_s < kept_s:
        if from_s is not None:
            since = datetime.fromtimestamp(kept_s).strftime("%Y-%m-%d %H:%M")
            raise InputError(
                f"{journal.path}: of what was before {since} jobs or rounds were dropped, as "
                "[retention] says, so it cannot be measured; let the period begin later"
            )
        begin_s = kept_s
    return begin_s, past.end_s if to_s is None else to_s


def _stops(jobs: Iterable[LiveJob], begin_s: float, end_s: float) -> tuple[int, int]:
    """Count preemptions and failures of the period."""
    preemptions = failures = 0
    for attempt in chain.from_iterable(job.attempts for job in jobs):
        if attempt.ended is not None and begin_s < (attempt.ended_s or 0.0) <= end_s:
            preemptions += attempt.stop_why in PREEMPTIONS
            failures += attempt.stop_s is None and attempt.ended.exit_status != 0
    return preemptions, failures


def _left_out(others: list[LiveJob], begin_s: float, end_s: float) -> dict[str, int]:
    """Count jobs of the period that are not measured, by the reason."""
    return {
        "cancelled or failed": sum(
            job.finished in ("cancelled", "failed") and begin_s < (job.finished_s or 0.0) <= end_s
            for job in others
        ),
        "not begun by then": sum(
            job.submit_s <= end_s and (job.finished_s is None or job.finished_s > end_s)
            for job in others
        ),
    }


def _kept_s(journal: Journal) -> float | None:
    """Return since when all jobs and all rounds are there; None where none were ever dropped."""
    pruned = journal.last_pruned()
    if pruned is None:
        return None
    since = (pruned.jobs_before_s, pruned.rounds_before_s)
    return max((at_s for at_s in since if at_s is not None), default=None)


def _cluster(journal: Journal, spent: Sequence[Spent]) -> Cluster:
    """Return all nodes there were in stored rounds, each as large as it ever was, and the last
    tiers; nothing that nodes share is kept, as less of it can only have made things worse."""
    nodes: dict[str, Node] = {}
    reference: str | None = None
    tiers: tuple[Tier, ...] = ()
    for number in _telling([entry.number for entry in journal.rounds()]):
        cluster = stored(journal, number)[0].cluster
        reference, tiers = cluster.reference_gpu, cluster.tiers
        for node in cluster.nodes:
            nodes[node.name] = _larger(nodes.get(node.name, node), node)
    for own in spent:
        for slot in (slot for attempt in own.job.attempts for slot in attempt.placement):
            if slot.node not in nodes:
                where = f"node {slot.node}, on which {own.job.id} ran"
                raise InputError(f"{where}, is in none of the rounds read")
    return Cluster(nodes=tuple(nodes.values()), reference_gpu=reference, tiers=tiers)


MOST_ROUNDS = 200


def _telling(numbers: list[int]) -> list[int]:
    """Return rounds to read nodes from: all, or evenly spread ones, the first and the last among
    them."""
    if len(numbers) <= MOST_ROUNDS:
        return numbers
    last = len(numbers) - 1
    return [numbers[round(i * last / (MOST_ROUNDS - 1))] for i in range(MOST_ROUNDS)]


def _larger(a: Node, b: Node) -> Node:
    """Return the later node with the more of both of each capacity; what is unlimited stays so."""
    most: dict[str, Any] = {}
    for name in ("gpus", "cpus", "memory_gib", "gpu_memory_gib"):
        sizes = getattr(a, name), getattr(b, name)
        most[name] = None if None in sizes else max(sizes)
    return replace(b, **most)


def _true_job(cluster: Cluster, spent: Spent, there: set[str]) -> Job:
    """Return the job as it turned out to be: its work as measured, and no set-up but that of its
    first attempt."""
    submitted = spent.job.submission.job
    profile = replace(
        submitted.profile,
        startup_s=min(submitted.profile.startup_s, spent.setup_s),
        restore_s=0.0,
        checkpoint_s=0.0,
        fetch_s=0.0,
        sharing=None,
    )
    job = replace(
        submitted,
        submit_s=spent.release_s,
        tenant=None,
        resources={},
        budgets={},
        profile=profile,
        deadline_s=None,
        duration_s=max(LEAST_WORK_S, spent.work_s),
        preemptible=True,
        min_run_s=0.0,
        max_preemptions=None,
        after=tuple(name for name in submitted.after if name in there),
    )
    able = Catalogue.of(cluster).options(job)
    if not able:
        raise InputError(f"job {job.id} ran, but fits on no node of the stored rounds")
    alone_s = min(option.run_s(job, job.work_s) for option in able)
    if alone_s > spent.parts["work"] > 0:  # what was measured of it later says that it is faster
        job = replace(job, duration_s=max(LEAST_WORK_S, job.work_s * spent.parts["work"] / alone_s))
    return job


def _costed(spent: Spent, true: Job) -> Job:
    """Return the job with its true work, what it was last known to cost to preempt it, and whether
    it may be: as that would lose all it did, not where nobody knows that it saves."""
    submission, known = spent.job.submission, spent.job.profile
    stated, costs = submission.job, ("restore_s", "checkpoint_s", "checkpoint_every_s", "fetch_s")
    return replace(
        true,
        profile=replace(true.profile, **{name: getattr(known, name) for name in costs}),
        preemptible=stated.preemptible
        and (bool(submission.preempt_unsaved) or known.checkpoint_every_s != NEVER_S),
        min_run_s=stated.min_run_s,
        max_preemptions=stated.max_preemptions,
    )


def _parts(instance: Instance, spent: Sequence[Spent]) -> dict[str, float]:
    """Return means of the parts, the work split in two; set-up that every job has once is with the
    work alone."""
    parts_s = {part: fmean(own.parts[part] for own in spent) for part in PARTS}
    jobs = [instance.job[own.job.id] for own in spent]
    fastest = zip(spent, jobs, strict=True)
    alone_s = fmean(min(own.parts["work"], fastest_s(instance, job)) for own, job in fastest)
    once_s = fmean(job.profile.startup_s for job in jobs)
    work_s = parts_s.pop("work")
    parts_s["switching"] -= once_s
    return {"alone": alone_s + once_s, "slower": work_s - alone_s, **parts_s}


def _slices(instance: Instance, spent: Sequence[Spent]) -> Iterator[Slice]:
    """Yield the jobs by the hour of their release."""

    def hour_of(own: Spent) -> int:
        return math.floor(own.release_s / HOUR_S)

    for hour, group in groupby(sorted(spent, key=hour_of), hour_of):
        here = [*group]
        jobs = instance.only({own.job.id for own in here})
        alone = replace(jobs, now_s=min(job.submit_s for job in jobs.jobs))
        [bound] = lower_bounds(alone, parse(WCT))
        mean_s = fmean(own.took_s for own in here)
        yield Slice(
            from_s=hour * HOUR_S,
            to_s=(hour + 1) * HOUR_S,
            jobs=len(here),
            mean_s=mean_s,
            bound_s=min(mean_s, bound.value / len(here)),
            parts_s=_parts(alone, here),
        )
