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
from ...model.cluster import Cluster
from ...model.instance import Instance
from ...model.job import Job, Mode
from ..imported import Format, Imported, Track, read_text
from ..tables.table import At

Demand = tuple[int, ...]


@dataclass(slots=True)
class _Activity:
    """One activity as the file has it: how many modes it announces, the ones read, and who
    follows."""

    modes: int
    successors: list[int]
    durations: list[int] = field(default_factory=list)
    demands: list[Demand] = field(default_factory=list)

    @property
    def is_nothing(self) -> bool:
        return self.durations == [0] and not any(self.demands[0])


class _Lines:
    """The lines of a file with a position; rules of stars or dashes are skipped."""

    def __init__(self, source: str, lines: list[str]) -> None:
        self.source, self.lines, self.position = source, lines, 0

    @property
    def at(self) -> At:
        """The line read last."""
        return At(self.source, self.position)

    def next(self, expected: str) -> str:
        while self.position < len(self.lines):
            line = self.lines[self.position].strip()
            self.position += 1
            if line.strip("*-"):
                return line
        raise InputError(
            f"{self.source}: line {len(self.lines)}: the file ends, expected {expected}"
        )

    def seek(self, heading: str) -> None:
        """Go to the line after a heading."""
        line = ""
        while not line.upper().replace(" ", "").startswith(heading.replace(" ", "")):
            line = self.next(f"the section {heading!r}")

    def value(self, label: str) -> int:
        """The number in the next line `label : number`."""
        line = ""
        while not line.lower().startswith(label):
            line = self.next(f"a line {label!r}")
        words = line.partition(":")[2].split()
        return self.at.as_whole(words[0] if words else "", f"{label!r}")


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
    kinds = [f"R{i + 1}" for i in range(lines.value("- renewable"))]
    renewable = len(kinds)
    kinds += [f"N{i + 1}" for i in range(lines.value("- nonrenewable"))]
    if doubly := lines.value("- doubly"):
        raise InputError(
            f"{path}: line {lines.position}: {doubly} doubly constrained resources are not "
            "supported; "
            "state each as one renewable and one non-renewable resource"
        )
    release_s = _release(lines)
    activities = _precedence(lines, count)
    _requests(lines, activities, kinds)
    capacity = dict(zip(kinds, _availabilities(lines, kinds), strict=True))
    real = [number for number, activity in activities.items() if not activity.is_nothing]
    kept = real[:jobs]
    instance = Instance(
        name=re.sub(r"\.(sm|mm)(\.gz)?$", "", path.name),
        cluster=Cluster(
            resources={name: float(capacity[name]) for name in kinds[:renewable]},
            budgets={name: float(capacity[name]) for name in kinds[renewable:]},
        ),
        jobs=tuple(_jobs(activities, kept, kinds, renewable, release_s)),
    )
    dropped = {
        "activities of no duration and demand (source, sink, milestones)": count - len(real),
        f"after the first {jobs}": len(real) - len(kept),
    }
    return Imported(
        instance=instance, read=count, dropped={why: n for why, n in dropped.items() if n}
    )


def _release(lines: _Lines) -> int:
    """The project's release date: third number of the line under PROJECT INFORMATION."""
    lines.seek("PROJECT INFORMATION:")
    lines.next("the heading of the project table")
    words = lines.next("the project's line").split()
    if len(words) < 3:
        lines.at.fail("a project number, a job count and a release date", " ".join(words))
    return lines.at.as_whole(words[2], "the release date")


def _precedence(lines: _Lines, count: int) -> dict[int, _Activity]:
    lines.seek("PRECEDENCE RELATIONS:")
    lines.next("the heading of the precedence table")
    found: dict[int, _Activity] = {}
    for number in range(1, count + 1):
        what = f"activity {number} of {count}: its number, modes, successor count and successors"
        text = lines.next(what)
        at = lines.at
        if not text[0].isdigit():
            at.fail(what, text)
        row = [at.as_whole(word, what) for word in text.split()]
        if len(row) < 3 or row[0] != number or len(row) != 3 + row[2]:
            at.fail(what, text)
        if row[1] < 1:
            at.fail(f"at least one mode of activity {number}", text)
        for successor in row[3:]:
            if not 1 <= successor <= count:
                at.fail(f"successors between 1 and {count}", str(successor))
        found[number] = _Activity(row[1], row[3:])
    return found


def _requests(lines: _Lines, activities: dict[int, _Activity], kinds: list[str]) -> None:
    lines.seek("REQUESTS/DURATIONS:")
    lines.next("the heading of the request table")
    for number, activity in activities.items():
        for mode in range(1, activity.modes + 1):
            amounts = f"a duration and {len(kinds)} amounts ({' '.join(kinds)})"
            what = f"mode {mode} of activity {number}: {amounts}"
            text = lines.next(what)
            at = lines.at
            if not text[0].isdigit():
                at.fail(what, text)
            row = [at.as_whole(word, what) for word in text.split()]
            start = [number, mode] if mode == 1 else [mode]
            if row[: len(start)] != start or len(row) != len(start) + 1 + len(kinds):
                at.fail(what, text)
            duration, *demand = row[len(start) :]
            activity.durations.append(duration)
            activity.demands.append(tuple(demand))
            if duration == 0 and not (activity.modes == 1 and activity.is_nothing):
                at.fail(
                    f"a duration of at least 1 (0 only in a lone mode that uses nothing) in {what}",
                    text,
                )


def _availabilities(lines: _Lines, kinds: list[str]) -> list[int]:
    lines.seek("RESOURCE AVAILABILITIES:")
    what = f"the {len(kinds)} amounts available ({' '.join(kinds)})"
    if not kinds:
        return []
    lines.next("the names of the resources")
    words = lines.next(what).split()
    if len(words) != len(kinds):
        lines.at.fail(what, " ".join(words))
    return [lines.at.as_whole(word, what) for word in words]


def _jobs(
    activities: dict[int, _Activity],
    kept: list[int],
    kinds: list[str],
    renewable: int,
    release_s: int,
) -> list[Job]:
    before: dict[int, list[int]] = {number: [] for number in activities}
    for number, activity in activities.items():
        for successor in activity.successors:
            before[successor].append(number)
    stays = set(kept)
    jobs = []
    for number in kept:
        activity = activities[number]
        modes = []
        for duration, demand in zip(activity.durations, activity.demands, strict=True):
            uses = [(name, float(amount)) for name, amount in zip(kinds, demand, strict=True)]
            modes.append(
                Mode(
                    duration_s=float(duration),
                    resources={name: amount for name, amount in uses[:renewable] if amount},
                    budgets={name: amount for name, amount in uses[renewable:] if amount},
                )
            )
        after = tuple(f"j{i}" for i in _passed_on(number, before, stays))
        jobs.append(
            Job(id=f"j{number}", submit_s=float(release_s), after=after, gpus=0, modes=tuple(modes))
        )
    return jobs


def _passed_on(number: int, before: dict[int, list[int]], stays: set[int]) -> list[int]:
    """Predecessors of an activity among those that stay, through the ones that are dropped."""
    found: set[int] = set()
    seen: set[int] = set()
    open_ = list(before[number])
    while open_:
        at = open_.pop()
        if at in stays:
            found.add(at)
        elif at not in seen:
            seen.add(at)
            open_.extend(before[at])
    return sorted(found)


FORMAT = Format(
    title="PSPLIB project scheduling, single mode and multi-mode (.sm, .mm)",
    read=read,
    profiled=True,
)
