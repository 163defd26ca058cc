"""From what was seen of one or two runs to what was measured."""

import statistics
from collections.abc import Sequence
from itertools import pairwise

from ..executors.base import SAVED_AND_STOPPED
from ..frozen import record
from .gpus import GIB
from .run import Setting, Watched
from .steps import Mark, StepTimes, step_times

REPORTED, HOOKED = "reported by the command", "optimizer steps in PyTorch"
FEWEST_INTERVALS = 3
"""Between reports of a command, to rely on them alone."""


@record
class Steps:
    """The steps of one run: where they are from, when each was done, and how long they took after
    the warm-up."""

    source: str
    marks: tuple[Mark, ...]
    times: StepTimes
    first_step: int

    def startup_s(self, started_s: float) -> float | None:
        """Return the time from exec to the beginning of the first step, its warm-up included: the
        time of the first mark less what its steps take later."""
        done = [mark for mark in self.marks if mark[1] > self.first_step]
        if not done:
            return None
        at_s, step = done[0]
        return max(0.0, at_s - started_s - (step - self.first_step) * self.times.median_s)


def steps_of(watched: Watched) -> Steps | None:
    """Return the steps that a command reported, else those that the hook saw; None where there are
    none."""
    seen = []
    if watched.progress:
        first_s, first = watched.progress[0]
        start = first.first_step
        marks = [(at_s, report.step) for at_s, report in watched.progress if report.step > start]
        if first.began_s is not None:
            marks.insert(0, (first_s - (first.at_s - first.began_s), start))
        seen.append((REPORTED, marks, start))
    if watched.hook is not None:
        seen.append((HOOKED, watched.hook.marks, 0))
    timed = []
    for source, marks, start in seen:
        known = tuple(mark for mark in marks if mark[0] <= watched.until_s)
        times = step_times(known)
        if times is not None:
            timed.append(Steps(source, known, times, start))
    long = [steps for steps in timed if len(steps.marks) > FEWEST_INTERVALS]
    return next(iter([*long, *timed]), None)


class Facts:
    """What the first run of a command told, and `second`, which began where it saved: fields of
    `Measured`, notes, and why some fields are absent."""

    def __init__(self, setting: Setting, first: Watched, second: Watched | None) -> None:
        self.setting, self.first, self.second = setting, first, second
        self.runs = [run for run in (first, second) if run is not None]
        self.steps = steps_of(first)
        self.values: dict[str, object] = {}
        self.notes: list[str] = []
        self.absent: dict[str, str] = {}
        if first.asked_s is not None:
            self.values["preemptible"] = first.saved_and_stopped
        self._add_steps()
        self._add_stop()
        self._add_restore()
        self._add_host()
        self._add_gpus()
        if left := sum(run.left_behind for run in self.runs):
            self.notes.append(
                f"{left} of its processes were still there after it had ended, and were killed"
            )

    def _add(self, field: str, value: object, why_absent: str) -> None:
        """Note a field, or why it is absent where it has no value."""
        if value is None:
            self.absent[field] = why_absent
        else:
            self.values[field] = value

    def _stepping(self, at_s: float) -> bool:
        """Tell whether it stepped, warmed up, at a time, as far as is known."""
        steps = self.steps
        return steps is None or steps.times.from_s <= at_s <= steps.times.to_s

    def _add_steps(self) -> None:
        steps = self.steps
        if steps is None:
            self.absent["step_s"] = self.absent["startup_s"] = (
                "no two steps were seen: the command writes none to OPTSCHED_PROGRESS and runs no "
                "PyTorch optimizer, or needs longer than it was given"
            )
            self.notes.append(
                "no steps were seen: it may not have got past its start-up, and may need more "
                "memory later"
            )
            return
        times = steps.times
        self.values |= {
            "steps": times.steps,
            "step_source": steps.source,
            "step_s": times.mean_s,
            "step_median_s": times.median_s,
            "step_p90_s": times.p90_s,
            "startup_s": steps.startup_s(self.first.started_s),
        }
        if not times.warm:
            self.notes.append(
                f"only {times.steps} steps were seen, so the warm-up is in the step time; give it "
                "longer"
            )
        if times.per_mark > 1:
            self.notes.append(
                f"steps are reported up to {times.per_mark} at once: median and p90 are of means "
                "over so many"
            )
        optimizers = 0 if self.first.hook is None else self.first.hook.optimizers
        if steps.source == HOOKED and optimizers > 1:
            self.notes.append(
                f"{optimizers} optimizers step; steps are those of the one that steps most"
            )

    def _add_stop(self) -> None:
        stops = [
            run.ended_s - run.asked_s
            for run in self.runs
            if run.saved_and_stopped and run.asked_s is not None
        ]
        self._add("stop_s", _median(stops), self._why_not_stopped())
        reported = [
            report.checkpoint_s
            for run in self.runs
            for _, report in run.progress[-1:]
            if report.checkpoint_s is not None
        ]
        hooked = [took_s for run in self.runs for _, took_s, _ in run.saves]
        self._add("save_s", _median(reported or hooked), "nobody reported a save")
        sizes = [size for _, _, size in self.first.saves if size]
        written = self.first.saved_bytes or (sizes[-1] if sizes else None)
        self._add(
            "checkpoint_gib",
            written / GIB if written else None,
            "nothing was seen to be written as a checkpoint",
        )
        every_s = self._save_every_s()
        if every_s is not None:
            self.values["save_every_s"] = every_s
        elif not stops:
            self.notes.append(
                'it was not seen to save: "preemptible": false in its job says so, or a longer run '
                "may tell"
            )

    def _why_not_stopped(self) -> str:
        first, status = self.first, self.first.exit_status
        if first.asked_s is None:
            return "it ended by itself before it was asked to stop"
        if first.killed:
            return f"it had not ended {self.setting.grace_s:g} s after SIGTERM and was killed"
        if status < 0:
            return f"it was ended by signal {-status} without saving"
        return (
            f"it ended with status {status} when asked to stop; {SAVED_AND_STOPPED} would say that "
            "it has saved"
        )

    def _save_every_s(self) -> float | None:
        """Return the median time between two saves that nobody asked for."""
        first = self.first
        reported = sorted(
            {report.saved_at_s for _, report in first.progress if report.saved_at_s is not None}
        )
        unasked = reported[:-1] if first.saved_and_stopped else reported
        times = unasked or [at_s for at_s, _, _ in first.saves if at_s < first.until_s]
        return _median([b - a for a, b in pairwise(times)]) if len(times) > 2 else None

    def _add_restore(self) -> None:
        second = self.second
        if second is None:
            self.absent["restore_s"] = (
                "it did not save when asked to stop, so there was nothing to begin from"
            )
            return
        reported = [
            report.restore_s for _, report in second.progress if report.restore_s is not None
        ]
        loaded_s = _loaded_s(second) - _loaded_s(self.first)
        before, after = (
            None if steps is None else steps.startup_s(run.started_s)
            for steps, run in ((self.steps, self.first), (steps_of(second), second))
        )
        restore_s, why = None, "the second start was no slower than the first"
        if reported:
            restore_s = reported[-1]
        elif second.hook is not None and loaded_s > 0:
            restore_s = loaded_s
        elif before is None or after is None:
            why = "without steps of both starts they cannot be compared"
        elif after > before:
            restore_s = after - before
        self._add("restore_s", restore_s, f"nobody reported a restore, and {why}")

    def _add_host(self) -> None:
        peak = max(run.peak_bytes for run in self.runs)
        self._add(
            "memory_gib", peak / GIB if peak else None, "it ended before its memory was looked at"
        )
        looks = [look for look in self.first.host if self._stepping(look.at_s)]
        use = None
        if len(looks) > 1:
            use = (looks[-1].cpu_s - looks[0].cpu_s) / (looks[-1].at_s - looks[0].at_s)
        self._add(
            "cpu_use",
            None if use is None else max(0.0, use),
            "it was looked at too seldom while it stepped",
        )

    def _add_gpus(self) -> None:
        hooks = [run.hook.reserved_bytes for run in self.runs if run.hook is not None]
        if reserved := [size for size in hooks if size is not None]:
            self.values["torch_gpu_memory_gib"] = max(reserved) / GIB
        nvml = self.setting.nvml
        if self.setting.gpus == 0:
            return
        if nvml is not None:
            self.values["gpu_memory_total_gib"] = nvml.total_bytes / GIB
        if nvml is None:
            self.absent["gpu_memory_gib"] = self.absent["gpu_duty"] = "NVML finds no GPU here"
            return
        looks = [look for run in self.runs for look in run.gpus]
        shared = {*nvml.in_use, *(look.gpu for look in looks if look.shared)}
        others = f"others use the GPU: {', '.join(sorted(shared))}" if shared else None
        if others is not None:
            self.notes.append("others used the GPU meanwhile: its times are those beside them")
        used = [look.used_bytes for look in looks if look.used_bytes is not None]
        if any(look.shared and look.used_bytes is None for look in looks):
            used = []
        peak = max(used, default=0) / GIB
        self._add("gpu_memory_gib", peak or None, others or "NVML saw it use no memory")
        if others is not None or self.steps is None:
            self.absent["gpu_duty"] = (
                others or "no steps were seen, so it is not known when it trained"
            )
            return
        busy = [
            look.busy
            for look in self.first.gpus
            if look.busy is not None and self._stepping(look.at_s)
        ]
        self._add(
            "gpu_duty",
            statistics.fmean(busy) if sum(busy) > 0 else None,
            "no kernel was seen to run" if busy else "NVML gave no utilisation",
        )


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _loaded_s(watched: Watched) -> float:
    """Return the seconds that PyTorch loaded before the first step."""
    if watched.hook is None:
        return 0.0
    until_s = watched.hook.marks[0][0] if watched.hook.marks else watched.ended_s
    return sum(took_s for at_s, took_s, _ in watched.hook.loads if at_s < until_s)
