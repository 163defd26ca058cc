"""Jobs whose gangs and run times are drawn evenly, on GPUs of one type and without any profile:
what many published schedulers were first measured on."""

import math
import random
import statistics
from collections.abc import Sequence

from ...duration import parse_duration
from ...errors import InputError
from ...model.cluster import Cluster, Node
from ...model.instance import Instance
from ...model.job import Job
from ..clusters import sizes
from .ranges import check_ranges

USERS = 6


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
) -> Instance:
    """Return jobs with one of `gangs` each (what is named twice is drawn twice as often) and run
    times within `run_s`, evenly, or evenly in the logarithm where `heavy`.

    They arrive at exponential intervals such that they offer `load` times the work that the GPUs
    can do meanwhile, all at 0 where that is 0. Raises InputError for arguments out of range.
    """
    check_ranges(jobs=jobs, gpus=gpus, seed=seed, gpus_per_node=gpus_per_node)
    low, high = run_s
    if max(gangs) > gpus:
        raise InputError(f"generate: a gang of {max(gangs)} GPUs never runs on {gpus}")
    draw = random.Random(seed)
    lengths_s = [
        math.exp(draw.uniform(math.log(low), math.log(high))) if heavy else draw.uniform(low, high)
        for _ in range(jobs)
    ]
    sizes_of = [draw.choice(gangs) for _ in range(jobs)]
    mean_s = (high - low) / math.log(high / low) if heavy and high > low else (low + high) / 2
    now_s, made = 0.0, []
    for i in range(jobs):
        if load:
            now_s += draw.expovariate(load * gpus / (statistics.fmean(gangs) * mean_s))
        made.append(
            Job(
                id=f"job-{i:03}",
                submit_s=round(now_s, 3),
                gpus=sizes_of[i],
                duration_s=round(lengths_s[i], 3),
                user=f"user-{draw.randrange(USERS)}",
                command=f"train {sizes_of[i]}",
            )
        )
    nodes = tuple(
        Node(name=f"node-{i}", gpus=count) for i, count in enumerate(sizes(gpus, gpus_per_node))
    )
    name = f"even-{jobs}-jobs-{gpus}-gpus-seed-{seed}"
    return Instance(name=name, cluster=Cluster(nodes=nodes), jobs=tuple(made))


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
