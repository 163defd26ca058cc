"""One forecast of when jobs start and end, for all who ask: made again and again beside the
controller, and compared with what came."""

import json
import math
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from ..driver.borrowing import fewest_gpus
from ..driver.snapshot import of_length
from ..errors import InputError
from ..estimates.errors import Belief, RunTimeErrors
from ..estimates.history import Likeness
from ..executors.base import Foretells
from ..forecast.calibration import Calibration
from ..forecast.course import DAY_S, HORIZON_S, Quantiles, Question, ToCome, forecast
from ..frozen import record
from ..model import FOR_EVER_S, Instance, Job, Mode
from ..physics.capacity import Capacity
from ..physics.catalogue import catalogue_of
from ..physics.unschedulable import why_never
from .beside import Beside, NoForecastError
from .controller import Controller
from .expected import Instants, LiveForecast
from .journal.state import LiveJob
from .learning import prior
from .loop import Loop, LoopStoppedError
from .what_if.future import outlook
from .what_if.simulated import ROUNDS, able
from .what_if.snapshot import Snapshot, snapshot
from .work_left import FEWEST_STEPS

LOOK_S = 1.0
"""How often to look whether a forecast is due."""
EVERY_S = 15.0
"""The shortest time between two forecasts."""
STALE_S = 60.0
"""A forecast of a state that has not changed is made again after so long."""
MOST_CPU = 0.1
"""The share of one core that forecasts take at most on average."""
LIMIT_S = 60.0
"""Wall clock of one forecast."""
AGAIN_S = 3600.0
"""So often a forecast of a job is kept to be compared with what comes, the first one included."""
KEPT_S = 600.0
"""How often what was learned of forecasts is written to the disk."""
WINDOW_S, LATELY = 7 * DAY_S, 500
"""Jobs to come are like those of the last days, at most so many."""
FILE = "forecast.json"
STEPS_S = (300.0, 900.0, 1800.0, 3600.0, 4 * 3600.0)
"""To how much the times are rounded that the cluster manager tells."""


@record
class Seen:
    """What is asked of the controller for one forecast. `beliefs` are of the jobs that have not
    finished, `came` the jobs that were submitted lately, with theirs."""

    now: Snapshot
    events: int
    beliefs: Mapping[str, Belief]
    came: tuple[tuple[LiveJob, Belief], ...]
    errors: RunTimeErrors


class Forecaster:
    """Makes forecasts on a thread of its own until `close`, in a process of its own; neither what
    fails there nor how long it takes holds the controller up."""

    def __init__(self, loop: Loop, folder: Path) -> None:
        self._loop, self._path = loop, folder / FILE
        self._beside = Beside()
        self._calibration = _read(self._path)
        self._given_s: dict[str, float] = {}
        self._events, self._made_s = -1, -math.inf
        self._kept_s = time.monotonic()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="forecast", daemon=True)

    def __enter__(self) -> "Forecaster":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._beside.close()
        self._thread.join(10.0)
        self._keep()

    def _run(self) -> None:
        wait_s = LOOK_S
        while not self._closing.wait(wait_s):
            begun_s = time.thread_time()
            try:
                made = self.turn()
            except LoopStoppedError:
                return
            except Exception as error:  # a bug, or a controller that is busy: later again
                self._loop.controller.bug("forecasting", error)
                made = True
            spent_s = self._beside.cpu_s + time.thread_time() - begun_s
            wait_s = max(EVERY_S, spent_s / MOST_CPU) if made else LOOK_S

    def turn(self) -> bool:
        """Make a forecast and publish it; return False where there is nothing new to say."""
        controller = self._loop.controller
        if not controller.state.open or not self._due(controller.journal.last):
            return False
        seen = self._loop.ask(_look)
        self._events, self._made_s = seen.events, time.monotonic()
        made = self._made(seen)
        self._loop.ask(lambda controller: setattr(controller, "forecast", made))
        executor = controller.executor
        if isinstance(executor, Foretells):
            executor.foretell(_starts(made, seen.now))
        if time.monotonic() > self._kept_s + KEPT_S:
            self._keep()
        return True

    def _due(self, events: int) -> bool:
        return events != self._events or time.monotonic() > self._made_s + STALE_S

    def _made(self, seen: Seen) -> LiveForecast:
        now, now_s = seen.now, seen.now.now_s
        self._compare(now)
        quantiles: dict[str, Quantiles] = {}
        why: dict[str, str] = {}
        fault = None
        try:
            ahead = outlook(now)
            why |= ahead.left_out
            question = question_of(seen, ahead.instance)
            quantiles, never = self._beside.call(LIMIT_S, forecast_able, question)
            why |= {name: f"it can never run: {reason}" for name, reason in never.items()}
        except (InputError, NoForecastError) as error:
            fault = f"no forecast: {error}"
        table = Capacity(now.cluster, now.tenants)
        of = {
            name: self._told(now.state.jobs[name], own, now_s, table)
            for name, own in quantiles.items()
        }
        starts, ends = (self._calibration.coverage(event) for event in ("start", "end"))
        return LiveForecast(
            made_s=now_s,
            horizon_s=HORIZON_S,
            of=of,
            why=why,
            starts_held=starts.held,
            starts_compared=starts.compared,
            ends_held=ends.held,
            ends_compared=ends.compared,
            cpu_s=self._beside.cpu_s,
            fault=fault,
        )

    def _told(self, job: LiveJob, own: Quantiles, now_s: float, table: Capacity) -> Instants:
        """Return the instants to tell of a job, and keep them now and then to be compared.

        What is certain is not calibrated: that a job does not start before its user wants it to,
        nor while windows leave too little of a resource or quota for it.
        """
        calibration, from_s = self._calibration, now_s
        if job.live is None:
            from_s = _opens_s(table, job.submission.job, max(now_s, job.submission.begin_s or 0.0))
        own = own.after(from_s - now_s)
        if now_s >= self._given_s.get(job.id, -math.inf) + AGAIN_S:
            self._given_s[job.id] = now_s
            if not job.attempts:
                calibration.given(job.id, "start", from_s, own.start_p50_s, own.start_p90_s)
            calibration.given(job.id, "end", from_s, own.end_p50_s, own.end_p90_s)
        start_s = (own.start_p50_s, own.start_p90_s)
        if job.live is None:
            start_s = calibration.told("start", *start_s)
        end_s = calibration.told("end", own.end_p50_s, own.end_p90_s)
        end_s = max(start_s[0], end_s[0]), max(start_s[1], end_s[1])  # each is calibrated by itself
        return Instants(*(from_s + wait_s for wait_s in (*start_s, *end_s)))

    def _compare(self, now: Snapshot) -> None:
        """Compare the forecasts that are kept with what has come of their jobs."""
        calibration = self._calibration
        for name in list(self._given_s):
            job = now.state.jobs.get(name)
            if job is None or job.held is not None or job.cancelled is not None:
                calibration.forget(name)
                del self._given_s[name]
                continue
            began_s = next((own.started_s for own in job.attempts if own.started_s), None)
            if began_s is not None:
                calibration.came(name, "start", began_s)
            if job.finished == "completed" and job.finished_s is not None:
                calibration.came(name, "end", job.finished_s)
            if job.finished is not None:
                calibration.forget(name)
                del self._given_s[name]
        calibration.late(now.now_s)

    def _keep(self) -> None:
        self._kept_s = time.monotonic()
        text = json.dumps(self._calibration.plain())
        with suppress(OSError):
            new = self._path.with_suffix(".new")
            new.touch(mode=0o600)
            new.write_text(text)
            os.replace(new, self._path)


def _opens_s(table: Capacity, job: Job, from_s: float) -> float:
    """Return an instant before which windows leave too little of what all share for a job."""
    mode = Mode(gpus=fewest_gpus(job), resources={} if job.modes else job.resources)
    latest_s = from_s
    for row, amount in table.together(job, mode):
        opens_s = from_s
        for begin_s, end_s, less in table.dips.get(row, ()):
            if begin_s <= opens_s < end_s and amount > table.rows[row].capacity - less:
                opens_s = end_s
        latest_s = max(latest_s, opens_s)
    return from_s if latest_s >= FOR_EVER_S else latest_s


def _read(path: Path) -> Calibration:
    """Return what was learned before; nothing where that cannot be read."""
    try:
        return Calibration.of_plain(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return Calibration()


def _look(controller: Controller) -> Seen:
    """Return what a forecast needs; for `Loop.ask`, quick."""
    now, learning = snapshot(controller), controller.learning
    runs_s = controller.settings.runs

    def believed(job: LiveJob) -> Belief:
        submission = job.submission
        belief = Belief(submission.job.work_s)
        if learning is not None:
            prior_s, basis = prior(submission.stated_s, submission.limit_s, runs_s)
            belief = learning.ended.belief(Likeness.of(submission.job, basis), prior_s)
        return replace(belief, measured=_measured(controller, job))

    since_s = now.now_s - WINDOW_S
    came: list[tuple[LiveJob, Belief]] = []
    for job in reversed(now.state.jobs.values()):
        if job.submit_s < since_s or len(came) >= LATELY:
            break
        came.append((job, believed(job)))
    return Seen(
        now,
        controller.journal.last,
        {name: believed(job) for name, job in now.state.open.items()},
        tuple(reversed(came)),
        RunTimeErrors() if learning is None else learning.ended.errors.copy(),
    )


def _measured(controller: Controller, job: LiveJob) -> bool:
    """Return whether what is left of a job follows from the steps that it reports."""
    live = job.live
    seen = None if live is None else controller.observed.get(live.key)
    progress = None if seen is None else seen.progress
    if progress is None or not (progress.total_steps or job.submission.total_steps):
        return False
    return progress.step - progress.first_step >= FEWEST_STEPS


def _starts(made: LiveForecast, now: Snapshot) -> dict[str, str]:
    """Return when jobs start that users gave to the cluster manager, in words, by origin, the first
    first; those that start at once or not within the horizon are not among them."""
    waiting = (job for job in now.state.open.values() if job.live is None)
    starts = [
        (own.start_p50_s, own.start_p90_s, job.submission.origin)
        for job in waiting
        if job.submission.origin is not None and (own := made.of.get(job.id)) is not None
    ]
    return {
        origin: f"{_date(p50_s, now.now_s)}, in 9 of 10 cases by {_date(p90_s, now.now_s)}"
        for p50_s, p90_s, origin in sorted(starts)
        if now.now_s < p50_s and p90_s < math.inf
    }


def _date(at_s: float, now_s: float) -> str:
    """Return a time to come, the rougher the farther ahead: so it seldom changes."""
    return f"{datetime.fromtimestamp(rounded_s(at_s, now_s)):%m-%d %H:%M}"


def rounded_s(at_s: float, now_s: float) -> float:
    """Return a time to come, later by at most the step that is a tenth of the way or more."""
    step_s = next((step_s for step_s in STEPS_S if step_s > (at_s - now_s) / 10), STEPS_S[-1])
    return math.ceil(at_s / step_s) * step_s


def question_of(seen: Seen, instance: Instance) -> Question:
    """Return what is asked of the present as an instance (see `outlook`)."""
    now = seen.now
    rounds = now.policy.name == ROUNDS.name
    jobs = tuple(_with_all_it_did(job, now.state.jobs[job.id], instance) for job in instance.jobs)
    return Question(
        instance=replace(instance, jobs=jobs),
        beliefs=seen.beliefs,
        errors=seen.errors,
        to_come=ToCome(
            jobs=tuple(own.submission.job for own, _ in seen.came),
            beliefs=tuple(belief for _, belief in seen.came),
            before_s=tuple(max(0.0, now.now_s - own.submit_s) for own, _ in seen.came),
            window_s=_window_s(seen),
        ),
        policy=None if rounds else now.policy.name,
        options={} if rounds else now.policy.options,
        objective=now.objective,
        kept=now.kept if rounds else None,
    )


def _window_s(seen: Seen) -> float:
    """Return how long it took so many jobs to come; a day at least, as no rate is known before."""
    first = seen.came[0][0].submit_s if seen.came else seen.now.now_s
    return max(DAY_S, seen.now.now_s - first)


def _with_all_it_did(job: Job, live_job: LiveJob, instance: Instance) -> Job:
    """Return a job as long as what it has done and what is left of it: one that has outrun what was
    believed of it is longer."""
    live = live_job.live
    if live is None or live.started_s is None or job.id not in instance.running_job:
        return job
    worked_s = max(0.0, instance.now_s - live.started_s - live.setup_s) * live.rate
    done_s = max(0.0, live_job.submission.job.work_s - live.work_s) + worked_s
    return of_length(job, max(job.work_s, done_s + instance.remaining_s(job)))


def forecast_able(question: Question) -> tuple[dict[str, Quantiles], dict[str, str]]:
    """Return the forecast of the jobs that can run, and why others never can."""
    instance, never = able(question.instance)
    come, catalogue = question.to_come, catalogue_of(instance)
    fitting = [i for i, job in enumerate(come.jobs) if why_never(catalogue, job) is None]
    to_come = replace(
        come,
        jobs=tuple(come.jobs[i] for i in fitting),
        beliefs=tuple(come.beliefs[i] for i in fitting),
        before_s=tuple(come.before_s[i] for i in fitting),
    )
    return forecast(replace(question, instance=instance, to_come=to_come)), never
