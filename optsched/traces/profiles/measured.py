"""Model families and what was publicly measured of them: the profiles of jobs whose trace has none.

One table a column, in `measured.toml`; a family that a column leaves out takes the number of the
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
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, TypeVar

from ...frozen import frozen

_TABLES: dict[str, Any] = tomllib.loads(files(__package__).joinpath("measured.toml").read_text())


def _by_count(name: str) -> dict[str, dict[int, float]]:
    """Return a table whose columns are counts of GPUs or cores."""
    return {
        family: {int(count): rate for count, rate in row.items()}
        for family, row in _TABLES[name].items()
    }


LIKE: dict[str, str] = _TABLES["LIKE"]
BENCHMARK: dict[str, str] = _TABLES["BENCHMARK"]
RATE: dict[str, dict[str, float]] = _TABLES["RATE"]
NEWER: dict[str, dict[str, float]] = _TABLES["NEWER"]
A100_RATE: dict[str, float] = _TABLES["A100_RATE"]
LOCALITY, SCALING, CPUS_PER_GPU, MORE_CORES = map(
    _by_count, ("LOCALITY", "SCALING", "CPUS_PER_GPU", "MORE_CORES")
)
MEMORY_GIB_PER_GPU: dict[str, float] = _TABLES["MEMORY_GIB_PER_GPU"]
MEMORY_RATES: dict[str, dict[float, float]] = {
    family: {float(gib): rate for gib, rate in row.items()}
    for family, row in _TABLES["MEMORY_RATES"].items()
}
MICRO_BATCHES: dict[str, dict[float, float]] = {
    family: {float(part): rate for part, rate in row.items()}
    for family, row in _TABLES["MICRO_BATCHES"].items()
}
BATCH_MEMORY: dict[float, float] = {
    float(part): share for part, share in _TABLES["BATCH_MEMORY"].items()
}
GPU_MEMORY_GIB: dict[str, float] = _TABLES["GPU_MEMORY_GIB"]
DUTY: dict[str, float] = _TABLES["DUTY"]
PARTNERS: dict[str, dict[str, float]] = _TABLES["PARTNERS"]
TITAN_RESTART_S: dict[str, float] = _TABLES["TITAN_RESTART_S"]
RESTART_S: dict[str, float] = {**_TABLES["RESTART_S"], **TITAN_RESTART_S}
OTHER_RESTART_S = 30
MODEL_MB: dict[str, float] = _TABLES["MODEL_MB"]
COPIES, DISK_MB_PER_S, SAVING_SHARE = 2, 100.0, 0.2
"""A checkpoint holds weights and momentum and is written at 100 MB/s; without a size it is a fifth
of the restart."""
STARTUP_S: dict[str, float] = _TABLES["STARTUP_S"]
OTHER_STARTUP_S = 7
"""The median of Muri's eight models."""
LARGEST_GANG: dict[str, int] = _TABLES["LARGEST_GANG"]
BOARD_W: dict[str, int] = _TABLES["BOARD_W"]
TRAINING_SHARE = 0.76
"""Of the rated power that heavy training draws: Newkirk et al., Empirically-Calibrated H100 Node
Power Models, 2025."""
MODELS: dict[str, str] = _TABLES["MODELS"]
TYPES: dict[str, str] = _TABLES["TYPES"]


@frozen
class Family:
    """What was measured of one kind of model; units and meaning as in `Profile`, rates relative to
    one V100.

    `locality` is by gang size, `gpus` by count relative to one GPU, `cpus_per_gpu` relative to 3
    cores. `memory_rates` is the highest rate with so much host memory, from `memory_gib_per_gpu` on
    where more gives more, and `more_cores` the rates by cores that only the most of it allows.
    `gpu_memory_rates` is what it makes of less GPU memory, with smaller micro-batches.
    """

    name: str
    rate: Mapping[str, float]
    locality: Mapping[int, float]
    gpus: Mapping[int, float]
    cpus_per_gpu: Mapping[int, float]
    more_cores: Mapping[int, float]
    memory_gib_per_gpu: float
    memory_rates: Mapping[float, float]
    gpu_memory_gib: float
    gpu_memory_rates: Mapping[float, float]
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
    gpu_memory_gib = _nearest(GPU_MEMORY_GIB, name)
    return Family(
        name=name,
        rate=rate,
        locality=_nearest(LOCALITY, name),
        gpus=SCALING.get(name, {}),
        cpus_per_gpu=_nearest(CPUS_PER_GPU, name),
        more_cores=MORE_CORES.get(name, {}),
        memory_gib_per_gpu=_nearest(MEMORY_GIB_PER_GPU, name),
        memory_rates=MEMORY_RATES.get(name, {}),
        gpu_memory_gib=gpu_memory_gib,
        gpu_memory_rates={
            round(gpu_memory_gib * BATCH_MEMORY[part], 3): rate
            for part, rate in MICRO_BATCHES.get(name, {}).items()
        },
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
    """Return the family that a profile or a public trace calls `model`; None where it is not
    known."""
    return None if model is None else FAMILIES.get(MODELS.get(model.lower(), model.lower()))


def known_type(gpu_type: str) -> str | None:
    """Return the GPU type of the tables that `gpu_type` names (`V100M32`, `NVIDIA A100-SXM4-80GB`);
    None where none does."""
    for word in re.findall("[a-z0-9]+", gpu_type.lower()):
        for known in sorted([*BOARD_W, *TYPES], key=len, reverse=True):
            if word.startswith(known):
                return TYPES.get(known, known)
    return None
