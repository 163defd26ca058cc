"""Forecasts against what came, and against the reservations of EASY backfilling, on traces under
the policy `optsched` with the beliefs of `history`.

    python -m benchmarks.forecast --trace lublin --jobs 300
    python -m benchmarks.forecast --trace lublin --jobs 300 --profiles 2
    python -m benchmarks.forecast --trace lublin --jobs 300 --known running
    python -m benchmarks.forecast --refresh 1000
    python -m benchmarks.forecast --what-if 490

Once a minute of virtual time a forecast is made of all jobs that are here. That of a job which was
submitted since the last one and waits is kept, and compared with when it starts and ends.
`start_held` and `end_held` are the shares that came by the 90 % quantile that was told, counted
after the first 50 such jobs; `raw_held` is that of starts where nothing is calibrated. `error_s` is
the median absolute error of the median that was told for the start, `easy_s` that of the start that
EASY backfilling gives the job when it goes on from the same state with the same beliefs and no
other job comes, `ratio` the one by the other.

`--known` gives forecasts what nobody knows at that time, to see of what their errors consist: how
long each job is that runs (`running`) or waits (`waiting`), or, of no job in particular, how long
those of the whole trace are (`lengths`).

`--refresh N` makes one forecast of N jobs that wait on 400 GPUs: `ratio` is its processor time as a
multiple of that of a million steps of a fixed loop (see `reference`). `--what-if N` asks what would
be with 8 GPUs more: `ratio` is the processor time of the longer one of the two courses, which are
played at once in two processes, as such a multiple, `share` what that is of both together. Each
prints one line of JSON.
"""

import math
import pickle
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.command_line import parser_of, tell
from benchmarks.flagship import WORKLOADS, instance_of
from benchmarks.reference import kernel_us
from optsched.control.what_if.future import Outlook
from optsched.control.what_if.simulated import ROUNDS, Change, courses_of, seen_of
from optsched.driver.reservation import Reservation
from optsched.driver.snapshot import snapshot
from optsched.driver.world import World
from optsched.estimates.errors import FEW, NEWEST, Belief, RunTimeErrors, kind_of
from optsched.estimates.history import History, Likeness
from optsched.forecast.calibration import Calibration, Event
from optsched.forecast.course import DAY_S, Quantiles, Question, ToCome, forecast
from optsched.model.instance import Completed, Instance
from optsched.model.job import Job
from optsched.objectives import parse
from optsched.plugins import registry
from optsched.simulate.run import Simulation
from optsched.traces.generate.synth import generate

PROFILES_SEED = 1
"""Of the draw of what saving, starting and other places cost the jobs of a trace."""
EVERY_S = 60.0
"""Virtual time between two forecasts."""
WARM_UP = 50
"""So many jobs are forecast before any is counted."""
WINDOW_S, LATELY = 7 * DAY_S, 500
"""Jobs to come are like those of the last days, at most so many."""
RUNNING, WAITING, LENGTHS = KNOWN = ("running", "waiting", "lengths")
"""What forecasts may be given that is not known."""


@dataclass(frozen=True)
class Asked:
    """A forecast of a job that has just come and waits, in seconds from `made_s`: what the draws
    say, what was told (median and 90 % quantile), and the start that EASY gives it."""

    job: str
    made_s: float
    raw: Quantiles
    start_s: tuple[float, float]
    end_s: tuple[float, float]
    easy_s: float


@dataclass
class Watched:
    """The beliefs of `history`, and nothing more, as in a live round: what was believed of each job
    when it was released, and when jobs started and ended."""

    name = "beliefs"

    calibration: Calibration
    history: History = field(default_factory=History)
    beliefs: dict[str, Belief] = field(default_factory=dict)
    start_s: dict[str, float] = field(default_factory=dict)
    end_s: dict[str, float] = field(default_factory=dict)

    def remember(self, past: Sequence[Completed]) -> None:
        """Learn from the past."""
        self.history.remember(past)

    def work_s(self, job: Job, now_s: float) -> float:
        """Return the belief, and keep it."""
        believed_s = self.history.work_s(job, now_s)
        ended = self.history.ended.jobs(Likeness.of(job))[0]
        self.beliefs[job.id] = Belief(believed_s, kind_of(None, ended))
        return believed_s

    def started(self, job_id: str, now_s: float) -> None:
        """Note a first start."""
        self.start_s[job_id] = now_s
        self.calibration.came(job_id, "start", now_s)

    def completed(self, job: Job, worked_s: float, now_s: float) -> None:
        """Learn, and note the end."""
        self.history.completed(job, worked_s, now_s)
        self.end_s[job.id] = now_s
        self.calibration.came(job.id, "end", now_s)


def run(instance: Instance, known: str | None = None) -> tuple[list[Asked], Watched]:
    """Simulate a trace and forecast, with one of `KNOWN` given."""
    calibration = Calibration()
    watched = Watched(calibration)
    policy: Any = registry.policy("optsched", parse("wct"), {})
    simulation = Simulation(instance, policy, estimates=watched)
    world, asked = simulation.world, list[Asked]()
    seen: set[str] = set()
    next_s = -math.inf

    def look() -> bool:
        nonlocal next_s
        now_s = world.now_s
        for job_id in world.running:
            if job_id not in watched.start_s:
                watched.started(job_id, now_s)
        new = [job for job in world.waiting if job not in seen and job not in watched.start_s]
        if now_s >= next_s and new:
            next_s = now_s + EVERY_S
            seen.update(new)
            calibration.late(now_s)
            asked.extend(_asked(world, known, watched, new, policy.reservations.current))
        return False

    simulation.run(until=look)
    return asked, watched


def _asked(
    world: World, known: str | None, watched: Watched, new: list[str], kept: Reservation | None
) -> list[Asked]:
    present, now_s, calibration = snapshot(world).instance, world.now_s, watched.calibration
    jobs = world.instance.jobs
    question = Question(
        instance=present,
        beliefs=watched.beliefs,
        errors=watched.history.ended.errors,
        to_come=to_come(jobs, watched.beliefs, now_s),
        kept=kept,
    )
    if known:
        question = knowing(question, jobs, known)
    quantiles, easy = forecast(question), forecast(easy_question(present))
    asked = []
    for job in new:
        raw = quantiles[job]
        times: dict[Event, tuple[float, float]] = {
            "start": (raw.start_p50_s, raw.start_p90_s),
            "end": (raw.end_p50_s, raw.end_p90_s),
        }
        told = {event: calibration.told(event, *own) for event, own in times.items()}
        asked.append(Asked(job, now_s, raw, told["start"], told["end"], easy[job].start_p50_s))
        for event, own in times.items():
            calibration.given(job, event, now_s, *own)
    return asked


def knowing(question: Question, jobs: tuple[Job, ...], known: str) -> Question:
    """Return the question with one of `KNOWN` given: a kind of belief of each job's own that errs
    by as much as this one does, or one for all that is as long as any job of the trace."""
    if known == LENGTHS:
        lengths, kind = RunTimeErrors(), (LENGTHS, 0)
        for job in jobs[:: math.ceil(len(jobs) / NEWEST)]:
            lengths.add(kind, 1.0, job.work_s)
        any_one = Belief(1.0, kind)
        come = replace(question.to_come, beliefs=(any_one,) * len(question.to_come.jobs))
        beliefs = {job.id: any_one for job in question.instance.jobs}
        return replace(question, beliefs=beliefs, errors=lengths, to_come=come)
    beliefs, errors = dict(question.beliefs), question.errors.copy()
    present = question.instance
    for job in jobs:
        if job.id in present.job and (job.id in present.running_job) == (known == RUNNING):
            belief = beliefs[job.id] = replace(beliefs[job.id], kind=(job.id, 0))
            for _ in range(FEW):
                errors.add(belief.kind, belief.work_s, job.work_s)
    return replace(question, beliefs=beliefs, errors=errors)


def to_come(jobs: tuple[Job, ...], beliefs: dict[str, Belief], now_s: float) -> ToCome:
    """Return the jobs that came lately."""
    came = [job for job in jobs if now_s - WINDOW_S < job.submit_s <= now_s][-LATELY:]
    return ToCome(
        jobs=tuple(came),
        beliefs=tuple(beliefs[job.id] for job in came),
        before_s=tuple(now_s - job.submit_s for job in came),
        window_s=max(DAY_S, now_s - came[0].submit_s),
    )


def easy_question(present: Instance) -> Question:
    """Return what EASY backfilling is asked: all are as long as is believed, and none comes."""
    sure = {job.id: Belief(present.remaining_s(job), measured=True) for job in present.jobs}
    return Question(
        instance=present,
        beliefs=sure,
        errors=RunTimeErrors(),
        policy="backfill",
        draws=1,
        horizon_s=math.inf,
    )


def compared(asked: list[Asked], watched: Watched) -> dict[str, Any]:
    """Return how the forecasts held."""
    starts = [watched.start_s[own.job] - own.made_s for own in asked]
    ends = [watched.end_s[own.job] - own.made_s for own in asked]

    def held(took: list[float], by: list[float]) -> float:
        pairs = zip(took, by, strict=True)
        return round(statistics.mean(took_s <= by_s for took_s, by_s in pairs), 3)

    def error_s(medians: list[float]) -> float:
        pairs = zip(starts, medians, strict=True)
        return statistics.median(abs(took_s - median_s) for took_s, median_s in pairs)

    own_s, easy_s = (
        error_s([own.start_s[0] for own in asked]),
        error_s([own.easy_s for own in asked]),
    )
    return {
        "asked": len(asked),
        "wait_s": round(statistics.median(starts)),
        "start_held": held(starts, [own.start_s[1] for own in asked]),
        "end_held": held(ends, [own.end_s[1] for own in asked]),
        "raw_held": held(starts, [own.raw.start_p90_s for own in asked]),
        "error_s": round(own_s),
        "raw_error_s": round(error_s([own.raw.start_p50_s for own in asked])),
        "easy_s": round(easy_s),
        "ratio": round(own_s / easy_s, 3),
    }


def refresh(jobs: int) -> dict[str, Any]:
    """Return what one forecast of jobs that all wait takes."""
    made = generate(jobs=jobs, gpus=400, seed=1, like="mixed", gpu_types=1)
    beliefs = {job.id: Belief(job.work_s) for job in made.jobs}
    came = to_come(made.jobs, beliefs, max(job.submit_s for job in made.jobs))
    question = Question(
        instance=all_waiting(made), beliefs=beliefs, errors=RunTimeErrors(), to_come=came
    )
    cpu_s = taken_s(lambda: forecast(question))
    return {"jobs": jobs, "cpu_s": round(cpu_s, 2), "ratio": round(cpu_s / kernel_us(), 2)}


def changed(jobs: int) -> dict[str, Any]:
    """Return what the two courses of one change take where all jobs wait."""
    present = all_waiting(generate(jobs=jobs, gpus=400, seed=1, like="mixed", gpu_types=1))
    ahead = Outlook(present, {job.id: 0.0 for job in present.jobs}, {}, ())
    seen_of(ahead, Change(job=present.jobs[0].id), "wct", ROUNDS, math.inf)  # modules are imported
    cpu_s = [
        taken_s(partial(seen_of, ahead, change, "wct", ROUNDS, math.inf))
        for change in courses_of(Change(gpus=8))
    ]
    longer_s = max(cpu_s)
    return {
        "jobs": jobs,
        "cpu_s": round(longer_s, 2),
        "ratio": round(longer_s / kernel_us(), 2),
        "share": round(longer_s / sum(cpu_s), 2),
    }


def all_waiting(made: Instance) -> Instance:
    """Return an instance of which all jobs wait since its beginning."""
    return replace(made, jobs=tuple(replace(job, submit_s=0.0) for job in made.jobs))


def taken_s(call: Callable[[], Any]) -> float:
    """Return the processor time that a call takes."""
    begun_s = time.process_time()
    call()
    return time.process_time() - begun_s


def main() -> None:
    """Run one trace, or one forecast."""
    parser = parser_of(
        __doc__, jobs=int, profiles=PROFILES_SEED, refresh=int, what_if=int, keep=Path
    )
    parser.add_argument("--trace", choices=WORKLOADS)
    parser.add_argument("--known", choices=KNOWN, help="what forecasts are given besides")
    given = parser.parse_args()
    if given.refresh or given.what_if:
        taken = refresh(given.refresh) if given.refresh else changed(given.what_if)
        tell({"benchmark": "forecast", **taken})
        return
    instance = instance_of(given.trace, given.jobs, given.profiles, sharing=False)
    asked, watched = run(instance, given.known)
    if given.keep:
        rows = [(own.job, own.made_s, own.raw, own.easy_s, own.start_s) for own in asked]
        given.keep.write_bytes(pickle.dumps((rows, watched.start_s, watched.end_s)))
    about = {"benchmark": "forecast", "trace": given.trace, "jobs": len(watched.end_s)}
    about |= {"profiles": given.profiles, "known": given.known or "nothing"}
    tell(about | compared(asked[WARM_UP:], watched))


if __name__ == "__main__":
    main()
