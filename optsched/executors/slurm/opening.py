"""The Slurm executor of a cluster.toml."""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError
from ..base import NoAnswerError, RefusedError
from .client import SlurmClient
from .executor import SlurmExecutor
from .site import Site, heartbeat_of

if TYPE_CHECKING:
    from ...control.settings import Settings, SlurmSettings
    from ..sbatch.executor import SbatchExecutor


def open_slurm(settings: "Settings") -> "SlurmExecutor | SbatchExecutor":
    """Jobs of a Slurm partition or reservation, which `[slurm]` names; with `sbatch` those of its
    users too.

    Attempts are kept below the folder that all its nodes share. Raises InputError.
    """
    slurm = settings.slurm
    emulated = next((part.name for part in settings.nodes if part.emulate), None)
    if emulated is not None:
        raise InputError(
            f"nodes: {emulated} has emulate = true, which is for the local executor; leave it out"
        )
    client = SlurmClient(float(slurm.timeout), slurm.conf, slurm.programs)
    site = Site(
        partition=slurm.partition,
        reservation=slurm.reservation,
        account=slurm.account,
        options=slurm.options,
        poll_s=float(slurm.poll),
        python=slurm.python,
        heartbeat=_heartbeat(slurm) if slurm.sbatch else None,
        start_timeout_s=float(slurm.start_timeout),
    )
    declared = {node.name: node for part in settings.nodes for node in part.nodes()}
    if slurm.sbatch and os.geteuid() != 0:
        raise InputError(
            "slurm.sbatch: only a controller that runs as root may start jobs of others; leave "
            "it out"
        )
    if slurm.sbatch:
        _check_holding(client)
        _check_weights(client, slurm)
    executor = SlurmExecutor(settings.attempts, client, site, declared)
    if not slurm.sbatch:
        return executor
    from ..sbatch.executor import SbatchExecutor
    from ..sbatch.rules import Rules

    return SbatchExecutor(settings.attempts, executor, client, site, Rules.of(slurm))


def _heartbeat(slurm: "SlurmSettings") -> Path:
    if slurm.heartbeat is not None:
        return slurm.heartbeat
    if slurm.partition is None:
        raise InputError("slurm.sbatch: says nothing of whose jobs; name the partition in [slurm]")
    return heartbeat_of(slurm.partition)


def _check_weights(client: SlurmClient, slurm: "SlurmSettings") -> None:
    """Raises InputError where Slurm does not check the names that jobs weigh by."""
    with suppress(NoAnswerError, RefusedError):
        text = client.ask("scontrol", "show", "config")
        found = re.search(r"^AccountingStorageEnforce\s*=\s*(.*)$", text, re.MULTILINE)
        kept = found[1].split(",") if found is not None else []
        for option, given, what in (
            ("qos_weight", slurm.qos_weight, "qos"),
            ("account_weight", slurm.account_weight, "associations"),
        ):
            if given and what not in kept:
                raise InputError(
                    f"slurm.{option}: anybody could name one, as Slurm does not check these; it "
                    f"does with {what} in "
                    "its AccountingStorageEnforce, else leave it out"
                )


def _check_holding(client: SlurmClient) -> None:
    """Raises InputError where Slurm certainly holds no jobs."""
    with suppress(NoAnswerError, RefusedError):
        found = re.search(
            r"^JobSubmitPlugins\s*=\s*(.*)$", client.ask("scontrol", "show", "config"), re.MULTILINE
        )
        if found is not None and "lua" not in found[1].split(","):
            raise InputError(
                "slurm.sbatch: Slurm holds no jobs, as its JobSubmitPlugins has no lua; what is "
                "to be added is printed "
                "by `optsched setup slurm --sbatch`"
            )
