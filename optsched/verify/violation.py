"""Violations: what the verifier says is wrong."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: `rule` names it; job, node and time say where; `message` is the whole
    sentence."""

    rule: str
    message: str
    job: str | None = None
    node: str | None = None
    time_s: float | None = None

    def __str__(self) -> str:
        return self.message


def broken(rule: str, job: str, says: str, time_s: float, node: str | None = None) -> Violation:
    """Return the violation of a rule by a job; `says` are the words after its name."""
    return Violation(rule, f"job {job} {says}", job, node, time_s)
