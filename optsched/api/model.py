"""A model of an instance, made step by step."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import InputError, perhaps
from ..hostlist import expand_hostlist
from ..model import (
    UNMEASURED,
    Cluster,
    Instance,
    Job,
    Mode,
    Node,
    Profile,
    Running,
    Slot,
    Suspended,
    Tenant,
)
from ..physics import cpus

if TYPE_CHECKING:
    from .results import Planned

Noun = TypeVar("Noun")


class Model:
    """An instance under construction: add nodes, jobs and what runs now, then solve it.

    `instance` is what has been added so far, checked: every fault is in one InputError.

    >>> m = Model("lab")
    >>> m.add_nodes("a100-[0-3]", gpu_type="a100", gpus=8)
    >>> bert = m.add_job("bert", gpus=8, hours=2, checkpoint_s=25)
    >>> m.add_running(bert, "a100-0", remaining_s=3600)
    >>> m.add_job("eval", gpus=8, minutes=10, after=[bert])
    >>> print(m.solve(objective="wct"))
    """

    def __init__(self, name: str = "instance", *, now_s: float = 0.0, **cluster: Any) -> None:
        """Start an empty model; `cluster` are fields of `Cluster` such as `resources`."""
        self.name = name
        self.now_s = now_s
        self._cluster = _made(Cluster, cluster)
        self._nodes: list[Node] = []
        self._tenants: list[Tenant] = []
        self._jobs: dict[str, Job] = {}
        self._running: list[Running] = []
        self._suspended: list[Suspended] = []

    def add_nodes(self, names: str, *, gpus: int = 0, **more: Any) -> tuple[Node, ...]:
        """Add equal nodes by a hostlist such as `a100-[0-3]`; `more` are fields of `Node`."""
        nodes = tuple(
            _made(Node, {"name": name, "gpus": gpus, **more}) for name in _expanded(names)
        )
        self._nodes += nodes
        return nodes

    def add_tenant(self, name: str, **more: Any) -> Tenant:
        """Add a tenant; `more` are fields of `Tenant`, such as `gpu_quota`."""
        tenant = _made(Tenant, {"name": name, **more})
        self._tenants.append(tenant)
        return tenant

    def add_job(
        self,
        id: str,
        *,
        hours: float = 0.0,
        minutes: float = 0.0,
        seconds: float = 0.0,
        after: Iterable[Job | str] = (),
        profile: Profile | None = None,
        **more: Any,
    ) -> Job:
        """Add a job that runs for so long at rate 1, once the jobs in `after` have completed.

        `more` are fields of `Job` (`gpus`, `weight`, `deadline_s`, `tenant`, ...) and of `Profile`
        (`checkpoint_s`, `startup_s`, `rate`, ...). The job is returned so that others can name it.
        """
        if id in self._jobs:
            raise InputError(f"job {id!r} is in the model already; give another id")
        measured = {field.name for field in fields(Profile)} - {"name", "gpus"}
        of_profile = {name: more.pop(name) for name in measured & more.keys()}
        if of_profile and profile is not None:
            raise InputError(f"job {id}: give either profile or {', '.join(sorted(of_profile))}")
        length_s = 3600.0 * hours + 60.0 * minutes + seconds
        if length_s:
            more["duration_s"] = length_s
        more["after"] = tuple(other if isinstance(other, str) else other.id for other in after)
        more["profile"] = profile or (_made(Profile, of_profile) if of_profile else UNMEASURED)
        job = self._jobs[id] = _made(Job, {"id": id, "submit_s": self.now_s, **more})
        return job

    def add_running(
        self,
        job: Job | str,
        nodes: str | Mapping[str, int],
        *,
        remaining_s: float,
        mode: Mode | None = None,
        **more: Any,
    ) -> Running:
        """Say that a job runs now, on the nodes of a hostlist (filled in turn) or on so many GPUs
        of each, with `remaining_s` of reference work to do; `more` are fields of `Running`."""
        known = self._known(job)
        gpus = known.gpus if isinstance(known.gpus, int) else known.gpus.max
        held = nodes if isinstance(nodes, Mapping) else self._filled(nodes, gpus)
        if mode is None:
            mode = known.modes[0] if known.modes else self._mode(known, held)
        entry = {
            "job": known.id,
            "mode": mode,
            "placement": tuple(
                Slot(node=node, gpus=count, cpus=cpus(mode, count)) for node, count in held.items()
            ),
            "started_s": self.now_s,
            "remaining_s": remaining_s,
        }
        running = _made(Running, entry | more)
        self._running.append(running)
        return running

    def add_suspended(self, job: Job | str, *, remaining_s: float, preemptions: int = 1) -> None:
        """Say that a job ran before and waits with `remaining_s` of reference work to do."""
        entry = {"job": self._known(job).id, "remaining_s": remaining_s, "preemptions": preemptions}
        self._suspended.append(_made(Suspended, entry))

    @property
    def instance(self) -> Instance:
        """Return the instance as it stands. Raises InputError naming every fault."""
        from ..files import check_instance

        instance = Instance(
            name=self.name,
            now_s=self.now_s,
            cluster=replace(self._cluster, nodes=tuple(self._nodes)),
            tenants=tuple(self._tenants),
            jobs=tuple(self._jobs.values()),
            running=tuple(self._running),
            suspended=tuple(self._suspended),
        )
        check_instance(instance)
        return instance

    def solve(self, objective: str = "wct", **how: Any) -> "Planned":
        """Plan the instance; see `optsched.solve`."""
        from . import solve

        return solve(self, objective, **how)

    def _known(self, job: Job | str) -> Job:
        name = job if isinstance(job, str) else job.id
        if name not in self._jobs:
            raise InputError(f"job {name!r} is not in the model; add it first")
        return self._jobs[name]

    def _filled(self, nodes: str, gpus: int) -> dict[str, int]:
        """Return how many of `gpus` GPUs each node of a hostlist gets, the first ones most."""
        there = {node.name: node.gpus for node in self._nodes}
        held = {}
        for name in _expanded(nodes):
            if name not in there:
                raise InputError(f"node {name!r} is not in the model{perhaps(name, there)}")
            held[name] = min(gpus, there[name])
            gpus -= held[name]
        return held

    def _mode(self, job: Job, held: Mapping[str, int]) -> Mode:
        """Return how a job runs that holds these GPUs."""
        types = {node.gpu_type for node in self._nodes if held.get(node.name)}
        return Mode(
            gpus=sum(held.values()),
            gpu_type=next(iter(types)) if len(types) == 1 else None,
            cpus_per_gpu=min(job.profile.cpus_per_gpu, default=0),
            cpus=0 if sum(held.values()) else job.cpus,
            resources=job.resources,
        )


def _expanded(names: str) -> list[str]:
    try:
        return expand_hostlist(names)
    except ValueError as error:
        raise InputError(str(error)) from None


def _made(kind: type[Noun], given: Mapping[str, Any]) -> Noun:
    """Make a noun. Raises InputError for a field that it does not have, or lacks."""
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise InputError(f"{kind.__name__} has no field {name!r}{perhaps(name, known)}")
    try:
        return kind(**given)
    except TypeError as error:
        raise InputError(f"{kind.__name__}: {error}") from None
