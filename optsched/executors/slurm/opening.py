"""The Slurm executor of a cluster.toml."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ...errors import InputError
from ..base import NoAnswerError, RefusedError
from ..opening import ExecutorContext
from .client import SlurmClient
from .executor import SlurmExecutor
from .site import Site, heartbeat_of


def open_slurm(context: ExecutorContext, options: Site) -> SlurmExecutor:
    """Batch jobs of a Slurm cluster, with `sbatch` those that its users submit, too.

    They run on the nodes of the partition or reservation that `[slurm]` names. Attempts are kept
    below the folder that all its nodes share. Raises InputError.
    """
    context.refuse_emulated()
    client = SlurmClient(options.timeout_s, options.conf, options.programs)
    if not options.sbatch:
        site = replace(options, heartbeat=None)
        return SlurmExecutor(context.attempts, client, site, context.declared)
    site = replace(options, heartbeat=_heartbeat(options))
    if os.geteuid() != 0:
        raise InputError(
            "slurm.sbatch: only a controller that runs as root may start jobs of others; leave "
            "it out"
        )
    with suppress(NoAnswerError, RefusedError):
        _check_config(client.config(), options)
    from ..sbatch.executor import SbatchExecutor

    return SbatchExecutor(context.attempts, client, site, context.declared)


def _heartbeat(slurm: Site) -> Path:
    if slurm.heartbeat is not None:
        return slurm.heartbeat
    if slurm.partition is None:
        raise InputError("slurm.sbatch: says nothing of whose jobs; name the partition in [slurm]")
    return heartbeat_of(slurm.partition)


def _check_config(config: Mapping[str, str], slurm: Site) -> None:
    """Raise InputError where Slurm certainly holds no jobs, or does not check the names that jobs
    weigh by."""
    if "lua" not in config.get("JobSubmitPlugins", "lua").split(","):
        raise InputError(
            "slurm.sbatch: Slurm holds no jobs, as its JobSubmitPlugins has no lua; what is to be "
            "added is printed by `optsched setup slurm --sbatch`"
        )
    enforced = config.get("AccountingStorageEnforce", "").split(",")
    for option, given, what in (
        ("qos_weight", slurm.qos_weight, "qos"),
        ("account_weight", slurm.account_weight, "associations"),
    ):
        if given and what not in enforced:
            raise InputError(
                f"slurm.{option}: anybody could name one, as Slurm does not check these; it does "
                f"with {what} in its AccountingStorageEnforce, else leave it out"
            )
