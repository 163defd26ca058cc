"""The decisions of a round: who runs, where and how, how good that is, and what each capacity
costs."""

import sys

from ..frozen import frozen
from ..model import CLOSED_GAP, Decision, Instance, Mode, Placement, Running, Status
from ..model.quantity import Amount, Worth

UNPROVED = sys.float_info.max
"""The bound where nothing is proved: no value is larger."""


BY_POLICY = "policy "
"""The name of the solver of a round up to that of the policy that decided it."""


@frozen
class JobRound:
    """One job: its decision, and what it holds until the next round (`mode` None: nothing)."""

    id: str
    decision: Decision
    mode: Mode | None = None
    placement: Placement = ()


@frozen
class RowPrice:
    """A capacity, how much of it is used, and what one unit of it costs in value."""

    name: str
    capacity: Amount
    used: Amount
    price: Worth


@frozen
class TierRound:
    """One of several tiers of a round: its priority, how many jobs of it run or could start, their
    value, and a proven limit on it given what the tiers above hold. `borrows` says that its jobs
    are beyond the quotas of their tenants."""

    priority: int
    jobs: int
    value: Worth
    bound: Worth
    borrows: bool = False

    @property
    def gap(self) -> float:
        """Return (bound - value) / value; 0 where they are equal."""
        return _gap(self.value, self.bound)


@frozen
class RoundSolution:
    """A verified round with its value, the proven limit on any round's value, and the prices that
    prove it.

    The value is maximised (see `value`), so `bound` is at least `value` and gap = (bound - value) /
    |value|. `bound_source` names what proved the bound. `never` has the jobs that no node can ever
    run. `closed` says whether the bound proves the value, where that is known better than from the
    gap. Where jobs have several priorities, or some borrow, `tiers` has each, the highest first,
    and value and bound are the sums over them: no round in which the tiers above each hold the same
    is worth more.
    """

    instance_name: str
    instance_hash: str | None
    now_s: float
    round_s: float
    refill: bool
    objective: str
    solver: str
    seed: int
    jobs: tuple[JobRound, ...]
    value: float
    bound: float
    bound_source: str
    prices: tuple[RowPrice, ...]
    never: tuple[str, ...] = ()
    wall_s: float | None = None
    fallback: str | None = None
    notes: tuple[str, ...] = ()
    closed: bool | None = None
    tiers: tuple[TierRound, ...] = ()

    @property
    def gap(self) -> float:
        """Return (bound - value) / |value|; 0 where they are equal."""
        return _gap(self.value, self.bound)

    @property
    def by_policy(self) -> bool:
        """Return whether a policy decided it, whose value was not asked."""
        return self.solver.startswith(BY_POLICY)

    @property
    def status(self) -> Status:
        closed = self.gap <= CLOSED_GAP if self.closed is None else self.closed
        return "optimal" if closed else "feasible"


def _gap(value: float, bound: float) -> float:
    if bound <= value:
        return 0.0
    return (bound - value) / abs(value) if value else float("inf")


def decision(instance: Instance, job_id: str, mode: Mode | None, placement: Placement) -> Decision:
    """Return the decision that holding `placement` in `mode` from now on is for a job."""
    entry = instance.running_job.get(job_id)
    if entry is None:
        if mode is None:
            return "wait"
        return "resume" if job_id in instance.suspended_job else "start"
    if mode is entry.mode and placement is entry.placement:
        return "continue"
    if mode is None:
        return "preempt"
    same_size = mode.size == entry.mode.size
    if same_size and set(placement) == set(entry.placement):
        return "continue"
    return "migrate" if same_size else "resize"


def standing(instance: Instance) -> tuple[JobRound, ...]:
    """Return the plan that changes nothing: running jobs go on, those that could start wait."""
    running, now_s = instance.running_job, instance.now_s
    jobs = []
    for job in instance.jobs:
        entry = running.get(job.id)
        if entry is not None:
            jobs.append(going_on(entry))
        elif job.submit_s <= now_s and not job.after:
            jobs.append(JobRound(id=job.id, decision="wait"))
    return tuple(jobs)


def going_on(entry: Running) -> JobRound:
    """Return that a running job goes on as it runs."""
    return JobRound(id=entry.job, decision="continue", mode=entry.mode, placement=entry.placement)
