"""What would become of the present jobs, as numbers for machines, and as sentences and a table for
people."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ...duration import human
from ...files import plain
from ...frozen import frozen
from .simulated import LIMITS, ROUGH, Answer, Course

MOST_LISTED = 5
"""So many jobs are named that start first."""
Shown = frozenset[str] | None
"""The jobs that may be named; None: all."""
SAME = ("complete", "reached_s", "jobs", "mean_jct_s", "gpus", "gpu_use", "preemptions", "never")
"""Figures of a course that are told as they are."""


@frozen
class Foretold:
    """What would become of the present jobs: in sentences, as rows of a table, and as numbers, as
    things are and with the change (None where nothing is to be otherwise). `limits` says what is
    assumed."""

    asked: dict[str, Any]
    sentences: tuple[str, ...]
    rows: tuple[dict[str, str], ...]
    jobs: int
    before: dict[str, Any]
    after: dict[str, Any] | None
    notes: tuple[str, ...]
    limits: str


def told(answer: Answer, now_s: float, shown: Shown = None) -> Foretold:
    """Return the answer in words and numbers. Only the jobs in `shown` are named."""
    before, after, job = answer.before, answer.after, answer.change.job
    if shown is not None:
        shown |= {job} if job is not None else set()
        before, after = _masked(before, shown), None if after is None else _masked(after, shown)
        answer = replace(answer, before=before, after=after)
    return Foretold(
        asked=plain(answer.change),
        sentences=(*_sentences(answer), *_next(answer, shown)),
        rows=tuple(
            {"what": what, "before": text(before), "after": "-" if after is None else text(after)}
            for what, text in _rows(answer)
        ),
        jobs=answer.jobs,
        before=_figures(before, job, now_s, shown),
        after=None if after is None else _figures(after, job, now_s, shown),
        notes=answer.notes,
        limits=LIMITS,
    )


def _masked(course: Course, shown: frozenset[str]) -> Course:
    return replace(course, never={name: why for name, why in course.never.items() if name in shown})


def _figures(course: Course, job: str | None, now_s: float, shown: Shown) -> dict[str, Any]:
    """Return the numbers of a course; instants as Unix time."""
    figures = {name: getattr(course, name) for name in SAME} | {
        "started": len(course.start_s),
        "completed": len(course.end_s),
        "last_end_s": course.reached_s if course.complete else None,
        "starts": {name: now_s + start_s for name, start_s in _starts(course, shown)},
    }
    if job is not None:
        for name, seconds in (("start_s", course.start_s), ("end_s", course.end_s)):
            figures[name] = now_s + seconds[job] if job in seconds else None
    return figures


def _starts(course: Course, shown: Shown) -> list[tuple[str, float]]:
    """Return the jobs that do not run now and were seen to start, the first first."""
    starts = (
        (start_s, name)
        for name, start_s in course.start_s.items()
        if start_s > 0 and (shown is None or name in shown)
    )
    return [(name, start_s) for start_s, name in sorted(starts)]


def _rows(answer: Answer) -> Iterator[tuple[str, Callable[[Course], str]]]:
    """Yield each figure, and how it is read from a course."""
    job, after = answer.change.job, answer.after
    if job is not None:
        for verb, instant in (("starts", _start), ("ends", _end)):

            def when(course: Course, instant: Callable[[Course, str], str] = instant) -> str:
                hypothetical = answer.change.submit is not None and course is answer.before
                return "-" if hypothetical else instant(course, job)

            yield f"{job} {verb}", when
    if after is None:
        return
    if answer.jobs:
        yield (
            f"mean completion time of {_jobs(answer.jobs)}",
            lambda course: "-" if course.mean_jct_s is None else human(course.mean_jct_s),
        )
    if not (answer.before.complete and after.complete):
        yield f"jobs completed {_within(answer.before)}", lambda course: f"{len(course.end_s)}"
        yield "jobs not started by then", lambda course: f"{course.jobs - len(course.start_s)}"
    yield (
        "last job ends",
        lambda course: (
            f"in {human(course.reached_s)}" if course.complete else f"not {_within(course)}"
        ),
    )
    yield "GPUs", lambda course: f"{course.gpus}"
    yield (
        "GPUs held until then",
        lambda course: "-" if course.gpu_use is None else f"{course.gpu_use:.1%}",
    )
    yield "preemptions", lambda course: f"{course.preemptions}"


def _jobs(count: int) -> str:
    return f"{count} job{'s' * (count != 1)}"


def _within(course: Course) -> str:
    """Return how far was looked."""
    return f"within {human(course.reached_s)}" if course.reached_s >= 1 else "at once"


def _start(course: Course, job: str) -> str:
    if job in course.never:
        return "never"
    if job not in course.start_s:
        return f"not {_within(course)}" if job not in course.end_s else "-"
    return f"in {human(course.start_s[job])}" if course.start_s[job] > 0 else "now"


def _end(course: Course, job: str) -> str:
    if job in course.never:
        return "never"
    return f"in {human(course.end_s[job])}" if job in course.end_s else f"not {_within(course)}"


def _sentences(answer: Answer) -> Iterator[str]:
    job, before, after = answer.change.job, answer.before, answer.after
    if after is None:
        if job is not None:
            yield _when(before, job)
            yield from _others(before, job)
        return
    if job is not None and job in before.end_s and job in after.end_s:
        yield f"{job} would end {_sooner(before.end_s[job], after.end_s[job])}."
    elif job is not None:
        yield _when(after, job)
    complete = before.complete and after.complete
    before_s, after_s = before.mean_jct_s, after.mean_jct_s
    if before_s is not None and after_s is not None:
        which = "there are" if complete else f"that complete {_within(after)} in both cases"
        when = f"{_sooner(before_s, after_s)} on average"
        if answer.rough and abs(before_s - after_s) < ROUGH * before_s:
            when = f"at about the same time on average: less than {ROUGH:.0%} cannot be told"
        yield f"The {_jobs(answer.jobs)} {which} would complete {when}."
    if not complete:
        yield (
            f"{len(before.end_s)} of {_jobs(before.jobs)} complete {_within(after)} as things are, "
            f"{len(after.end_s)} of {after.jobs} if so."
        )
    able = [name for name in before.never if name not in after.never]
    if able:
        yield f"Jobs that can never run as things are would run: {', '.join(able)}."
    unable = [name for name in after.never if name not in before.never and name != job]
    if unable:
        yield f"These could never run: {', '.join(unable)}."


def _next(answer: Answer, shown: Shown) -> Iterator[str]:
    """Yield who starts first, where not all was seen that was asked for."""
    last = answer.after or answer.before
    starts = _starts(last, shown)[:MOST_LISTED]
    if starts and not (answer.before.in_time and last.in_time):
        listed = ", ".join(f"{name} in {human(start_s)}" for name, start_s in starts)
        yield f"First to start{' then' if answer.after else ''}: {listed}."


def _when(course: Course, job: str) -> str:
    if job in course.never:
        return f"{job} can never run: {course.never[job]}."
    unseen = f"{_within(course)}, which is how far the simulation went"
    if job not in course.start_s:
        return f"{job} does not start {unseen}."
    start, ends = _start(course, job), f"it does not end {unseen}"
    if start == "now":
        if job in course.end_s:
            ends = f"it is expected to end {_end(course, job)}"
        return f"{job} runs now or starts at once; {ends}."
    ends = f", and to end {_end(course, job)}" if job in course.end_s else f"; {ends}"
    return f"{job} is expected to start {start}{ends}."


def _others(course: Course, job: str) -> Iterator[str]:
    """Yield what became of the others, where the job asked about was not seen to its end."""
    started, completed = len(course.start_s), len(course.end_s)
    if job not in course.end_s and job not in course.never:
        yield (
            f"By then {completed} of {_jobs(course.jobs)} have completed, {started - completed} "
            f"are begun and {course.jobs - started} still wait."
        )


def _sooner(before_s: float, after_s: float) -> str:
    if abs(before_s - after_s) < 0.5:
        return "at the same time"
    return f"{human(abs(before_s - after_s))} {'sooner' if after_s < before_s else 'later'}"
