"""The round solver: the contract between `decide` and its plug-ins (entry points
`optsched.rounds`)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from .deadline import Deadline
from .model import Floats, RoundModel
from .place import Packing


@dataclass(slots=True)
class RoundRequest:
    """One round. `deadline_s` is an instant of `time.monotonic`; `gap` the relative gap at which to
    stop.

    `prices` are those of the last round by row name, where there was one. A solver reports each
    packing it finds and each bound it proves as soon as it has them; only the best count.
    """

    model: RoundModel
    deadline_s: float
    gap: float
    seed: int
    report_packing: Callable[[Packing], bool]
    report_bound: Callable[[float, str], None]
    report_prices: Callable[[Floats], None]
    note: Callable[[str], None]
    prices: dict[str, float] = field(default_factory=dict)
    options: Any = None

    @property
    def deadline(self) -> Deadline:
        """Return the instant at which to stop."""
        return Deadline(self.deadline_s)

    def left_s(self) -> float:
        """Return the seconds left."""
        return self.deadline.left_s()


class RoundSolver(Protocol):
    """Decides a round. Heavy libraries are imported inside `solve`. One that takes options
    declares them as `Options` (see `plugins.options`) and finds them in its requests, None for
    their defaults."""

    name: str
    title: str
    needs: tuple[str, ...]

    def supports(self, model: RoundModel) -> str | None:
        """Return why this solver cannot decide this round, in one clause, or None."""
        ...

    def solve(self, request: RoundRequest) -> None:
        """Decide; return when done or out of time."""
        ...
