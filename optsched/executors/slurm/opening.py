"""The Slurm executor of a cluster.toml."""

import os
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError
from ..base import NoAnswerError, RefusedError
from ..opening import ExecutorContext
from .client import SlurmClient
from .executor import SlurmExecutor
from .site import Site, heartbeat_of

if TYPE_CHECKING:
    from ..sbatch.executor import SbatchExecutor


def open_slurm(context: ExecutorContext, options: Site) -> "SlurmExecutor | SbatchExecutor":
    """Batch jobs of a Slurm cluster, with `sbatch` those that its users submit, too.

    They run on the nodes of the partition or reservation that `[slurm]` names. Attempts are kept
    below the folder that all its nodes share. Raises InputError.
    """
    context.refuse_emulated()
    client = SlurmClient(options.timeout_s, options.conf, options.programs)
    site = replace(options, heartbeat=_heartbeat(options) if options.sbatch else None)
    if options.sbatch and os.geteuid() != 0:
        raise InputError(
            "slurm.sbatch: only a controller that runs as root may start jobs of others; leave "
            "it out"
        )
    if options.sbatch:
        _check_holding(client)
        _check_weights(client, options)
    executor = SlurmExecutor(context.attempts, client, site, context.declared)
    if not options.sbatch:
        return executor
    from ..sbatch.executor import SbatchExecutor

    return SbatchExecutor(context.attempts, executor, client, site, site)


def _heartbeat(slurm: Site) -> Path:
    if slurm.heartbeat is not None:
        return slurm.heartbeat
    if slurm.partition is None:
        raise InputError("slurm.sbatch: says nothing of whose jobs; name the partition in [slurm]")
    return heartbeat_of(slurm.partition)


def _check_weights(client: SlurmClient, slurm: Site) -> None:
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
