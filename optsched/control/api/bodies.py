"""What requests carry: their fields, the bounds of each, and the faults in words."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import date
from typing import Annotated, Any, Literal, get_args

from annotated_types import MaxLen, MinLen
from pydantic import Field, ValidationError

from ...executors.base import JOB_NAME
from ...files import adapter
from ...files.shape_faults import (
    WORDS,
    Steps,
    duplicate_keys,
    is_short_of_faulty,
    of_gpus,
    value_at,
)
from ...frozen import frozen
from ...model import Elastic, Label, Profile
from ...model.quantity import Amount, Count, Duration, Gib, Instant, PositiveCount, Weight
from ..journal.state import Status
from ..settings import ADDRESS, NoticeEvent
from ..warning import SIGNAL, WARNING
from .refusal import HttpError

MOST_BYTES, MOST_BYTES_OF_MANY = 1 << 20, 4 << 20
"""Larger bodies are refused unread; the second is for requests with many jobs."""
MOST_JOBS = 10_000
"""So many jobs may one request submit."""
MOST_WORD_BYTES = 128 * 1024 - 1
"""Linux gives a process no longer argument or variable (MAX_ARG_STRLEN)."""
MOST_FAULTS = 3

Text = Annotated[str, Field(max_length=MOST_WORD_BYTES, pattern=r"^[^\x00]*$")]
Short = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00]*$")]
Name = Annotated[str, Field(max_length=63, pattern=f"^{JOB_NAME.pattern}$")]
Wanted = dict[Label, Literal["required", "forbidden"]]
OwnLabel = Annotated[str, MinLen(1), MaxLen(63)]
"""A label of a job, in the name space of its user."""
Near = dict[OwnLabel, Literal["node", "rack"]]
Few = Field(max_length=64)
Types = Annotated[tuple[Short, ...], Field(min_length=1, max_length=64)]
Variable = Annotated[str, Field(max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Address = Annotated[str, Field(max_length=254, pattern=f"^{ADDRESS.pattern}$")]
Image = Annotated[
    str, Field(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@+-]*$")
]
RequestId = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[!-~]*$")]
ARRAY = r"^[0-9]{1,9}(?:-[0-9]{1,9}(?::[0-9]{1,9})?)?(?:,[0-9]{1,9}(?:-[0-9]{1,9}(?::[0-9]{1,9})?)?)*(?:%[0-9]{1,9})?$"  # noqa: E501
"""Indices `0-99`, `1,3,7`, `0-99:5` (every fifth), then how many run at once: `0-99%10`."""
STATUS = "|".join(get_args(Status))
SORT = (
    "submitted|started|finished|name|user|tenant|status|gpus|waited|ran|left|starts|ends"
    "|weight|priority"
)


@frozen
class SubmitBody:
    """A job to be run: `argv` in `directory` (absolute) with `environment` added to the
    controller's.

    `name` None makes one. `duration_s` is how long it is believed to run on what it asks for; None:
    nobody knows. `cpus_per_gpu` and `memory_gib_per_gpu` are for jobs with GPUs, `cpus` and
    `memory_gib` for those without (`gpus` 0). Its command is run once on each of `min_nodes` to
    `max_nodes` nodes, with equally many GPUs on each; one node where neither is given, exactly
    `min_nodes` where `max_nodes` is not. `labels`, `node_labels`, `affinity` and `anti_affinity`
    are as in instance files. `gpu_types` are the only ones it may run on. `profile` is as in
    instance files; the fields here go before it. `saves`: whether it saves and ends with exit
    status 85 when asked to stop; None: as jobs like it did, else it is taken to lose all its work
    when preempted, until it is seen to save. `deadline_s` is Unix time. `image` is the container
    image to run it in, where the executor runs images; None: that of the site. `notify` are the
    events of which notices are sent, by e-mail to `notify_to` where that is given and the site
    allows it. `tenant` None: the one that lists the user, if any. A repeated `request_id` of the
    same user is answered as it was the first time, and makes no second job. It starts when
    all of `after` have completed, all of `after_any` have ended in any way and all of
    `after_not_ok` have failed or been cancelled, not before `begin_s` (Unix time); where it can
    never start any more it is cancelled, or held, as `if_never` says. Once it has run for `limit_s`
    in all it is asked to save and stopped; before that it gets the signal of `warning` (`USR1@60`:
    60 s before). With `array`,
    indices such as `0-99%10` (then at most 10 run at once), it is one job for each of them, named
    NAME-INDEX, with `{index}` in `argv` replaced by its own.
    """

    argv: Annotated[tuple[Text, ...], Field(min_length=1, max_length=4096)]
    directory: Annotated[str, Field(min_length=1, max_length=4095, pattern=r"^/[^\x00]*$")]
    name: Name | None = None
    environment: Annotated[dict[Variable, Text], Field(max_length=1024)] = field(
        default_factory=dict
    )
    gpus: Count | Elastic = 1
    cpus_per_gpu: PositiveCount | None = None
    cpus: PositiveCount | None = None
    memory_gib_per_gpu: Gib | None = None
    memory_gib: Gib | None = None
    gpu_memory_gib: Gib | None = None
    gpu_types: Types | None = None
    min_nodes: PositiveCount | None = None
    max_nodes: PositiveCount | None = None
    labels: Annotated[tuple[OwnLabel, ...], Few] = ()
    node_labels: Annotated[Wanted, Few] = field(default_factory=dict)
    affinity: Annotated[Near, Few] = field(default_factory=dict)
    anti_affinity: Annotated[Near, Few] = field(default_factory=dict)
    duration_s: Duration | None = None
    total_steps: Annotated[int, Field(ge=1, le=10**15)] | None = None
    weight: Weight = 1.0
    priority: Annotated[int, Field(ge=-(10**9), le=10**9)] = 0
    tier: Short | None = None
    tenant: Short | None = None
    deadline_s: Instant | None = None
    after: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()
    after_any: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()
    after_not_ok: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()
    if_never: Literal["cancel", "hold"] = "cancel"
    begin_s: Instant | None = None
    limit_s: Duration | None = None
    warning: Annotated[str, Field(max_length=32, pattern=WARNING)] | None = None
    resources: Annotated[dict[Short, Amount], Few] = field(default_factory=dict)
    preemptible: bool = True
    saves: bool | None = None
    retries: Annotated[int, Field(ge=0, le=1000)] = 0
    grace_s: Annotated[float, Field(ge=0, le=86400)] | None = None
    hold: bool = False
    image: Image | None = None
    profile: Profile | None = None
    notify: Annotated[tuple[NoticeEvent, ...], Field(max_length=3)] = ()
    notify_to: Address | None = None
    array: Annotated[str, Field(max_length=10_000, pattern=ARRAY)] | None = None
    request_id: RequestId | None = None


@frozen
class BatchBody:
    """Many jobs, of which all are submitted or none. Each may come `after` those before it. A
    repeated `request_id` of the same user makes no second ones."""

    jobs: Annotated[tuple[SubmitBody, ...], Field(min_length=1, max_length=MOST_JOBS)]
    request_id: RequestId | None = None


@frozen
class Hypothetical:
    """A job that is only asked about: `duration_s` on `gpus` GPUs, or on `cpus` cores where that is
    0."""

    gpus: Count = 1
    cpus: PositiveCount | None = None
    duration_s: Duration
    gpu_types: Types | None = None
    weight: Weight = 1.0


@frozen
class WhatIfBody:
    """What is to be otherwise, all of it at once, and the `job` asked about: so many more GPUs (of
    `gpu_type`), no preemption, without a job, a node down, one more job. The answer takes at most
    about `time_limit_s`."""

    job: Name | None = None
    gpus: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    gpu_type: Short | None = None
    no_preemption: bool = False
    without: Name | None = None
    down: Short | None = None
    submit: Hypothetical | None = None
    time_limit_s: Annotated[float, Field(ge=0.1, le=30)] = 10.0


Names = Annotated[tuple[Short, ...], Field(max_length=1000)]


@frozen
class WindowBody:
    """A time, in Unix time, in which `nodes` (names or hostlists), or nodes of so many `gpus`, take
    no jobs but those of `tenants` and `users`: from now on where `from_s` is None, until it is
    lifted where `to_s` is. Of `resources` there is only so much then, and the jobs of the tenants
    of `quotas` hold only so many GPUs, borrowed ones included. `name` None makes one after its
    `kind`."""

    kind: Literal["maintenance", "reservation", "drain"] = "maintenance"
    name: Annotated[str, Field(max_length=255, pattern=r"^[!-~]+$")] | None = None
    nodes: Names = ()
    gpus: Count = 0
    from_s: Instant | None = None
    to_s: Instant | None = None
    tenants: Names = ()
    users: Names = ()
    resources: Annotated[dict[Short, Amount], Few] = field(default_factory=dict)
    quotas: Annotated[dict[Short, Count], Few] = field(default_factory=dict)


@frozen
class LiftBody:
    """The window that is not to be any more."""

    name: Short


Limit = Annotated[int, Field(ge=1, le=1000)]


@frozen
class Selection:
    """Which jobs: of a `user`, of a `tenant`, of one of the statuses in `state` (with commas
    between), of an `array`, those whose name matches a pattern such as `sweep-*`; all that is given
    must hold.
    Without `user` and `tenant` they are the caller's own."""

    user: Short | None = None
    tenant: Short | None = None
    state: Annotated[str, Field(max_length=256, pattern=rf"^(?:{STATUS})(?:,(?:{STATUS}))*$")] | (
        None
    ) = None
    name: Short | None = None
    array: Name | None = None


@frozen
class ChangeBody(Selection):
    """Which jobs are changed: those that have not finished where `state` says nothing, with `all`
    those of all users. At least one of the other fields must be given."""

    all: bool = False


@frozen
class AmendBody:
    """What is to be otherwise of a job; the rest stays. Of one that runs only weight, priority,
    deadline, time limit and retries can be changed, of one that waits also what it asks for."""

    gpus: Count | Elastic | None = None
    duration_s: Duration | None = None
    begin_s: Instant | None = None
    weight: Weight | None = None
    priority: Annotated[int, Field(ge=-(10**9), le=10**9)] | None = None
    deadline_s: Instant | None = None
    limit_s: Duration | None = None
    retries: Annotated[int, Field(ge=0, le=1000)] | None = None


@frozen
class SignalBody:
    """The signal, as USR1, that the command of a running job gets on all its nodes."""

    signal: Annotated[str, Field(max_length=16, pattern=SIGNAL)]


@frozen
class JobsQuery(Selection):
    """Which jobs are listed, and how: without `state` those that have not finished, or with
    `finished` those that have; `all` are those of all users. They come in the order in which they
    were submitted, finished ones the last first, else as `sort` says, a dash before it for the
    largest first. `page` is the `next` of the answer before, for the same query."""

    all: bool = False
    finished: bool = False
    sort: Annotated[str, Field(max_length=20, pattern=f"^-?(?:{SORT})$")] | None = None
    limit: Limit = 100
    page: Annotated[str, Field(max_length=4096, pattern="^[A-Za-z0-9_-]+$")] | None = None


@frozen
class RoundsQuery:
    """The newest rounds, with `before` those of smaller numbers."""

    limit: Limit = 20
    before: Annotated[int, Field(ge=1, le=10**12)] | None = None


@frozen
class OutputQuery:
    """The last `tail` KiB of what an attempt (the last one) printed, or with `start` what follows
    from that byte on."""

    stream: Literal["stdout", "stderr"] = "stdout"
    attempt: Annotated[int, Field(ge=1, le=10**9)] | None = None
    tail: Annotated[int, Field(ge=1, le=1024)] = 64
    start: Annotated[int, Field(ge=0, le=2**62)] | None = None


@frozen
class ShellQuery:
    """Whether the shell is for a terminal, and on which node of the job (else the first)."""

    terminal: bool = False
    node: str | None = None


@frozen
class HistoryQuery:
    """How far back."""

    hours: Annotated[float, Field(gt=0, le=168)] = 2.0


@frozen
class UsageQuery:
    """How far back, in how many intervals, and whose use is added up."""

    hours: Annotated[float, Field(gt=0, le=168)] = 24.0
    intervals: Annotated[int, Field(ge=1, le=400)] = 96
    by: Literal["tenant", "user"] = "tenant"


ACCOUNT_BY = ("user", "tenant", "day", "job")
By = "|".join(ACCOUNT_BY)


@frozen
class AccountQuery:
    """What was used from one day to another (UTC, both included; all there is without), of the
    caller or, for administrators, of everybody or one `user`, of one `tenant`, summed by what `by`
    names, separated by commas."""

    from_day: date | None = None
    to_day: date | None = None
    user: Short | None = None
    tenant: Short | None = None
    by: Annotated[str, Field(max_length=64, pattern=rf"^({By})(,({By}))*$")] = "user"


WORD_TABLES = WORDS["requests"], WORDS["faults"]
"""Words for the faults in requests, the first that has any."""


def parse_body(kind: type, data: bytes) -> Any:
    """Return the body of a request. Raises HttpError: 400 for what is no JSON, 422 for faulty
    fields."""
    try:
        body = adapter(kind).validate_json(data)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        if faults[0]["type"] == "json_invalid":
            raise HttpError(400, f"the body is not JSON: {faults[0]['ctx']['error']}") from None
        raise HttpError(422, in_words(faults, _raw(data))) from None
    twice = duplicate_keys(data)
    if twice:
        raise HttpError(422, str(twice[0]))
    return body


def parse_query(kind: type, pairs: Iterable[tuple[str, str]]) -> Any:
    """Return the query of a request; a name alone (`?all`) is true. Raises HttpError 422."""
    given: dict[str, str] = {}
    for name, value in pairs:
        if name in given:
            raise HttpError(422, f"{name[:64]}: is given twice; give it once")
        given[name] = value or "true"
    try:
        return adapter(kind).validate_python(given, strict=False)
    except ValidationError as error:
        raise HttpError(422, in_words(error.errors(include_url=False), given)) from None


def in_words(errors: Iterable[Mapping[str, Any]], raw: Any) -> str:
    """Return the first faults that a validator found, in one sentence."""
    said: list[str] = []
    faults = [*errors]
    for error in faults:
        kind = str(error["type"])
        loc: Steps = tuple(step for step in error["loc"] if step != "[key]")
        if is_short_of_faulty(error, faults):
            continue
        at = 2 if loc[:1] == ("jobs",) else 0
        if len(loc) > at + 1 and loc[at] == "gpus":
            meant = of_gpus(kind, loc, at, value_at(raw, loc[: at + 1]))
            if meant is None:
                continue
            kind, loc = meant
        where = _path(loc)
        if kind == "string_pattern_mismatch":
            characters = "holds characters that are not allowed there"
            said.append(f"{where} {WORDS['patterns'].get(str(loc[0]), characters)}")
            continue
        message = str(error["msg"])
        unknown = message[:1].lower() + message[1:], "correct it"
        problem, remedy = next((own[kind] for own in WORD_TABLES if kind in own), unknown)
        said.append(f"{where} {problem.format(**error.get('ctx', {}))}; {remedy}")
    said = list(dict.fromkeys(said))
    more = f", and {len(said) - MOST_FAULTS} more" if len(said) > MOST_FAULTS else ""
    return ". ".join(said[:MOST_FAULTS]) + more


def _path(loc: Steps) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step[:64]}" for step in loc)
    return text.removeprefix(".") or "the body"


def _raw(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
