"""cluster.toml: what `optsched run` drives, and how."""

import json
import math
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ..cluster import Cluster, Node, Tenant
from ..duration import parse_duration
from ..errors import InputError, perhaps
from ..faults import Fault
from ..file_faults import FaultyFile, shape_faults
from ..hostlist import MAX_NODES, expand_hostlist
from ..objectives import parse as parse_objective

FORMAT = "optsched-cluster/1"


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
    """A node, or several of one kind (`name = "gpu-[0-3]"`). With `emulate` its GPUs need not exist."""

    name: str
    gpu_type: str | None = None
    gpus: int = Field(default=0, ge=0)
    gpu_memory_gib: float | None = Field(default=None, gt=0)
    cpus: int | None = Field(default=None, ge=0)
    memory_gib: float | None = Field(default=None, gt=0)
    rack: str | None = None
    emulate: bool = False

    def nodes(self) -> tuple[Node, ...]:
        """The nodes of this table. Raises ValueError for a faulty name."""
        return tuple(
            Node(
                name=name, gpu_type=self.gpu_type, gpus=self.gpus, gpu_memory_gib=self.gpu_memory_gib, cpus=self.cpus,
                memory_gib=self.memory_gib, rack=self.rack,
            )
            for name in expand_hostlist(self.name)
        )


class TenantSettings(Part):
    """A tenant: its quota, and who belongs to it (user names; without any, everybody may name it)."""

    name: str
    gpu_quota: int | None = Field(default=None, ge=0)
    borrow_gpus: int = Field(default=0, ge=0)
    weight: float = Field(default=1.0, gt=0)
    users: tuple[str, ...] = ()

    def tenant(self) -> Tenant:
        """The noun."""
        return Tenant(
            name=self.name, gpu_quota=self.gpu_quota, borrow_gpus=self.borrow_gpus, weight=self.weight
        )


class ApiSettings(Part):
    """Where commands reach the controller: a unix socket in the state folder, and a loopback port where one is given.
    `administrators` (user names) may change everybody's jobs; root and the controller's own user always may."""

    port: int | None = Field(default=None, ge=0, le=65535)
    administrators: tuple[str, ...] = ()


class SlurmSettings(Part):
    """How the executor `slurm` reaches its nodes: those of `partition`, or of `reservation`, of which optsched is the
    only user. `account` pays; `options` are further words for sbatch. Slurm is asked every `poll`, and each of its
    programs may take `timeout`. `conf` is the slurm.conf, `programs` the folder of Slurm's programs and `python` the
    interpreter on the nodes, where they are not the usual ones. With `sbatch` jobs that users submit to Slurm
    themselves are run too, those that its job_submit.lua holds (see `optsched setup slurm --sbatch`)."""

    partition: str | None = None
    reservation: str | None = None
    account: str | None = None
    options: tuple[str, ...] = ()
    poll: Time = Field(default=1.0, validate_default=True)
    timeout: Time = Field(default=10.0, validate_default=True)
    conf: Path | None = None
    programs: Path | None = None
    python: str | None = None
    sbatch: bool = False


class RaySettings(Part):
    """Where Ray's head answers (`address`, with `headers` or the bearer token in `token_file`, each call within
    `timeout`), how often it is asked (`poll`), the label whose values are the names of nodes, the Python of the nodes,
    and for how long Ray may leave an attempt waiting."""

    address: str = "http://127.0.0.1:8265"
    headers: dict[str, str] = Field(default_factory=dict)
    token_file: Path | None = None
    timeout: Time = 10.0
    poll: Time = 1.0
    label: str = "optsched-node"
    python: str = "python3"
    start_timeout: Time = 60.0


class VolumeSettings(Part):
    """A volume that every pod has at `mount`: a PersistentVolumeClaim (`claim`), an export of NFS (`nfs`, as
    `server:/export`) or a folder of the node (`host`)."""

    mount: str
    claim: str | None = None
    nfs: str | None = None
    host: str | None = None
    sub_path: str | None = None
    read_only: bool = False


class KubernetesSettings(Part):
    """How the executor `kubernetes` reaches a cluster (`kubeconfig` and `context`, else as kubectl does, or as a pod of
    it), in which `namespace` it makes pods, from which `image` where a job names none, and which `volumes` they have,
    that of the state folder among them. `gpu` is the resource that is a GPU, `node_selector` a label selector for the
    nodes, `rack_label` the label that is their rack. `pod` and `container` are further fields of pods and their
    container. Kubernetes is asked every `poll`, each call within `timeout`; an attempt has `start_timeout` to begin."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str = "optsched"
    image: str | None = None
    gpu: str = "nvidia.com/gpu"
    node_selector: str | None = None
    rack_label: str = "topology.kubernetes.io/rack"
    volumes: tuple[VolumeSettings, ...] = ()
    pod: dict[str, Any] = Field(default_factory=dict)
    container: dict[str, Any] = Field(default_factory=dict)
    python: str = "python3"
    poll: Time = 1.0
    timeout: Time = 10.0
    start_timeout: Time = 600.0


class KueueSettings(Part):
    """What `optsched kueue` decides on: the Workloads of `queues` (ClusterQueues; all without any). A step between two
    priorities that are in use counts `step` times in weight."""

    queues: tuple[str, ...] = ()
    step: float = Field(default=4.0, ge=1, le=1000)


class Settings(Part):
    """The whole file. `state` is the folder of journal and attempts, relative to the file.

    A round is decided whenever something has changed, and at the latest `every` after the one before; `budget` is its
    wall clock. `length` is the time over which a round's options are valued. `grace` is how long a job may save, and
    `runs` how long one whose duration nobody states is believed to run, unless it says otherwise.
    """

    format: Literal["optsched-cluster/1"]
    name: str = "cluster"
    state: Path = Path("state")
    executor: str = "local"
    objective: str = "wct"
    solver: str = "price"
    every: Time = 60.0
    length: Time = 300.0
    budget: Time = 1.0
    grace: Time = 60.0
    runs: Time = 3600.0
    nodes: tuple[NodeSettings, ...] = ()
    tenants: tuple[TenantSettings, ...] = ()
    resources: dict[str, float] = Field(default_factory=dict)
    api: ApiSettings = ApiSettings()
    ray: RaySettings = RaySettings()
    slurm: SlurmSettings = SlurmSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    kueue: KueueSettings = KueueSettings()

    @property
    def cluster(self) -> Cluster:
        """What all nodes share, and the nodes that the file names."""
        return Cluster(nodes=tuple(node for part in self.nodes for node in part.nodes()), resources=self.resources)


def read_settings(path: Path) -> Settings:
    """Read and check cluster.toml. Raises InputError naming every fault."""
    try:
        with path.open("rb") as file:
            parsed: dict[str, Any] = tomllib.load(file)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is no TOML: {error}") from None
    if not parsed:
        raise InputError(f'{path}: is empty; such a file starts with format = "{FORMAT}"')
    try:
        settings = Settings.model_validate(parsed)
    except ValidationError as error:
        known = {field for part in Part.__subclasses__() for field in part.model_fields}
        data = json.dumps(parsed, default=str)
        raise FaultyFile(str(path), list(shape_faults(error.errors(include_url=False), data, known))) from None
    if faults := list(_faults(settings)):
        raise FaultyFile(str(path), faults)
    return settings.model_copy(update={"state": (path.parent / settings.state).absolute()})


def _faults(settings: Settings) -> Iterator[Fault]:
    names = []
    for i, part in enumerate(settings.nodes):
        try:
            names += [node.name for node in part.nodes()]
        except ValueError as error:
            yield Fault(f"nodes[{i}].name", str(error), "write names as gpu-[0-3,7]")
    if len(names) > MAX_NODES:
        yield Fault("nodes", f"there are more than {MAX_NODES}", "correct the range")
    for what, found in (("nodes", names), ("tenants", [tenant.name for tenant in settings.tenants])):
        for name in (name for name, count in Counter(found).items() if count > 1):
            yield Fault(what, f"{name!r} appears more than once", "rename or remove one")
    for what, seconds in (("every", settings.every), ("length", settings.length), ("budget", settings.budget),
                          ("slurm.poll", settings.slurm.poll), ("slurm.timeout", settings.slurm.timeout),
                          ("ray.poll", settings.ray.poll), ("ray.timeout", settings.ray.timeout),
                          ("ray.start_timeout", settings.ray.start_timeout),
                          ("kubernetes.poll", settings.kubernetes.poll),
                          ("kubernetes.timeout", settings.kubernetes.timeout),
                          ("kubernetes.start_timeout", settings.kubernetes.start_timeout)):
        if not float(seconds) > 0:
            yield Fault(what, "must be longer than 0 s", "write a length as 90s, 5m or 2h")
    try:
        parse_objective(settings.objective)
    except InputError as error:
        yield Fault("objective", str(error), "see `optsched list objectives`")
    for what, group, name in (("solver", "rounds", settings.solver), ("executor", "executors", settings.executor)):
        known = sorted(entry.name for entry in entry_points(group=f"optsched.{group}"))
        if name not in known:
            yield Fault(what, f"{name!r} is unknown{perhaps(name, known)}", f"choose from {', '.join(known)}")
