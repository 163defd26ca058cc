"""How the verifier says what is wrong."""

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
