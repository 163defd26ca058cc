"""A run of a study on a machine of a cluster, where optsched must be as it is here."""

import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .address import code_version
from .execute import run_command
from .process import Warm


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What a run needs to be the same elsewhere: its command, limits and the version that it is
    for; `instance` is where the instance lies on the machine that sends it."""

    command: str
    instance: str
    time_limit_s: float
    memory_gib: float
    plans: bool
    version: str


def run_errand(errand: dict[str, Any], instance: bytes) -> dict[str, Any]:
    """Return the fields of the run's `Outcome`; or `unfit`, a sentence, where another optsched is
    installed here."""
    asked = Errand(**errand)
    own = code_version(
        asked.command, anew=True
    )  # a worker lives long: what it knew of the code may be old
    if own != asked.version:
        return {
            "unfit": f"worker {socket.gethostname()} has optsched {own}, this machine has "
            f"{asked.version}; install the same on both"
        }
    with tempfile.TemporaryDirectory(prefix="optsched-study-") as folder, Warm() as warm:
        path = Path(folder) / Path(asked.instance).name
        path.write_bytes(instance)
        found = run_command(
            asked.command,
            path,
            warm=warm,
            time_limit_s=asked.time_limit_s,
            memory_gib=asked.memory_gib,
            plans=asked.plans,
        )
        reason = found.reason and found.reason.replace(str(path), asked.instance)
    made_on = {**found.made_on, "optsched": own}
    return {**found.as_dict(), "made_on": made_on, "reason": reason, "kept": found.kept}
