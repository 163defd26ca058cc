"""cluster.toml: what `optsched run` drives, and how."""

import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    WrapValidator,
)

from ..duration import LONGEST_S
from ..errors import InputError, SolverUnavailableError
from ..files import check_instance
from ..files.faults import Fault
from ..files.shape_faults import FaultyFileError, shape_faults
from ..files.toml import read_toml
from ..hostlist import expand_hostlist
from ..model import Cluster, Instance, Label, Node, Tenant, Tier
from ..model.quantity import Amount, Count
from ..plugins import registry
from ..plugins.options import Duration, PluginOptions, PositiveDuration, read_table
from .rates import TIME_OF_DAY, Rates, known
from .settings_faults import faults_of

FORMAT = "optsched-cluster/1"
MOST_WEIGHT, MOST_PRIORITY = 1e9, 10**9
SHORTEST_HALF_LIFE_S = 60.0


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


class JobLimits(Part):
    """The most that jobs may ask for, how many of them may wait and run, and the GPU-hours that
    they may use in a period; None: as others, or any number. `time_limit` is that of jobs which
    name none, `max_time_limit` the longest."""

    time_limit: PositiveDuration | None = None
    max_time_limit: PositiveDuration | None = None
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
    any of these, everybody. Jobs that were given to Slurm with one of these `qos` or `accounts`
    belong to it as well; a tier that lists nothing else is open to nobody else."""

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


class LimitSettings(UserLimits):
    """The most that jobs may ask for, unless their tenant or, before that, `users` (by name) says
    otherwise, how many jobs each user may have waiting and running, and GPUs held, at once, and
    how many GPU-hours he may use in a period, which runs by the calendar in UTC. Root, the
    controller's own user and `api.administrators` may go beyond what may be asked for and
    `max_queued`."""

    max_weight: MostWeight = 1.0
    max_priority: MostPriority = 0
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


def _kept(given: object, duration: Callable[[object], float]) -> float:
    return math.inf if given == FOREVER else duration(given)


Kept = Annotated[Duration, WrapValidator(_kept)]


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
    timeout: Duration = 10.0
    smtp: str | None = None
    smtp_from: str | None = None
    smtp_starttls: bool = False
    smtp_user: str | None = None
    smtp_password_file: Path | None = None
    email_domains: tuple[str, ...] = ()

    def faults(self) -> Iterator[Fault]:
        """Yield what is wrong with it."""
        if self.webhook is not None and not _is_of_web_server(self.webhook):
            remedy = "write https://HOST/PATH"
            yield Fault("notices.webhook", "is not the address of a web server", remedy)
        if not 0 < self.timeout <= 60:
            remedy = "write a length as 10s"
            yield Fault("notices.timeout", "must be longer than 0 s and at most 60 s", remedy)
        port = (self.smtp or "").partition(":")[2]
        if self.smtp is not None and not (SMTP.fullmatch(self.smtp) and int(port or 25) < 1 << 16):
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


def _is_of_web_server(address: str) -> bool:
    """Return whether requests can be sent to an address."""
    try:
        parts = urlsplit(address)
        parts.port  # noqa: B018 - raises ValueError
    except ValueError:
        return False
    is_plain = address.isascii() and address.isprintable() and " " not in address
    return is_plain and parts.scheme in ("http", "https") and bool(parts.hostname)


def _half_life(seconds: float) -> float:
    if not SHORTEST_HALF_LIFE_S <= seconds <= LONGEST_S:
        raise ValueError(f"must be between 1 min and {LONGEST_S:g} s")
    return seconds


class SharesSettings(Part):
    """That rounds favour jobs of tenants and users which have used less than they are entitled to:
    use counts half after `half_life`."""

    half_life: Annotated[Duration, AfterValidator(_half_life)] = 7 * 86400.0


WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
TimeOfDay = Annotated[str, Field(pattern=TIME_OF_DAY)]


class WindowSettings(Part):
    """A time in which nodes (all without any) take no jobs but those of `tenants` and `users`: once
    from `start` on, or on every day, or every such day of the week, from `at` on, for `length`.
    With `resources` there is then only so much of these, and with `quotas` the jobs of a tenant
    hold only so many GPUs, borrowed ones included; nodes are then only meant if they are named."""

    name: str = Field(default="maintenance", min_length=1, max_length=63)
    nodes: tuple[str, ...] = ()
    start: datetime | None = None
    every: (
        Literal["day", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
        | None
    ) = None
    at: TimeOfDay = "00:00"
    length: Duration
    tenants: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    resources: dict[str, Amount] = Field(default_factory=dict)
    quotas: dict[str, Count] = Field(default_factory=dict)

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
    every: Duration = 60.0
    length: Duration = 300.0
    budget: Duration = 1.0
    grace: Duration = 60.0
    runs: Duration = 3600.0
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
        return None if self.shares is None else self.shares.half_life

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
        faults = list(faults_of(settings))
    except ValidationError as error:
        kinds: list[type[Part]] = [*Part.__subclasses__(), TenantSettings, LimitSettings]
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
