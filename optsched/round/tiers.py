"""Priorities, and who borrows: the jobs of a round in tiers, each decided on what those above it
leave."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from ..driver.borrowing import borrowers, borrows, may_borrow, priority_of, rank_of
from ..frozen import record
from ..model import Instance, Job, Running, Suspended
from ..objectives import MOST_TIERS
from ..physics import may_preempt, remaining_after_preemption_s
from .model import Bools, Floats
from .place import Packing
from .plan import JobRound


@record
class Part:
    """The jobs of one tier as a round of their own.

    `instance` has the jobs of the tier, and those running jobs of lower tiers that `give_way` to
    them, with how many tiers they are below; `around` are all others that hold something, `keep`
    those running jobs of the tier that must be kept. `decided` is what is known by now: of the
    jobs of higher tiers, and who made way for them. `rank` is the priority of its jobs as it counts
    (see `driver.borrowing`).
    """

    rank: int
    names: frozenset[str]
    instance: Instance
    around: tuple[tuple[Job, Running], ...]
    keep: frozenset[str]
    give_way: Mapping[str, int]
    decided: Mapping[str, JobRound]


class Tiers:
    """The tiers of a round, the highest first.

    `keep` are running jobs that must be kept, of which some, `unless_higher`, make way for jobs of
    higher priorities. Jobs that borrow are below all others, in at most `MOST_TIERS` of their own.
    """

    def __init__(
        self, instance: Instance, keep: Collection[str], unless_higher: Collection[str]
    ) -> None:
        self._instance, self._keep, self._unless_higher = instance, keep, unless_higher
        of = instance.cluster.preempts
        self.parts: list[Part] = []
        self.is_one = not (of or may_borrow(instance.tenants)) and _are_alike(instance)
        if self.is_one:
            return
        ranks = _ranks(instance)
        distinct = set(ranks.values())
        self.order: list[int] = []
        tier: dict[int, int] = {}
        for lend in (False, True):
            own = sorted((rank for rank in distinct if borrows(rank) == lend), reverse=True)
            self.order += own[:MOST_TIERS]
            last = len(self.order) - 1
            tier |= {rank: last for rank in own} | {r: k for k, r in enumerate(self.order)}
        self._preempts = [of.get(priority_of(rank), "any") for rank in self.order]
        self.is_one = not self.order or self._preempts == ["any"]
        self._tier = {} if self.is_one else {name: tier[rank] for name, rank in ranks.items()}
        self._decided: dict[str, JobRound] = {}
        self._frozen = False

    @property
    def left(self) -> int:
        """Return how many tiers are to be decided, with the one that is."""
        return 1 + len(self.order) - len(self.parts)

    def next(self) -> Part | None:
        """Return what is to be decided next, None where all tiers are."""
        if len(self.parts) == len(self.order):
            return None
        self.parts.append(self._part(len(self.parts)))
        return self.parts[-1]

    def _part(self, k: int) -> Part:
        instance, preempts = self._instance, self._preempts[k]
        names = {name for name, tier in self._tier.items() if tier == k}
        none = self._frozen or preempts == "never"
        give_way: dict[str, int] = {}
        running: list[Running] = []
        around: list[tuple[Job, Running]] = []
        suspended = [entry for entry in instance.suspended if entry.job in names]
        for entry in instance.running:
            name, below = entry.job, self._tier[entry.job] - k
            decided = self._decided.get(name)
            if below > 0 and decided is None:
                partner = instance.running_job.get(entry.mode.share_with or "")
                if none or any(self._must_stay(own) for own in (entry, partner) if own):
                    around.append((instance.job[name], entry))
                else:
                    give_way[name] = below
                    running.append(self._as_left(entry))
            elif below == 0 and decided is None:
                running.append(self._as_left(entry))
            elif below == 0:
                left_s = remaining_after_preemption_s(instance, entry)
                suspended.append(
                    Suspended(job=name, remaining_s=left_s, preemptions=entry.preemptions + 1)
                )
        around += [
            (instance.job[name], _held(instance, entry))
            for name, entry in self._decided.items()
            if entry.mode is not None
        ]
        keep = {
            entry.job
            for entry in running
            if entry.job in names and (none or preempts == "lower" or entry.job in self._keep)
        }
        jobs = tuple(job for job in instance.jobs if job.id in names or job.id in give_way)
        own = _only(instance, jobs, running, suspended)
        return Part(
            rank=self.order[k],
            names=frozenset(names),
            instance=own,
            around=tuple(around),
            keep=frozenset(keep),
            give_way=give_way,
            decided=dict(self._decided),
        )

    def settle(self, part: Part, jobs: Collection[JobRound], never: Collection[str]) -> None:
        """Note what was decided of a tier, and of those who gave way to it.

        While a job waits that may preempt nobody, nobody below it does: what came free by that
        would be for the one above.
        """
        for entry in jobs:
            if entry.id in part.names or (entry.id in part.give_way and entry.mode is None):
                self._decided[entry.id] = entry
            if entry.id in part.names and entry.mode is None and entry.id not in never:
                self._frozen |= self._preempts[len(self.parts) - 1] == "never"

    def _as_left(self, entry: Running) -> Running:
        """Return a running job, alone on its GPUs where its partner made way."""
        partner = self._decided.get(entry.mode.share_with or "")
        if partner is None or partner.mode is not None:
            return entry
        return replace(entry, mode=entry.mode.unshared)

    def _must_stay(self, entry: Running) -> bool:
        """Return whether not even jobs of higher priorities preempt a running job."""
        kept = entry.job in self._keep and entry.job not in self._unless_higher
        return kept or not may_preempt(self._instance, entry)


def _are_alike(instance: Instance) -> bool:
    """Return whether all jobs have one priority."""
    return len({job.priority for job in instance.jobs}) <= 1


def _ranks(instance: Instance) -> dict[str, int]:
    """Return the priority of each job that runs or could start, as it counts; two that share GPUs
    have the higher one of theirs."""
    running, now_s, borrowing = instance.running_job, instance.now_s, borrowers(instance)
    ranks = {
        job.id: job.priority
        for job in instance.jobs
        if job.id in running or (job.submit_s <= now_s and not job.after)
    }
    ranks |= {name: rank_of(ranks[name], borrows=True) for name in borrowing}
    for entry in instance.running:
        partner = entry.mode.share_with
        if partner in ranks:
            ranks[entry.job] = max(ranks[entry.job], ranks[partner])
    return ranks


def _held(instance: Instance, entry: JobRound) -> Running:
    """Return what a job is to hold as if it held it already."""
    assert entry.mode is not None
    left_s = instance.remaining_s(instance.job[entry.id])
    return Running(job=entry.id, mode=entry.mode, placement=entry.placement, remaining_s=left_s)


def _only(
    instance: Instance, jobs: tuple[Job, ...], running: list[Running], suspended: list[Suspended]
) -> Instance:
    """Return the instance with these jobs alone."""
    return Instance(
        name=instance.name,
        now_s=instance.now_s,
        cluster=instance.cluster,
        tenants=instance.tenants,
        jobs=jobs,
        running=tuple(running),
        suspended=tuple(suspended),
    )


def filled_up(packing: Packing) -> Packing:
    """Return the packing with all its jobs, and those that wait wherever there would be room for
    them if all who give way left; of these all go on that then still can, the highest first."""
    model = packing.model
    options, first = model.options, model.options.first
    leave = (model.depth > 0) & ~model.must
    filled = Packing(model)
    filled.take_over(packing, leave)
    filled.nodes.reserve()
    best = np.maximum.reduceat(options.value, first[:-1])
    for j in _in_order(-best, (filled.chosen < 0) & ~leave):
        any(filled.put(j, option) for option in options.ranked(j, options.value))
    filled.nodes.open_reserved()
    for j in _in_order(-best, leave):
        filled.put(j, int(first[j]))
    return filled


def _in_order(key: Floats, which: Bools) -> list[int]:
    """Return the positions of some jobs, those of the lowest key first."""
    jobs = np.flatnonzero(which)
    order: list[int] = jobs[np.argsort(key[jobs], kind="stable")].tolist()
    return order
