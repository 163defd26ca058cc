"""Looking back: where the time of jobs went, by hand and to the second, and that the bound is below
what happened."""

import json
import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from optsched import Instance, Job, Profile
from optsched.bounds import priced_bound
from optsched.cli.regret import command as regret_command
from optsched.control.journal.events import (
    AttemptEnded,
    AttemptRunning,
    Claim,
    Held,
    Released,
    RoundDecided,
    StartIntended,
    StopIntended,
    Submitted,
)
from optsched.control.journal.journal import Journal, RoundEntry
from optsched.control.learned import NEVER_S
from optsched.control.regret import picture
from optsched.control.regret.regret import Regret, regret
from optsched.control.submission import Submission
from optsched.errors import InputError
from optsched.executors.base import Progress
from optsched.files import dump_instance, read_instance
from optsched.model.instance import Slot
from optsched.model.job import Mode
from optsched.objectives import parse
from optsched.picture.panels import Chart, Line
from optsched.round.decide import decide
from optsched.round.files import dump_round
from tests.clusters import one_node

from .test_controller import Lab
from .test_replay import history

FREE = Profile()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def checked(found: Regret) -> dict[str, float]:
    """The parts other than 0; that they are the whole, and that the bound was not cut off at the
    mean."""
    assert math.fsum(found.parts_s.values()) == pytest.approx(found.mean_s)
    even = replace(
        found.instance, jobs=tuple(replace(job, weight=1.0) for job in found.instance.jobs)
    )
    bound, _ = priced_bound(even, parse("wct"), 10)
    assert bound.value / found.jobs <= found.mean_s * (1 + 1e-9)
    assert found.bound_s <= found.mean_s
    for one in found.slices:
        assert (
            math.fsum(one.parts_s.values()) == pytest.approx(one.mean_s)
            and one.bound_s <= one.mean_s
        )
    assert sum(one.jobs for one in found.slices) == found.jobs
    return {name: seconds for name, seconds in found.parts_s.items() if abs(seconds) > 1e-6}


def test_a_job_alone_has_nothing_to_regret(lab: Lab) -> None:
    lab.submit("a", 4, 100.0, profile=Profile(startup_s=5.0))
    lab.run(110)
    found = regret(lab.controller.journal)
    assert checked(found) == {"alone": pytest.approx(100.0)}
    assert found.bound_s == pytest.approx(100.0) and found.gap == pytest.approx(0.0)
    assert found.instance.job["a"].work_s == pytest.approx(95.0), "5 of the 100 s were start-up"


def test_waiting_that_had_to_be_and_waiting_that_had_not(lab: Lab) -> None:
    lab.submit("a", 8, 100.0, profile=FREE, job={"preemptible": False})
    lab.run(1)
    lab.submit("b", 8, 10.0, profile=FREE)
    lab.run(130)
    found = regret(lab.controller.journal)
    # a runs from 0 to 100, b from 100 to 110, submitted at 1: it waits 99 s
    assert checked(found) == {"alone": pytest.approx(55.0), "waiting": pytest.approx(49.5)}
    assert found.mean_s == pytest.approx((100 + 109) / 2)
    # the best that preempts for nothing: b at 11, a at 110
    assert found.bound_s <= (110 + 10) / 2 + 1e-6
    assert found.bound_s >= (100 + 10) / 2 - 1e-6


def test_what_a_preemption_costs(lab: Lab) -> None:
    lab.submit("long", 8, 300.0, saves_s=4.0, profile=Profile(checkpoint_s=4.0, restore_s=6.0))
    lab.run(20)
    lab.submit("short", 8, 10.0, profile=FREE)
    lab.run(400)
    found = regret(lab.controller.journal)
    assert found.preemptions == 1 and found.failures == 0
    parts = checked(found)
    # asked at 20, saved at 24, short until 34; long has 280 s to do, of which it says 6 are to
    # restore
    assert parts["switching"] == pytest.approx((4 + 6) / 2, abs=1.0)
    assert parts["waiting"] == pytest.approx((4 + 10) / 2, abs=1.0)
    assert parts["alone"] == pytest.approx((300 - 6 + 10) / 2, abs=1.0)


def test_what_a_lost_node_costs(lab: Lab) -> None:
    lab.submit("a", 8, 50.0, profile=FREE)
    lab.run(20)
    lab.executor.down = {"n0"}
    lab.run(1)
    lab.executor.down = set()
    lab.run(100)
    found = regret(lab.controller.journal)
    parts = checked(found)
    # 20 s of work are lost, then it pauses for 5 s
    assert parts["failures"] == pytest.approx(20 + 5, abs=2.0) and found.failures == 1
    assert parts["alone"] == pytest.approx(50.0)


def test_hold_and_predecessors_are_nobodys_waiting(lab: Lab) -> None:
    lab.submit("first", 8, 40.0, profile=FREE)
    lab.submit("second", 8, 10.0, profile=FREE, job={"after": ("first",)})
    lab.submit("held", 8, 10.0, profile=FREE, hold=True)
    lab.run(100)
    lab.controller.record(Released(job="held", by="me"))
    lab.run(5)
    lab.controller.record(Held(job="held", by="me"))
    lab.run(30)
    lab.controller.record(Released(job="held", by="me"))
    lab.run(30)
    found = regret(lab.controller.journal)
    parts = checked(found)
    assert parts["after"] == pytest.approx(40 / 3, abs=0.5)
    assert parts["held"] == pytest.approx(30 / 3, abs=1.0), "only from its first release on"
    assert parts.get("waiting", 0.0) <= 1.0
    assert found.instance.job["second"].after == ("first",)


def test_a_period_and_jobs_that_go_on_after_it(lab: Lab) -> None:
    begun_s = lab.clock.at_s
    lab.submit("a", 8, 100.0, profile=FREE, job={"preemptible": False})
    lab.submit("b", 8, 100.0, profile=FREE, job={"preemptible": False})
    lab.run(250)
    found = regret(lab.controller.journal, from_s=begun_s + 50, to_s=begun_s + 130)
    # from 50 on: one job has 50 s to do, the other does 30 s until 130, for which it waited 50
    assert (found.jobs, found.completed) == (2, 1)
    assert found.mean_s == pytest.approx((50 + 80) / 2)
    assert checked(found) == {"alone": pytest.approx(40.0), "waiting": pytest.approx(25.0)}
    assert sorted(job.work_s for job in found.instance.jobs) == [
        pytest.approx(30.0),
        pytest.approx(50.0),
    ]
    with pytest.raises(InputError, match="no job did anything in this period"):
        regret(lab.controller.journal, from_s=begun_s + 240, to_s=begun_s + 245)


def test_by_weight(lab: Lab) -> None:
    lab.submit("a", 8, 10.0, profile=FREE, job={"weight": 3.0})
    lab.submit("b", 8, 10.0, profile=FREE)
    lab.run(40)
    found = regret(lab.controller.journal)
    assert found.weighted == pytest.approx(3 * 10 + 20)
    assert found.weighted_bound is not None and 40 - 1e-6 <= found.weighted_bound <= 50 + 1e-6


SLOW = pytest.mark.slow


@pytest.mark.parametrize("seed", [11, *(pytest.param(seed, marks=SLOW) for seed in range(12, 22))])
def test_whatever_happened_the_parts_are_the_whole_and_the_bound_is_below(
    tmp_path: Path, seed: int
) -> None:
    journal = history(tmp_path, seed, seconds=45 if seed == 11 else 150)
    found = regret(journal, steps=5)
    assert found.completed > 3
    checked(found)
    assert found.weighted is not None
    bound, _ = priced_bound(found.instance, parse("wct"), 10)
    assert bound.value <= found.weighted * (1 + 1e-9)


def test_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    history(tmp_path / "state", 14, seconds=45).close()
    config = tmp_path / "cluster.toml"
    config.write_text('format = "optsched-cluster/1"\nstate = "state"\n')
    day, instance = tmp_path / "day.svg", tmp_path / "true.json"
    words = ["--config", str(config), "--steps", "5"]
    run = CliRunner().invoke(regret_command, [*words, "--picture", str(day), "-o", str(instance)])
    assert (
        run.exit_code == 0
        and "mean completion time" in run.output
        and "no schedule does better" in run.output
    )
    root = ElementTree.parse(day).getroot()
    assert root.tag.endswith("svg") and len(list(root.iter())) > 50
    assert len(read_instance(instance).jobs) > 2
    run = CliRunner().invoke(regret_command, [*words, "--from", "2026-05-02", "--to", "2026-05-01"])
    assert isinstance(run.exception, InputError)
    run = CliRunner().invoke(regret_command, [*words, "--from", "yesterday"])
    assert run.exit_code == 2 and "is not an instant" in run.output


def test_steps_tell_what_was_done_twice_and_when_work_began(tmp_path: Path) -> None:
    """A job of 100 steps of a second. The first attempt does 40 of them, has saved 30 when it is
    asked to stop at 40, and is killed at 50; the second begins at 60, works from 65 on, and does
    the other 70."""
    journal = Journal(tmp_path / "journal")
    job = Job(id="a", gpus=4, duration_s=100.0, submit_s=0.0)
    cluster = one_node("n0", gpus=4)
    instance = Instance(cluster=cluster, jobs=(job,))
    solution = decide(instance, budget_s=60.0)
    mode, placement = Mode(gpus=4), (Slot(node="n0", gpus=4),)
    stored = RoundEntry(
        number=1,
        at_s=0.0,
        jobs=1,
        value=solution.value,
        bound=solution.bound,
        wall_s=0.0,
        solver="price",
        fallback=None,
    )
    first = Progress(
        step=40, at_s=40.0, total_steps=100, began_s=0.0, saved_step=30, saved_at_s=30.0
    )
    second = Progress(step=100, at_s=135.0, total_steps=100, first_step=30, began_s=65.0)

    def start(number: int, work_s: float) -> StartIntended:
        return StartIntended(
            job="a",
            number=number,
            mode=mode,
            placement=placement,
            work_s=work_s,
            rate=1.0,
            setup_s=0.0,
        )

    claim = Claim(job="a", mode=mode, placement=placement)
    journal.append(
        0.0,
        [Submitted(submission=Submission(job=job, argv=("x",), directory="/", total_steps=100))],
    )
    journal.add_round(
        stored,
        dump_instance(instance),
        dump_round(solution),
        [RoundDecided(round=1, claims=(claim,))],
    )
    for at_s, event in (
        (0.0, start(1, 100.0)),
        (0.0, AttemptRunning(job="a", number=1, started_s=0.0, gpu_ids={})),
        (40.0, StopIntended(job="a", number=1, why="preempt", grace_s=10.0)),
        (
            50.0,
            AttemptEnded(
                job="a", number=1, exit_status=-9, ended_s=50.0, left_s=70.0, progress=first
            ),
        ),
        (60.0, start(2, 70.0)),
        (60.0, AttemptRunning(job="a", number=2, started_s=60.0, gpu_ids={})),
        (
            135.0,
            AttemptEnded(
                job="a", number=2, exit_status=0, ended_s=135.0, left_s=0.0, progress=second
            ),
        ),
    ):
        journal.append(at_s, [event])
    found = regret(journal)
    # 10 s from the last checkpoint to the request, 10 until it is killed, 5 to restore; and 10 s of
    # waiting
    assert checked(found) == {
        "alone": pytest.approx(100.0),
        "switching": pytest.approx(25.0),
        "waiting": pytest.approx(10.0),
    }
    assert found.instance.job["a"].work_s == pytest.approx(100.0) and found.preemptions == 1
    assert found.bound_s == pytest.approx(100.0)


@pytest.mark.parametrize(("saves", "cost"), [(True, 0.75), (False, 0.0)])
def test_what_strict_priorities_cost(tmp_path: Path, lab: Lab, saves: bool, cost: float) -> None:
    """Both want all GPUs: 100 s first, then 10 s, 105 s in the mean, where 60 s were to be had. One
    that does not save has the place that it has either way."""
    profile = FREE if saves else replace(FREE, checkpoint_every_s=NEVER_S)
    lab.submit("long", 8, 100.0, profile=profile, job={"priority": 10})
    lab.run(1 if not saves else 0)
    lab.submit("short", 8, 10.0, profile=profile)
    lab.run(130)
    lab.controller.journal.close()
    config = tmp_path / "cluster.toml"
    config.write_text('format = "optsched-cluster/1"\nstate = "."\n')

    def told(*words: str) -> str:
        given = ["--config", str(config), *words]
        return CliRunner().invoke(regret_command, given, catch_exceptions=False).output

    price = json.loads(told("--price-of-priorities", "--json"))["price_of_priorities"]
    assert price["cost"] == pytest.approx(cost, abs=0.01)
    assert [tier["priority"] for tier in price["priorities"]] == [10, 0]
    aloud = told("--price-of-priorities")
    assert f"strict priorities cost {100 * price['cost']:+.1f} % of mean JCT" in aloud
    assert "price_of_priorities" not in told("--json")


def test_the_picture_holds_what_it_says(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.submit("a", 8, 100.0, profile=FREE)
    lab.submit("b", 8, 100.0, profile=FREE)
    lab.run(250)
    found = regret(lab.controller.journal)
    shown: list[Chart] = []
    monkeypatch.setattr(picture, "drawn", lambda chart: shown.append(chart) or b"")
    picture.svg(found)
    [panel] = shown[0].panels
    highest = {line.name: max(line.y) for line in panel.marks if isinstance(line, Line)}
    assert highest == pytest.approx(
        {"waiting for GPUs": 150.0, "work at its fastest": 100.0, "bound": found.bound_s}
    )
    assert panel.x.title.startswith("seconds from") or panel.x.title.startswith("minutes from")
