"""Windows by commands and requests: set, listed, lifted, and by whom."""

import time
from typing import Any

import pytest

from tests.other_user import NOBODY, as_root, as_user

from .live import Live
from .test_commands import run as run

Run = Any


def test_what_a_faulty_time_counts_from_is_told(live: Live, run: Run) -> None:
    for begin, end, since in (("-5m", "1h", "now"), ("5m", "1e400", "--from")):
        status, _, err = run("maintain", "n0", "--from", begin, "--to", end)
        assert status == 2 and f"or a time from {since} as 2h" in err


def test_windows_are_set_listed_and_lifted(live: Live, run: Run) -> None:
    assert run("windows") == (0, "no windows\n", "")
    status, out, _ = run("maintain", "n[0-1]", "--from", "2h", "--to", "4h", "--name", "switch")
    assert status == 0 and out.startswith("switch: n0, n1, ") and " to " in out
    status, out, _ = run("reserve", "--gpus", "3", "--user", "ann", "--from", "1d", "--to", "2h")
    assert status == 0 and "reservation-1: n" in out and "for ann" in out
    assert run("drain", "n1")[1].startswith("drain-n1: n1, ")
    answer = live.client.get("/v1/windows")["windows"]
    assert [own["name"] for own in answer] == ["drain-n1", "switch", "reservation-1"]
    assert answer[0]["to_s"] is None and answer[2]["users"] == ["ann"]
    assert 7100 < answer[1]["from_s"] - time.time() < 7300
    assert answer[1]["to_s"] - answer[1]["from_s"] == pytest.approx(14400)
    assert run("undrain", "n1")[0] == 0
    assert run("windows", "--lift", "switch", "--lift", "reservation-1") == (0, "no windows\n", "")


def test_what_makes_no_sense_is_refused_in_one_sentence(live: Live, run: Run) -> None:
    for words, problem in (
        (("maintain", "n7", "--to", "1h"), "there is no node 'n7'"),
        (("maintain", "n[0-", "--to", "1h"), "nodes: "),
        (("maintain", "n0", "--to", "soon"), "write 18:00 (the next)"),
        (("reserve", "n0", "--to", "1h"), "say for whom"),
        (("reserve", "--user", "a", "--to", "1h"), "name nodes, or say how many"),
        (("reserve", "--gpus", "9", "--user", "a", "--to", "1h"), "8 GPUs are in no other window"),
        (("reserve", "n0", "--tenant", "x", "--to", "1h"), "there is no tenant 'x'"),
        (("maintain", "--to", "1h"), "name nodes, a --resource or a --quota"),
        (("maintain", "--resource", "power_w", "--to", "1h"), "write power_w=N with a number"),
        (("maintain", "--resource", "x=1", "--to", "1h"), "the cluster has no 'x'"),
        (("maintain", "--quota", "x=1", "--to", "1h"), "there is no tenant 'x'"),
        (("maintain", "--quota", "x=-1", "--to", "1h"), "write x=N with a whole number from 0 on"),
        (("maintain", "--quota", "x=nan", "--to", "1h"), "write x=N with a whole number from 0 on"),
        (("windows", "--lift", "nothing"), "there is no window 'nothing'"),
    ):
        status, out, err = run(*words)
        assert (status, out) == (2, "") and problem in err, (words, err)
    assert run("drain", "n0")[0] == 0
    assert run("drain", "n0")[0] == 2  # it is drained already
    assert run("undrain", "n0")[0] == 0


@as_root
def test_only_administrators_set_windows(live: Live) -> None:
    def tries() -> list[int]:
        body = {"nodes": ["n0"], "to_s": time.time() + 60}
        return [
            live.ask("POST", "/v1/windows", body)[0],
            live.ask("POST", "/v1/windows/lift", {"name": "x"})[0],
            live.ask("GET", "/v1/windows")[0],
        ]

    assert as_user(NOBODY, tries) == [403, 403, 200]
