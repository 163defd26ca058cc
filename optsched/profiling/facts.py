"""From what was seen of one or two runs to what was measured."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..executors.base import SAVED_AND_STOPPED
from .gpus import GIB
from .run import Setting, Watched
from .steps import Mark, StepTimes, step_times

REPORTED, HOOKED = "reported by the command", "optimizer steps in PyTorch"
FEWEST_INTERVALS = 3
"""Between reports of a command, to rely on them alone."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one run: where they are from, when each was done, and how long they took after
    the warm-up."""

    source: str
    marks: tuple[Mark, ...]
    times: StepTimes | None
    first_step: int

    def startup_s(self, started_s: float) -> float | None:
        """From exec to the beginning of the first step, its warm-up included: the time of the first
        mark less what its steps take later. None without step times."""
        if self.times is None:
            return None
        done = [mark for mark in self.marks if mark[1] > self.first_step]
        if not done:
            return None
        at_s, step = done[0]
        return max(0.0, at_s - started_s - (step - self.first_step) * self.times.median_s)


def steps_of(watched: Watched) -> Steps | None:
    """The steps that a command reported, else those that the hook saw; None where there are
    none."""
    until_s = watched.asked_s if watched.asked_s is not None else watched.ended_s
    found = []
    if watched.progress:
        reports = [report for _, report in watched.progress]
        first = reports[0].first_step
        marks = [
            (at_s, report.step)
            for at_s, report in watched.progress
            if at_s <= until_s and report.step > first
        ]
        if reports[0].began_s is not None:
            began_s = watched.progress[0][0] - (reports[0].at_s - reports[0].began_s)
            marks.insert(0, (began_s, first))
        found.append(Steps(REPORTED, tuple(marks), step_times(marks), first))
    if watched.hook is not None:
        marks = [mark for mark in watched.hook.marks if mark[0] <= until_s]
        found.append(Steps(HOOKED, tuple(marks), step_times(marks), 0))
    for steps in found:
        if steps.times is not None and len(steps.marks) > FEWEST_INTERVALS:
            return steps
    return next((steps for steps in found if steps.times is not None), None)


def facts(
    setting: Setting, first: Watched, second: Watched | None
) -> tuple[dict[str, object], list[str], dict[str, str]]:
    """Fields of `Measured`, notes, and why some fields are absent. `second` is the run that began
    where `first` saved."""
    found: dict[str, object] = {
        "preemptible": None if first.asked_s is None else first.saved_and_stopped
    }
    notes: list[str] = []
    absent: dict[str, str] = {}
    steps = steps_of(first)
    _add_steps(first, steps, found, notes, absent)
    _add_stop(setting, first, second, found, notes, absent)
    _add_restore(first, steps, second, found, absent)
    window = (
        None if steps is None or steps.times is None else (steps.times.from_s, steps.times.to_s)
    )
    _add_host(first, second, window, found, absent)
    _add_gpus(setting, first, second, window, found, notes, absent)
    left = first.left_behind + (0 if second is None else second.left_behind)
    if left:
        notes.append(
            f"{left} of its processes were still there after it had ended, and were killed"
        )
    return found, notes, absent


def _add_steps(
    first: Watched,
    steps: Steps | None,
    found: dict[str, object],
    notes: list[str],
    absent: dict[str, str],
) -> None:
    if steps is None or steps.times is None:
        absent["step_s"] = absent["startup_s"] = (
            "no two steps were seen: the command writes none to OPTSCHED_PROGRESS and runs no "
            "PyTorch optimizer, or "
            "needs longer than it was given"
        )
        return
    times = steps.times
    found |= {
        "steps": times.steps,
        "step_source": steps.source,
        "step_s": times.mean_s,
        "step_median_s": times.median_s,
        "step_p90_s": times.p90_s,
        "startup_s": steps.startup_s(first.started_s),
    }
    if not times.warm:
        notes.append(
            f"only {times.steps} steps were seen, so the warm-up is in the step time; give it "
            "longer"
        )
    if times.per_mark > 1:
        notes.append(
            f"steps are reported up to {times.per_mark} at once: median and p90 are of means "
            "over so many"
        )
    if steps.source == HOOKED and first.hook is not None and first.hook.optimizers > 1:
        notes.append(
            f"{first.hook.optimizers} optimizers step; steps are those of the one that steps most"
        )


def _add_stop(
    setting: Setting,
    first: Watched,
    second: Watched | None,
    found: dict[str, object],
    notes: list[str],
    absent: dict[str, str],
) -> None:
    runs = [one for one in (first, second) if one is not None]
    stops = [
        one.ended_s - one.asked_s
        for one in runs
        if one.saved_and_stopped and one.asked_s is not None
    ]
    if stops:
        found["stop_s"] = statistics.median(stops)
    else:
        absent["stop_s"] = _why_not_stopped(setting, first)
    saves = [
        report.checkpoint_s
        for one in runs
        for _, report in one.progress[-1:]
        if report.checkpoint_s is not None
    ]
    hooked = [took_s for one in runs if one.hook is not None for _, took_s, _ in one.hook.saves]
    if saves or hooked:
        found["save_s"] = statistics.median(saves or hooked)
    else:
        absent["save_s"] = "nobody reported a save"
    sizes = [size for _, _, size in first.hook.saves if size] if first.hook is not None else []
    size = first.saved_bytes or (sizes[-1] if sizes else None)
    if size:
        found["checkpoint_gib"] = size / GIB
    else:
        absent["checkpoint_gib"] = "nothing was seen to be written as a checkpoint"
    every_s = _save_every_s(first)
    if every_s is not None:
        found["save_every_s"] = every_s
    if not stops and every_s is None:
        notes.append(
            'it was not seen to save: "preemptible": false in its job says so, or a longer run '
            "may tell"
        )


def _why_not_stopped(setting: Setting, first: Watched) -> str:
    if first.asked_s is None:
        return "it ended by itself before it was asked to stop"
    if first.killed:
        return f"it had not ended {setting.grace_s:g} s after SIGTERM and was killed"
    if first.exit_status < 0:
        return f"it was ended by signal {-first.exit_status} without saving"
    return f"it ended with status {first.exit_status} when asked to stop; {SAVED_AND_STOPPED} would say that it has saved"  # noqa: E501


def _save_every_s(first: Watched) -> float | None:
    """The median time between two saves that nobody asked for."""
    until_s = first.asked_s if first.asked_s is not None else first.ended_s
    reported = sorted(
        {report.saved_at_s for _, report in first.progress if report.saved_at_s is not None}
    )
    hooked = (
        [at_s for at_s, _, _ in first.hook.saves if at_s < until_s]
        if first.hook is not None
        else []
    )
    times = (reported[:-1] if first.saved_and_stopped else reported) or hooked
    return statistics.median(b - a for a, b in pairwise(times)) if len(times) > 2 else None


def _add_restore(
    first: Watched,
    steps: Steps | None,
    second: Watched | None,
    found: dict[str, object],
    absent: dict[str, str],
) -> None:
    if second is None:
        absent["restore_s"] = (
            "it did not save when asked to stop, so there was nothing to begin from"
        )
        return
    reported = [report.restore_s for _, report in second.progress if report.restore_s is not None]
    loaded_s = _loaded_s(second) - _loaded_s(first)
    again = steps_of(second)
    starts = [
        None if one is None else one.startup_s(watched.started_s)
        for one, watched in ((steps, first), (again, second))
    ]
    if reported:
        found["restore_s"] = reported[-1]
    elif second.hook is not None and loaded_s > 0:
        found["restore_s"] = loaded_s
    elif starts[0] is not None and starts[1] is not None and starts[1] > starts[0]:
        found["restore_s"] = starts[1] - starts[0]
    elif starts[0] is None or starts[1] is None:
        absent["restore_s"] = (
            "nobody reported a restore, and without steps of both starts they cannot be compared"
        )
    else:
        absent["restore_s"] = (
            "nobody reported a restore, and the second start was no slower than the first"
        )


def _loaded_s(watched: Watched) -> float:
    """Seconds that PyTorch loaded before the first step."""
    if watched.hook is None:
        return 0.0
    until_s = watched.hook.marks[0][0] if watched.hook.marks else watched.ended_s
    return sum(took_s for at_s, took_s, _ in watched.hook.loads if at_s < until_s)


def _add_host(
    first: Watched,
    second: Watched | None,
    window: tuple[float, float] | None,
    found: dict[str, object],
    absent: dict[str, str],
) -> None:
    peak = max(first.peak_bytes, 0 if second is None else second.peak_bytes)
    if peak:
        found["memory_gib"] = peak / GIB
    else:
        absent["memory_gib"] = "it ended before its memory was looked at"
    inside = (
        first.host
        if window is None
        else [one for one in first.host if window[0] <= one.at_s <= window[1]]
    )
    if len(inside) > 1:
        found["cpu_use"] = max(
            0.0, (inside[-1].cpu_s - inside[0].cpu_s) / (inside[-1].at_s - inside[0].at_s)
        )
    else:
        absent["cpu_use"] = "it was looked at too seldom while it stepped"


def _add_gpus(
    setting: Setting,
    first: Watched,
    second: Watched | None,
    window: tuple[float, float] | None,
    found: dict[str, object],
    notes: list[str],
    absent: dict[str, str],
) -> None:
    hooks = [
        one.hook.reserved_bytes
        for one in (first, second)
        if one is not None and one.hook is not None
    ]
    reserved = [size for size in hooks if size is not None]
    if reserved:
        found["torch_gpu_memory_gib"] = max(reserved) / GIB
    if setting.gpus == 0:
        return
    if setting.nvml is None:
        absent["gpu_memory_gib"] = absent["gpu_duty"] = "NVML finds no GPU here"
        return
    found["gpu_memory_total_gib"] = setting.nvml.total_bytes / GIB
    samples = [*first.gpus, *([] if second is None else second.gpus)]
    inside: Sequence[float] = [
        one.busy
        for one in first.gpus
        if one.busy is not None and (window is None or window[0] <= one.at_s <= window[1])
    ]
    if setting.nvml.in_use:
        absent["gpu_memory_gib"] = absent["gpu_duty"] = "others use the GPU: " + ", ".join(
            setting.nvml.in_use
        )
        return
    if samples:
        found["gpu_memory_gib"] = max(one.used_bytes for one in samples) / GIB
    else:
        absent["gpu_memory_gib"] = "NVML did not answer"
    if inside and sum(inside) > 0:
        found["gpu_duty"] = statistics.fmean(inside)
    else:
        absent["gpu_duty"] = (
            "NVML gave no utilisation" if not inside else "no kernel was seen to run"
        )
