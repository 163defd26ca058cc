"""Round files: what a round decided, as JSON, in and out."""

import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from ..errors import InputError
from ..files import Texts, lines, number, parse_file, plain, read_bytes, schema_of
from ..files.faults import Fault
from ..frozen import frozen
from ..model.quantity import Instant, Seconds
from ..objectives import parse
from .plan import JobRound, RoundSolution, RowPrice, TierRound

ROUND_FORMAT = "optsched-round/1"
ROUNDING = 1e-9
"""A bound may lie below the value, and a gap differ from theirs, by this much relative to them."""


@frozen
class RoundRef:
    """The instance that a round belongs to; `hash` is None where it was never a file."""

    name: str
    hash: str | None = None


@frozen
class RoundValue:
    """Value, which is maximised, proven bound and gap of a round; `gap` None where the value is 0
    and the bound not."""

    name: str
    value: float
    bound: float
    gap: float | None = None
    status: Literal["optimal", "feasible"]
    bound_source: str


@frozen
class RoundFile:
    """A round as it stands in a file."""

    format: Literal["optsched-round/1"]
    instance: RoundRef
    solver: str
    seed: int = 0
    now_s: Instant
    round_s: Seconds
    refill: bool
    objective: RoundValue
    wall_s: Seconds | None = None
    fallback: str | None = None
    notes: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    tiers: tuple[TierRound, ...] = ()
    prices: tuple[RowPrice, ...]
    jobs: tuple[JobRound, ...]


AS_THEY_ARE = (
    *("solver", "seed", "now_s", "round_s", "refill", "wall_s", "fallback"),
    *("notes", "never", "tiers", "prices", "jobs"),
)
"""Fields of a round that its file has by the same name."""


def dump_round(solution: RoundSolution, texts: Texts | None = None) -> str:
    """Return the round as file text, one price or job a line."""
    texts = Texts() if texts is None else texts
    texts.next_file()
    gap = solution.gap
    return lines(
        {
            "format": ROUND_FORMAT,
            "instance": {"name": solution.instance_name, "hash": solution.instance_hash},
            "solver": solution.solver,
            "seed": solution.seed,
            "now_s": number(solution.now_s),
            "round_s": number(solution.round_s),
            "refill": solution.refill,
            "objective": {
                "name": solution.objective,
                "value": number(solution.value),
                "bound": number(solution.bound),
                "gap": number(gap) if math.isfinite(gap) else None,
                "status": solution.status,
                "bound_source": solution.bound_source,
            },
            "wall_s": number(solution.wall_s),
            "fallback": solution.fallback,
            **({"notes": list(solution.notes)} if solution.notes else {}),
            **({"never": list(solution.never)} if solution.never else {}),
            **({"tiers": [plain(tier) for tier in solution.tiers]} if solution.tiers else {}),
            "prices": [plain(row) for row in solution.prices],
            "jobs": [texts.line(entry) for entry in solution.jobs],
        }
    )


def read_round(path: str | Path) -> RoundSolution:
    """Read a round file. Raises InputError naming every fault."""
    return load_round(read_bytes(path), str(path))


def load_round(data: bytes | str, name: str = "round") -> RoundSolution:
    """Parse a round; `name` is what messages call it. Raises InputError."""
    parsed: RoundFile = parse_file(RoundFile, data, name, ROUND_FORMAT, _faults)
    stated = parsed.objective
    return RoundSolution(
        instance_name=parsed.instance.name,
        instance_hash=parsed.instance.hash,
        objective=stated.name,
        value=stated.value,
        bound=stated.bound,
        bound_source=stated.bound_source,
        closed=stated.status == "optimal",
        **{name: getattr(parsed, name) for name in AS_THEY_ARE},
    )


def _faults(parsed: RoundFile) -> Iterator[Fault]:
    stated = parsed.objective
    if not parsed.round_s > 0:
        yield Fault("round_s", "a round takes some time", "give its length in seconds")
    slack = ROUNDING * max(1.0, abs(stated.value))
    if stated.bound < stated.value - slack:
        yield Fault(
            "objective.bound",
            f"{stated.bound:.12g} lies below the value {stated.value:.12g}",
            "the value is maximised; correct one of the two",
        )
    elif stated.gap is not None and stated.value:
        gap = max(0.0, stated.bound - stated.value) / abs(stated.value)
        if abs(gap - stated.gap) > ROUNDING * max(1.0, gap):
            yield Fault(
                "objective.gap",
                f"is {stated.gap:.12g}, value and bound make it {gap:.12g}",
                "correct one of the three",
            )
    try:
        parse(stated.name)
    except InputError as error:
        yield Fault("objective.name", str(error), "write it as on the command line")
    ids = Counter([*(entry.id for entry in parsed.jobs), *parsed.never])
    for job, count in ids.items():
        if count > 1:
            yield Fault("jobs", f"job {job!r} appears {count} times in jobs and never", "keep one")


def schema() -> dict[str, Any]:
    """Return the JSON Schema of round files."""
    return schema_of(RoundFile, "optsched round file")


def file_format(data: bytes) -> str | None:
    """Return the format that a file states, or None where it states none."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    stated = content.get("format") if isinstance(content, dict) else None
    return stated if isinstance(stated, str) else None
