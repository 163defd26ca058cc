"""What an attempt teaches about its job: whether it saves, and seconds of start-up, restore and
checkpoint as they really were."""

from dataclasses import replace
from typing import Any

from ..executors.base import MOST_COST_S, Progress
from ..model import Profile

NEVER_S = 1e9
"""`checkpoint_every_s` of a job of which nobody says that it saves: a preemption loses all it did
since it started."""
LEAST_S = 0.01
"""Seconds that differ by less are not worth another profile."""


def learned(profile: Profile, progress: Progress | None, started_s: float | None) -> Profile:
    """Return the profile with what an attempt that began at `started_s` measured of itself; the
    same object where that is nothing new. A cost that was measured replaces what was stated before;
    what saves once does so when asked."""
    if progress is None:
        return profile
    startup_s = None
    if (
        progress.began_s is not None
        and started_s is not None
        and progress.step > progress.first_step
    ):
        startup_s = max(0.0, progress.began_s - started_s - (progress.restore_s or 0.0))
    costs = {
        "checkpoint_s": progress.checkpoint_s,
        "restore_s": progress.restore_s,
        "startup_s": startup_s,
    }
    new: dict[str, Any] = {
        name: seconds
        for name, seconds in costs.items()
        if seconds is not None
        and seconds <= MOST_COST_S
        and abs(getattr(profile, name) - seconds) >= LEAST_S
    }
    saves = progress.saves or progress.saved_step is not None
    if saves and profile.checkpoint_every_s == NEVER_S:
        new["checkpoint_every_s"] = None
    return replace(profile, **new) if new else profile
