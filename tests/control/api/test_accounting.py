"""`optsched account` over the API: what it prints, who sees what, and refusals."""

import csv
import io
import json
import re

import pytest

from optsched.cli.account import WASTE, _parts
from optsched.control.settings import LimitSettings, UserLimits
from optsched.picture.text import as_text, hours

from .live import Live
from .test_commands import Run, run

__all__ = ["run"]


def test_it_prints_a_table_csv_and_json(live: Live, run: Run) -> None:
    _, job = live.submit(0.0, name="billed", gpus=2)
    live.wait(job["id"], "completed")
    status, out, _ = run("account", "--by", "job,user")
    assert status == 0 and re.search(r"root +billed +1 ", out), out
    status, out, _ = run("account", "--by", "job", "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["jobs"] for row in rows if row["job"] == "billed"] == ["1"]
    status, out, _ = run("account", "--json", "--to", "1999-01-01")
    assert status == 0 and json.loads(out)["rows"] == []
    status, out, _ = run("account", "--user", "=nobody")
    assert (status, out) == (0, "nothing was used\n")


def test_small_amounts_are_told_apart() -> None:
    said = [hours(value) for value in (0.0, 1e-5, 0.00012, 0.004, 0.0333, 0.0999, 0.25, 1234.56)]
    assert said == ["0.0", "under 0.0001", "0.0001", "0.004", "0.03", "0.10", "0.2", "1,234.6"]
    spent = {cause: 0.0 for cause in WASTE} | {"setup": 0.004, "lost": 0.0001}
    row = {"user": "ann", "jobs": 2, "gpu_h": 0.03, "work_gpu_h": 0.026, "core_h": 0.0}
    row |= {"waited_h": 0.0} | {f"{cause}_gpu_h": own for cause, own in spent.items()}
    text = as_text(_parts({"rows": [row], "total": row, "uncounted_before_s": None}, ["user"]))
    assert re.search(r"ann +2 +0\.03 +86\.\d+ % +0\.004 ", text), text
    assert "set-up" in text and "lost" not in text


def test_budgets(live: Live, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("account", "--budgets")[1] == (
        "there is no such budget (max_gpu_hours in cluster.toml)\n"
    )
    users = {"=eve": UserLimits(max_gpu_hours=100.0)}
    limits = LimitSettings(users=users, max_gpu_hours=2500.0, gpu_hours_per="year")
    monkeypatch.setattr(
        live.controller, "settings", live.settings.model_copy(update={"limits": limits})
    )
    status, out, _ = run("account", "--budgets")
    assert status == 0 and re.search(r"=eve +100\.0 +0\.0 +0\.0 +100\.0\n", out), out
    assert re.search(r"a year; the next begins on \d{4}-01-01 \(UTC\), in ", out), out
    told = json.loads(run("account", "--budgets", "--user", "=eve", "--json")[1])
    assert [row["left_gpu_h"] for row in told["rows"]] == [100.0] and told["per"] == "year"
    assert run("account", "--budgets", "--user", "=eve", "--csv")[1] == (
        "user,tenant,gpu_h,used_gpu_h,expected_gpu_h,left_gpu_h\n'=eve,,100.0,0.0,0.0,100.0\n"
    )
    status, _, err = run("account", "--budgets", "--by", "day")
    assert status == 2 and "--by are not for budgets" in err


def test_faults_are_one_sentence(live: Live, run: Run) -> None:
    for words, said in (
        (("--by", "week"), "by names user, tenant, day and job, with commas between"),
        (("--from", "2026-05-02", "--to", "2026-05-01"), "from_day lies after to_day"),
        (("--from", "may"), "does not match the format"),
    ):
        status, out, err = run("account", *words)
        assert (status, out) == (2, "") and said in err
    assert live.ask("GET", "/v1/account?from_day=yesterday")[0] == 422
    assert live.ask("GET", "/v1/account?from_day=0001-01-01&to_day=9999-12-31")[0] == 200


def test_notices_that_nobody_sends_are_refused(live: Live, run: Run) -> None:
    status, _, err = run("submit", "--notify", "end,fail", "--", "work", "0", "0", "0")
    assert status == 2 and "this controller sends no notices" in err
    status, _, err = run("submit", "--notify", "often", "--", "work", "0", "0", "0")
    assert status == 2 and "notify[0]" in err
    status, _, err = run("submit", "--notify-to", "a@b\nBcc: c", "--", "work", "0", "0", "0")
    assert status == 2 and "notify_to is not an e-mail address" in err
