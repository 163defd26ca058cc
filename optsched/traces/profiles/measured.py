"""Model families and what was publicly measured of them: the profiles of jobs whose trace has none.

One table a column, each with its source; a family that a column leaves out takes the number of the
one it is `LIKE`. All rates are relative to one V100. The sources:

- Gavel, `simulation_throughputs.json` (https://github.com/stanford-futuredata/gavel, c4fa400;
  Narayanan et al., OSDI 2020): one batch size a family, ResNet-18 64, ResNet-50 64, Transformer 64,
  LM 20, CycleGAN, A3C. Its Recommendation is left out: it runs at half the speed of a P100 on its
  V100, which tells of the host.
- Synergy, CPU and memory sensitivity (https://github.com/msr-fiddle/synergy, 1bb2bed; Mohan et al.,
OSDI 2022). - Pollux, placements on T4 GPUs (https://github.com/petuum/adaptdl, osdi21-artifact,
c793c70; Qiao et al., OSDI 2021):
  the models cifar10, imagenet, bert, deepspeech2, yolov3 at 129, 81, 8, 20, 8 samples for each GPU.
- Titan, fine-tuning on A100 and V100 (https://github.com/gaow0007/TitanSched, f71cf44; Gao et al.,
  SoCC 2022): the largest batch measured on both that takes at most 16 GiB, of the large models 32
  GiB.
- Muri, seconds of an iteration by resource (https://github.com/Rivendile/Muri, 4e69a78; Zhao et
al., SIGCOMM 2022). - Tiresias, tensor sizes (https://github.com/SymbioticLab/Tiresias, 959f9b0; Gu
et al., NSDI 2019). - Lambda, training throughput of single GPUs in half precision
(https://github.com/lambdal/deeplearning-benchmark,
  0551cb7, and 000bc82 for the RTX 2080 Ti).
- Sia, restart penalties, and ImageNet training on an RTX 2080 Ti
  (https://github.com/siasosp23/artifacts, 87ab961; Jayaram Subramanya et al., SOSP 2023).

`tests/traces/test_measured.py` computes every column that has a public file anew.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

LIKE = {
    "alexnet": "vgg16",
    "vgg16": "resnet50",
    "mobilenet": "shufflenet",
    "shufflenet": "resnet18",
    "resnet18": "resnet50",
    "cyclegan": "resnet50",
    "yolov3": "resnet50",
    "vit-base": "resnet50",
    "vit-large": "vit-base",
    "a3c": "resnet18",
    "deepspeech2": "lstm",
    "lstm": "transformer",
    "gnmt": "transformer",
    "bert": "transformer",
    "roberta-base": "bert",
    "roberta-large": "roberta-base",
    "gpt2": "roberta-base",
}
"""The family nearest in kind that was measured more widely."""
BENCHMARK = {
    "resnet50": "resnet50",
    "transformer": "bert",
    "lstm": "gnmt",
    "deepspeech2": "gnmt",
    "gnmt": "gnmt",
    "yolov3": "ssd",
}
"""The column of Lambda's table that stands for a family on GPUs on which it was not measured
itself."""

RATE = {
    "resnet18": {"p100": 0.926, "k80": 0.293},
    "resnet50": {"p100": 0.596, "k80": 0.141},
    "transformer": {"p100": 0.591, "k80": 0.203},
    "lstm": {"p100": 0.899, "k80": 0.265},
    "cyclegan": {"p100": 0.543, "k80": 0.114},
    "a3c": {"p100": 0.792, "k80": 0.479},
}
"""Steps per second alone, one GPU, relative to a V100. Gavel."""
NEWER = {
    "resnet50": {"a10": 0.766, "a100": 1.9, "h100": 3.14, "rtx": 0.635, "t4": 0.485},
    "ssd": {"a10": 0.76, "a100": 2.0, "h100": 3.41, "rtx": 0.621, "t4": 0.474},
    "bert": {"a10": 0.714, "a100": 2.34, "h100": 4.3, "rtx": 0.595, "t4": 0.454},
    "gnmt": {"a10": 0.857, "a100": 3.08, "h100": 5.9, "rtx": 0.512, "t4": 0.391},
}
"""Throughput relative to a V100 by benchmark: A10, A100 80GB SXM4, H100 80GB SXM5, RTX 2080 Ti.
Lambda. A T4 is the RTX 2080 Ti times their ratio in ImageNet training at 81 images, Pollux (T4) and
Sia (RTX)."""
A100_RATE = {"roberta-base": 2.07, "roberta-large": 2.09, "vit-base": 1.66, "vit-large": 1.14}
"""Of an A100 relative to a V100, in place of Lambda's; an H100 keeps its ratio to the A100.
Titan."""
LOCALITY = {
    "resnet18": {2: 0.425, 4: 0.401, 8: 0.247},
    "resnet50": {2: 0.867, 4: 1.0, 8: 1.0},
    "transformer": {2: 0.441, 4: 0.538, 8: 0.343},
    "lstm": {2: 0.23, 4: 0.301, 8: 0.118},
    "bert": {2: 0.509, 4: 0.566},
    "deepspeech2": {2: 0.847, 4: 0.919},
    "yolov3": {2: 0.44, 4: 0.64},
    "roberta-base": {2: 0.972, 4: 0.96},
    "roberta-large": {2: 0.99, 4: 0.983},
    "vit-base": {2: 0.973, 4: 0.976},
    "vit-large": {2: 0.919, 4: 0.909},
    "vgg16": {8: 0.645},
    "gpt2": {8: 0.89},
    "shufflenet": {8: 0.951},
}
"""Rate of a gang with one GPU on each node relative to all on one, by gang size, at most 1. Gavel
on V100; Pollux on T4, Titan on V100; for the last three 16 GPUs on two nodes relative to 8 on one,
Muri."""
SCALING = {
    "resnet18": {1: 1.0, 2: 1.8, 4: 3.76, 8: 3.6, 16: 10.7},
    "resnet50": {1: 1.0, 2: 1.97, 4: 3.75, 8: 5.87, 16: 12.6},
    "bert": {1: 1.0, 2: 1.97, 4: 3.8, 8: 2.22, 16: 6.4},
    "deepspeech2": {1: 1.0, 2: 1.88, 4: 3.28, 8: 3.59, 16: 8.58},
    "yolov3": {1: 1.0, 2: 1.83, 4: 2.6, 8: 1.59, 16: 4.39},
    "roberta-base": {1: 1.0, 2: 2.0, 4: 3.98, 8: 7.49, 16: 14.4},
    "roberta-large": {1: 1.0, 2: 1.99, 4: 3.98, 8: 7.73, 16: 15.2},
    "vit-base": {1: 1.0, 2: 1.94, 4: 3.8, 8: 7.13, 16: 13.2},
    "vit-large": {1: 1.0, 2: 2.0, 4: 4.02, 8: 7.17, 16: 13.8},
}
"""Samples per second by GPUs at one batch for each GPU, relative to one; 4 GPUs a node. Pollux,
Titan on V100."""
CPUS_PER_GPU = {
    "resnet18": {1: 0.37, 2: 0.72, 3: 1.0, 4: 1.3, 5: 1.53, 6: 1.75, 9: 2.4},
    "resnet50": {1: 0.4, 2: 0.74, 3: 1.0, 4: 1.15},
    "mobilenet": {1: 0.37, 2: 0.72, 3: 1.0, 4: 1.3, 5: 1.49, 6: 1.55},
    "shufflenet": {1: 0.3, 2: 0.66, 3: 1.0, 4: 1.25, 5: 1.53, 6: 1.75, 9: 2.0},
    "alexnet": {1: 0.3, 2: 0.66, 3: 1.0, 4: 1.25, 5: 1.53, 6: 1.75, 9: 2.0},
    "deepspeech2": {1: 0.3, 2: 0.66, 3: 1.0},
    "gnmt": {1: 1.0},
    "lstm": {1: 1.0},
    "transformer": {1: 1.0},
    "bert": {1: 1.0},
}
"""Rate by cores for each GPU relative to 3, with the memory of the next column. Synergy, one
GPU."""
MEMORY_GIB_PER_GPU = {
    "resnet18": 58.2,
    "resnet50": 58.2,
    "mobilenet": 58.2,
    "shufflenet": 58.2,
    "alexnet": 58.2,
    "deepspeech2": 58.2,
    "gnmt": 19.4,
    "lstm": 19.4,
    "transformer": 19.4,
    "bert": 19.4,
}
"""The least host memory with which 3 cores for each GPU give the rate 1 (20.83 or 62.5 GB).
Synergy."""
GPU_MEMORY_GIB = {
    "resnet18": 6.0,
    "resnet50": 8.0,
    "transformer": 6.0,
    "lstm": 6.0,
    "cyclegan": 6.0,
    "a3c": 6.0,
    "bert": 16.0,
    "deepspeech2": 16.0,
    "yolov3": 16.0,
    "roberta-base": 15.0,
    "roberta-large": 29.9,
    "vit-base": 15.7,
    "vit-large": 26.1,
}
"""Measured by Titan. Of the others an upper bound: half the smallest GPU on which two copies ran
together (K80 12, V100 16 GiB; Gavel), or the T4 on which it ran (Pollux)."""
DUTY = {
    "resnet18": 0.141,
    "shufflenet": 0.0739,
    "vgg16": 0.636,
    "bert": 0.899,
    "gpt2": 0.962,
    "a3c": 0.0271,
}
"""Share of an iteration for which the GPU computes, one GPU (a3c: Muri's a2c). Muri."""
PARTNERS = {
    "resnet18": {
        "resnet18": 1.0,
        "resnet50": 0.516,
        "transformer": 0.774,
        "lstm": 1.0,
        "cyclegan": 0.874,
        "a3c": 1.0,
    },
    "resnet50": {
        "resnet18": 0.809,
        "resnet50": 0.498,
        "transformer": 0.58,
        "lstm": 0.688,
        "cyclegan": 0.572,
        "a3c": 0.671,
    },
    "transformer": {
        "resnet18": 0.43,
        "resnet50": 0.206,
        "transformer": 0.744,
        "lstm": 0.755,
        "cyclegan": 0.558,
        "a3c": 0.669,
    },
    "lstm": {
        "resnet18": 0.705,
        "resnet50": 0.383,
        "transformer": 0.809,
        "lstm": 0.653,
        "cyclegan": 0.618,
        "a3c": 0.646,
    },
    "cyclegan": {
        "resnet18": 0.566,
        "resnet50": 0.254,
        "transformer": 0.679,
        "lstm": 0.725,
        "cyclegan": 0.625,
        "a3c": 0.715,
    },
    "a3c": {
        "resnet18": 0.746,
        "resnet50": 0.235,
        "transformer": 0.864,
        "lstm": 0.501,
        "cyclegan": 0.636,
        "a3c": 0.51,
    },
}
"""Own rate beside another family on one V100, relative to alone. Gavel."""

TITAN_RESTART_S = {"roberta-base": 17, "roberta-large": 20, "vit-base": 55, "vit-large": 15}
"""Seconds of a context switch, the mean of A100 and V100. Titan."""
RESTART_S = {
    "deepspeech2": 25,
    "resnet50": 250,
    "resnet18": 30,
    "bert": 120,
    "yolov3": 45,
    **TITAN_RESTART_S,
}
OTHER_RESTART_S = 30
"""Restart penalties: saving, starting and loading together. Sia (resnet18 is its cifar10, resnet50
its imagenet)."""
MODEL_MB = {"resnet50": 80.6, "vgg16": 526.8, "alexnet": 235.8}
"""Size of the large tensors. Tiresias."""
COPIES, DISK_MB_PER_S, SAVING_SHARE = 2, 100.0, 0.2
"""A checkpoint holds weights and momentum and is written at 100 MB/s; without a size it is a fifth
of the restart."""
STARTUP_S = {"resnet18": 4, "shufflenet": 4, "vgg16": 7, "bert": 10, "gpt2": 10, "a3c": 38}
OTHER_STARTUP_S = 7
"""Start-up on one GPU, simulator/run_sim.py of Muri; the median of its eight models for the
others."""

LARGEST_GANG = {
    "resnet18": 32,
    "resnet50": 16,
    "transformer": 8,
    "lstm": 8,
    "cyclegan": 1,
    "a3c": 32,
    "bert": 32,
    "deepspeech2": 16,
    "yolov3": 16,
    "roberta-base": 16,
    "roberta-large": 16,
    "vit-base": 16,
    "vit-large": 16,
    "shufflenet": 32,
    "vgg16": 32,
    "gpt2": 32,
    "mobilenet": 4,
    "alexnet": 4,
    "gnmt": 4,
}
"""The most GPUs with which any of the sources measured it."""

BOARD_W = {
    "k80": 150,
    "p100": 300,
    "v100": 300,
    "t4": 70,
    "a10": 150,
    "rtx": 250,
    "a100": 400,
    "h100": 700,
}
"""Rated power of one GPU: NVIDIA data sheets, of the SXM variants where there are any; a K80 board
has two GPUs."""
TRAINING_SHARE = 0.76
"""Of the rated power that heavy training draws: Newkirk et al., Empirically-Calibrated H100 Node
Power Models, 2025."""

MODELS = {
    "res18": "resnet18",
    "res50": "resnet50",
    "resnet101": "resnet50",
    "resnet152": "resnet50",
    "inception3": "resnet50",
    "inception4": "resnet50",
    "googlenet": "resnet50",
    "vgg11": "vgg16",
    "vgg19": "vgg16",
    "shufflenet_v2_x1_0": "shufflenet",
    "deepspeech": "deepspeech2",
    "a2c": "a3c",
    "dqn": "a3c",
}
"""The nearest family of models that public traces name otherwise."""
TYPES = {"a800": "a100", "h800": "h100", "2080ti": "rtx", "volta": "v100", "pascal": "p100"}
"""Other names of GPU types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What was measured of one kind of model; units and meaning as in `Profile`, rates relative to
    one V100.

    `locality` is by gang size, `gpus` by count relative to one GPU, `cpus_per_gpu` relative to 3
    cores.
    """

    name: str
    rate: Mapping[str, float]
    locality: Mapping[int, float]
    gpus: Mapping[int, float]
    cpus_per_gpu: Mapping[int, float]
    memory_gib_per_gpu: float
    gpu_memory_gib: float
    duty: float | None
    partners: Mapping[str, float]
    checkpoint_s: float
    restore_s: float
    startup_s: float
    largest_gang: int


Cell = TypeVar("Cell")


def _nearest(column: Mapping[str, Cell], name: str) -> Cell:
    while name not in column:
        name = LIKE[name]
    return column[name]


def _family(name: str) -> Family:
    newer = NEWER[_nearest(BENCHMARK, name)]
    rate = {"v100": 1.0, **_nearest(RATE, name), **newer}
    if name in A100_RATE:
        rate |= {
            "a100": A100_RATE[name],
            "h100": round(A100_RATE[name] * newer["h100"] / newer["a100"], 3),
        }
    restart_s = float(RESTART_S.get(name, OTHER_RESTART_S))
    size_mb = MODEL_MB.get(name)
    checkpoint_s = round(
        SAVING_SHARE * restart_s if size_mb is None else COPIES * size_mb / DISK_MB_PER_S, 1
    )
    startup_s = min(float(STARTUP_S.get(name, OTHER_STARTUP_S)), restart_s - checkpoint_s)
    return Family(
        name=name,
        rate=rate,
        locality=_nearest(LOCALITY, name),
        gpus=SCALING.get(name, {}),
        cpus_per_gpu=_nearest(CPUS_PER_GPU, name),
        memory_gib_per_gpu=_nearest(MEMORY_GIB_PER_GPU, name),
        gpu_memory_gib=_nearest(GPU_MEMORY_GIB, name),
        duty=DUTY.get(name),
        partners=PARTNERS.get(name, {}),
        checkpoint_s=checkpoint_s,
        restore_s=round(restart_s - checkpoint_s - startup_s, 1),
        startup_s=startup_s,
        largest_gang=LARGEST_GANG[name],
    )


FAMILIES: dict[str, Family] = {name: _family(name) for name in LARGEST_GANG}
"""Every family by name."""


def family_of(model: str | None) -> Family | None:
    """The family that a profile or a public trace calls `model`; None where it is not known."""
    return None if model is None else FAMILIES.get(MODELS.get(model.lower(), model.lower()))


def known_type(gpu_type: str) -> str | None:
    """The GPU type of the tables that `gpu_type` names (`V100M32`, `NVIDIA A100-SXM4-80GB`); None
    where none does."""
    for word in re.findall("[a-z0-9]+", gpu_type.lower()):
        for known in sorted([*BOARD_W, *TYPES], key=len, reverse=True):
            if word.startswith(known):
                return TYPES.get(known, known)
    return None
