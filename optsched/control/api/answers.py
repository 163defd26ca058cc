"""What answers carry: jobs, nodes, rounds and what was used, as the API shows them; times are Unix
times."""

from ...frozen import frozen
from ..journal.state import Status


@frozen
class HeldOnNode:
    """What a job holds of a node."""

    node: str
    gpus: int
    cpus: int
    gpu_ids: tuple[str, ...] = ()


@frozen
class JobView:
    """One job. `min_gpus` to `max_gpus` is what it asks for, `placement` what it holds now, or held
    last.

    `waited_s` and `ran_s` are the seconds it did not run and did. `remaining_s` are those it is
    believed to run yet, on what it holds or, where it waits, on what it asks for; None once it has
    finished. `estimate` says where that comes from, None where the user stated it. `step` and
    `total_steps` are what its command reports. `index` is that of a task of an `array`. It is
    not to begin before `begin_s`, and stopped once it has run for `limit_s`.

    By `start_p50_s` it is expected to have started (Unix time) with a probability of 50 %, by
    `start_p90_s` of 90 %, and likewise to have ended; the start of one that runs is when it did.
    `forecast` says why some of these are missing, None where none is that could be known.
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
    after_any: tuple[str, ...]
    after_not_ok: tuple[str, ...]
    begin_s: float | None
    limit_s: float | None
    exit_status: int | None
    array: str | None
    index: int | None
    start_p50_s: float | None
    start_p90_s: float | None
    end_p50_s: float | None
    end_p90_s: float | None
    forecast: str | None


@frozen
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


@frozen
class JobDetail:
    """A job, what it runs, and its attempts."""

    job: JobView
    argv: tuple[str, ...]
    directory: str
    attempts: tuple[AttemptView, ...]


@frozen
class JobPage:
    """Some jobs, how many there are in all, and what asks for those after them (None: there are no
    more)."""

    jobs: tuple[JobView, ...]
    total: int
    next: str | None


@frozen
class Shell:
    """What to start, as user `uid` of this host or as anybody (null), to have a shell beside a
    running job: the words of `enter`, then those of `argv` or of another command. Its `environment`
    is all that it gets, in `directory`; with `enter`, which sees to that, what is added for it."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    directory: str
    uid: int | None
    enter: tuple[str, ...] = ()


@frozen
class Names:
    """Names of the jobs that were submitted or changed, in the order of submission."""

    jobs: tuple[str, ...]


@frozen
class Holder:
    """Who holds part of a node; `job` None: somebody else's."""

    job: str | None
    gpus: int
    cpus: int
    gpu_ids: tuple[str, ...]


@frozen
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


@frozen
class Nodes:
    """All nodes."""

    nodes: tuple[NodeView, ...]


@frozen
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


@frozen
class Rounds:
    """Rounds, the newest first."""

    rounds: tuple[RoundView, ...]


@frozen
class Price:
    """A capacity, how much of it the last round used, and what one unit costs in value."""

    name: str
    capacity: float
    used: float
    price: float


@frozen
class ForecastView:
    """The last forecast: when it was made, and how far ahead it looks. Of the 90 % quantiles told
    earlier whose jobs have since started or ended, `..._held` came true. `fault` says why there is
    no forecast."""

    made_s: float
    horizon_s: float
    starts_held: int
    starts_compared: int
    ends_held: int
    ends_compared: int
    cpu_s: float
    fault: str | None


@frozen
class StateView:
    """The cluster in short. `jobs` counts those that have not finished, by status; `prices` are of
    the last round that this controller decided, those of 0 left out. `events` is how many the
    journal has: while it stays, jobs change with time alone. `views_only`: the caller can look, and
    change nothing."""

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
    forecast: ForecastView | None
    events: int
    views_only: bool


@frozen
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


@frozen
class Fault:
    """Why a request was not done, in one sentence."""

    error: str


@frozen
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


@frozen
class History:
    """Attempts since `from_s`, in the order in which they began; of jobs that finished before
    `dropped_before_s` some were dropped (None: none ever were)."""

    from_s: float
    now_s: float
    stays: tuple[Stay, ...]
    dropped_before_s: float | None


@frozen
class Share:
    """Of a tenant or user (None: of jobs without, or of all whom the caller does not see): the GPUs
    that its jobs held and how many jobs waited, on the average of each interval."""

    name: str | None
    gpus: tuple[float, ...]
    waiting: tuple[float, ...]


@frozen
class Usage:
    """Use from `from_s` to `now_s` in intervals of `step_s`, whoever held most first. A job waits
    while it has not finished and holds nothing; one on hold has not waited since it last held
    something."""

    from_s: float
    now_s: float
    step_s: float
    shares: tuple[Share, ...]


@frozen
class AccountRow:
    """What was used, GPU time by what it was spent on; `day` (UTC), `user`, `tenant` and `job` are
    None where it was not asked by them, where there is none, and of jobs that were dropped.

    Jobs count on the day of their submission, with all that they waited until now, their ends and
    preemptions on that when they happened. `core_h` are core-hours of jobs without GPUs.
    """

    day: str | None
    user: str | None
    tenant: str | None
    job: str | None
    jobs: int
    completed: int
    failed: int
    cancelled: int
    preemptions: int
    waited_h: float
    core_h: float
    gpu_h: float
    work_gpu_h: float
    setup_gpu_h: float
    saving_gpu_h: float
    preempted_gpu_h: float
    failed_gpu_h: float
    lost_gpu_h: float
    stopped_gpu_h: float


@frozen
class Account:
    """What was used until `now_s`. Of jobs dropped before `uncounted_before_s`, by an earlier
    version, nothing is known (None: there are none)."""

    now_s: float
    rows: tuple[AccountRow, ...]
    total: AccountRow
    uncounted_before_s: float | None


@frozen
class WindowView:
    """A time in which nodes take no jobs but those of some, or there is less of `resources` or for
    the tenants of `quotas`; `to_s` None: until it is lifted. `jobs_there` are those that are still
    there although it has begun, because they save or cannot: `jobs` are those of them that the
    caller sees."""

    name: str
    nodes: tuple[str, ...]
    from_s: float
    to_s: float | None
    tenants: tuple[str, ...]
    users: tuple[str, ...]
    resources: dict[str, float]
    quotas: dict[str, int]
    jobs_there: int
    jobs: tuple[str, ...]


@frozen
class Windows:
    """Windows that are not over, in order of time."""

    windows: tuple[WindowView, ...]
