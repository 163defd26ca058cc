"""Profiles that are drawn: how busy jobs keep their GPUs, what spreading costs them, how fast they
are on GPUs of one model that differ in speed, and what they take of the bandwidth of host memory.
And deadlines."""

import math
import random
from dataclasses import replace

from ...errors import InputError
from ...model import Cluster, Instance, Job, Locality, Profile, Sharing, gang
from ..profiles import with_profiles

SLOWNESS = {"fastest": -0.60, "fast": -0.35, "median": 0.0, "slow": 0.51, "slowest": 1.90}
"""Classes of nodes, a fifth of all each, with the mean of an exponential deviate in each fifth less
that in the third: far more GPUs of one model are slow outliers than fast ones."""
SENSITIVITIES = (1.0, 0.4, 0.05)
"""How much of a node's slow-down a job feels: one bound by compute, one by both, one by memory."""


STREAMING, STREAM_GBPS = 0.5, 80.0
"""The share of CPU-only jobs that stream through memory, and what each of their cores takes."""
PREPARE_GBPS, PREPARE_DUTY = 8.0, 0.3
"""What each core that prepares data for a GPU takes of memory, and the share of a step bound by
it."""


def with_drawn_profiles(
    instance: Instance,
    seed: int,
    *,
    duty: tuple[float, float] | None = None,
    locality: float | None = None,
    variability: float | None = None,
) -> Instance:
    """Return the instance with drawn profiles, of what is given: `duty` evenly from a range;
    `locality`, the rate of a gang over several nodes that fits on one; `variability`, the scale of
    the logarithm of a step's time over nodes, for the jobs that feel it most. Raises InputError for
    numbers out of range."""
    for name, share in (("--locality", locality), ("--variability", variability)):
        if share is not None and not 0 < share <= 1:
            raise InputError(f"{name} {share:g}: must be above 0, and 1 at most")
    draw = random.Random(f"profiles {seed}")
    cluster = instance.cluster if variability is None else _with_speeds(instance.cluster, draw)
    largest = max(node.gpus for node in cluster.nodes)

    def profile(job: Job) -> Profile:
        own = job.profile
        if not gang(job):
            return own
        if duty is not None:
            own = replace(own, sharing=Sharing(duty=round(draw.uniform(*duty), 3)))
        if locality is not None and 1 < gang(job) <= largest:
            own = replace(own, locality=Locality(rack=locality, cluster=locality))
        if variability is not None:
            felt = variability * draw.choice(SENSITIVITIES)
            rates = {name: round(math.exp(-felt * late), 4) for name, late in SLOWNESS.items()}
            own = replace(own, rate=rates)
        return own

    return replace(with_profiles(instance, profile), cluster=cluster)


def _with_speeds(cluster: Cluster, draw: random.Random) -> Cluster:
    """Return the cluster with nodes of each speed, as many of each as far as they go."""
    names = list(SLOWNESS)
    speeds = [names[i % len(names)] for i in range(len(cluster.nodes))]
    draw.shuffle(speeds)
    nodes = tuple(
        replace(node, gpu_type=speed) for node, speed in zip(cluster.nodes, speeds, strict=True)
    )
    return replace(cluster, nodes=nodes, reference_gpu="median")


def with_memory_traffic(instance: Instance, seed: int, gbps: float) -> Instance:
    """Return the instance with nodes whose memory moves `gbps` for each of their GPUs, GPU jobs
    that take of it what preparing their data takes, and CPU-only jobs of which half, drawn, stream
    through it on every core. The numbers are invented: see docs/formats.md."""
    draw = random.Random(f"memory {seed}")

    def profile(job: Job) -> Profile:
        if not gang(job):
            streams = draw.random() < STREAMING
            return replace(job.profile, memory_gbps=STREAM_GBPS * job.cpus if streams else 0.0)
        rates = job.profile.cpus_per_gpu or {1: 1.0}
        cores = min(count for count, rate in rates.items() if rate == max(rates.values()))
        return replace(job.profile, memory_gbps=PREPARE_GBPS * cores, memory_duty=PREPARE_DUTY)

    nodes = tuple(
        replace(node, memory_gbps=gbps * node.gpus) if node.gpus else node
        for node in instance.cluster.nodes
    )
    cluster = replace(instance.cluster, nodes=nodes)
    return replace(with_profiles(instance, profile), cluster=cluster)


def with_deadlines(instance: Instance, seed: int, text: str) -> Instance:
    """Return the instance whose jobs have a deadline: after their run time, times one of the
    numbers of a text as `1.2,2,10`, each as often. Raises InputError."""
    try:
        factors = [float(word) for word in text.split(",")]
    except ValueError:
        factors = [math.nan]
    if not all(1 <= factor < math.inf for factor in factors):
        raise InputError(f"--deadlines {text}: must be multiples of the run time, as 1.2,2,10")
    draw = random.Random(f"deadlines {seed}")
    jobs = tuple(
        replace(job, deadline_s=round(job.submit_s + draw.choice(factors) * job.work_s, 3))
        for job in instance.jobs
    )
    return replace(instance, jobs=jobs)


def read_duties(text: str) -> tuple[float, float]:
    """Return the least and largest duty of a text as `0.1-1`. Raises InputError."""
    low, _, high = text.partition("-")
    try:
        duties = float(low), float(high or low)
    except ValueError:
        duties = math.nan, math.nan
    if not 0 < duties[0] <= duties[1] <= 1:
        raise InputError(f"--duty {text}: must be two shares of a step, as 0.1-1")
    return duties
