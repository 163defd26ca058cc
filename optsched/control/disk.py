"""Whether the disks of the state folder and of outputs have room for what more jobs would write."""

import os
from pathlib import Path

from .settings import Settings

GIB, MIB_PER_GIB = 1 << 30, 1024


def short_of_disk(settings: Settings) -> str | None:
    """Return why nothing more is to be started, in a clause; None while there is room."""
    folders = {
        "state folder": settings.state,
        "shared folder": settings.shared,
        "outputs": settings.outputs,
    }
    for what, folder in folders.items():
        free_gib = float("inf") if folder is None else _free_gib(folder)
        if free_gib < settings.keep_free_gib:
            return (
                f"the disk of the {what} has {free_gib * MIB_PER_GIB:.0f} MiB free, and nothing is "
                f"started below {settings.keep_free_gib * MIB_PER_GIB:g} MiB (keep_free_gib)"
            )
    return None


def _free_gib(folder: Path) -> float:
    """Return what this process may still write there; where that cannot be told, writing will
    say."""
    try:
        seen = os.statvfs(folder)
    except OSError:
        return float("inf")
    return (seen.f_bfree if os.geteuid() == 0 else seen.f_bavail) * seen.f_frsize / GIB
