"""Live forecasts: what is told of each job, compared with what comes, and never in the way."""

import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from optsched.cli.queue import command as queue_command
from optsched.control.api.answers import JobView
from optsched.control.api.views import job_view
from optsched.control.beside import Beside, NoForecastError
from optsched.control.controller import Controller
from optsched.control.expected import LiveForecast
from optsched.control.explain.explaining import explain_job
from optsched.control.forecasting import FILE, Forecaster
from optsched.control.journal.events import Cancelled, WindowSet
from optsched.control.what_if.snapshot import snapshot
from optsched.driver.reservation import earliest
from optsched.errors import InputError
from optsched.estimates.parse import parse
from optsched.model.cluster import Tenant, Window

from .api.live import Live, until
from .test_controller import Lab


class Here:
    """Computes in this process."""

    cpu_s = 0.0

    def call(self, limit_s: float, function: Callable[..., Any], *given: Any) -> Any:
        return function(*given)

    def close(self) -> None:
        pass


class Turning:
    """The loop of a controller that turns when a test says so."""

    def __init__(self, lab: Lab) -> None:
        self.controller = lab.controller

    def ask(self, call: Callable[[Controller], Any]) -> Any:
        return call(self.controller)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.fixture
def forecaster(lab: Lab, tmp_path: Path) -> Forecaster:
    """One that takes a turn when it is told to."""
    forecaster = Forecaster(Turning(lab), tmp_path)  # type: ignore[arg-type]
    forecaster._beside = Here()  # type: ignore[assignment]
    return forecaster


def shown(lab: Lab, name: str) -> JobView:
    return job_view(lab.controller, lab.controller.state.jobs[name], lab.clock.at_s)


def made(lab: Lab) -> LiveForecast:
    assert lab.controller.forecast is not None
    return lab.controller.forecast


def test_every_job_has_its_times(lab: Lab, forecaster: Forecaster) -> None:
    assert not forecaster.turn(), "there are no jobs"
    lab.submit("runs", 8, 600.0, job={"preemptible": False})
    lab.run(5)
    assert shown(lab, "runs").forecast == "none has been made since it came"
    lab.submit("waits", 8, 5.0)
    lab.submit("then", 1, 5.0, job={"after": ("waits",)})
    lab.submit("huge", 99, 5.0)
    lab.submit("held", 1, 5.0, hold=True)
    lab.run(2)
    assert forecaster.turn()
    runs, waits, then = (shown(lab, name) for name in ("runs", "waits", "then"))
    now_s = lab.clock.at_s
    assert runs.start_p50_s == runs.start_p90_s == runs.started_s
    assert runs.end_p50_s is not None and runs.end_p90_s is not None
    assert now_s < runs.end_p50_s < runs.end_p90_s
    for own in (waits, then):
        assert own.forecast is None and own.start_p50_s is not None and own.end_p50_s is not None
        assert now_s < own.start_p50_s < (own.start_p90_s or 0)
        assert own.start_p50_s < own.end_p50_s < (own.end_p90_s or 0)
    assert (then.start_p50_s or 0) > (waits.start_p50_s or 0)
    assert shown(lab, "held").start_p50_s is None
    assert shown(lab, "held").forecast == "it is on hold"
    assert (shown(lab, "huge").forecast or "").startswith("it can never run: it needs 99 GPUs")
    assert made(lab).fault is None and made(lab).starts_compared == 0
    assert not forecaster.turn(), "nothing has happened since"
    told = explain_job(snapshot(lab.controller), "waits")
    assert told.facts["expected"]["start_p50_s"] == waits.start_p50_s
    assert told.sentences[-1].startswith("The forecast is that it starts in ")
    lab.clock.at_s += 1e6
    assert shown(lab, "waits").start_p50_s == lab.clock.at_s, "what is overdue is expected now"


def test_no_job_is_told_to_end_before_it_starts(
    lab: Lab, forecaster: Forecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever calibration makes of the two, each by itself."""
    factor = {"start": 100.0, "end": 0.01}
    monkeypatch.setattr(
        forecaster._calibration,
        "told",
        lambda event, p50_s, p90_s: (factor[event] * p50_s, factor[event] * p90_s),
    )
    lab.submit("runs", 8, 600.0, job={"preemptible": False})
    lab.run(5)
    lab.submit("waits", 8, 5.0)
    lab.run(2)
    assert forecaster.turn()
    waits = shown(lab, "waits")
    assert waits.start_p50_s is not None and waits.start_p90_s is not None
    assert (waits.end_p50_s, waits.end_p90_s) == (waits.start_p50_s, waits.start_p90_s)


def test_no_job_is_told_to_start_before_its_user_wants_it(
    lab: Lab, forecaster: Forecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calibration makes what is uncertain shorter or longer, and that alone is compared."""
    monkeypatch.setattr(
        forecaster._calibration, "told", lambda event, p50_s, p90_s: (0.1 * p50_s, 0.1 * p90_s)
    )
    begin_s = lab.clock.at_s + 36000.0
    lab.submit("later", 1, 600.0, begin_s=begin_s)
    lab.run(2)
    assert forecaster.turn()
    later = shown(lab, "later")
    assert begin_s <= (later.start_p50_s or 0) <= (later.start_p90_s or 0) < begin_s + 60.0
    assert begin_s + 1.0 < (later.end_p50_s or 0) < begin_s + 600.0
    [started] = forecaster._calibration._of["start"][0]._pending["later"]
    assert started.made_s == begin_s and started.drawn_s <= 60.0


def test_a_job_is_not_forecast_to_start_while_windows_leave_too_little_for_it(
    lab: Lab, forecaster: Forecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        forecaster._calibration, "told", lambda event, p50_s, p90_s: (0.1 * p50_s, 0.1 * p90_s)
    )
    lab.controller.tenants = (Tenant(name="t", gpu_quota=8),)
    now_s = lab.clock.at_s
    for from_s, to_s, most in ((0.0, 5e4, 2), (4e4, 9e4, 3), (8e4, 9e5, 4)):
        window = Window(
            from_s=now_s + from_s, to_s=now_s + to_s, name=f"w{most}", quotas={"t": most}
        )
        lab.controller.record(WindowSet(window=window, by="root"))
    lab.submit("large", 4, 600.0, job={"tenant": "t"})
    lab.run(2)
    assert forecaster.turn()
    assert now_s + 9e4 <= (shown(lab, "large").start_p50_s or 0) < now_s + 9e4 + 60.0


def test_who_would_take_a_place_that_is_kept_waits(lab: Lab, forecaster: Forecaster) -> None:
    lab.submit("runs", 4, 600.0, job={"preemptible": False})
    lab.run(5)
    lab.submit("gang", 8, 60.0)
    lab.run(2)
    driver = lab.controller.driver(lab.clock.at_s)
    assert driver.policy is not None and driver._world is not None
    kept = earliest(driver._world, "gang")
    driver.policy.reservations.current = kept  # type: ignore[attr-defined]
    assert kept is not None and snapshot(lab.controller).kept is kept
    lab.submit("long", 1, 36000.0)
    lab.run(2)
    assert lab.controller.state.jobs["long"].live is None
    assert forecaster.turn()
    gang, long = shown(lab, "gang"), shown(lab, "long")
    assert made(lab).fault is None
    assert lab.clock.at_s < (gang.start_p50_s or 0) < (long.start_p50_s or 0)


def test_forecasts_are_compared_with_what_came(
    lab: Lab, forecaster: Forecaster, tmp_path: Path
) -> None:
    lab.submit("first", 8, 100.0, job={"preemptible": False})
    lab.run(5)
    lab.submit("second", 8, 10.0)
    lab.submit("ended", 8, 10.0)
    lab.run(2)
    assert forecaster.turn()
    lab.controller.record(Cancelled(job="ended", by="me"))
    lab.run(300)
    assert lab.status() == {"first": "completed", "second": "completed", "ended": "cancelled"}
    lab.submit("last", 1, 600.0)
    lab.run(2)
    assert forecaster.turn()
    assert (made(lab).starts_compared, made(lab).ends_compared) == (1, 2)
    assert shown(lab, "second").start_p50_s is None, "what is over is not foretold"
    forecaster._keep()
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0
    again = Forecaster(Turning(lab), tmp_path)  # type: ignore[arg-type]
    assert again._calibration.coverage("end").compared == 2


def test_the_cluster_manager_is_told(lab: Lab, forecaster: Forecaster) -> None:
    told: list[Any] = []
    lab.executor.foretell = told.append  # type: ignore[attr-defined]
    lab.submit("runs", 8, 3600.0, origin="1", job={"preemptible": False})
    lab.run(2)
    lab.submit("later", 8, 500.0, origin="2")
    lab.submit("next", 8, 300.0, origin="3")
    lab.submit("ours", 8, 100.0)
    lab.run(2)
    assert forecaster.turn()
    [starts] = told
    assert list(starts) == ["3", "2"]
    assert re.fullmatch(r"\d\d-\d\d \d\d:\d\d, in 9 of 10 cases by [-: 0-9]{11}", starts["3"])


def test_what_was_written_is_not_trusted(lab: Lab, tmp_path: Path) -> None:
    for text in ("", "[]", "{", '{"aim": 3}', '{"aim": {"start": "x"}}'):
        (tmp_path / FILE).write_text(text)
        again = Forecaster(Turning(lab), tmp_path)  # type: ignore[arg-type]
        assert again._calibration.coverage("start").compared == 0


def test_one_that_fails_is_said(lab: Lab, forecaster: Forecaster) -> None:
    class Failing(Here):
        def call(self, limit_s: float, function: Callable[..., Any], *given: Any) -> Any:
            raise NoForecastError("no answer within 1 min")

    forecaster._beside = Failing()  # type: ignore[assignment]
    lab.submit("runs", 1, 600.0)
    lab.run(2)
    assert forecaster.turn()
    assert shown(lab, "runs").forecast == "no forecast: no answer within 1 min"
    assert shown(lab, "runs").end_p50_s is None


def test_what_a_job_has_done_beyond_what_was_believed_counts(
    lab: Lab, forecaster: Forecaster
) -> None:
    lab.submit("long", 1, 1000.0)
    job = lab.controller.state.jobs["long"]
    lab.run(500)
    believed = replace(job.submission, job=replace(job.submission.job, duration_s=10.0))
    job.submission = believed
    job.attempts[-1].work_s = 10.0
    assert forecaster.turn()
    now_s, seen = lab.clock.at_s, shown(lab, "long")
    assert seen.end_p50_s is not None and seen.end_p90_s is not None
    # as likely as not it runs for as long again, and in one case of ten for nine times as long
    assert 400 < seen.end_p50_s - now_s < 600 and 3000 < seen.end_p90_s - now_s < 7000


def test_over_the_api_from_a_process_of_its_own(tmp_path: Path) -> None:
    live = Live(tmp_path)
    try:
        live.submit(3600.0, name="runs", gpus=8, min_nodes=2, preemptible=False)
        live.submit(3600.0, name="waits", gpus=8, min_nodes=2)
        live.wait("runs", "running")
        with Forecaster(live.loop, tmp_path):
            until(lambda: _foretold(live, "waits"))
        status, state = live.ask("GET", "/v1/state")
        assert status == 200 and state["forecast"]["horizon_s"] == 7 * 86400
        environment = {"OPTSCHED_URL": f"unix:{live.path}"}
        names = ["--columns", "job,starts,starts90,ends,ends90"]
        queue = CliRunner().invoke(queue_command, names, env=environment)
        assert queue.exit_code == 0 and queue.output.count("~") == 6
        assert live.failed is None
    finally:
        live.close()


def _foretold(live: Live, name: str) -> bool:
    return live.ask("GET", f"/v1/jobs/{name}")[1]["job"]["start_p90_s"] is not None


def test_a_process_that_stays_warm() -> None:
    beside = Beside()
    try:
        first = beside.call(60.0, os.getpid)
        with pytest.raises(InputError, match="estimates 'guess' are unknown"):
            beside.call(60.0, parse, "guess")
        with pytest.raises(NoForecastError, match="ValueError: invalid literal"):
            beside.call(60.0, int, "x")
        assert beside.call(60.0, os.getpid) == first != os.getpid()
        with pytest.raises(NoForecastError, match="no answer within"):
            beside.call(0.5, time.sleep, 600.0)
        second = beside.call(60.0, os.getpid)
        with pytest.raises(NoForecastError, match="status 3"):
            beside.call(60.0, os._exit, 3)
        third = beside.call(60.0, os.getpid)
        os.kill(third, signal.SIGKILL)
        assert beside.call(60.0, os.getpid) not in (first, second, third)
    finally:
        beside.close()


def test_it_runs_nothing_that_lies_where_it_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller of root may be started in a folder of somebody else."""
    theirs = tmp_path / "optsched"
    theirs.mkdir()
    (theirs / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    beside = Beside()
    try:
        assert beside.call(60.0, len, "abc") == 3
    finally:
        beside.close()
    assert not (tmp_path / "ran").exists()
