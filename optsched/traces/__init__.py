"""Trace formats that become instances, one file a format, and the generators of synthetic ones."""

from . import gavel, psplib
from .imported import Format, Imported

__all__ = ["FORMATS", "Format", "Imported"]

FORMATS: dict[str, Format] = {
    "gavel": gavel.FORMAT,
    "psplib": psplib.FORMAT,
}
"""Every format of `optsched import`, by name."""
