"""Inference queries as DAGs of models, for workers with one GPU whose memory caches models."""

import random
from dataclasses import dataclass

from ...errors import InputError
from ...model import Cluster, Instance, Job, Node, Profile
from .ranges import check_ranges

CACHE_GIB = 8.0
"""GPU memory of a worker for models; what is left of 16 GiB is for data."""
FETCH_GIB_PER_S = 3.0
"""From the host's memory over PCIe, with allocation."""


@dataclass(frozen=True)
class Task:
    """A step of a pipeline: its model of so many GiB, how long it runs, and what it waits for."""

    model: str
    gib: float
    run_s: float
    after: tuple[int, ...] = ()


PIPELINES: dict[str, tuple[Task, ...]] = {
    "translate": (
        Task("opt", 2.4, 0.6),
        Task("marian-fr", 0.6, 0.3, (0,)),
        Task("mt5", 2.2, 0.5, (0,)),
        Task("aggregate", 0.1, 0.05, (1, 2)),
    ),
    "caption": (Task("vit-gpt2", 1.0, 0.4), Task("marian-fr", 0.6, 0.2, (0,))),
    "perceive": (
        Task("detr", 0.4, 0.25),
        Task("glpn-depth", 0.6, 0.35),
        Task("fuse", 0.1, 0.1, (0, 1)),
    ),
    "answer": (Task("whisper", 1.6, 0.4), Task("opt", 2.4, 0.8, (0,)), Task("tts", 0.9, 0.4, (1,))),
}
"""Four queries that share some models. Sizes are those of public models, run times invented."""


def generate(*, jobs: int, gpus: int, seed: int, load: float = 0.7) -> Instance:
    """Return queries, drawn evenly from the pipelines, whose tasks are at most `jobs`. They arrive
    at exponential intervals such that their run times, fetches not counted, are `load` times what
    the workers can do."""
    check_ranges(jobs=jobs, gpus=gpus, seed=seed)
    draw = random.Random(f"{seed} workflows")
    mean_s = sum(task.run_s for tasks in PIPELINES.values() for task in tasks) / len(PIPELINES)
    made: list[Job] = []
    now_s, query = 0.0, 0
    while True:
        now_s += draw.expovariate(load * gpus / mean_s)
        name = draw.choice(sorted(PIPELINES))
        tasks = PIPELINES[name]
        if len(made) + len(tasks) > jobs:
            break
        made += [_job(f"{name}-{query}", k, task, round(now_s, 3)) for k, task in enumerate(tasks)]
        query += 1
    if not made:
        raise InputError(f"generate: jobs must be {len(tasks)} or more for the first query")
    nodes = tuple(Node(name=f"worker-{i}", gpus=1, model_cache_gib=CACHE_GIB) for i in range(gpus))
    return Instance(
        name=f"workflows-{jobs}-jobs-{gpus}-gpus-seed-{seed}",
        cluster=Cluster(nodes=nodes),
        jobs=tuple(made),
    )


def _job(query: str, k: int, task: Task, submit_s: float) -> Job:
    fetch_s = round(task.gib / FETCH_GIB_PER_S, 3)
    return Job(
        id=f"{query}.{k}",
        submit_s=submit_s,
        duration_s=task.run_s,
        command=task.model,
        after=tuple(f"{query}.{before}" for before in task.after),
        profile=Profile(name=task.model, model_gib=task.gib, fetch_s=fetch_s),
    )
