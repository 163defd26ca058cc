"""A run of a study on a machine of a cluster, where optsched must be as it is here."""

import socket
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from .address import code_version
from .execute import Task, run_task
from .process import Warm


def run_errand(errand: dict[str, Any], instance: bytes) -> dict[str, Any]:
    """Return the fields of the `Outcome` of a `Task`, given by its fields; or `unfit`, a sentence,
    where another optsched is installed here."""
    task = Task(**errand)
    # A worker lives long: what it knew of the code may be old.
    own = code_version(task.command, anew=True)
    if own != task.version:
        return {
            "unfit": f"worker {socket.gethostname()} has optsched {own}, this machine has "
            f"{task.version}; install the same on both"
        }
    with tempfile.TemporaryDirectory(prefix="optsched-study-") as folder, Warm() as warm:
        path = Path(folder) / Path(task.instance).name
        path.write_bytes(instance)
        outcome = run_task(replace(task, instance=str(path)), warm)
        reason = outcome.reason and outcome.reason.replace(str(path), task.instance)
    made_on = {**outcome.made_on, "optsched": own}
    return {**outcome.as_dict(), "made_on": made_on, "reason": reason, "kept": outcome.kept}
