"""PSPLIB project scheduling instances: single-mode `.sm` and multi-mode `.mm` files.

Activities become jobs without GPUs (`j2`, `j3`, ...), their modes listed modes; a period is a
second. Renewable resources R become `cluster.resources` (`R1`, `R2`, ...), non-renewable ones N
`cluster.budgets`.

An activity of no duration that uses nothing (the super-source and super-sink, and milestones) is
dropped, and the precedence it stood for is passed on to its successors. Any other activity of no
duration is refused: a job takes time. Modes that need more than there is are kept as they are; no
plan can use them. The project's release date is the jobs' `submit_s`; its due date and tardiness
cost are not read, as published optima are makespans.

Source: R. Kolisch, A. Sprecher, PSPLIB - a project scheduling problem library, EJOR 96 (1997)
205-216.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import InputError
from ...model import Cluster, Instance, Job, Mode
from ..imported import Format, Imported, Track, read_text
from ..tables.table import At


@dataclass(slots=True)
class _Activity:
    """One activity as the file has it: how many modes it announces, who follows, and of each mode
    the duration and the amounts."""

    modes: int
    successors: list[int]
    needs: list[list[int]] = field(default_factory=list)

    @property
    def is_nothing(self) -> bool:
        return not any(map(any, self.needs))


class _Lines:
    """The lines of a file with a position; rules of stars or dashes are skipped."""

    def __init__(self, source: str, lines: list[str]) -> None:
        self.source, self.lines, self.position = source, lines, 0

    @property
    def at(self) -> At:
        """Return the line read last."""
        return At(self.source, self.position)

    def next(self, expected: str, start: str = "") -> str:
        """Go to the next line that starts so, whatever its case and blanks, and return it."""
        wanted = start.upper().replace(" ", "")
        while self.position < len(self.lines):
            line = self.lines[self.position].strip()
            self.position += 1
            if line.strip("*-") and line.upper().replace(" ", "").startswith(wanted):
                return line
        raise InputError(
            f"{self.source}: line {len(self.lines)}: the file ends, expected {expected}"
        )

    def section(self, heading: str) -> None:
        """Go to the line after a heading and the names of its columns."""
        self.next(f"the section {heading!r}", heading)
        self.next(f"the names of the columns below {heading!r}")

    def value(self, label: str) -> int:
        """Return the number in the next line `label : number`."""
        words = self.next(f"a line {label!r}", label).partition(":")[2].split()
        return self.at.as_whole(words[0] if words else "", f"{label!r}")

    def numbers(self, what: str) -> list[int]:
        """Return the whole numbers in the next line."""
        text = self.next(what)
        if not text[0].isdigit():
            self.at.fail(what, text)
        return [self.at.as_whole(word, what) for word in text.split()]

    def refuse(self, expected: str) -> None:
        """Raise InputError: what is expected of the line read last."""
        self.at.fail(expected, self.lines[self.position - 1].strip())


def read(source: str | Path, *, jobs: int | None = None, track: Track = iter) -> Imported:
    """Read one PSPLIB file; `jobs` keeps the first so many activities that are not dummies.

    Raises InputError with the line of the first fault.
    """
    path = Path(source)
    lines = _Lines(str(path), list(track(read_text(path).splitlines())))
    projects = lines.value("projects")
    if projects != 1:
        lines.at.fail("1 project", str(projects))
    count = lines.value("jobs (incl")
    if count < 1:
        lines.at.fail("at least one job", str(count))
    renewable, budgets = (
        [f"{kind}{i + 1}" for i in range(lines.value(label))]
        for kind, label in (("R", "- renewable"), ("N", "- nonrenewable"))
    )
    kinds = renewable + budgets
    if doubly := lines.value("- doubly"):
        raise InputError(
            f"{path}: line {lines.position}: {doubly} doubly constrained resources are not "
            "supported; state each as one renewable and one non-renewable resource"
        )
    release_s = float(_release(lines))
    activities = _precedence(lines, count)
    _requests(lines, activities, kinds)
    capacity = dict(zip(kinds, map(float, _availabilities(lines, kinds)), strict=True))
    real = [number for number, activity in activities.items() if not activity.is_nothing]
    kept = real[:jobs]
    before = _before(activities, kept)
    made = tuple(
        Job(
            id=f"j{number}",
            submit_s=release_s,
            after=tuple(f"j{i}" for i in sorted(before[number])),
            gpus=0,
            modes=tuple(_mode(need, renewable, budgets) for need in activities[number].needs),
        )
        for number in kept
    )
    instance = Instance(
        name=re.sub(r"\.(sm|mm)(\.gz)?$", "", path.name),
        cluster=Cluster(
            resources={name: capacity[name] for name in renewable},
            budgets={name: capacity[name] for name in budgets},
        ),
        jobs=made,
    )
    dropped = {
        "activities of no duration and demand (source, sink, milestones)": count - len(real),
        f"after the first {jobs}": len(real) - len(kept),
    }
    return Imported(
        instance=instance, read=count, dropped={why: n for why, n in dropped.items() if n}
    )


def _release(lines: _Lines) -> int:
    """Return the project's release date: third number of the line under PROJECT INFORMATION."""
    lines.section("PROJECT INFORMATION:")
    words = lines.next("the project's line").split()
    if len(words) < 3:
        lines.refuse("a project number, a job count and a release date")
    return lines.at.as_whole(words[2], "the release date")


def _precedence(lines: _Lines, count: int) -> dict[int, _Activity]:
    lines.section("PRECEDENCE RELATIONS:")
    activities: dict[int, _Activity] = {}
    for number in range(1, count + 1):
        what = f"activity {number} of {count}: its number, modes, successor count and successors"
        row = lines.numbers(what)
        if len(row) < 3 or row[0] != number or len(row) != 3 + row[2]:
            lines.refuse(what)
        if row[1] < 1:
            lines.refuse(f"at least one mode of activity {number}")
        for successor in row[3:]:
            if not 1 <= successor <= count:
                lines.at.fail(f"successors between 1 and {count}", str(successor))
        activities[number] = _Activity(row[1], row[3:])
    return activities


def _requests(lines: _Lines, activities: dict[int, _Activity], kinds: list[str]) -> None:
    lines.section("REQUESTS/DURATIONS:")
    for number, activity in activities.items():
        for mode in range(1, activity.modes + 1):
            amounts = f"a duration and {len(kinds)} amounts ({' '.join(kinds)})"
            what = f"mode {mode} of activity {number}: {amounts}"
            row = lines.numbers(what)
            start = [number, mode] if mode == 1 else [mode]
            if row[: len(start)] != start or len(row) != len(start) + 1 + len(kinds):
                lines.refuse(what)
            activity.needs.append(need := row[len(start) :])
            if need[0] == 0 and not (activity.modes == 1 and activity.is_nothing):
                lines.refuse(
                    f"a duration of at least 1 (0 only in a lone mode that uses nothing) in {what}"
                )


def _availabilities(lines: _Lines, kinds: list[str]) -> list[int]:
    if not kinds:
        return []
    lines.section("RESOURCE AVAILABILITIES:")
    what = f"the {len(kinds)} amounts available ({' '.join(kinds)})"
    words = lines.next(what).split()
    if len(words) != len(kinds):
        lines.refuse(what)
    return [lines.at.as_whole(word, what) for word in words]


def _mode(need: list[int], renewable: list[str], budgets: list[str]) -> Mode:
    duration, *amounts = need
    uses = {
        name: float(amount)
        for name, amount in zip(renewable + budgets, amounts, strict=True)
        if amount
    }
    return Mode(
        duration_s=float(duration),
        resources={name: uses[name] for name in renewable if name in uses},
        budgets={name: uses[name] for name in budgets if name in uses},
    )


def _before(activities: dict[int, _Activity], kept: list[int]) -> dict[int, set[int]]:
    """Return the predecessors of each activity among those that stay, through the ones that are
    dropped."""
    before: dict[int, set[int]] = {number: set() for number in activities}
    for number, activity in activities.items():
        for successor in activity.successors:
            before[successor].add(number)
    for dropped in activities.keys() - set(kept):
        for others in before.values():
            if dropped in others:
                others |= before[dropped]
                others.remove(dropped)
    return before


FORMAT = Format(
    title="PSPLIB project scheduling, single mode and multi-mode (.sm, .mm)",
    read=read,
    profiled=True,
)
