"""What the API shows of jobs, nodes and rounds; times are Unix times."""

from dataclasses import dataclass
from typing import Any

from ...executors.base import Observation, Progress
from ..controller import Controller
from ..explain.blocked import Bars
from ..journal.journal import RoundEntry
from ..journal.state import FINISHED, Attempt, LiveJob, Status
from ..out_of_order import out_of
from ..present import as_waiting
from ..work_left import work_left_s


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOnNode:
    """What a job holds of a node."""

    node: str
    gpus: int
    cpus: int
    gpu_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job. `min_gpus` to `max_gpus` is what it asks for, `placement` what it holds now, or held
    last.

    `waited_s` and `ran_s` are the seconds it did not run and did. `remaining_s` are those it is
    believed to run yet, on what it holds or, where it waits, on what it asks for; None once it has
    finished. `estimate` says where that comes from, None where the user stated it. `step` and
    `total_steps` are what its command reports.
    """

    id: str
    user: str | None
    tenant: str | None
    status: Status
    reason: str | None
    command: str | None
    min_gpus: int
    max_gpus: int
    cpus: int
    gpu_type: str | None
    placement: tuple[HeldOnNode, ...]
    submit_s: float
    started_s: float | None
    finished_s: float | None
    waited_s: float
    ran_s: float
    remaining_s: float | None
    estimate: str | None
    step: int | None
    total_steps: int | None
    attempts: int
    preemptions: int
    failures: int
    weight: float
    priority: int
    deadline_s: float | None
    after: tuple[str, ...]
    exit_status: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """One attempt of a job."""

    number: int
    gpus: int
    placement: tuple[HeldOnNode, ...]
    started_s: float | None
    ended_s: float | None
    asked_to_stop: str | None
    exit_status: int | None
    reason: str | None
    peak_memory_gib: float | None
    cpu_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetail:
    """A job, what it runs, and its attempts."""

    job: JobView
    argv: tuple[str, ...]
    directory: str
    attempts: tuple[AttemptView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """Some jobs, how many there are in all, and what asks for those after them (None: there are no
    more)."""

    jobs: tuple[JobView, ...]
    total: int
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds part of a node; `job` None: somebody else's."""

    job: str | None
    gpus: int
    cpus: int
    gpu_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node, what of it is in use, and by whom; `out` are its GPUs that cannot be used any
    more."""

    name: str
    gpu_type: str | None
    gpus: int
    gpus_in_use: int
    gpu_memory_gib: float | None
    cpus: int | None
    memory_gib: float | None
    rack: str | None
    usable: bool
    reason: str | None
    out: tuple[str, ...]
    holders: tuple[Holder, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """All nodes."""

    nodes: tuple[NodeView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundView:
    """One round: what its decisions are worth, what they could be worth at most, and the seconds of
    its turn (looking, posing, deciding and checking, up to the write). `gap` None: no finite one is
    known."""

    number: int
    at_s: float
    jobs: int
    value: float
    bound: float
    gap: float | None
    wall_s: float
    solver: str
    fallback: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Rounds, the newest first."""

    rounds: tuple[RoundView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A capacity, how much of it the last round used, and what one unit costs in value."""

    name: str
    capacity: float
    used: float
    price: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StateView:
    """The cluster in short. `jobs` counts those that have not finished, by status; `prices` are of
    the last round that this controller decided, those of 0 left out."""

    cluster: str
    version: str
    now_s: float
    objective: str
    nodes: int
    nodes_usable: int
    gpus: int
    gpus_usable: int
    gpus_in_use: int
    queued: int
    jobs: dict[str, int]
    finished: int
    round: RoundView | None
    prices: tuple[Price, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Part of what an attempt printed: `text` is bytes `start` to `next` of `size`; `ended`: no
    more will come."""

    job: str
    attempt: int
    text: str
    start: int
    next: int
    size: int
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a request was not done, in one sentence."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Why a job is where it is: sentences for people, the most important first, and the numbers in
    them."""

    job: str
    status: Status
    sentences: tuple[str, ...]
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """What would become of the present jobs: in sentences, as rows of a table, and as numbers, as
    things are and with the change (None where nothing is to be otherwise). `limits` says what is
    assumed."""

    asked: dict[str, Any]
    sentences: tuple[str, ...]
    rows: tuple[dict[str, str], ...]
    jobs: int
    before: dict[str, Any]
    after: dict[str, Any] | None
    notes: tuple[str, ...]
    limits: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """One attempt on what it held; times are Unix times. `job` None: somebody else's.

    Until `work_from_s` it started up or restored; from `asked_s` on, where it was asked to stop
    (`why`), it saved. `ended_s` None: it is still there.
    """

    job: str | None
    attempt: int
    placement: tuple[HeldOnNode, ...]
    started_s: float
    work_from_s: float
    asked_s: float | None
    why: str | None
    ended_s: float | None
    exit_status: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Attempts since `from_s`, in the order in which they began; of jobs that finished before
    `dropped_before_s` some were dropped (None: none ever were)."""

    from_s: float
    now_s: float
    stays: tuple[Stay, ...]
    dropped_before_s: float | None


VIEWS = (
    HeldOnNode,
    Stay,
    History,
    JobView,
    AttemptView,
    JobDetail,
    JobPage,
    Holder,
    NodeView,
    Nodes,
    RoundView,
    Rounds,
    Price,
    StateView,
    Output,
    Fault,
    Explained,
    Foretold,
)


def placement_of(attempt: Attempt) -> tuple[HeldOnNode, ...]:
    """Where an attempt is or was."""
    return tuple(
        HeldOnNode(
            node=slot.node,
            gpus=slot.gpus,
            cpus=slot.cpus,
            gpu_ids=tuple(attempt.gpu_ids.get(slot.node, ())),
        )
        for slot in attempt.placement
    )


def bars(controller: Controller) -> Bars:
    """What keeps jobs from starting now, for the views of several."""
    return Bars(controller.state, controller.cluster, controller.tenants, controller.statuses)


def job_view(
    controller: Controller, job: LiveJob, now_s: float, barred: Bars | None = None
) -> JobView:
    """A job as it is at `now_s`."""
    noun = job.submission.job
    last = job.attempts[-1] if job.attempts else None
    ran_s = sum(_ran_s(attempt, now_s) for attempt in job.attempts)
    over_s = (now_s if job.finished_s is None else job.finished_s) - job.submit_s
    progress = _progress(controller, job)
    sizes = (noun.gpus, noun.gpus) if isinstance(noun.gpus, int) else (noun.gpus.min, noun.gpus.max)
    started = [attempt.started_s for attempt in job.attempts if attempt.started_s is not None]
    return JobView(
        id=job.id,
        user=noun.user,
        tenant=noun.tenant,
        status=job.status,
        reason=reason_of(controller, job, now_s, barred),
        command=noun.command,
        min_gpus=sizes[0],
        max_gpus=sizes[1],
        cpus=noun.cpus,
        gpu_type=None if last is None else last.mode.gpu_type,
        placement=() if last is None else placement_of(last),
        submit_s=job.submit_s,
        started_s=started[0] if started else None,
        finished_s=job.finished_s,
        waited_s=max(0.0, over_s - ran_s),
        ran_s=ran_s,
        remaining_s=_remaining_s(controller, job, now_s),
        estimate=job.submission.estimate,
        step=None if progress is None else progress.step,
        total_steps=(None if progress is None else progress.total_steps)
        or job.submission.total_steps,
        attempts=len(job.attempts),
        preemptions=job.preemptions,
        failures=job.failures,
        weight=noun.weight,
        priority=noun.priority,
        deadline_s=noun.deadline_s,
        after=noun.after,
        exit_status=None if last is None or last.ended is None else last.ended.exit_status,
    )


def attempt_view(attempt: Attempt) -> AttemptView:
    """An attempt as it is or was."""
    ended = attempt.ended
    return AttemptView(
        number=attempt.key.number,
        gpus=sum(slot.gpus for slot in attempt.placement),
        placement=placement_of(attempt),
        started_s=attempt.started_s,
        ended_s=attempt.ended_s,
        asked_to_stop=attempt.stop_why,
        exit_status=None if ended is None else ended.exit_status,
        reason=attempt.lost or attempt.killed if ended is None else ended.reason,
        peak_memory_gib=None if ended is None else ended.peak_memory_gib,
        cpu_s=None if ended is None else ended.cpu_s,
    )


def round_view(entry: RoundEntry) -> RoundView:
    """A round as it is listed."""
    return RoundView(
        number=entry.number,
        at_s=entry.at_s,
        jobs=entry.jobs,
        value=entry.value,
        bound=entry.bound,
        gap=None if entry.gap == float("inf") else entry.gap,
        wall_s=entry.wall_s,
        solver=entry.solver,
        fallback=entry.fallback,
    )


def reason_of(
    controller: Controller, job: LiveJob, now_s: float, barred: Bars | None = None
) -> str | None:
    """Why it is where it is, in a clause; None where there is nothing to say."""
    if job.finished is not None:
        return None if job.finished == "completed" else job.reason
    if job.live is not None:
        return _why_it_holds(controller, job, job.live)
    return _why_it_waits(controller, job, now_s, barred)


def _why_it_holds(controller: Controller, job: LiveJob, live: Attempt) -> str | None:
    if live.lost is not None:
        return live.lost
    unwanted = job.cancelled or job.held
    if live.leaving:
        return live.killed or unwanted or f"it is asked to stop ({live.stop_why})"
    why = controller.left_out.get(job.id)
    if why is not None:
        return unwanted or f"it goes on, and rounds are decided without it: {why}"
    broken = out_of(controller.state, live)
    if broken:
        return unwanted or f"of what it runs on is out of order: {', '.join(broken)}"
    seen = controller.observed.get(live.key)
    return unwanted or (None if live.started_s is not None or seen is None else seen.reason)


def _why_it_waits(
    controller: Controller, job: LiveJob, now_s: float, barred: Bars | None
) -> str | None:
    if job.held is not None:
        return job.held
    jobs = controller.state.jobs
    before = [
        name
        for name in job.submission.job.after
        if name not in jobs or jobs[name].finished not in FINISHED
    ]
    if before:
        return f"it comes after {', '.join(before[:3])}" + (
            f" and {len(before) - 3} more" if len(before) > 3 else ""
        )
    if job.id in controller.state.barred:
        return controller.state.barred[job.id]
    if job.ready_s > now_s:
        return f"{job.reason}; it is tried again in {job.ready_s - now_s:.0f} s"
    if controller.short_of_disk is not None:
        return controller.short_of_disk
    claim = controller.state.claims.get(job.id)
    if claim is not None:
        return f"its place on {', '.join(slot.node for slot in claim.placement[:3])} is being freed"
    if job.id in controller.left_out:
        return f"rounds are decided without it: {controller.left_out[job.id]}"
    bar = (bars(controller) if barred is None else barred).of(as_waiting(job))
    if bar is not None:
        return f"it can never run on this cluster: {bar.why}" if bar.never else bar.why
    if job.submit_s > controller.decided_s:
        return "the next round decides"
    return "the last round gave its place to others"


def _ran_s(attempt: Attempt, now_s: float) -> float:
    if attempt.started_s is None:
        return 0.0
    return max(0.0, (now_s if attempt.ended_s is None else attempt.ended_s) - attempt.started_s)


def _progress(controller: Controller, job: LiveJob) -> Progress | None:
    for attempt in reversed(job.attempts):
        seen: Observation | None = controller.observed.get(attempt.key)
        if seen is not None and seen.progress is not None:
            return seen.progress
        if attempt.ended is not None and attempt.ended.progress is not None:
            return attempt.ended.progress
    return None


def _remaining_s(controller: Controller, job: LiveJob, now_s: float) -> float | None:
    live = job.live
    if job.finished is not None:
        return None
    if live is None or live.rate <= 0:
        return job.left_s
    ran_s = _ran_s(live, now_s)
    seen = controller.observed.get(live.key)
    progress = None if seen is None else seen.progress
    return work_left_s(job.submission, live, progress, now_s) / live.rate + max(
        0.0, live.setup_s - ran_s
    )
