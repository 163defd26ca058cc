"""The columns of `optsched.traces.profiles.measured`, computed anew from the public data they were
taken from."""

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.data import DATA

GAVEL = {
    "resnet18": "ResNet-18 (batch size 64)",
    "resnet50": "ResNet-50 (batch size 64)",
    "transformer": "Transformer (batch size 64)",
    "lstm": "LM (batch size 20)",
    "cyclegan": "CycleGAN",
    "a3c": "A3C",
}
SYNERGY = {
    "resnet18": "res18",
    "resnet50": "res50",
    "mobilenet": "mobilenet",
    "shufflenet": "shufflenet",
    "alexnet": "alexnet",
    "deepspeech2": "deepspeech",
    "gnmt": "gnmt",
    "lstm": "lstm",
    "transformer": "transformer",
    "bert": "bert",
}
POLLUX = {
    "resnet18": ("cifar10", 129),
    "resnet50": ("imagenet", 81),
    "bert": ("bert", 8),
    "deepspeech2": ("deepspeech2", 20),
    "yolov3": ("yolov3", 8),
}
TITAN = {
    "roberta-base": ("roberta-base", 28),
    "roberta-large": ("roberta-large", 20),
    "vit-base": ("vit", 160),
    "vit-large": ("vit-large", 96),
}
MURI = {
    "resnet18": "resnet18",
    "shufflenet": "shufflenet_v2_x1_0",
    "vgg16": "vgg16",
    "bert": "bert",
    "gpt2": "gpt2",
    "a3c": "a2c",
}

CORES = (1, 2, 3, 4, 5, 6, 9, 12)
"""Cores for each GPU of the first rows of a Synergy table; the row of 3 is 1."""
MEMORY_GB = (20.83, 62.5, 125.0, 187.5, 250.0)
"""Its columns: memory for each GPU, as simulator/jobs/job.py there has it."""
GPU_GIB = {"k80": 12.0, "p100": 16.0, "v100": 16.0}

LAMBDA_2022: dict[str, dict[str, float]] = {
    "v100": {"resnet50": 833, "ssd": 229, "bert": 189, "gnmt": 79111},
    "a10": {"resnet50": 638, "ssd": 174, "bert": 135, "gnmt": 67836},
    "a100": {"resnet50": 1582, "ssd": 458, "bert": 443, "gnmt": 243500},
    "h100": {"resnet50": 2616, "ssd": 782, "bert": 812, "gnmt": 467071},
}
"""Training throughput in half precision, pytorch/pytorch-train-throughput-fp16.csv at 0551cb7 of
https://github.com/lambdal/deeplearning-benchmark: rows LambdaCloud V100 16GB, LambdaCloud A10, A100
80GB SXM4, H100 80GB SXM5; column bert_base_squad for bert."""
LAMBDA_2020: dict[str, dict[str, float]] = {
    "v100": {"resnet50": 828, "ssd": 224, "bert": 148, "gnmt": 81625},
    "rtx": {"resnet50": 526, "ssd": 139, "bert": 88, "gnmt": 41770},
}
"""The same repository, pytorch-train-throughput-fp16.csv at 000bc82: rows V100 32GB, RTX 2080Ti."""
RTX_IMAGENET_S = 0.32149533927440643
"""Seconds of a step of 81 images on one RTX 2080 Ti,
adaptdl/sched/traces/imagenet/placements-rtx.csv at 87ab961 of
https://github.com/siasosp23/artifacts: the code that Pollux measured on a T4."""


def sig(value: float) -> float:
    """Three significant digits: what the table keeps."""
    return float(f"{value:.3g}")


def rows(path: str) -> list[dict[str, str]]:
    with open(DATA / path, newline="") as lines:
        return list(csv.DictReader(lines))


def gavel() -> dict[str, Any]:
    with gzip.open(DATA / "gavel" / "simulation_throughputs.json.gz") as packed:
        table: dict[str, Any] = json.load(packed)
    return table


def alone(table: Any, gpu_type: str, family: str, gpus: int = 1) -> float:
    row = table[gpu_type].get(f"('{GAVEL[family]}', {gpus})")
    return float(row["null"]) if row else 0.0


def pair(table: Any, gpu_type: str, family: str, other: str) -> float:
    own, beside = table[gpu_type][f"('{GAVEL[family]}', 1)"][f"('{GAVEL[other]}', 1)"]
    return float(own) if min(own, beside) > 0 else 0.0


def rate() -> dict[str, dict[str, float]]:
    table = gavel()
    return {
        f: {t: sig(alone(table, t, f) / alone(table, "v100", f)) for t in ("p100", "k80")}
        for f in GAVEL
    }


def a100_rate() -> dict[str, float]:
    return {
        family: sig(
            seconds(f"titan/fminfo/V100/{name}", batch)["1"]
            / seconds(f"titan/fminfo/A100/{name}", batch)["1"]
        )
        for family, (name, batch) in TITAN.items()
    }


def newer() -> dict[str, dict[str, float]]:
    t4 = RTX_IMAGENET_S / seconds("pollux_profiles/imagenet/", 81)["1"]
    found = {}
    for benchmark, v100 in LAMBDA_2022["v100"].items():
        rtx = LAMBDA_2020["rtx"][benchmark] / LAMBDA_2020["v100"][benchmark]
        found[benchmark] = {
            t: sig(LAMBDA_2022[t][benchmark] / v100) for t in ("a10", "a100", "h100")
        }
        found[benchmark] |= {"rtx": sig(rtx), "t4": sig(rtx * t4)}
    return found


def seconds(stem: str, batch: int) -> dict[str, float]:
    """Seconds of a step by placement (GPUs on each node, as digits) at one batch size for each
    GPU."""
    path = f"{stem}placements.csv" if stem.endswith("/") else f"{stem}_placements.csv"
    return {
        row["placement"]: float(row["step_time"])
        for row in rows(path)
        if int(row["local_bsz"]) == batch
    }


def placements() -> dict[str, dict[str, float]]:
    return {
        **{
            family: seconds(f"pollux_profiles/{name}/", batch)
            for family, (name, batch) in POLLUX.items()
        },
        **{
            family: seconds(f"titan/fminfo/V100/{name}", batch)
            for family, (name, batch) in TITAN.items()
        },
    }


def locality() -> dict[str, dict[int, float]]:
    table = gavel()
    found: dict[str, dict[int, float]] = {}
    for family, by_placement in placements().items():
        found[family] = {
            n: sig(min(1.0, by_placement[str(n)] / by_placement["1" * n])) for n in (2, 4)
        }
    for family in GAVEL:
        ratios = {
            n: sig(min(1.0, alone(table, "v100_unconsolidated", family, n) / packed))
            for n in (2, 4, 8)
            if (packed := alone(table, "v100", family, n)) > 0
        }
        if ratios:
            found[family] = ratios
    for family in ("vgg16", "gpt2", "shufflenet"):
        times = {gpus: own[0] for gpus, own in muri(family).items()}
        found[family] = {8: sig(min(1.0, times[8] / times[16]))}
    return found


def muri(family: str) -> dict[int, tuple[float, float]]:
    """Seconds of an iteration and of its GPU part by gang size."""
    return {
        int(row["num_gpu"]): (float(row["iteration_time"]), float(row["resource_time_1"]))
        for row in rows("muri/trace1.csv")
        if row["model_name"] == MURI[family]
    }


def duty() -> dict[str, float]:
    found = {}
    for family in MURI:
        iteration, gpu = muri(family)[1]
        found[family] = sig(gpu / iteration)
    return found


def scaling() -> dict[str, dict[int, float]]:
    shapes = {1: "1", 2: "2", 4: "4", 8: "44", 16: "4444"}
    return {
        family: {
            n: sig(n * by_placement["1"] / by_placement[shape])
            for n, shape in shapes.items()
            if shape in by_placement
        }
        for family, by_placement in placements().items()
    }


def partners() -> dict[str, dict[str, float]]:
    table = gavel()
    return {
        f: {o: sig(r / alone(table, "v100", f)) for o in GAVEL if (r := pair(table, "v100", f, o))}
        for f in GAVEL
    }


def synergy(family: str) -> Any:
    with open(DATA / "synergy" / "cpu_mem_sensitivity.json") as lines:
        return next(p for p in json.load(lines) if p["name"] == f"{SYNERGY[family]}_1")


def memory_gb(family: str) -> float:
    """The least memory for each GPU with which the proportional share of cores gives the rate 1."""
    table = synergy(family)["tput"]
    return next(gb for gb, rate in zip(MEMORY_GB, table[CORES.index(3)], strict=True) if rate >= 1)


def cores() -> dict[str, dict[int, float]]:
    """Rates with that memory by cores, up to the first count beyond which more do not help."""
    found = {}
    for family in SYNERGY:
        column = MEMORY_GB.index(memory_gb(family))
        rates = [float(row[column]) for row in synergy(family)["tput"]][: len(CORES)]
        found[family] = dict(list(zip(CORES, rates, strict=True))[: rates.index(max(rates)) + 1])
    return found


def host_memory_gib() -> dict[str, float]:
    return {family: sig(memory_gb(family) * 1e9 / 2**30) for family in SYNERGY}


def by_memory(family: str) -> dict[float, float]:
    """The highest rate with each amount, from the least on, up to the first beyond which more does
    not help; empty where that is the least."""
    table, least = synergy(family)["tput"], MEMORY_GB.index(memory_gb(family))
    most = [max(float(row[i]) for row in table) for i in range(len(MEMORY_GB))]
    full = most.index(max(most), least)
    gib = [sig(gb * 1e9 / 2**30) for gb in MEMORY_GB]
    kept = range(least, full + 1) if full > least else ()
    return {gib[i]: most[i] for i in kept}


def memory_rates() -> dict[str, dict[float, float]]:
    return {family: rates for family in SYNERGY if (rates := by_memory(family))}


def more_cores() -> dict[str, dict[int, float]]:
    """Rates by cores with the most memory, where they are above those of `cores`."""
    known = cores()
    found = {}
    for family in memory_rates():
        rates = [max(map(float, row)) for row in synergy(family)["tput"]][: len(CORES)]
        found[family] = {
            count: rate
            for count, rate in zip(CORES, rates, strict=True)
            if count not in known[family]
        }
        assert all(known[family].get(n, r) == r for n, r in zip(CORES, rates, strict=True))
    return found


def gpu_memory_gib() -> dict[str, float]:
    table = gavel()
    found = {}
    for family in GAVEL:
        beside = [GPU_GIB[t] / 2 for t in GPU_GIB if pair(table, t, family, family)]
        found[family] = min(beside)
    found |= {family: 16.0 for family in POLLUX if family not in GAVEL}
    for family, (name, batch) in TITAN.items():
        by_batch = {
            int(r["local_bsz"]): float(r["gpu_memory"])
            for r in rows(f"titan/fminfo/A100/{name}_memory.csv")
        }
        limit = 32 if family.endswith("large") else 16
        common = by_batch.keys() & {
            int(r["local_bsz"]) for r in rows(f"titan/fminfo/V100/{name}_memory.csv")
        }
        assert batch == max(b for b in common if by_batch[b] <= limit)
        found[family] = sig(by_batch[batch])
    return found


def micro_batches() -> dict[str, dict[float, float]]:
    table, found = gavel()["v100"], {}
    for family, name in GAVEL.items():
        model, _, size = name.partition(" (batch size ")
        if size:
            whole = int(size.rstrip(")"))
            steps = {
                part: float(table[f"('{model} (batch size {round(whole * part)})', 1)"]["null"])
                for part in (1.0, 0.5, 0.25)
            }
            found[family] = {part: sig(steps[part] * part / steps[1.0]) for part in (0.5, 0.25)}
    return found


def batch_memory() -> dict[float, float]:
    found: dict[float, float] = {}
    for name, batch in TITAN.values():
        known = sorted(
            (int(r["local_bsz"]), float(r["gpu_memory"]))
            for r in rows(f"titan/fminfo/A100/{name}_memory.csv")
        )
        whole = dict(known)[batch]
        for part in (0.5, 0.25):
            gib = float(np.interp(batch * part, *zip(*known, strict=True)))
            found[part] = max(found.get(part, 0.0), float(f"{gib / whole:.2g}"))
    return found


def titan_restart_s() -> dict[str, float]:
    def switch_s(gpu_type: str, name: str) -> float:
        return float(rows(f"titan/fminfo/{gpu_type}/{name}_context_switch.csv")[0]["time_cost"])

    return {
        f: round((switch_s("A100", name) + switch_s("V100", name)) / 2)
        for f, (name, _) in TITAN.items()
    }


def model_mb() -> dict[str, float]:
    sizes = {
        row["model"]: float(row["total_MB"]) for row in rows("tiresias/model_tensor_sizes.csv")
    }
    return {family: sizes[family] for family in ("resnet50", "vgg16", "alexnet")}


def largest_gang() -> dict[str, int]:
    table = gavel()
    found = {f: max(n for n in (1, 2, 4, 8) if alone(table, "v100", f, n)) for f in GAVEL}
    for family, by_placement in placements().items():
        found[family] = max(found.get(family, 0), *(sum(map(int, shape)) for shape in by_placement))
    for family in MURI:
        found[family] = max(found.get(family, 0), *muri(family))
    with open(DATA / "synergy" / "cpu_mem_sensitivity.json") as lines:
        gangs = [profile["name"].rsplit("_", 1) for profile in json.load(lines)]
    for family, name in SYNERGY.items():
        found[family] = max(
            found.get(family, 0), *(int(gpus) for known, gpus in gangs if known == name)
        )
    return found


COLUMNS: dict[str, Callable[[], Any]] = {
    "RATE": rate,
    "A100_RATE": a100_rate,
    "NEWER": newer,
    "LOCALITY": locality,
    "SCALING": scaling,
    "CPUS_PER_GPU": cores,
    "MEMORY_GIB_PER_GPU": host_memory_gib,
    "MEMORY_RATES": memory_rates,
    "MORE_CORES": more_cores,
    "GPU_MEMORY_GIB": gpu_memory_gib,
    "MICRO_BATCHES": micro_batches,
    "BATCH_MEMORY": batch_memory,
    "DUTY": duty,
    "PARTNERS": partners,
    "TITAN_RESTART_S": titan_restart_s,
    "MODEL_MB": model_mb,
    "LARGEST_GANG": largest_gang,
}


def present() -> bool:
    return all(
        Path(DATA / folder).is_dir()
        for folder in ("gavel", "synergy", "pollux_profiles", "titan", "muri", "tiresias")
    )
