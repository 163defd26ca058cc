"""Measurements of a job."""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from ..frozen import frozen
from .quantity import (
    Duration,
    Epochs,
    Fraction,
    Gib,
    PositiveCount,
    PositiveGib,
    Rate,
    Seconds,
    Watts,
)
from .value import Value, empty


@frozen
class Locality:
    """Rate by how far a gang is spread: one node, one rack, or anywhere. Absent means no loss."""

    node: Rate = 1.0
    rack: Rate | None = None
    cluster: Rate | None = None


@frozen
class Sharing(Value):
    """Rate when another job runs on the same GPUs.

    `duty` is the share of a step for which the GPU is busy; `with` (here `partners`) gives the
    measured rate beside jobs whose profile has that name.
    """

    duty: Fraction | None = None
    partners: Mapping[str, Rate] = field(default_factory=empty)


@frozen
class Clock:
    """Rate and electric power at a GPU clock, relative to those at the default clock."""

    rate: Rate
    power: Rate


@frozen
class Phase:
    """Epochs of a training that run alike, at one batch size: how many, and the reference work of
    each."""

    batch_size: PositiveCount
    epochs: Epochs
    epoch_s: Duration


Mixing = Literal["bottleneck", "sum"]


@frozen
class Profile(Value):
    """Rates and costs of one job; every field is optional, absent means rate 1, no demand, no cost.

    Rate tables: `rate` by GPU type (a type not listed cannot run the job), `gpus` by GPU count,
    `cpus_per_gpu` by cores for each GPU; counts between two points are interpolated linearly, below
    the first point on the line to the origin, beyond the last point the last rate holds. Jobs are
    started with listed core counts; the interpolation serves jobs found running with others.
    `clocks` are the GPU clocks, in MHz, at which the job may run besides the default one.

    `memory_rates` are the amounts of host memory below `memory_gib_per_gpu` with which the job may
    be started, and the highest rate with each: less of the data set is cached, and the slower of
    cores and memory decides. `gpu_memory_rates` are the amounts of GPU memory below
    `gpu_memory_gib`, with smaller micro-batches whose gradients are accumulated, and the rate with
    each relative to that without.

    `mixing` is how fast a gang on GPUs of several types is: "bottleneck" as its slowest type,
    because all workers go in step; "sum" as all its GPUs together, each at the pace of its own
    type, because copies of the job on each type work on their own and only join their progress now
    and then (what that costs belongs into `gpus`).

    `network_gbps` is what a gang over several racks takes of the uplink of each, `network_duty` the
    share of a step in which it uses them when it has them alone. `memory_gbps` is what each GPU's
    part of the job takes of the bandwidth of its host's memory (a CPU-only job as a whole, in its
    first listed mode; in one that takes twice as long half), `memory_duty` the share of a step
    bound by that. `power_w` is the electric power of each GPU by type.

    `fetch_s` is what it takes to fetch the model, of `model_gib`, to a node that does not have it
    in its cache, on top of `startup_s`; models are told apart by `name`, one without is in no
    cache.

    `checkpoint_every_s` None: the job saves on demand, a preemption holds its GPUs for
    `checkpoint_s`. A number: only periodic checkpoints exist, and a preemption loses the work since
    the last one.

    `phases` tell, from the first to the last, how the batch size changes: what is done at what
    pace is in the rates, and only who predicts batch sizes reads them.
    """

    name: str | None = None
    rate: Mapping[str, Rate] = field(default_factory=empty)
    gpus: Mapping[PositiveCount, Rate] = field(default_factory=empty)
    cpus_per_gpu: Mapping[PositiveCount, Rate] = field(default_factory=empty)
    locality: Locality | None = None
    sharing: Sharing | None = None
    gpu_memory_gib: Gib = 0.0
    memory_gib_per_gpu: Gib = 0.0
    memory_rates: Mapping[PositiveGib, Rate] = field(default_factory=empty)
    gpu_memory_rates: Mapping[PositiveGib, Fraction] = field(default_factory=empty)
    mixing: Mixing = "bottleneck"
    network_gbps: Rate = 0.0
    network_duty: Fraction = 1.0
    memory_gbps: Rate = 0.0
    memory_duty: Fraction = 1.0
    checkpoint_s: Seconds = 0.0
    restore_s: Seconds = 0.0
    startup_s: Seconds = 0.0
    model_gib: Gib = 0.0
    fetch_s: Seconds = 0.0
    checkpoint_every_s: Seconds | None = None
    power_w: Mapping[str, Watts] = field(default_factory=empty)
    clocks: Mapping[PositiveCount, Clock] = field(default_factory=empty)
    phases: tuple[Phase, ...] = ()

    __hash__ = Value.__hash__


UNMEASURED = Profile()
"""The profile of a job nothing is known of: rate 1 anywhere, no overheads."""
