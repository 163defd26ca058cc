"""The profile that measurements amount to, and the file that holds both."""

import json
from typing import Any, Literal

from ..files import plain
from ..frozen import frozen
from ..model import Profile
from .cores import CoreSweep
from .learn import learned
from .measured import Measured

RESULT_FORMAT = "optsched-measured/1"


@frozen
class Result:
    """What `optsched profile` found: `profile` goes into a job of an instance as it is."""

    format: Literal["optsched-measured/1"] = "optsched-measured/1"
    profile: Profile
    measured: Measured
    cores: CoreSweep | None = None


def result(measured: Measured, cores: CoreSweep | None = None, name: str | None = None) -> Result:
    """Return measurements with their profile; `name` is that of the profile. A CPU-only command has
    no cores per GPU."""
    table = {}
    if cores is not None and measured.gpus:
        table = {count.cpus_per_gpu: round(count.rate, 4) for count in cores.counts}
    profile, _ = learned(Profile(name=name, cpus_per_gpu=table), [measured])
    return Result(profile=profile, measured=measured, cores=cores)


def result_object(outcome: Result) -> dict[str, Any]:
    """Return the object of the file: numbers to six digits, defaults left out."""
    shown = plain(outcome)
    return {
        "format": RESULT_FORMAT,
        "profile": shown["profile"],
        "measured": six_digits(shown["measured"]),
        **({"cores": six_digits(shown["cores"])} if outcome.cores is not None else {}),
    }


def dump_result(outcome: Result) -> str:
    """Return the file's text."""
    return json.dumps(result_object(outcome), indent=2) + "\n"


def six_digits(value: Any) -> Any:
    """Return floats of JSON values as people can read them; times of day keep milliseconds."""
    if isinstance(value, float):
        return round(value, 3) if abs(value) >= 1e6 else float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: six_digits(inner) for key, inner in value.items()}
    return [six_digits(inner) for inner in value] if isinstance(value, list) else value
