"""The Slurm executor of a cluster.toml."""

from typing import TYPE_CHECKING

from ...errors import InputError
from .client import SlurmClient
from .executor import SlurmExecutor
from .site import Site

if TYPE_CHECKING:
    from ...control.settings import Settings


def open_slurm(settings: "Settings") -> SlurmExecutor:
    """Jobs of a Slurm partition or reservation, which `[slurm]` names.

    Attempts are kept below the state folder, which all its nodes share. Raises InputError.
    """
    slurm = settings.slurm
    emulated = next((part.name for part in settings.nodes if part.emulate), None)
    if emulated is not None:
        raise InputError(f"nodes: {emulated} has emulate = true, which is for the local executor; leave it out")
    client = SlurmClient(float(slurm.timeout), slurm.conf, slurm.programs)
    site = Site(
        partition=slurm.partition, reservation=slurm.reservation, account=slurm.account, options=slurm.options,
        poll_s=float(slurm.poll), python=slurm.python,
    )
    declared = {node.name: node for part in settings.nodes for node in part.nodes()}
    return SlurmExecutor(settings.state, client, site, declared)
