"""What a controller asks of whatever starts processes on nodes.

Every call is idempotent and bounded in time. `observe` is the only truth: that a call returned says
that it was taken, not that anything happened.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from ..errors import OptschedError
from ..frozen import frozen
from ..model import Job, Node, Placement, Window

Entry = Mapping[str, Any]
"""An object as a manager says it, or as it is told."""
Record = dict[str, Any]
"""What is kept of something, as JSON has it."""
SAVED_AND_STOPPED = 85
"""Exit status of a command that was asked to stop, has saved, and wants to be started again from
what it saved."""
JOB_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""Names of jobs: also names of folders, labels and jobs of cluster managers."""
KEY = re.compile(rf"optsched:({JOB_NAME.pattern}):([1-9][0-9]{{0,8}})")


@dataclass(frozen=True, slots=True, order=True)
class AttemptKey:
    """One attempt of one job; its text `optsched:<job>:<number>` marks whatever the executor makes
    for it."""

    job: str
    number: int

    def __str__(self) -> str:
        return f"optsched:{self.job}:{self.number}"

    @classmethod
    def parse(cls, text: str) -> "AttemptKey | None":
        """Return the key whose text this is, None if it is none."""
        match = KEY.fullmatch(text)
        return None if match is None else cls(match.group(1), int(match.group(2)))


@frozen
class Order:
    """What is to be started: one command on each node of `placement`, all or none.

    `environment` is added to what the executor sets itself, which goes before it except for
    OMP_NUM_THREADS: OPTSCHED_JOB, OPTSCHED_ATTEMPT, OPTSCHED_KEY, OPTSCHED_CHECKPOINT_DIR,
    OPTSCHED_PROGRESS (where the command of rank 0 reports its steps), OPTSCHED_NODES (names, comma
    between), OPTSCHED_NODE_COUNT, OPTSCHED_NODE, OPTSCHED_NODE_RANK, OPTSCHED_GPUS_PER_NODE,
    CUDA_VISIBLE_DEVICES, OMP_NUM_THREADS where cores are given, MASTER_ADDR and MASTER_PORT for
    more than one node. `memory_gib` is what it takes of each node's memory, in the order of
    `placement`, 0 for no limit. `output_bytes` is how much is kept of each stream that it prints on
    each node. `user` is
    the user id whose process it is, None for that of the executor. `image` is the container image
    to run it in, None for the site's; an executor without containers refuses one. `origin` is that
    of a job which the manager has already (`Arrival`): then that job runs, as it was given to the
    manager, and no command or environment of this order. `leaves_saved` says that it is asked to
    save, and does, before a window begins.
    """

    key: AttemptKey
    placement: Placement
    argv: tuple[str, ...]
    directory: str
    environment: Mapping[str, str] = field(default_factory=dict)
    memory_gib: tuple[float, ...] = ()
    checkpoint_directory: str = ""
    output_bytes: int = 1 << 30
    user: int | None = None
    image: str | None = None
    origin: str | None = None
    leaves_saved: bool = False

    @property
    def nodes(self) -> list[str]:
        """Return the names of its nodes, by rank."""
        return [slot.node for slot in self.placement]


class AttemptState(StrEnum):
    """Where an attempt is: `starting` until its commands run, `ended` when nothing of it is left on
    any node, `unreachable` while nobody can tell."""

    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    UNREACHABLE = "unreachable"


@frozen
class Progress:
    """What a command reports of itself, in Unix time and seconds.

    `step` steps of `total_steps` (None: it does not know) are done at `at_s`; `first_step` is where
    this attempt began, at `began_s`. `saved_step` is in the last checkpoint, which took
    `checkpoint_s`; reading the one it began from took `restore_s`. `saves`: it saves and stops when
    it is asked to.
    """

    step: int
    at_s: float
    first_step: int = 0
    began_s: float | None = None
    total_steps: int | None = None
    saved_step: int | None = None
    saved_at_s: float | None = None
    checkpoint_s: float | None = None
    restore_s: float | None = None
    saves: bool = False

    @classmethod
    def reported(cls, said: Mapping[str, object]) -> "Progress | None":
        """Return what a command reports, who may say anything: what cannot be (times in
        milliseconds, a checkpoint of years) is taken as not said, and None as no report at all
        where `step` or `at_s` is missing."""
        known: dict[str, Any] = {"saves": said.get("saves") is True}
        for name, most in MOST_REPORTED.items():
            value = said.get(name)
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not 0 <= value <= most
            ):
                continue
            if most != MOST_STEPS:
                known[name] = float(value)
            elif value == int(value):
                known[name] = int(value)
        return cls(**known) if "step" in known and "at_s" in known else None


MOST_STEPS, LAST_S, MOST_COST_S = 10**15, 9e9, 1e6
"""What a report may say at most: steps; a Unix time in seconds (23rd century); the seconds of one
save or restore."""
MOST_REPORTED: dict[str, float] = {
    **dict.fromkeys(("step", "first_step", "total_steps", "saved_step"), MOST_STEPS),
    **dict.fromkeys(("at_s", "began_s", "saved_at_s"), LAST_S),
    **dict.fromkeys(("checkpoint_s", "restore_s"), MOST_COST_S),
}


@frozen
class Observation:
    """What is seen of an attempt: times are Unix times, None where not yet or unknown.

    `exit_status` is that of the first command that failed, else 0; the negative number of a signal
    that ended it. `reason` says in a clause what nobody asked for, as "its memory limit of 2 GiB
    was exceeded". `output` is the file with what rank 0 prints. `peak_memory_gib` is host memory
    over all nodes, `cpu_s` processor time. `retry_s` is set of one that the manager did not start
    by rules of its own: after so many seconds it may.
    """

    key: AttemptKey
    state: AttemptState
    gpu_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    started_s: float | None = None
    ended_s: float | None = None
    exit_status: int | None = None
    reason: str | None = None
    progress: Progress | None = None
    output: str | None = None
    peak_memory_gib: float | None = None
    cpu_s: float | None = None
    retry_s: float | None = None


@frozen
class NodeStatus:
    """A node as the executor finds it: `usable` unless it is down, drained or reserved, for the
    reason given. `whole` is set where `node` is less than what there is, because the manager has
    given the rest to others. `out` are ids of GPUs of it that cannot be used any more, while it
    goes on with the others."""

    node: Node
    usable: bool = True
    reason: str | None = None
    whole: Node | None = None
    out: tuple[str, ...] = ()

    @property
    def hardware(self) -> Node:
        """Return all that is there, whoever holds it."""
        return self.whole or self.node


@frozen
class Request:
    """What a user asked a cluster manager for: a `job` with its demands, whose id is the name it
    has there.

    Its `duration_s` is None where nobody stated it; the manager ends it after `limit_s`. `saves`
    None: nobody said whether it saves when it is asked to stop; `grace_s` is how long it may take
    to. `preempt_unsaved` says whether it may be stopped for others all the same. `account` is who
    pays there, `qos` the quality of service it has there. `faults` are clauses on what was said of
    the job and cannot be heeded. The weight of the job is what the site says it is; `asked_weight`
    is by how much its user wants it multiplied.
    """

    job: Job
    argv: tuple[str, ...]
    directory: str
    user_id: int
    account: str | None = None
    qos: str | None = None
    limit_s: float | None = None
    saves: bool | None = None
    preempt_unsaved: bool = False
    grace_s: float | None = None
    total_steps: int | None = None
    asked_weight: float = 1.0
    faults: tuple[str, ...] = ()


@frozen
class Arrival:
    """A job that a user gave to the cluster manager itself, which keeps it for a controller to
    start.

    `origin` tells it from every other job there ever was, also after the manager has forgotten or
    renumbered jobs. `ready` says that it waits for nothing but a start, `held` that its user does
    not want one yet. `gone` is a clause on why there is nothing to start any more, `cancelled` that
    somebody wanted that. `unplanned` is why no order can start it, and `request` None then.
    `barred` is why the manager would not start it now.
    """

    origin: str
    name: str
    request: Request | None = None
    ready: bool = False
    held: bool = False
    cancelled: bool = False
    gone: str | None = None
    unplanned: str | None = None
    barred: str | None = None


def inner(of: Mapping[str, Any], *names: str) -> Any:
    """Return what an object of a manager has under `names`, one within the other; nothing, an empty
    mapping, where one of them is left out or null."""
    for name in names:
        of = of.get(name) or {}
    return of


def in_one_line(said: object, most: int = 300) -> str:
    """Return what a manager has `said`, cut off after so many characters, as a part of a
    sentence."""
    return " ".join(str(said or "").split())[:most].rstrip(".")


def because(said: object) -> str:
    """Return that as the end of a clause, nothing where nothing was said."""
    words = in_one_line(said)
    return f": {words}" if words else ""


class RefusedError(OptschedError):
    """The executor certainly did not do it; the message says why."""


class DeclinedError(RefusedError):
    """The manager does not start it now, by rules of its own; after `retry_s` it may."""

    def __init__(self, why: str, retry_s: float) -> None:
        super().__init__(why)
        self.retry_s = retry_s


class NoAnswerError(OptschedError):
    """Nobody knows whether it was done: only a later observation tells."""


class Executor(Protocol):
    """Starts, stops and watches attempts on nodes."""

    name: str
    title: str

    def inventory(self) -> tuple[NodeStatus, ...]:
        """Return all nodes, in a fixed order. Raises NoAnswerError."""
        ...

    def start(self, order: Order) -> None:
        """Start an attempt; nothing if one of this key was ever started or killed. Raises
        RefusedError, NoAnswerError."""
        ...

    def checkpoint_stop(self, key: AttemptKey, grace_s: float) -> None:
        """Ask an attempt to save and stop, and kill it where it has not ended after `grace_s`;
        nothing if it was asked before or has ended. Raises NoAnswerError."""
        ...

    def signal(self, key: AttemptKey, number: int) -> None:
        """Send a signal to the commands of an attempt on all its nodes, those that run by now; it
        may come a second late, and is lost where a node is. Raises RefusedError, NoAnswerError."""
        ...

    def kill(self, key: AttemptKey) -> None:
        """End an attempt now; one that was never started never will be. Raises NoAnswerError."""
        ...

    def observe(self) -> tuple[Observation, ...]:
        """Return all attempts that were started or killed and are not forgotten. Raises
        NoAnswerError."""
        ...

    def forget(self, key: AttemptKey) -> None:
        """Drop what is kept of an attempt that has ended, its output excepted. Raises
        NoAnswerError."""
        ...

    def changes(self, timeout_s: float) -> None:
        """Return once something may have changed, at the latest after `timeout_s`; may be called
        from a thread of its own."""
        ...

    def close(self) -> None:
        """Let go of what this process holds; attempts go on."""
        ...


@frozen
class Beside:
    """A process that may be started beside an attempt: `argv`, or another command, after the words
    that `enter` it, on this host as `user`, None for whoever asks.

    Where nothing is to be entered it gets only this `environment` and the terminal's, in
    `directory`. Else `enter` sees to both, and is itself started with `environment` added to that
    of who asks.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str
    user: int | None = None
    enter: tuple[str, ...] = ()


@runtime_checkable
class Shells(Protocol):
    """What an executor is besides, which lets users run something beside their jobs."""

    def shell(self, key: AttemptKey, terminal: bool, node: str | None = None) -> Beside:
        """Return how to start a shell on a node of an attempt that runs (None: the first), with its
        GPUs and variables, on a `terminal` or not. Raises RefusedError."""
        ...


@runtime_checkable
class Foretells(Protocol):
    """What an executor is besides, whose manager tells users when their jobs are expected to
    start."""

    def foretell(self, starts: Mapping[str, str]) -> None:
        """Have the manager tell when the jobs of these origins are expected to start, the first
        first, and nothing of others any more. Called beside all else."""
        ...


@runtime_checkable
class Reserves(Protocol):
    """What an executor is besides, whose manager reserves nodes for others at known times."""

    def reserved_windows(self) -> tuple[Window, ...]:
        """Return the windows in which nodes are reserved, as of the last `inventory`. Raises
        NoAnswerError where the manager did not tell."""
        ...


@runtime_checkable
class Arrivals(Protocol):
    """What an executor is besides, to whose manager users give jobs themselves."""

    def arrivals(self) -> tuple[Arrival, ...]:
        """Return those jobs, as of the last `observe`, until the manager forgets them. Raises
        NoAnswerError."""
        ...

    def forgot_end(self, origin: str, ended_s: float) -> bool:
        """Return whether the manager crashed after the job had ended, at `ended_s`, and has
        forgotten that.

        Raises NoAnswerError.
        """
        ...

    def leave(self, origin: str, why: str) -> None:
        """Let such a job be, and have the manager tell its user; it is no arrival any more. Raises
        NoAnswerError."""
        ...

    def withdraw(self, origin: str) -> None:
        """End such a job for good, of which no attempt goes on. Raises NoAnswerError."""
        ...
