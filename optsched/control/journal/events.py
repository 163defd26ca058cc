"""What the journal holds: facts and intentions, in the order in which they became known."""

import json
from typing import Literal

from ...executors.base import AttemptKey, Progress
from ...files import adapter, plain
from ...frozen import frozen
from ...model import Mode, Placement, Use, Window
from ..submission import Submission

Why = Literal["preempt", "migrate", "resize", "hold", "cancel", "limit", "requeue"]


@frozen
class ControllerStarted:
    """A controller took over."""

    version: str
    pid: int


@frozen
class Submitted:
    """A job was accepted."""

    submission: Submission


@frozen
class Changed:
    """What a job asks for was changed, by its user or in the cluster manager."""

    submission: Submission


@frozen
class Held:
    """A job is not to run until it is released: because `by` (a user) said so, or for the `reason`
    found."""

    job: str
    by: str | None = None
    reason: str | None = None


@frozen
class Released:
    """A held job may run again."""

    job: str
    by: str


@frozen
class Requeued:
    """A job is to run again from its last checkpoint, whether it has finished or runs."""

    job: str
    by: str


@frozen
class Cancelled:
    """A job is not wanted any more; what runs of it is stopped."""

    job: str
    by: str | None = None
    reason: str | None = None


@frozen
class Claim:
    """What a round gave to a job: its mode and place, which it holds as soon as they are free.
    `reserved` where the place was kept for it: it then runs to its end."""

    job: str
    mode: Mode
    placement: Placement = ()
    reserved: bool = False


@frozen
class RoundDecided:
    """A round: `claims` are the jobs that are to start or move; of those not in `stay` whatever
    runs is to stop. `blocked` is what it could not give away."""

    round: int
    claims: tuple[Claim, ...] = ()
    stay: tuple[str, ...] = ()
    blocked: tuple[Placement, ...] | None = None


@frozen
class OfAttempt:
    """What is common to the events of one attempt of a job."""

    job: str
    number: int

    @property
    def key(self) -> AttemptKey:
        """Return the attempt that the event is about."""
        return AttemptKey(self.job, self.number)


@frozen
class StartIntended(OfAttempt):
    """An attempt is about to be started: `work_s` of reference work is to do, at `rate` once
    `setup_s` are over."""

    mode: Mode
    placement: Placement = ()
    work_s: float
    rate: float
    setup_s: float
    reserved: bool = False


@frozen
class StartRefused(OfAttempt):
    """The executor would not start it; `retry_s` as of `AttemptEnded`."""

    reason: str
    retry_s: float | None = None


@frozen
class AttemptRunning(OfAttempt):
    """Its commands run since `started_s`, or ran until it ended before anybody saw them."""

    started_s: float
    gpu_ids: dict[str, tuple[str, ...]]


@frozen
class StopIntended(OfAttempt):
    """An attempt is about to be asked to save and stop within `grace_s`."""

    why: Why
    grace_s: float


@frozen
class Signalled(OfAttempt):
    """An attempt was sent a signal: because `by` (a user) said so, or before its time limit."""

    signal: str
    by: str | None = None


@frozen
class KillIntended(OfAttempt):
    """An attempt is about to be killed, or kept from ever starting."""

    reason: str


@frozen
class AttemptLost(OfAttempt):
    """Nobody can tell how an attempt is; what it holds stays held."""

    reason: str


@frozen
class AttemptFound(OfAttempt):
    """An attempt that was lost is seen again."""


@frozen
class Cleared(OfAttempt):
    """`by` vouches that nothing of an attempt is left, which nobody could see end; `left_s` as of
    `AttemptEnded`."""

    by: str
    left_s: float


@frozen
class AttemptEnded(OfAttempt):
    """Nothing of an attempt is left. `exit_status` None: nobody knows how its commands ended, or
    they never began.

    `left_s` is the reference work that its job has to do yet, counted from the last checkpoint.
    `retry_s` is set of one that the cluster manager did not start by rules of its own: after so
    long it is tried again, however often.
    """

    exit_status: int | None = None
    reason: str | None = None
    started_s: float | None = None
    ended_s: float | None = None
    left_s: float
    progress: Progress | None = None
    output: str | None = None
    peak_memory_gib: float | None = None
    cpu_s: float | None = None
    retry_s: float | None = None


@frozen
class NodeSeen:
    """A node came, or became usable or unusable; `out` are its GPUs that cannot be used."""

    node: str
    usable: bool
    reason: str | None = None
    out: tuple[str, ...] = ()


@frozen
class Pruned:
    """The past was shortened: of jobs that finished before `jobs_before_s` only some are left, and
    of rounds decided before `rounds_before_s` none. `jobs`, `rounds` and `events` is how many were
    dropped now; `digest` is that of the numbers and hashes of all that was ever dropped (see
    `Journal.prune`), `ledger` that of what the dropped jobs used, None where there is nothing of
    it: earlier versions kept none, so that all before `uncounted_before_s` is missing there.
    `decayed` is the use of all attempts that have ended, where shares are given by it: of what was
    dropped it cannot be counted again."""

    jobs_before_s: float | None
    rounds_before_s: float | None
    jobs: int
    rounds: int
    events: int
    digest: str
    ledger: str | None = None
    uncounted_before_s: float | None = None
    decayed: tuple[Use, ...] | None = None

    @property
    def uncounted_s(self) -> float | None:
        """Return until when jobs were dropped whose use no ledger has."""
        return self.jobs_before_s if self.ledger is None else self.uncounted_before_s


@frozen
class WindowSet:
    """Nodes are not there in a window but for some: `by` (a user) said so. One of the same name was
    meant before."""

    window: Window
    by: str


@frozen
class WindowLifted:
    """There is no window of this name any more: `by` (a user) said so."""

    name: str
    by: str


@frozen
class ManagerReserved:
    """These are all windows in which the cluster manager has reserved nodes for others, in place of
    those before."""

    windows: tuple[Window, ...]


@frozen
class Noted:
    """What somebody who asks why should find: a clock that jumped, an attempt of unknown origin."""

    text: str


Event = (
    ControllerStarted
    | Submitted
    | Changed
    | Held
    | Released
    | Requeued
    | Cancelled
    | RoundDecided
    | StartIntended
    | StartRefused
    | AttemptRunning
    | StopIntended
    | Signalled
    | KillIntended
    | AttemptLost
    | AttemptFound
    | Cleared
    | AttemptEnded
    | NodeSeen
    | Pruned
    | WindowSet
    | WindowLifted
    | ManagerReserved
    | Noted
)
KINDS: dict[str, type] = {kind.__name__: kind for kind in Event.__args__}


def dump_event(event: Event) -> str:
    """Return the event's fields as JSON, defaults left out; what is no Unicode text (a lone
    surrogate) is a question mark."""
    text = json.dumps(plain(event), separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="replace").decode()


def load_event(kind: str, body: str) -> Event:
    """Return the event of that kind. Raises ValueError where the text is none."""
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is not a kind of event")
    event: Event = adapter(KINDS[kind]).validate_json(body)
    return event
