"""The profile that measurements amount to, and the file that holds both."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..files import NOUNS, parse_file, plain, read_bytes
from ..model.profile import Profile
from .cores import CoreCount, CoreSweep
from .learn import learned
from .measured import Measured

RESULT_FORMAT = "optsched-measured/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What `optsched profile` found: `profile` goes into a job of an instance as it is."""

    format: Literal["optsched-measured/1"] = "optsched-measured/1"
    profile: Profile
    measured: Measured
    cores: CoreSweep | None = None


RESULT_NOUNS = (*NOUNS, Measured, CoreCount, CoreSweep, Result)


def result(measured: Measured, cores: CoreSweep | None = None, name: str | None = None) -> Result:
    """Measurements with their profile; `name` is that of the profile. A CPU-only command has no
    cores per GPU."""
    table = {}
    if cores is not None and measured.gpus:
        table = {count.cpus_per_gpu: round(count.rate, 4) for count in cores.counts}
    profile, _ = learned(Profile(name=name, cpus_per_gpu=table), [measured])
    return Result(profile=profile, measured=measured, cores=cores)


def result_object(found: Result) -> dict[str, Any]:
    """The object of the file: numbers to six digits, defaults left out."""
    shown = plain(found)
    return {
        "format": RESULT_FORMAT,
        "profile": shown["profile"],
        "measured": six_digits(shown["measured"]),
        **({"cores": six_digits(shown["cores"])} if found.cores is not None else {}),
    }


def dump_result(found: Result) -> str:
    """The file's text."""
    return json.dumps(result_object(found), indent=2) + "\n"


def read_result(path: str | Path) -> Result:
    """A file that `optsched profile -o` wrote. Raises InputError naming every fault."""
    parsed: Result = parse_file(Result, read_bytes(path), str(path), RESULT_FORMAT, RESULT_NOUNS)
    return parsed


def six_digits(value: Any) -> Any:
    """Floats of JSON values as people can read them; times of day keep milliseconds."""
    if isinstance(value, float):
        return round(value, 3) if abs(value) >= 1e6 else float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: six_digits(inner) for key, inner in value.items()}
    return [six_digits(inner) for inner in value] if isinstance(value, list) else value
