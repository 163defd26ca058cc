"""What a cluster model says: nodes, who submits what, when, how long it runs and how it fails."""

from dataclasses import field

from ....frozen import frozen
from ....model import UNMEASURED, Profile
from .distribution import Quantiles

HOURS, WEEKDAYS = 24, 7


@frozen
class NodeKind:
    """Equal machines of a cluster: `count` of them. None is not published (or, for memory,
    undisclosed)."""

    gpu_type: str | None
    count: int
    gpus: int
    gpu_memory_gib: float | None = None
    cpus: int | None = None
    memory_gib: float | None = None


@frozen
class Row:
    """Jobs of one size: `share` of all jobs (shares need not add up to 1), their run time, and what
    they are.

    `cpus` and `memory_gib` are of jobs without GPUs. `profile` holds what the trace itself says.
    """

    share: float
    gpus: int
    run_s: Quantiles
    kind: str = "train"
    cpus: int = 0
    memory_gib: float = 0.0
    profile: Profile = UNMEASURED


@frozen
class Group:
    """A virtual cluster: its share of the jobs, and its GPUs relative to those of the others."""

    name: str
    share: float
    gpus: float


@frozen
class Rhythm:
    """When jobs are submitted.

    `hours` and `weekdays` (Monday first) are relative rates; those of single days are log-normal
    around them with standard deviation `day_spread` and a correlation of `day_memory` from day to
    day. `gaps` is the distribution of intervals with that taken out; each is in part (`gap_burst`)
    a level that changes slowly (`gap_memory` from job to job), which makes bursts. Jobs within
    `batch_gap` mean intervals of the one before repeat it with probability `batch_chance`: same
    user, same command. `per_day` is jobs a day on the whole real cluster.
    """

    per_day: float
    hours: tuple[float, ...]
    weekdays: tuple[float, ...]
    day_spread: float
    day_memory: float
    gaps: Quantiles
    gap_burst: float
    gap_memory: float
    batch_gap: float
    batch_chance: float


@frozen
class Cause:
    """One reason why attempts fail.

    `trials` are published counts of failed attempts by gang size, `attempts` how many one job of it
    has on average. `after_s` is the run time to failure. An attempt that `resumes` keeps its work
    up to its last checkpoint: what failed was the machine, not the program.
    """

    kind: str
    trials: tuple[float, ...]
    attempts: float
    after_s: Quantiles
    resumes: bool = False


@frozen
class Failing:
    """How jobs fail: gang sizes up to `edges[i]` (the last bucket has none) do so with chance
    `chance[i]`.

    `source` says whose counts of the causes these are."""

    source: str
    edges: tuple[int, ...]
    chance: tuple[float, ...]
    causes: tuple[Cause, ...]


@frozen
class Model:
    """A published cluster and its workload. `published` has totals that a sample should show, by
    name of `fit.TOTALS`; `sources` says where all numbers are from, and which are assumptions."""

    name: str
    title: str
    sources: str
    nodes: tuple[NodeKind, ...]
    reference_gpu: str | None
    rows: tuple[Row, ...]
    rhythm: Rhythm
    failing: Failing
    users: int
    user_skew: float
    groups: tuple[Group, ...] = ()
    published: dict[str, float] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of the real cluster."""
        return sum(kind.count * kind.gpus for kind in self.nodes)
