"""cluster.toml: what `optsched run` drives, and how."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from ..duration import LONGEST_S, parse_duration
from ..errors import InputError, OptschedError, SolverUnavailableError, perhaps
from ..files import check_instance
from ..files.faults import Fault
from ..files.shape_faults import FaultyFileError, shape_faults
from ..files.toml import read_toml
from ..hostlist import MAX_NODES, expand_hostlist
from ..model.cluster import Cluster, Label, Node, Tenant, Tier
from ..model.instance import Instance
from ..model.quantity import Amount
from ..objectives import wanted
from ..plugins import registry
from ..plugins.options import PluginOptions, read_table
from .rates import TIME_OF_DAY, Rates, known

FORMAT = "optsched-cluster/1"
MOST_WEIGHT, MOST_PRIORITY = 1e9, 10**9
SHORTEST_HALF_LIFE_S = 60.0


def _duration(text: str | float) -> float:
    if isinstance(text, str):
        return parse_duration(text)
    if not (math.isfinite(text) and text >= 0):
        raise ValueError("must be a number of seconds, or a text as 90s, 5m, 2h")
    return float(text)


Time = Annotated[str | float, AfterValidator(_duration)]


class Part(BaseModel):
    """A table of the file; unknown keys are faults."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NodeSettings(Part):
    """A node, or several of one kind (`name = "gpu-[0-3]"`). With `emulate` its GPUs need not
    exist."""

    name: str
    gpu_type: str | None = None
    gpus: int = Field(default=0, ge=0)
    gpu_memory_gib: float | None = Field(default=None, gt=0)
    cpus: int | None = Field(default=None, ge=0)
    memory_gib: float | None = Field(default=None, gt=0)
    rack: str | None = None
    labels: tuple[Label, ...] = ()
    emulate: bool = False

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes of this table. Raises ValueError for a faulty name."""
        return tuple(
            Node(**self.model_dump(exclude={"name", "emulate"}) | {"name": name})
            for name in expand_hostlist(self.name)
        )


MostWeight = Annotated[float, Field(gt=0, le=MOST_WEIGHT)]
MostPriority = Annotated[int, Field(ge=0, le=MOST_PRIORITY)]


MostJobs = Annotated[int, Field(ge=0, le=10**9)]
Period = Literal["day", "week", "month", "year", "forever"]
GpuHours = Annotated[float, Field(ge=0, le=1e12)]


def _time_limit(text: str | float) -> float:
    seconds = _duration(text)
    if seconds <= 0:
        raise ValueError("must be longer than 0 s")
    return seconds


TimeLimit = Annotated[str | float, AfterValidator(_time_limit)]


class JobLimits(Part):
    """The most that jobs may ask for, how many of them may wait and run, and the GPU-hours that
    they may use in a period; None: as others, or any number. `time_limit` is that of jobs which
    name none, `max_time_limit` the longest."""

    time_limit: TimeLimit | None = None
    max_time_limit: TimeLimit | None = None
    max_weight: MostWeight | None = None
    max_priority: MostPriority | None = None
    max_queued: MostJobs | None = None
    max_running: MostJobs | None = None
    max_gpu_hours: GpuHours | None = None


class UserLimits(JobLimits):
    """The limits of one user, and how many GPUs his jobs may hold together."""

    max_gpus: MostJobs | None = None


class TenantSettings(JobLimits):
    """A tenant: its quota, and who belongs to it (user names; without any, everybody may name it).
    `max_weight` and `max_priority` are the most that its jobs may ask for, where that is not what
    `[limits]` says; `max_queued` and `max_running` are of all its jobs together, `max_gpu_hours` of
    those of the tenants below it, too."""

    name: str
    parent: str | None = None
    gpu_quota: int | None = Field(default=None, ge=0)
    borrow_gpus: int = Field(default=0, ge=0)
    weight: float = Field(default=1.0, gt=0)
    users: tuple[str, ...] = ()

    def tenant(self) -> Tenant:
        """Return the noun."""
        return Tenant(**self.model_dump(exclude={"users", *JobLimits.model_fields}))


class TierSettings(Part):
    """A name for the jobs of one `priority`, whom of those that run they preempt when they wait,
    and who may use it: `users`, members of the `groups` of this host, jobs of `tenants`; without
    any of these, everybody. Of it are also jobs that were given to Slurm with one of these `qos` or
    `accounts`; a tier that lists only such is open to nobody else."""

    name: str = Field(min_length=1, max_length=255, pattern=r"^[A-Za-z][A-Za-z0-9._-]*$")
    priority: int = Field(ge=-MOST_PRIORITY, le=MOST_PRIORITY)
    preempts: Literal["never", "lower", "any"] = "any"
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()

    def tier(self) -> Tier:
        """Return the noun."""
        return Tier(name=self.name, priority=self.priority, preempts=self.preempts)


class LabelLimits(Part):
    """How many GPUs the jobs of each user may hold at once on nodes with a label, `users` (by name)
    where that is not `max_gpus`, and those of `tenants` with all below them."""

    max_gpus: MostJobs | None = None
    users: dict[str, MostJobs] = Field(default_factory=dict)
    tenants: dict[str, MostJobs] = Field(default_factory=dict)


class LimitSettings(Part):
    """The most that jobs may ask for, unless their tenant or, before that, `users` (by name) says
    otherwise, how many jobs each user may have waiting and running, and GPUs held, at once, and
    how many GPU-hours he may use in a period, which runs by the calendar in UTC. Root, the
    controller's own user and `api.administrators` may go beyond what may be asked for and
    `max_queued`."""

    time_limit: TimeLimit | None = None
    max_time_limit: TimeLimit | None = None
    max_weight: MostWeight = 1.0
    max_priority: MostPriority = 0
    max_queued: MostJobs | None = None
    max_running: MostJobs | None = None
    max_gpus: MostJobs | None = None
    max_gpu_hours: GpuHours | None = None
    gpu_hours_per: Period = "month"
    users: dict[str, UserLimits] = Field(default_factory=dict)
    labels: dict[Label, LabelLimits] = Field(default_factory=dict)


class ApiSettings(Part):
    """Where commands reach the controller: a unix socket in the state folder, and a loopback port
    where one is given. `administrators` (user names) may change everybody's jobs; root and the
    controller's own user always may."""

    port: int | None = Field(default=None, ge=0, le=65535)
    administrators: tuple[str, ...] = ()


FOREVER = "forever"


def _kept(value: str | float) -> str | float:
    return FOREVER if value == FOREVER else _duration(value)


Kept = Annotated[str | float, AfterValidator(_kept)]


class RetentionSettings(Part):
    """For how long things are kept: `rounds` with their instances, `jobs` after they have finished,
    their `outputs`, and `profiles` after a run last told something of them. Each is a time, or
    "forever". Of rounds no more is kept than takes `rounds_gib`."""

    rounds: Kept = 30 * 86400.0
    jobs: Kept = 180 * 86400.0
    outputs: Kept = 90 * 86400.0
    profiles: Kept = 365 * 86400.0
    rounds_gib: float = Field(default=20.0, gt=0, le=1e6)


NoticeEvent = Literal["start", "end", "fail"]
ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}@[A-Za-z0-9][A-Za-z0-9.-]{0,189}")
"""E-mail addresses as they are taken: nothing that has a meaning in a header."""
SMTP = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{1,5})?")


class NoticeSettings(Part):
    """Where notices of jobs go that ask for them by `optsched submit --notify`, and of all jobs
    those of `events`: as JSON to the address `webhook`, and by e-mail over the server `smtp`
    (`host:port`) from `smtp_from`, to addresses of `email_domains` only. `timeout` is how long each
    may take. With `smtp_starttls` the connection is encrypted, with `smtp_user` it logs in by the
    password in a file."""

    webhook: str | None = None
    events: tuple[NoticeEvent, ...] = ()
    timeout: Time = 10.0
    smtp: str | None = None
    smtp_from: str | None = None
    smtp_starttls: bool = False
    smtp_user: str | None = None
    smtp_password_file: Path | None = None
    email_domains: tuple[str, ...] = ()

    def faults(self) -> Iterator[Fault]:
        """Yield what is wrong with it."""
        webhook = urlsplit(self.webhook or "http://none")
        if webhook.scheme not in ("http", "https") or not webhook.hostname:
            remedy = "write https://HOST/PATH"
            yield Fault("notices.webhook", "is not the address of a web server", remedy)
        if not 0 < float(self.timeout) <= 60:
            remedy = "write a length as 10s"
            yield Fault("notices.timeout", "must be longer than 0 s and at most 60 s", remedy)
        if self.smtp is not None and not SMTP.fullmatch(self.smtp):
            yield Fault("notices.smtp", f"{self.smtp!r} is not a mail server", "write HOST:PORT")
        if self.smtp is not None and not ADDRESS.fullmatch(self.smtp_from or ""):
            remedy = "name the address that e-mail comes from"
            yield Fault("notices.smtp_from", "is missing, or no address", remedy)
        if (self.smtp_user is None) != (self.smtp_password_file is None):
            remedy = "give both, or none"
            yield Fault("notices", "has one of smtp_user and smtp_password_file", remedy)
        for i, domain in enumerate(self.email_domains):
            if not ADDRESS.fullmatch(f"user@{domain}"):
                yield Fault(f"notices.email_domains[{i}]", "is not a domain", "write example.org")


def _half_life(value: str | float) -> float:
    seconds = _duration(value)
    if not SHORTEST_HALF_LIFE_S <= seconds <= LONGEST_S:
        raise ValueError(f"must be between 1 min and {LONGEST_S:g} s")
    return seconds


class SharesSettings(Part):
    """That rounds favour jobs of tenants and users which have used less than they are entitled to:
    use counts half after `half_life`."""

    half_life: Annotated[str | float, AfterValidator(_half_life)] = 7 * 86400.0


WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
TimeOfDay = Annotated[str, Field(pattern=TIME_OF_DAY)]


class WindowSettings(Part):
    """A time in which nodes (all without any) take no jobs but those of `tenants` and `users`: once
    from `start` on, or on every day, or every such day of the week, from `at` on, for `length`.
    With `resources` there is then only so much of these; nodes are only meant if they are named."""

    name: str = Field(default="maintenance", min_length=1, max_length=63)
    nodes: tuple[str, ...] = ()
    start: datetime | None = None
    every: (
        Literal["day", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
        | None
    ) = None
    at: TimeOfDay = "00:00"
    length: Time
    tenants: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    resources: dict[str, Amount] = Field(default_factory=dict)

    def node_names(self) -> tuple[str, ...]:
        """Return the names of the nodes. Raises ValueError for a faulty one."""
        return tuple(name for text in self.nodes for name in expand_hostlist(text))


class KueueSettings(Part):
    """What `optsched kueue` decides on: the Workloads of `queues` (ClusterQueues; all without any).
    Priorities are strict, as elsewhere; with `step` a step between two that are in use counts so
    many times in weight instead."""

    queues: tuple[str, ...] = ()
    step: float | None = Field(default=None, ge=1, le=1000)


class Settings(Part):
    """The whole file. `state` is the folder of the journal, on a disk of this host; `shared` is the
    one that all nodes see, with attempts and checkpoints, `state` without it; `outputs` is where
    the local executor keeps what jobs print, `output_gib` how much is kept of each stream on each
    node. Nothing is started while less than `keep_free_gib` is free on their disks. All three are
    relative to the file.

    A round is decided whenever something has changed, and at the latest `every` after the one
    before; `budget` is its wall clock. `length` is the time over which a round's options are
    valued. With `policy` (see `optsched list policies`), which has `policy_options`, no rounds are
    decided: it says who starts and stops. `grace` is how long a job may save, and `runs` how long
    one whose duration nobody states is believed to run, unless it says otherwise. Jobs that are not
    known to save are preempted only with `preempt_unsaved`.
    """

    format: Literal["optsched-cluster/1"]
    name: str = "cluster"
    state: Path = Path("state")
    shared: Path | None = None
    outputs: Path | None = None
    output_gib: float = Field(default=1.0, gt=0, le=1e6)
    keep_free_gib: float = Field(default=0.25, ge=0, le=1e6)
    executor: str = "local"
    objective: str = "wct"
    solver: str = "price"
    policy: str | None = None
    policy_options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    every: Time = 60.0
    length: Time = 300.0
    budget: Time = 1.0
    grace: Time = 60.0
    runs: Time = 3600.0
    preempt_unsaved: bool = False
    nodes: tuple[NodeSettings, ...] = ()
    tenants: tuple[TenantSettings, ...] = ()
    resources: dict[str, float] = Field(default_factory=dict)
    energy_price_per_kwh: Rates | None = None
    carbon_g_per_kwh: Rates | None = None
    tiers: tuple[TierSettings, ...] = ()
    limits: LimitSettings = LimitSettings()
    windows: tuple[WindowSettings, ...] = ()
    api: ApiSettings = ApiSettings()
    retention: RetentionSettings = RetentionSettings()
    notices: NoticeSettings = NoticeSettings()
    kueue: KueueSettings = KueueSettings()
    shares: SharesSettings | None = None
    _tables: dict[str, PluginOptions] = PrivateAttr(default_factory=dict)

    def table(self, executor: str) -> Any:
        """Return what the table of an executor says, its defaults where there is none."""
        options = self._tables.get(executor)
        return registry.options_of("executors", executor)() if options is None else options

    @property
    def half_life_s(self) -> float | None:
        """Return the half-life of use, None where use is not counted."""
        return None if self.shares is None else float(self.shares.half_life)

    @property
    def attempts(self) -> Path:
        """Return the folder in which jobs report and save, which every node sees under this
        name."""
        return self.shared or self.state

    def rates(self, now_s: float) -> dict[str, Any]:
        """Return what is known of what a kWh costs and emits, by the fields of a cluster."""
        return {
            "energy_price_per_kwh": known(self.energy_price_per_kwh, now_s),
            "carbon_g_per_kwh": known(self.carbon_g_per_kwh, now_s),
        }

    @property
    def cluster(self) -> Cluster:
        """Return what all nodes share, and the nodes that the file names."""
        return Cluster(
            nodes=tuple(node for part in self.nodes for node in part.nodes()),
            resources=self.resources,
            tiers=tuple(tier.tier() for tier in self.tiers),
        )


def read_settings(path: Path) -> Settings:
    """Read and check cluster.toml. Raises InputError naming every fault."""
    parsed = read_toml(path)
    if not parsed:
        raise InputError(f'{path}: is empty; such a file starts with format = "{FORMAT}"')
    tables, of_tables = _read_tables(parsed)
    try:
        settings = Settings.model_validate(parsed)
        faults = list(_faults(settings))
    except ValidationError as error:
        kinds: list[type[Part]] = [*Part.__subclasses__(), TenantSettings]
        known = {field for kind in kinds for field in kind.model_fields}
        known.update(registry.names("executors"))
        data = json.dumps(parsed, default=str)
        faults = list(shape_faults(error.errors(include_url=False), data, known))
    if faults or of_tables:
        raise FaultyFileError(str(path), [*faults, *of_tables]) from None
    settings._tables.update(tables)
    tenants = tuple(tenant.tenant() for tenant in settings.tenants)
    # What no round could be about is no cluster.
    check_instance(Instance(name=str(path), cluster=settings.cluster, tenants=tenants))
    folders = {name: getattr(settings, name) for name in ("state", "shared", "outputs")}
    return settings.model_copy(
        update={
            name: (path.parent / folder).absolute()
            for name, folder in folders.items()
            if folder is not None
        }
    )


def _read_tables(parsed: dict[str, Any]) -> tuple[dict[str, PluginOptions], list[Fault]]:
    """Take the tables of executors out of a file: their options, and the faults in them."""
    tables: dict[str, PluginOptions] = {}
    faults: list[Fault] = []
    for name in registry.names("executors"):
        if name != parsed.get("executor") and not isinstance(parsed.get(name), dict):
            continue
        given = parsed.pop(name, {})
        try:
            declared = registry.options_of("executors", name)
        except SolverUnavailableError as error:
            faults.append(Fault("executor", str(error), "install what it needs, or choose another"))
            continue
        options, wrong = read_table(name, declared, given)
        faults += wrong
        if options is not None:
            tables[name] = options
    return tables, faults


def _window_faults(path: str, window: WindowSettings, settings: Settings) -> Iterator[Fault]:
    try:
        window.node_names()
    except ValueError as error:
        yield Fault(f"{path}.nodes", str(error), "write names as gpu-[0-3,7]")
    if (window.start is None) == (window.every is None):
        remedy = 'give start = 2026-08-01T18:00:00, or every = "sunday" and at = "18:00"'
        yield Fault(path, "it must say either when it is, or how often", remedy)
    elif window.start is not None and not abs(window.start.year - 1970) < 250:
        yield Fault(f"{path}.start", "is not a date of these centuries", "correct the year")
    if not 0 < float(window.length) <= 366 * 86400:
        yield Fault(f"{path}.length", "must be longer than 0 s, a year at most", 'write "4h"')
    for name in window.resources:
        if name not in settings.resources:
            yield Fault(f"{path}.resources", f"{name!r} is not in resources", "add it there")
    for name in window.tenants:
        if name not in {tenant.name for tenant in settings.tenants}:
            yield Fault(f"{path}.tenants", f"{name!r} is not in tenants", "add it, or leave it out")


def _faults(settings: Settings) -> Iterator[Fault]:
    yield from settings.notices.faults()
    for i, window in enumerate(settings.windows):
        yield from _window_faults(f"windows[{i}]", window, settings)
    names = []
    for i, part in enumerate(settings.nodes):
        try:
            names += [node.name for node in part.nodes()]
        except ValueError as error:
            yield Fault(f"nodes[{i}].name", str(error), "write names as gpu-[0-3,7]")
    if len(names) > MAX_NODES:
        yield Fault("nodes", f"there are more than {MAX_NODES}", "correct the range")
    tenants = [tenant.name for tenant in settings.tenants]
    tiers = [tier.name for tier in settings.tiers]
    for what, every in (("nodes", names), ("tenants", tenants), ("tiers", tiers)):
        for name in (name for name, count in Counter(every).items() if count > 1):
            yield Fault(what, f"{name!r} appears more than once", "rename or remove one")
    yield from _label_faults(settings, tenants)
    yield from _tier_faults(settings, tenants)
    for what in ("every", "length", "budget", "runs"):
        if not float(getattr(settings, what)) > 0:
            yield Fault(what, "must be longer than 0 s", "write a length as 90s, 5m or 2h")
    yield from _plugin_faults(settings)


def _plugin_faults(settings: Settings) -> Iterator[Fault]:
    try:
        objective = wanted(settings.objective, Cluster(**settings.rates(0.0)))
    except InputError as error:
        yield Fault("objective", str(error), "see `optsched list objectives`")
    else:
        if settings.policy is not None:
            try:
                registry.policy(settings.policy, objective, settings.policy_options)
            except OptschedError as error:
                yield Fault("policy", str(error), "see `optsched list policies`")
        elif settings.policy_options:
            yield Fault("policy_options", "there is no policy for them", "name a policy")
    groups: dict[str, registry.Group] = {"solver": "rounds", "executor": "executors"}
    for what, group in groups.items():
        name, known = getattr(settings, what), registry.names(group)
        if name not in known:
            remedy = f"choose from {', '.join(known)}"
            yield Fault(what, f"{name!r} is unknown{perhaps(name, known)}", remedy)


def _label_faults(settings: Settings, tenants: list[str]) -> Iterator[Fault]:
    for label, limits in settings.limits.labels.items():
        for name in limits.tenants:
            if name not in tenants:
                says = f"there is no tenant {name!r}{perhaps(name, tenants)}"
                path = f"limits.labels.{label}.tenants"
                yield Fault(path, says, "name one of [[tenants]]")


def _tier_faults(settings: Settings, tenants: list[str]) -> Iterator[Fault]:
    counts = Counter(tier.priority for tier in settings.tiers)
    for i, tier in enumerate(settings.tiers):
        if counts[tier.priority] > 1:
            says = f"{tier.priority} is the priority of more than one tier"
            yield Fault(f"tiers[{i}].priority", says, "give each its own")
        for name in tier.tenants:
            if name not in tenants:
                says = f"there is no tenant {name!r}{perhaps(name, tenants)}"
                yield Fault(f"tiers[{i}].tenants", says, "name one of [[tenants]]")
