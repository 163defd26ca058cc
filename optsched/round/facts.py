"""What a round needs to know of each active job, as columns."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..model.cluster import gpu_caps
from ..model.instance import Instance, Running
from ..model.job import Job, first_come
from ..physics import (
    TIME_TOLERANCE_S,
    hold_to_save_s,
    lost_s,
    may_preempt,
    placed_rate,
    remaining_after_preemption_s,
    unsaved_s,
)
from ..physics.catalogue import catalogue_of
from .deadline import Deadline
from .model import Bools, Floats, Ints, is_second
from .patterns import Pattern, patterns

SETTLE = 10.0
"""A job that was preempted before is left alone until it has run this many times what a preemption
costs it."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Facts:
    """The active jobs in the order of the instance; `never` are those that could run but for what
    they ask.

    `kept` are the positions of the running ones. `save_s` is how long a preempted job holds its
    GPUs, `load_s` start-up (and restore, for one that ran before), `lost_s` the productive seconds
    and `lost_work_s` the reference work that a preemption would lose, `setup_left_s` start-up still
    to go, `rate` the present rate, `peace_s` how long a job that was preempted before has run since
    (infinite for others). `must` says that the job must be kept (see `build`).
    """

    jobs: list[Job]
    running: list[Running | None]
    patterns: list[tuple[Pattern, ...]]
    never: list[Job]
    kept: Ints
    remaining_s: Floats
    save_s: Floats
    load_s: Floats
    lost_s: Floats
    lost_work_s: Floats
    setup_left_s: Floats
    rate: Floats
    peace_s: Floats
    must: Bools

    @property
    def cost_s(self) -> Floats:
        """Seconds that a preemption costs each running job."""
        return self.save_s + self.load_s + self.lost_s

    @cached_property
    def position(self) -> dict[str, int]:
        """The position of each job by its id."""
        return {job.id: j for j, job in enumerate(self.jobs)}

    def entry(self, j: int) -> Running:
        """Return what running job `j` holds."""
        entry = self.running[j]
        assert entry is not None
        return entry


def read_facts(instance: Instance, keep: Collection[str], deadline: Deadline) -> Facts:
    """Read them off an instance; `keep` are running jobs that must be kept for reasons of their
    own."""
    deadline.check()
    jobs, running, options, never = _active(instance, keep, deadline)
    count = len(jobs)
    kept = np.array([j for j, entry in enumerate(running) if entry is not None], dtype=np.int64)
    suspended = instance.suspended_job
    ran = np.array([job.id in suspended for job in jobs], dtype=bool)
    ran[kept] = True
    facts = Facts(
        jobs=jobs,
        running=running,
        patterns=options,
        never=never,
        kept=kept,
        remaining_s=np.array(
            [
                instance.remaining_s(job) if entry is None else entry.remaining_s
                for job, entry in zip(jobs, running, strict=True)
            ],
            dtype=float,
        ),
        save_s=np.zeros(count),
        load_s=np.array([job.profile.startup_s for job in jobs], dtype=float)
        + np.where(ran, np.array([job.profile.restore_s for job in jobs], dtype=float), 0.0),
        lost_s=np.zeros(count),
        lost_work_s=np.zeros(count),
        setup_left_s=np.zeros(count),
        rate=np.ones(count),
        peace_s=np.full(count, np.inf),
        must=np.zeros(count, dtype=bool),
    )
    rates = _rates(instance, [(jobs[j], facts.entry(j)) for j in kept.tolist()], deadline)
    for j, rate in zip(kept.tolist(), rates, strict=True):
        deadline.check()
        entry, job = facts.entry(j), jobs[j]
        facts.rate[j] = rate
        facts.save_s[j] = hold_to_save_s(job)
        if job.profile.checkpoint_every_s is not None:
            facts.lost_s[j] = lost_s(job, unsaved_s(entry, instance.now_s))
            facts.lost_work_s[j] = remaining_after_preemption_s(instance, entry) - entry.remaining_s
        facts.setup_left_s[j] = entry.setup_s
        if entry.preemptions:
            facts.peace_s[j] = instance.now_s - entry.started_s
        facts.must[j] = not may_preempt(instance, entry) or not options[j] or job.id in keep
    unsettled = facts.peace_s < SETTLE * facts.cost_s - TIME_TOLERANCE_S
    ends_first = facts.setup_left_s + facts.remaining_s / facts.rate <= facts.save_s
    facts.must[kept] |= (unsettled | ends_first)[kept]
    for j in kept[facts.must[kept]].tolist():  # the first of a pair is host to the second
        entry = facts.entry(j)
        if is_second(entry) and entry.mode.share_with in facts.position:
            facts.must[facts.position[entry.mode.share_with]] = True
    return facts


def _rates(
    instance: Instance, entries: list[tuple[Job, Running]], deadline: Deadline
) -> list[float]:
    """The present rates of running jobs. Those of the last round are known, as long as nothing has
    changed."""
    memo: dict[str, Any] = catalogue_of(instance).once("rates", dict)
    known: dict[str, tuple[Job, Running, float]] = memo.get("rates", {})
    now: dict[str, tuple[Job, Running, float]] = {}
    memo["rates"] = now
    for job, entry in entries:
        last = known.get(entry.job)
        if (
            last is None
            or entry.mode.share_with is not None
            or not (
                last[1].placement is entry.placement
                and last[1].mode is entry.mode
                and (
                    last[0] is job
                    or (
                        last[0].profile is job.profile
                        and last[0].gpus == job.gpus
                        and not job.modes
                    )
                )
            )
        ):
            deadline.check()
            last = job, entry, placed_rate(instance, job, entry.mode, entry.placement)
        now[entry.job] = last
    return [now[entry.job][2] for _, entry in entries]


def _active(
    instance: Instance, keep: Collection[str], deadline: Deadline
) -> tuple[list[Job], list[Running | None], list[tuple[Pattern, ...]], list[Job]]:
    catalogue, caps, now_s = catalogue_of(instance), gpu_caps(instance.tenants), instance.now_s
    memo: dict[str, Any] = catalogue.once("patterns by job", dict)
    known: dict[Job, tuple[Pattern, ...]] = memo.get("last round", {})
    seen: dict[Job, tuple[Pattern, ...]] = {}
    memo["last round"] = seen
    jobs: list[Job] = []
    running: list[Running | None] = []
    options: list[tuple[Pattern, ...]] = []
    never: list[Job] = []
    for job in sorted(instance.jobs, key=first_come):
        entry = instance.running_job.get(job.id)
        if entry is None and (job.submit_s > now_s or job.after):
            continue
        own = () if entry is not None and job.id in keep else known.get(job)
        if own is None:
            deadline.check()
            own = patterns(catalogue, caps, job)
        if own:
            seen[job] = own
        if entry is None and not own:
            never.append(job)
            continue
        jobs.append(job)
        running.append(entry)
        options.append(own)
    return jobs, running, options, never
