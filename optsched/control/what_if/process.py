"""What if, in a process of its own: the controller's is never kept from its turns, and it ends when
its time is up."""

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from typing import Any

from ...duration import human
from ...errors import InputError, OptschedError
from ...files import plain
from ..policy_driver import NamedPolicy
from .future import Outlook
from .simulated import LIMITS, ROUGH, Answer, Change, Course, what_if

TIME_LIMIT_S = 20.0
"""Wall clock for an answer; what is reached by then is told."""
GRACE_S = 20.0
"""So long after its time limit the process is ended: Python has to start, and a round is not
interrupted."""

MOST_LISTED = 5
"""So many jobs are named that start first."""


class NoForecastError(OptschedError):
    """No answer came."""


def foretell(
    ahead: Outlook,
    change: Change,
    *,
    objective: str,
    round_s: float,
    policy: NamedPolicy | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    shown: frozenset[str] | None = None,
) -> dict[str, Any]:
    """`what_if`, computed beside this process at a low priority, as `told` puts it.

    Raises InputError as that, NoForecastError where no answer came.
    """
    request = pickle.dumps(
        (ahead, change, objective, round_s, policy, time_limit_s, shown),
        protocol=pickle.HIGHEST_PROTOCOL,
    )
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=request,
            capture_output=True,
            timeout=time_limit_s + GRACE_S,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoForecastError(
            f"no answer within {human(time_limit_s + GRACE_S)}; ask for a longer time limit"
        ) from None
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or [
            f"status {done.returncode}"
        ]
        raise NoForecastError(f"it could not be simulated: {last[0]}")
    kind, found = pickle.loads(done.stdout)  # from a child of this process, over a pipe of its own
    if kind == "input":
        raise InputError(found)
    if kind == "failed":
        raise NoForecastError(found)
    answer: dict[str, Any] = found
    return answer


def told(answer: Answer, now_s: float, shown: frozenset[str] | None = None) -> dict[str, Any]:
    """The answer for machines, with sentences and a table for people. Only the jobs in `shown` are
    named, None: all."""
    job = answer.change.job
    if shown is not None:
        shown |= {job} if job is not None else set()
        answer = _masked(answer, shown)
    return {
        "asked": plain(answer.change),
        "sentences": [*_sentences(answer), *_next(answer, shown)],
        "rows": [
            {"what": what, "before": before, "after": after}
            for what, before, after in _rows(answer)
        ],
        "jobs": answer.jobs,
        "before": _course(answer.before, answer.mean_jct_s[0], job, now_s, shown),
        "after": None
        if answer.after is None
        else _course(answer.after, answer.mean_jct_s[1], job, now_s, shown),
        "notes": [*answer.notes],
        "limits": LIMITS,
    }


def _masked(answer: Answer, shown: frozenset[str]) -> Answer:
    def masked(course: Course) -> Course:
        return replace(
            course, never={name: why for name, why in course.never.items() if name in shown}
        )

    return replace(
        answer,
        before=masked(answer.before),
        after=None if answer.after is None else masked(answer.after),
    )


def _course(
    course: Course,
    mean_jct_s: float | None,
    job: str | None,
    now_s: float,
    shown: frozenset[str] | None,
) -> dict[str, Any]:
    found = {
        "complete": course.complete,
        "reached_s": course.reached_s,
        "jobs": course.jobs,
        "started": len(course.start_s),
        "completed": len(course.end_s),
        "mean_jct_s": mean_jct_s,
        "last_end_s": _last_s(course),
        "gpus": course.gpus,
        "gpu_use": course.gpu_use,
        "preemptions": course.preemptions,
        "never": course.never,
        "starts": {name: now_s + start_s for name, start_s in _starts(course, shown)},
    }
    if job is not None:
        found |= {
            "start_s": _at(course.start_s.get(job), now_s),
            "end_s": _at(course.end_s.get(job), now_s),
        }
    return found


def _starts(course: Course, shown: frozenset[str] | None) -> list[tuple[str, float]]:
    """The jobs that do not run now and were seen to start, the first first."""
    known = (
        course.start_s
        if shown is None
        else {one: course.start_s[one] for one in course.start_s if one in shown}
    )
    return sorted(
        ((name, start_s) for name, start_s in known.items() if start_s > 0),
        key=lambda one: one[::-1],
    )


def _at(seconds: float | None, now_s: float) -> float | None:
    return None if seconds is None else now_s + seconds


def _last_s(course: Course) -> float | None:
    return course.reached_s if course.complete else None


def _rows(answer: Answer) -> list[tuple[str, str, str]]:
    """Name, before and after of each figure, in words."""
    courses = [answer.before] if answer.after is None else [answer.before, answer.after]
    rows: list[tuple[str, list[str]]] = []
    job = answer.change.job
    if job is not None:
        for what, told_of in ((f"{job} starts", _start), (f"{job} ends", _end)):
            rows.append((what, [told_of(one, job) for one in courses]))
            if answer.change.submit is not None:
                rows[-1][1][0] = "-"  # it is not there
    if answer.after is not None:
        if answer.jobs:
            rows.append(
                (
                    f"mean completion time of {_jobs(answer.jobs)}",
                    ["-" if one is None else human(one) for one in answer.mean_jct_s],
                )
            )
        if not all(one.complete for one in courses):
            rows.append(
                (
                    f"jobs completed {_within(answer.before)}",
                    [f"{len(one.end_s)}" for one in courses],
                )
            )
            rows.append(
                ("jobs not started by then", [f"{one.jobs - len(one.start_s)}" for one in courses])
            )
        rows.append(
            (
                "last job ends",
                [
                    f"in {human(one.reached_s)}" if one.complete else f"not {_within(one)}"
                    for one in courses
                ],
            )
        )
        rows.append(("GPUs", [f"{one.gpus}" for one in courses]))
        rows.append(
            (
                "GPUs held until then",
                ["-" if one.gpu_use is None else f"{one.gpu_use:.1%}" for one in courses],
            )
        )
        rows.append(("preemptions", [f"{one.preemptions}" for one in courses]))
    return [(what, *(texts if len(texts) > 1 else (*texts, "-"))) for what, texts in rows]


def _jobs(count: int) -> str:
    return f"{count} job{'s' * (count != 1)}"


def _within(course: Course) -> str:
    """How far was looked."""
    return f"within {human(course.reached_s)}" if course.reached_s >= 1 else "at once"


def _start(course: Course, job: str) -> str:
    if job in course.never:
        return "never"
    start_s = course.start_s.get(job)
    if start_s is None:
        return f"not {_within(course)}" if job not in course.end_s else "-"
    return "now" if start_s <= 0 else f"in {human(start_s)}"


def _end(course: Course, job: str) -> str:
    if job in course.never:
        return "never"
    return f"in {human(course.end_s[job])}" if job in course.end_s else f"not {_within(course)}"


def _sentences(answer: Answer) -> list[str]:
    job, after = answer.change.job, answer.after
    if after is None:
        return [
            *([_when(answer.before, job)] if job is not None else []),
            *_seen(answer.before, job),
        ]
    said = []
    if job is not None and answer.change.submit is not None:
        said.append(_when(after, job))
    elif job is not None and job in answer.before.end_s and job in after.end_s:
        said.append(f"{job} would end {_sooner(answer.before.end_s[job], after.end_s[job])}.")
    elif job is not None:
        said.append(_when(after, job))
    complete = answer.before.complete and after.complete
    before_s, after_s = answer.mean_jct_s
    if before_s is not None and after_s is not None:
        which = "there are" if complete else f"that complete {_within(after)} in both cases"
        when = f"{_sooner(before_s, after_s)} on average"
        if answer.rough and abs(before_s - after_s) < ROUGH * before_s:
            when = f"at about the same time on average: less than {ROUGH:.0%} cannot be told"
        said.append(f"The {_jobs(answer.jobs)} {which} would complete {when}.")
    if not complete:
        said.append(
            f"{len(answer.before.end_s)} of {_jobs(answer.before.jobs)} complete {_within(after)} "
            f"as things are, {len(after.end_s)} of {after.jobs} if so."
        )
    able = [name for name in answer.before.never if name not in after.never]
    if able:
        said.append(f"Jobs that can never run as things are would run: {', '.join(able)}.")
    lost = [name for name in after.never if name not in answer.before.never and name != job]
    if lost:
        said.append(f"These could never run: {', '.join(lost)}.")
    return said


def _next(answer: Answer, shown: frozenset[str] | None) -> list[str]:
    """Who starts first, where not all was seen that was asked for."""
    last = answer.after or answer.before
    if answer.before.in_time and last.in_time:
        return []
    listed = ", ".join(
        f"{name} in {human(start_s)}" for name, start_s in _starts(last, shown)[:MOST_LISTED]
    )
    return [f"First to start{' then' if answer.after else ''}: {listed}."] if listed else []


def _when(course: Course, job: str) -> str:
    if job in course.never:
        return f"{job} can never run: {course.never[job]}."
    start, end = _start(course, job), _end(course, job)
    ends = (
        f"to end {end}"
        if job in course.end_s
        else f"it does not end {_within(course)}, which is what was looked at"
    )
    if job not in course.start_s:
        return f"{job} does not start {_within(course)}, which is what was looked at."
    if start == "now":
        return f"{job} runs now or starts at once; {f'it is expected {ends}' if job in course.end_s else ends}."  # noqa: E501
    return f"{job} is expected to start {start}{', and' if job in course.end_s else ';'} {ends}."


def _seen(course: Course, job: str | None) -> list[str]:
    """What became of the others, where the job asked about was not seen to its end."""
    if job is None or job in course.end_s or job in course.never:
        return []
    waiting = course.jobs - len(course.start_s)
    return [
        f"By then {len(course.end_s)} of {_jobs(course.jobs)} have completed, "
        f"{len(course.start_s) - len(course.end_s)} are begun and {waiting} still wait."
    ]


def _sooner(before_s: float, after_s: float) -> str:
    if abs(before_s - after_s) < 0.5:
        return "at the same time"
    return f"{human(abs(before_s - after_s))} {'sooner' if after_s < before_s else 'later'}"


def main() -> None:
    """Answer the one question on standard input."""
    os.nice(10)
    ahead, change, objective, round_s, policy, time_limit_s, shown = pickle.load(sys.stdin.buffer)
    try:
        answer = what_if(
            ahead,
            change,
            objective=objective,
            round_s=round_s,
            policy=policy,
            time_limit_s=time_limit_s,
        )
        reply: tuple[str, Any] = "answer", told(answer, ahead.instance.now_s, shown)
    except InputError as error:
        reply = "input", str(error)
    except OptschedError as error:
        reply = "failed", str(error)
    sys.stdout.buffer.write(pickle.dumps(reply))


if __name__ == "__main__":
    main()
