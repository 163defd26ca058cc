"""What a user says in a job's comment that sbatch has no option for: `optsched: duration=2h
save=30s`."""

import re

from ...duration import parse_duration
from ...frozen import frozen
from ..base import Record

HINTS = re.compile(r"\boptsched:((?:\s+[a-z]+=\S+)+)")
SIGNALS = ("TERM", "INT", "USR1", "USR2", "HUP")
MOST_WEIGHT = 1000.0


@frozen
class Hints:
    """`duration_s` is how long it runs, `save_s` and `restore_s` what its checkpoints take,
    `start_s` what each start takes, `grace_s` how long it may take to stop once `signal` was sent,
    to its batch script alone if `batch_only`. `weight` is what its waiting costs against 1 of
    others, `steps` those of the whole job. `faults` are clauses on hints that are none."""

    duration_s: float | None = None
    save_s: float | None = None
    restore_s: float | None = None
    start_s: float | None = None
    grace_s: float | None = None
    signal: str = "TERM"
    batch_only: bool = False
    weight: float = 1.0
    preempt: bool = True
    steps: int | None = None
    faults: tuple[str, ...] = ()


def hints_of(comment: str) -> Hints:
    """Return the hints in a comment; other text in it is left alone."""
    given: Record = {}
    faults = []
    for word in " ".join(HINTS.findall(comment)).split():
        name, _, text = word.partition("=")
        try:
            given |= _hint(name, text.rstrip(",;"))
        except ValueError as error:
            faults.append(f"{word}: {error}")
    return Hints(**given, faults=tuple(faults))


def _hint(name: str, text: str) -> Record:
    match name:
        case "duration" | "save" | "restore" | "start" | "grace":
            seconds = parse_duration(text)
            if name == "duration" and seconds < 0.001:
                raise ValueError("must be longer than 0 s")
            return {f"{name}_s": seconds}
        case "signal":
            word = text.upper().removeprefix("B:").removeprefix("SIG")
            if word not in SIGNALS:
                listed = ", ".join(SIGNALS)
                raise ValueError(
                    f"choose from {listed}, with B: before it for the batch script alone"
                )
            return {"signal": word, "batch_only": text.upper().startswith("B:")}
        case "weight":
            weight = float(text)
            if not 0 < weight <= MOST_WEIGHT:
                raise ValueError(f"must be above 0 and at most {MOST_WEIGHT:g}")
            return {"weight": weight}
        case "preempt":
            if text not in ("yes", "no"):
                raise ValueError("say yes or no")
            return {"preempt": text == "yes"}
        case "steps":
            if not text.isdecimal() or not 0 < int(text) < 10**15:
                raise ValueError("must be a whole number above 0")
            return {"steps": int(text)}
        case "gpus":
            raise ValueError("the number of GPUs of a Slurm job cannot be changed")
    raise ValueError(
        "choose from duration, save, restore, start, grace, signal, weight, preempt, steps"
    )
