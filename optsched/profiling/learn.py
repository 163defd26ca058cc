"""How profiles follow what is measured of real runs."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from ..model import Profile, Sharing
from .measured import Measured

LATEST = 5
"""Times are medians of so many latest runs: one slow disk does not count, a change does after three
runs."""

HEADROOM = 0.1
"""What is added to a measured peak of memory: other inputs, fragmentation, and peaks between two
looks."""

MEDIANS = {
    "checkpoint_s": "stop_s",
    "restore_s": "restore_s",
    "startup_s": "startup_s",
    "checkpoint_every_s": "save_every_s",
}
"""Fields of a profile, and the measurement whose median each is."""


def learned(profile: Profile, runs: Sequence[Measured]) -> tuple[Profile, dict[str, str]]:
    """Return the profile after these runs, oldest first, and for each field that a run measured how
    it came about.

    Times are the median of the latest `LATEST` runs that measured them. `checkpoint_s` is from
    SIGTERM to the end, because so long a preemption holds the GPUs; a command that never saved when
    asked, but now and then, gets `checkpoint_every_s` instead. Peaks of memory are the most of all
    runs with the number of GPUs of the latest, with `HEADROOM`; where less memory may be chosen
    they say nothing, and the profile's stays. Rates by GPU type follow step
    times, for types that `rate` lists already: a type that is not listed may not run the job, so
    none is added. What no run measured stays as it is.
    """
    changed: dict[str, object] = {}
    notes: dict[str, str] = {}
    for field, source in MEDIANS.items():
        if values := _latest(runs, source):
            changed[field] = round(statistics.median(values), 3)
            notes[field] = f"{field}: {_median_of(len(values))}"
    if "checkpoint_s" in changed:
        changed["checkpoint_every_s"] = None
        notes.pop("checkpoint_every_s", None)
    if duties := _latest(runs, "gpu_duty"):
        duty = max(0.01, round(statistics.median(duties), 3))
        changed["sharing"] = replace(profile.sharing or Sharing(), duty=duty)
        notes["sharing"] = f"sharing.duty: {_median_of(len(duties))}"
    alike = [run for run in runs if run.gpus == runs[-1].gpus]
    for field, choice, need in (
        ("gpu_memory_gib", profile.gpu_memory_rates, gpu_memory_need_gib),
        ("memory_gib_per_gpu", profile.memory_rates, memory_need_gib),
    ):
        needs = [value for run in alike if (value := need(run)) is not None]
        if needs and not choice:
            changed[field] = max(needs)
            notes[field] = f"{field}: the peak of {_runs(len(needs))} and {HEADROOM:.0%} more"
    rates = _rates(profile, runs)
    if rates != profile.rate:
        changed["rate"] = rates
        notes["rate"] = "rate: from step times by GPU type"
    return replace(profile, **changed), notes  # type: ignore[arg-type]


def _latest(runs: Sequence[Measured], source: str) -> list[float]:
    """Return the latest measurements that there are."""
    return [value for run in runs if (value := getattr(run, source)) is not None][-LATEST:]


def gpu_memory_need_gib(measured: Measured) -> float | None:
    """Return the peak with headroom, at most what the GPU has; None where it was not measured."""
    peak = (
        measured.gpu_memory_gib
        if measured.gpu_memory_gib is not None
        else measured.torch_gpu_memory_gib
    )
    if peak is None:
        return None
    need = with_headroom(peak)
    return (
        need
        if measured.gpu_memory_total_gib is None
        else min(need, max(peak, measured.gpu_memory_total_gib))
    )


def memory_need_gib(measured: Measured) -> float | None:
    """Return the peak of host memory for each GPU with headroom; None where it was not measured, or
    there is no GPU."""
    if measured.memory_gib is None or measured.gpus == 0:
        return None
    return with_headroom(measured.memory_gib / measured.gpus)


def with_headroom(peak_gib: float) -> float:
    """Return a peak and `HEADROOM` of it, rounded up to hundredths."""
    return math.ceil(peak_gib * (1 + HEADROOM) * 100 - 1e-6) / 100


def _rates(profile: Profile, runs: Sequence[Measured]) -> dict[str, float]:
    """Return the table with measured types put in proportion to one that is measured as well: the
    one nearest to rate 1."""
    rates = dict(profile.rate)
    times = step_times(runs)
    by_size: dict[tuple[int, int | None], dict[str, float]] = {}
    for (gpu_type, gpus, cpus), step_s in times.items():
        if gpu_type in rates and step_s > 0:
            by_size.setdefault((gpus, cpus), {})[gpu_type] = step_s
    for types in sorted(
        by_size.values(), key=len
    ):  # the size at which most types were measured has the last word
        if len(types) < 2:
            continue
        base = min(types, key=lambda gpu_type: (abs(profile.rate[gpu_type] - 1), gpu_type))
        for gpu_type, step_s in types.items():
            rates[gpu_type] = (
                profile.rate[base]
                if gpu_type == base
                else float(f"{profile.rate[base] * types[base] / step_s:.4g}")
            )
    return rates


def step_times(runs: Sequence[Measured]) -> dict[tuple[str | None, int, int | None], float]:
    """Return the seconds a step by GPU type, GPUs and cores: the median of the latest runs of
    each."""
    values: dict[tuple[str | None, int, int | None], list[float]] = {}
    for run in runs:
        if run.step_s is not None:
            values.setdefault((run.gpu_type, run.gpus, run.cpus), []).append(run.step_s)
    return {size: statistics.median(times[-LATEST:]) for size, times in values.items()}


def _median_of(count: int) -> str:
    return "measured once" if count == 1 else f"median of the latest {count} runs"


def _runs(count: int) -> str:
    return "one run" if count == 1 else f"{count} runs"
