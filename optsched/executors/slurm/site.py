"""How optsched's jobs get to their nodes at a site."""

import os
import pwd
import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

from ...hostlist import expand_hostlist
from ...plugins.options import PositiveDuration, declared_options
from ..base import NoAnswerError
from .client import SlurmClient
from .declining import LIMIT, SURE_S
from .rules import Rules


@declared_options
class Site(Rules):
    """The table `[slurm]`."""

    partition: Annotated[str | None, "The partition whose nodes optsched may use."] = None
    reservation: Annotated[str | None, "The reservation whose nodes optsched may use."] = None
    account: Annotated[str | None, "The Slurm account that jobs are charged to."] = None
    options: Annotated[tuple[str, ...], "Further arguments for sbatch."] = ()
    poll_s: Annotated[PositiveDuration, "How often to poll Slurm."] = 1.0
    timeout_s: Annotated[PositiveDuration, "How long a call of a Slurm program may take."] = 10.0
    conf: Annotated[Path | None, "The slurm.conf, if not in the usual place."] = None
    programs: Annotated[Path | None, "The folder of Slurm's programs, if not on PATH."] = None
    python: Annotated[str | None, "The Python to use on nodes; none: the controller's own."] = None
    start_timeout_s: Annotated[
        PositiveDuration,
        "Time after which a job that Slurm has not started is withdrawn, to be tried again later.",
    ] = 60.0
    sbatch: Annotated[
        bool, "Also schedule jobs that users submit with sbatch (`optsched setup slurm`)."
    ] = False
    heartbeat: Annotated[
        Path | None,
        "The file that tells job_submit.lua that a controller is running; none: the usual one of "
        "the partition.",
    ] = None

    def words(self) -> list[str]:
        """Return what each sbatch is given."""
        named = {
            "partition": self.partition,
            "reservation": self.reservation,
            "account": self.account,
        }
        return [
            *(f"--{name}={value}" for name, value in named.items() if value is not None),
            *self.options,
        ]

    def which_jobs(self) -> tuple[str, ...]:
        """Return options of squeue that leave all jobs that can be ours: only root submits as
        others."""
        if os.geteuid() == 0:
            return () if self.partition is None else (f"--partition={self.partition}",)
        return (f"--user={pwd.getpwuid(os.geteuid()).pw_name}",)

    def reserved(self, client: SlurmClient) -> frozenset[str] | None:
        """Return nodes of the reservation, None where there is none named. Raises NoAnswerError,
        RefusedError."""
        if self.reservation is None:
            return None
        text = client.ask("scontrol", "--oneliner", "show", "reservation", self.reservation)
        match = re.search(r"(?:^|\s)Nodes=(\S+)", text)
        if match is None:
            raise NoAnswerError(
                f"scontrol does not say which nodes reservation {self.reservation} has"
            )
        return frozenset(split_nodes(match[1]))

    def gives_up_s(self, reason: str) -> float:
        """Return for how long Slurm may have a job wait for that reason."""
        return min(SURE_S, self.start_timeout_s) if LIMIT.match(reason) else self.start_timeout_s

    def describe(self, declared: Collection[str]) -> str:
        """Return a clause that says which nodes are meant."""
        parts = [f"of partition {self.partition}"] if self.partition is not None else []
        parts += [f"in reservation {self.reservation}"] if self.reservation is not None else []
        parts += ["that [[nodes]] names"] if declared else []
        return " ".join(parts) or "at all"


def heartbeat_of(partition: str) -> Path:
    """Return the file by which job_submit.lua knows that a controller of `partition` runs.

    A restart of the host empties its folder, after which jobs are not held.
    """
    return Path("/run/optsched") / f"{partition}.heartbeat"


def split_nodes(text: str) -> list[str]:
    """Return names in Slurm's hostlist, as "a[1-2,5],b7"."""
    if text == "(null)":
        return []
    return [name for part in re.split(r",(?![^\[]*\])", text) for name in expand_hostlist(part)]
