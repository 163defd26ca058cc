"""Execution plans of large models: the GPUs and cores that each way to train one takes, and how
fast it is, by a model of compute, traffic and memory."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Literal, NamedTuple

from ...errors import InputError
from ...model import Instance, Job, Mode, gang

FLOPS, GPU_BYTES = 150e12, 80e9
NODE_GPUS = 8
NODE_BPS, NETWORK_BPS, HOST_BPS = 200e9, 100e9, 10e9
"""Bytes a second between the GPUs of a node, of different nodes, and between a GPU and its host."""
GPU_UPDATES, CORE_UPDATES = 1e11, 2e8
"""Parameters that the optimizer updates a second, on a GPU and on a core."""
STATE_BYTES, MOMENT_BYTES, HALF = 16, 14, 2
"""Of a parameter: all its states in mixed precision, those that ZeRO shards, its half-precision
value."""
ACTIVATIONS = 34
"""Bytes of activations of a layer for each token and unit of width."""
CORES = 4
OFFLOAD_CORES = (12, 24)
"""Cores for each GPU of a plan, and of one whose optimizer runs on the host."""


class Model(NamedTuple):
    """A model, the sequences of a step, and the numbers of GPUs for which users ask."""

    parameters: float
    layers: int
    width: int
    sequences: int
    tokens: int
    asked: tuple[int, ...]


SMALL = (1, 2, 4, 8)
MODELS = {
    "vit": Model(0.086e9, 12, 768, 256, 197, SMALL),
    "roberta": Model(0.355e9, 24, 1024, 64, 512, SMALL),
    "bert": Model(0.336e9, 24, 1024, 64, 512, SMALL),
    "t5": Model(1.2e9, 48, 1024, 32, 512, SMALL),
    "gpt2": Model(1.5e9, 48, 1600, 16, 1024, SMALL),
    "llama-7b": Model(7e9, 32, 4096, 32, 2048, (8, 16, 32)),
    "llama-30b": Model(30e9, 60, 6656, 64, 2048, (16, 32)),
}
"""Sizes as published of each; which are trained, and on how many GPUs, as in the public artifact of
Rubick."""


def plans(model: Model, gpus: int) -> Iterator[tuple[int, float]]:
    """Yield each plan on so many GPUs as cores for each GPU and seconds of a step: replicas,
    optimizer states sharded over them (ZeRO), those on the hosts (offload), and the fastest split
    of layers and operators (3D)."""
    if gpus <= model.sequences:
        half, activations = HALF * model.parameters, _activations(model)
        replicas_s = _compute_s(model, gpus) + _gradients_s(model, gpus, 1, gpus)
        if STATE_BYTES * model.parameters + activations <= GPU_BYTES:
            yield CORES, replicas_s + model.parameters / GPU_UPDATES
        if half + MOMENT_BYTES * model.parameters / gpus + activations <= GPU_BYTES:
            yield CORES, replicas_s + model.parameters / GPU_UPDATES / gpus
        if half + activations <= GPU_BYTES:
            at_once = (GPU_BYTES - half) // activations
            moved_s = math.ceil(model.sequences / gpus / at_once) * 2 * half / HOST_BPS
            for cores in OFFLOAD_CORES:
                update_s = model.parameters / (CORE_UPDATES * cores * gpus)
                yield cores, replicas_s + moved_s + update_s
    split_s = min(_splits_s(model, gpus), default=math.inf)
    if split_s < math.inf:
        yield CORES, split_s


def _splits_s(model: Model, gpus: int) -> Iterator[float]:
    """Yield the seconds of a step for each split of operators (t ways, within a node) and layers (p
    ways) over GPUs that hold it."""
    for t, p in product((1, 2, 4, 8), (1, 2, 4, 8)):
        copies = gpus // (t * p)
        if t * p == 1 or t * p > gpus or gpus % (t * p) or copies > model.sequences:
            continue
        states = STATE_BYTES * model.parameters / (t * p)
        if states + _activations(model) / t > GPU_BYTES:
            continue
        micro = math.ceil(model.sequences / copies)
        traffic = 16 * model.layers * model.width * model.sequences * model.tokens / (copies * p)
        yield (
            _compute_s(model, gpus) * (1 + (p - 1) / micro)
            + traffic * (t - 1) / t / NODE_BPS
            + _gradients_s(model, copies, t * p, gpus)
            + model.parameters / (t * p) / GPU_UPDATES
        )


def _compute_s(model: Model, gpus: int) -> float:
    return 6 * model.parameters * model.sequences * model.tokens / (FLOPS * gpus)


def _gradients_s(model: Model, copies: int, parts: int, gpus: int) -> float:
    """Return the seconds in which copies sum the gradients of one of so many parts."""
    moved = 2 * HALF * model.parameters / parts * (copies - 1) / copies
    return moved / (NODE_BPS if gpus <= NODE_GPUS else NETWORK_BPS)


def _activations(model: Model) -> float:
    """Return the bytes of the activations of one sequence."""
    return ACTIVATIONS * model.layers * model.width * model.tokens


def with_plans(instance: Instance, seed: int, asked: Literal["random", "best"]) -> Instance:
    """Return the instance with jobs that train one of the models for which users ask for so many
    GPUs, listing a mode for each plan on 1 to 32 GPUs. The first mode is what its user asked for,
    with the run time of the job: the GPUs of its gang, and any plan or the best one. Raises
    InputError for gangs for which no model is trained."""
    draw = random.Random(f"plans {seed}")
    counts = [1 << k for k in range(6) if 1 << k <= instance.cluster.total_gpus]

    def planned(job: Job) -> Job:
        names = [name for name, model in MODELS.items() if gang(job) in model.asked]
        if not names:
            raise InputError(f"--plans: no model is trained on {gang(job)} GPUs")
        name = draw.choice(names)
        model = MODELS[name]
        ways = [(gpus, *plan) for gpus in counts for plan in plans(model, gpus)]
        own = [way for way in ways if way[0] == gang(job)]
        first = draw.choice(own) if asked == "random" else min(own, key=lambda way: way[2])
        assert job.duration_s is not None
        length_s = job.duration_s / first[2]
        modes = tuple(
            Mode(gpus=gpus, cpus_per_gpu=cores, duration_s=max(0.001, round(length_s * step_s, 3)))
            for gpus, cores, step_s in (first, *(way for way in ways if way != first))
        )
        return replace(
            job,
            gpus=1,
            duration_s=None,
            modes=modes,
            command=f"{job.command} {name}",
            profile=replace(job.profile, name=name),
        )

    return replace(instance, jobs=tuple(map(planned, instance.jobs)))
