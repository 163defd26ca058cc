"""Trace formats that become instances, one file a format, and the generator of synthetic ones."""

from collections.abc import Callable
from dataclasses import dataclass

from . import gavel, psplib
from .imported import Imported


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One trace format: `read(source, jobs=, track=, **options)` where `options` names what else it takes."""

    title: str
    read: Callable[..., Imported]
    options: tuple[str, ...] = ()


FORMATS = {
    "gavel": Format(
        title="Gavel traces with their throughput table (.trace, .trace.gz)",
        read=gavel.read,
        options=("throughputs", "cluster", "gpus_per_node", "overheads"),
    ),
    "psplib": Format(
        title="PSPLIB project scheduling, single mode and multi-mode (.sm, .mm)",
        read=psplib.read,
    ),
}
"""Every format of `optsched import`, by name."""
