"""Jobs whose gangs and run times are drawn evenly, on GPUs of one type unless a cluster is given:
what many published schedulers were first measured on. They have no profile, or the measured one of
a family."""

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace

from ...duration import parse_duration
from ...errors import InputError
from ...model import UNMEASURED, Cluster, Elastic, Instance, Job, Node, Profile, most_gpus
from ...physics import interpolate
from ..clusters import GPU_MEMORY_GIB, sizes
from ..profiles.attach import attach
from ..profiles.measured import FAMILIES
from .ranges import check_ranges

USERS = 6
GPU_TYPE = "v100"
"""That of the GPUs on which the families were measured."""
HOST_GIB_PER_GPU = 58.2
"""62.5 GB, as in the nodes in which Synergy measured what cores and memory are worth."""
CPU_JOB_CORES = (1, 2, 4, 8)


def generate(
    *,
    jobs: int,
    gpus: int,
    seed: int,
    gangs: Sequence[int] = (1, 1, 2, 4),
    run_s: tuple[float, float] = (300.0, 1800.0),
    heavy: bool = False,
    load: float = 1.0,
    gpus_per_node: int = 8,
    families: Sequence[str] = (),
    elastic: bool = False,
    cpu_jobs: float = 0.0,
    cores_per_gpu: int | None = None,
    nodes_per_rack: int | None = None,
    cluster: Cluster | None = None,
    copies: int = 1,
) -> Instance:
    """Return jobs with one of `gangs` each (what is named twice is drawn twice as often) and run
    times within `run_s`, evenly, or evenly in the logarithm where `heavy`.

    They arrive at exponential intervals such that they offer `load` times the work that the GPUs
    can do meanwhile, all at 0 where that is 0. With `families` (what is named twice is drawn twice
    as often) jobs have the measured profile of one of them, on V100; `elastic` lets a gang run on
    fewer GPUs. `cpu_jobs` is the share of jobs that run on 1, 2, 4 or 8 cores and no GPU, beside
    those that make up the load. A `cluster`, of `gpus` in all, brings nodes of its own;
    jobs may have up to so many `copies` on GPUs of any type, which join their progress.
    Raises InputError for arguments out of range.
    """
    check_ranges(jobs=jobs, gpus=gpus, seed=seed, gpus_per_node=gpus_per_node)
    low, high = run_s
    if not 0.0 <= cpu_jobs < 1.0:
        raise InputError(f"generate: --cpu-jobs {cpu_jobs} must be a share below 1")
    if max(gangs) > gpus:
        raise InputError(f"generate: a gang of {max(gangs)} GPUs never runs on {gpus}")
    draw = random.Random(seed)
    lengths_s = [
        math.exp(draw.uniform(math.log(low), math.log(high))) if heavy else draw.uniform(low, high)
        for _ in range(jobs)
    ]
    sizes_of = [draw.choice(gangs) for _ in range(jobs)]
    mean_s = (high - low) / math.log(high / low) if heavy and high > low else (low + high) / 2
    others = random.Random(f"{seed} families")
    now_s, made = 0.0, []
    for i in range(jobs):
        if load:
            work_s = statistics.fmean(gangs) * mean_s * (1.0 - cpu_jobs)
            now_s += draw.expovariate(load * gpus / work_s)
        job = Job(
            id=f"job-{i:03}",
            submit_s=round(now_s, 3),
            gpus=sizes_of[i],
            duration_s=round(lengths_s[i], 3),
            user=f"user-{draw.randrange(USERS)}",
            command=f"train {sizes_of[i]}",
        )
        if others.random() < cpu_jobs:
            cores = others.choice(CPU_JOB_CORES)
            made.append(replace(job, gpus=0, cpus=cores, command=f"process {cores}"))
        else:
            family = others.choice(families) if families else None
            own = _of_family(job, family, elastic, cores_per_gpu is not None)
            made.append(own if copies == 1 else _with_copies(own, copies, family))
    if cluster is None:
        nodes = _nodes(gpus, gpus_per_node, bool(families), cores_per_gpu, nodes_per_rack)
        cluster = Cluster(nodes=nodes, reference_gpu=GPU_TYPE if families else None)
    instance = Instance(
        name=f"even-{jobs}-jobs-{gpus}-gpus-seed-{seed}", cluster=cluster, jobs=tuple(made)
    )
    return attach(instance, seed) if families else instance


def _of_family(job: Job, family: str | None, elastic: bool, cores: bool) -> Job:
    """Return the job as one of a family, which runs on fewer GPUs where it is elastic, and on more
    cores than its share where nodes have `cores`."""
    assert isinstance(job.gpus, int)
    profile = UNMEASURED if family is None else Profile(name=family)
    if cores and family is not None:
        profile = replace(profile, cpus_per_gpu=FAMILIES[family].cpus_per_gpu)
    return replace(
        job,
        gpus=Elastic(min=1, max=job.gpus) if elastic and job.gpus > 1 else job.gpus,
        command=job.command if family is None else f"{job.command} {family}",
        profile=profile,
    )


def _with_copies(job: Job, copies: int, family: str | None) -> Job:
    """Return the job with copies that train on their own: rates are relative to its gang, and those
    of larger ones what was measured of the family."""
    few = most_gpus(job)
    table = FAMILIES[family].gpus if family is not None else {}
    measured = interpolate(table, few) if table else 1.0
    rates = {
        gpus: round(interpolate(table, gpus) / measured, 4) if table else gpus / few
        for gpus in range(few, few * copies + 1)
    }
    profile = replace(job.profile, gpus=rates, mixing="sum")
    return replace(job, gpus=Elastic(min=few, max=few * copies), profile=profile)


def _nodes(
    gpus: int,
    gpus_per_node: int,
    measured: bool,
    cores_per_gpu: int | None,
    nodes_per_rack: int | None,
) -> tuple[Node, ...]:
    """Return nodes with so many GPUs together; `measured` ones are of the type on which the
    families were measured."""
    return tuple(
        Node(
            name=f"node-{i}",
            gpus=here,
            gpu_type=GPU_TYPE if measured else None,
            gpu_memory_gib=GPU_MEMORY_GIB[GPU_TYPE] if measured else None,
            memory_gib=HOST_GIB_PER_GPU * here if measured else None,
            cpus=None if cores_per_gpu is None else cores_per_gpu * here,
            rack=None if nodes_per_rack is None else f"rack-{i // nodes_per_rack}",
        )
        for i, here in enumerate(sizes(gpus, gpus_per_node))
    )


def read_families(text: str) -> tuple[str, ...]:
    """Return the families of a text as `resnet50,bert`. Raises InputError."""
    names = tuple(word.strip() for word in text.split(","))
    for name in names:
        if name not in FAMILIES:
            raise InputError(f"--families: no family {name!r}; there are {', '.join(FAMILIES)}")
    return names


def read_gangs(text: str) -> tuple[int, ...]:
    """Return the gang sizes of a text as `1,1,2,4`. Raises InputError."""
    words = text.split(",")
    if not all(word.strip().isdecimal() and 0 < int(word) <= 1_000_000 for word in words):
        raise InputError(f"--gangs {text}: must be numbers of GPUs, as 1,2,4")
    return tuple(map(int, words))


def read_run_times(text: str) -> tuple[float, float]:
    """Return the shortest and longest run time of a text as `5m-30m`, in seconds. Raises
    InputError."""
    low, _, high = text.partition("-")
    try:
        run_s = parse_duration(low), parse_duration(high or low)
    except ValueError:
        raise InputError(f"--run-times {text}: must be two lengths of time, as 5m-30m") from None
    if not 0 < run_s[0] <= run_s[1]:
        raise InputError(f"--run-times {text}: must go from one above 0 to one no shorter")
    return run_s
