"""What Slurm says of our jobs: one call for all of them."""

import math
import re
import secrets
from collections.abc import Iterator

from ...frozen import record
from ..base import AttemptKey
from .client import SlurmClient

OVER = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)
"""States in which nothing of a job is left on any node that answers (COMPLETING is none of
them)."""
WAITING = frozenset(
    {
        "PENDING",
        "CONFIGURING",
        "REQUEUED",
        "REQUEUE_HOLD",
        "REQUEUE_FED",
        "SPECIAL_EXIT",
        "RESV_DEL_HOLD",
    }
)
SHELL_STEP = "optsched-shell"
"""The name of steps that are beside a job, and none of its own."""
FIELDS = ("%i", "%T", "%U", "%N", "%j", "%Z", "%r", "%k")


LIMIT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


def limit_min(text: str) -> float:
    """Return the minutes of a time limit as squeue prints it; infinite where it has none."""
    match = LIMIT.fullmatch(text)
    if match is None:
        return math.inf
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return (days * 24 + hours) * 60 + minutes + seconds / 60


@record
class SlurmJob:
    """A job of Slurm's: `uid` is its owner, `nodes` a hostlist expression ("" before it has
    any)."""

    id: int
    state: str
    uid: int
    nodes: str
    name: str
    directory: str
    reason: str
    key: AttemptKey

    @property
    def over(self) -> bool:
        return self.state in OVER

    @property
    def waits(self) -> bool:
        return self.state in WAITING


def ask_jobs(client: SlurmClient, which: tuple[str, ...]) -> list[SlurmJob]:
    """Return all jobs with a key in their comment, of those that the options `which` of squeue
    leave.

    Raises NoAnswerError, RefusedError. `squeue --json` would take ten times as long, and in Slurm
    22.05 leaves nothing out.
    """
    mark = secrets.token_hex(8)  # texts of users may hold whole lines like ours
    return list(
        read_jobs(
            client.ask("squeue", "-h", "--states=all", *which, "-o", "|".join((mark, *FIELDS))),
            mark,
        )
    )


def read_jobs(text: str, mark: str) -> Iterator[SlurmJob]:
    """Return jobs in what squeue prints, lines that begin with `mark`; jobs without a key are left
    out."""
    line = re.compile(
        rf"{re.escape(mark)}\|(\d+)\|([A-Z_]+)\|(\d+)\|([^|]*)\|([^|]*)\|(.*)\|([^|]*)\|([^|]*)"
    )
    for match in map(line.fullmatch, text.split("\n")):
        if match is None:
            continue
        key = AttemptKey.parse(match[8])
        if key is not None:
            nodes, name, directory, reason = match.group(4, 5, 6, 7)
            yield SlurmJob(
                int(match[1]), match[2], int(match[3]), nodes, name, directory, reason, key
            )
