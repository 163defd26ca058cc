"""What a real run of a job tells of its profile."""

from ..executors.base import SAVED_AND_STOPPED, Observation, Progress
from .measured import Measured

FEWEST_STEPS = 5
"""Before these, the time a step is that of the first steps, which are slower."""


def measured_of(
    seen: Observation,
    *,
    gpus: int,
    cpus: int | None,
    gpu_type: str | None,
    user: str | None,
    command: str | None,
    stop_asked_s: float | None = None,
) -> Measured:
    """Return what was measured of an attempt, from what an executor saw of it. `cpus` are its cores
    on all nodes, `stop_asked_s` the Unix time at which it was asked to save and stop. What was not
    seen is None."""
    progress = seen.progress
    stop_s = None
    if (
        seen.exit_status == SAVED_AND_STOPPED
        and stop_asked_s is not None
        and seen.ended_s is not None
    ):
        stop_s = max(0.0, seen.ended_s - stop_asked_s)
    preemptible = None
    if stop_asked_s is not None and seen.exit_status is not None and seen.exit_status != 0:
        preemptible = stop_s is not None
    return Measured(
        at_s=seen.ended_s or (0.0 if progress is None else progress.at_s),
        user=user,
        command=command,
        gpu_type=gpu_type,
        gpus=gpus,
        cpus=cpus or None,
        steps=None if progress is None else progress.step - progress.first_step,
        step_source=None if progress is None else "reported by the command",
        step_s=None if progress is None else _step_s(progress),
        startup_s=_startup_s(seen),
        restore_s=None if progress is None else progress.restore_s,
        stop_s=stop_s,
        save_s=None if progress is None else progress.checkpoint_s,
        preemptible=preemptible,
        memory_gib=seen.peak_memory_gib,
    )


def _step_s(progress: Progress) -> float | None:
    steps = progress.step - progress.first_step
    if progress.began_s is None or steps < FEWEST_STEPS or progress.at_s <= progress.began_s:
        return None
    return (progress.at_s - progress.began_s) / steps


def _startup_s(seen: Observation) -> float | None:
    """Return the time from the start of the attempt to that of its first step, without the
    restore."""
    progress = seen.progress
    if progress is None or progress.began_s is None or seen.started_s is None:
        return None
    return max(0.0, progress.began_s - seen.started_s - (progress.restore_s or 0.0))
