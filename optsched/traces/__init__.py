"""Trace formats that become instances, one file a format, and the generators of synthetic ones."""

from .imported import Format, Imported
from .readers import (
    acme,
    gavel,
    helios,
    muri,
    openb,
    pai,
    philly,
    pollux,
    psplib,
    shockwave,
    swf,
    synergy,
    tiresias,
)

__all__ = ["FORMATS", "Format", "Imported"]

FORMATS: dict[str, Format] = {
    "acme": acme.FORMAT,
    "gavel": gavel.FORMAT,
    "helios": helios.FORMAT,
    "muri": muri.FORMAT,
    "openb": openb.FORMAT,
    "pai": pai.FORMAT,
    "philly": philly.FORMAT,
    "pollux": pollux.FORMAT,
    "psplib": psplib.FORMAT,
    "shockwave": shockwave.FORMAT,
    "swf": swf.FORMAT,
    "synergy": synergy.FORMAT,
    "tiresias": tiresias.FORMAT,
}
"""Every format of `optsched import`, by name."""
