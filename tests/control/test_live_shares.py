"""Shares on a live cluster: use is counted from the journal, and a restart tells the same."""

from dataclasses import asdict
from pathlib import Path

import pytest

from optsched.cli.shares import _cells
from optsched.control.api.views import job_view
from optsched.control.explain.explaining import explain_job
from optsched.control.journal.retention import Retention
from optsched.control.settings import RetentionSettings, SharesSettings, TenantSettings
from optsched.control.shares import shares_view
from optsched.control.what_if.future import outlook
from optsched.control.what_if.simulated import Change
from optsched.control.what_if.snapshot import snapshot

from . import test_controller
from .courses import what_if
from .test_controller import Lab


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    settings = test_controller.SETTINGS.model_copy(
        update={
            "tenants": (
                TenantSettings(name="vision", weight=3),
                TenantSettings(name="detect", parent="vision"),
                TenantSettings(name="language"),
            ),
            "shares": SharesSettings(half_life="1h"),
        }
    )
    monkeypatch.setattr(test_controller, "SETTINGS", settings)
    return Lab(tmp_path)


def submit(lab: Lab, name: str, tenant: str, seconds: float, gpus: int = 8) -> None:
    noun = {"tenant": tenant, "user": f"user-{tenant}"}
    lab.submit(name, gpus, seconds, job={**noun, "min_nodes": 1, "max_nodes": 2})


def test_use_survives_restarts_and_the_dropping_of_the_past(lab: Lab) -> None:
    for k in range(5):
        submit(lab, f"d{k}", "detect", 100.0)
    submit(lab, "l", "language", 50.0)
    lab.run(330)
    before = shares_view(lab.controller, None)
    assert [row.tenant for row in before.rows if not row.is_user] == [
        "vision",
        "detect",
        "language",
    ]
    assert before.rows[0].used_gpu_s > 1000
    assert before.rows[1].used_gpu_s == before.rows[0].used_gpu_s
    lab.crash()
    lab.controller.look()
    assert shares_view(lab.controller, None).rows == before.rows
    Retention(RetentionSettings(jobs=1.0, rounds=1.0, profiles=1.0)).drop(lab.controller)
    assert len(lab.controller.state.jobs) < 6
    dropped = shares_view(lab.controller, None)
    assert dropped.rows == before.rows
    lab.run(20)
    later = shares_view(lab.controller, None)
    lab.crash()
    lab.controller.look()
    assert shares_view(lab.controller, None).rows == later.rows
    assert shares_view(lab.controller, "user-language").rows[-1].user == "user-language"
    assert not any(row.user == "user-detect" for row in shares_view(lab.controller, "x").rows)


def test_the_table_has_tenants_above_their_users(lab: Lab) -> None:
    submit(lab, "d", "detect", 60.0)
    lab.run(100)
    cells = [_cells(asdict(row)) for row in shares_view(lab.controller, None).rows]
    assert [row[:2] for row in cells] == [
        ("vision", ""),
        ("  detect", ""),
        ("", "user-detect"),
        ("language", ""),
    ]
    assert cells[0][2:5] == ("3", "75.0%", "75.0%") and cells[0][6:8] == ("100.0%", "0.750000")
    assert cells[2][7:9] == ("1.000000", "1.000000") and cells[3][7] == "inf"


def test_who_has_used_more_than_his_share_waits_and_is_told_so(lab: Lab) -> None:
    submit(lab, "first", "language", 2000.0)
    lab.run(1500)
    for name, tenant in (("mine", "language"), ("theirs", "detect")):
        submit(lab, name, tenant, 100.0)
    lab.run(3)
    status = lab.status()
    assert status["theirs"] in ("starting", "running", "waiting") and status["mine"] == "waiting"
    explained = explain_job(snapshot(lab.controller), "mine")
    assert explained.facts["shares"]["factor"] < 1
    assert "tenant language has had 100% and is entitled to 25%" in "\n".join(explained.sentences)
    ahead = outlook(snapshot(lab.controller)).instance
    assert ahead.shares is not None and {job.weight for job in ahead.jobs} == {1.0}
    lab.run(1200)
    done = lab.controller.state.jobs
    assert (done["theirs"].finished_s or 0) < (done["mine"].finished_s or 0)


@pytest.mark.parametrize("half_life", ["59s", 1e300, -1, "never", float("nan")])
def test_a_half_life_that_cannot_be_is_refused(half_life: object) -> None:
    with pytest.raises(ValueError, match="half_life"):
        SharesSettings.model_validate({"half_life": half_life})


def test_without_the_table_nothing_is_counted(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.submit("a", 1, 10.0)
    lab.run(30)
    view = shares_view(lab.controller, None)
    assert view.half_life_s is None and view.rows == () and lab.controller.state.use is None
    assert lab.controller.last_instance is None or lab.controller.last_instance.shares is None


def test_a_lender_takes_back_what_others_borrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenants = (
        TenantSettings(name="vision", gpu_quota=4, borrow_gpus=4),
        TenantSettings(name="language", gpu_quota=4),
        TenantSettings(name="away", gpu_quota=4),
    )
    settings = test_controller.SETTINGS.model_copy(update={"tenants": tenants})
    monkeypatch.setattr(test_controller, "SETTINGS", settings)
    lab = Lab(tmp_path)
    for name in ("first", "second"):
        lab.submit(name, 4, 500.0, job={"tenant": "vision", "weight": 100.0})
        lab.run(3)
    assert lab.status() == {"first": "running", "second": "running"}
    lab.submit("owner", 4, 1500.0, job={"tenant": "language"})
    lab.run(10)
    assert lab.status() == {"first": "running", "second": "waiting", "owner": "running"}
    second = lab.controller.state.jobs["second"]
    said = "tenant vision would have to borrow GPUs for it"
    assert said in (job_view(lab.controller, second, lab.clock.at_s).reason or "")
    assert said in "\n".join(explain_job(snapshot(lab.controller), "second").sentences)
    lab.submit("more", 4, 10.0, job={"tenant": "language", "weight": 1e6})
    lab.run(60)  # beyond its quota a lender takes nothing
    assert lab.status()["first"] == "running" and lab.status()["more"] == "waiting"
    ends_s = what_if(outlook(snapshot(lab.controller)), Change(), time_limit_s=60.0).before.end_s
    assert ends_s["owner"] > ends_s["first"]
    lab.crash()
    lab.run(2500)
    assert {*lab.status().values()} == {"completed"}
