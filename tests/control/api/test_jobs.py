"""Jobs through the API: submitted, listed, changed, and all of it in the journal."""

import os
import signal
import threading
from pathlib import Path

import pytest

from optsched.control.api.bodies import SORT
from optsched.control.api.peer import user_name
from optsched.control.api.selecting import ORDERS
from optsched.control.journal.events import Signalled
from optsched.control.journal.journal import Journal
from optsched.control.journal.state import State
from optsched.executors.base import AttemptKey

from .live import Live, until, work


def test_a_job_runs_and_is_listed_among_the_finished(live: Live) -> None:
    status, job = live.submit(0.2, name="short", gpus=2)
    assert (status, job["id"], job["min_gpus"], job["max_gpus"], job["attempts"]) == (
        201,
        "short",
        2,
        2,
        0,
    )
    done = live.wait("short", "completed")
    assert done["exit_status"] == 0 and done["ran_s"] >= 0.2 and done["remaining_s"] is None
    assert sum(slot["gpus"] for slot in done["placement"]) == 2
    finished = live.ask("GET", "/v1/jobs?finished")[1]
    assert "short" in [job["id"] for job in finished["jobs"]]
    detail = live.ask("GET", "/v1/jobs/short")[1]
    assert detail["argv"][0] == "work" and [one["exit_status"] for one in detail["attempts"]] == [0]


def test_what_was_answered_is_in_the_journal(live: Live) -> None:
    live.submit(
        name="written",
        hold=True,
        environment={"A": "ü"},
        retries=2,
        grace_s=5,
        total_steps=7,
        weight=2.5,
    )
    reader = Journal(live.settings.state / "journal", read_only=True)
    state = State()
    for entry in reader.entries():
        state.apply(entry.at_s, entry.event)
    reader.close()
    made = state.jobs["written"].submission
    assert made.environment == {"A": "ü"} and made.argv == ("work", "0.0", "0.0", "0")
    assert (made.retries, made.grace_s, made.total_steps, made.job.weight) == (2, 5.0, 7, 2.5)


def test_names_are_made_from_commands_and_never_twice(live: Live) -> None:
    def named(*argv: str) -> str:
        return str(
            live.ask("POST", "/v1/jobs", {"argv": argv, "directory": "/", "hold": True})[1]["id"]
        )

    assert [named("/usr/bin/python3.11", "runs/train net.py") for _ in range(2)] == [
        "train-net-1",
        "train-net-2",
    ]
    assert named("python", "-m", "x") == "python-1"
    assert named("./../!!!") == "job-1"
    assert live.submit(name="sweep-1", hold=True)[0] == 201
    assert named("sweep") == "sweep-2"
    status, answer = live.submit(name="sweep-1", hold=True)
    assert (status, answer) == (
        409,
        {"error": "there is, or was, a job named 'sweep-1'; choose another name"},
    )


def test_the_same_request_again_makes_no_second_job(live: Live) -> None:
    first = live.submit(hold=True, request_id="r-1")
    again = live.submit(hold=True, request_id="r-1")
    assert (first[0], again[0]) == (201, 200) and first[1]["id"] == again[1]["id"]
    other = live.ask(
        "POST", "/v1/jobs", {**work(hold=True), "argv": ["other"], "request_id": "r-1"}
    )
    assert other[0] == 409 and first[1]["id"] in other[1]["error"]


def test_the_same_request_after_a_restart_makes_no_second_job(folder: Path) -> None:
    first = Live(folder)
    name = first.submit(hold=True, request_id="lost")[1]["id"]
    first.close()
    second = Live(folder)
    try:
        assert second.submit(hold=True, request_id="lost")[1]["id"] == name
        assert second.submit(hold=True)[1]["id"] != name
    finally:
        second.close()


def test_hold_release_cancel_and_each_again(live: Live) -> None:
    live.submit(1000.0, name="long")
    live.wait("long", "running")
    for _ in range(2):
        assert live.ask("POST", "/v1/jobs/long/hold")[0] == 200
    held = live.wait("long", "held")
    assert held["reason"].endswith("holds it") and held["attempts"] == 1
    for _ in range(2):
        assert live.ask("POST", "/v1/jobs/long/release")[0] == 200
    live.wait("long", "running")
    for _ in range(2):
        assert live.ask("POST", "/v1/jobs/long/cancel")[0] == 200
    live.wait("long", "cancelled")
    assert live.ask("POST", "/v1/jobs/long/cancel")[0] == 200
    status, answer = live.ask("POST", "/v1/jobs/long/hold")
    assert status == 409 and "was cancelled" in answer["error"]
    events = [entry.event for entry in live.journal.entries()]
    kinds = [type(event).__name__ for event in events if getattr(event, "job", "") == "long"]
    assert [kinds.count(kind) for kind in ("Held", "Released", "Cancelled")] == [1, 1, 1]


def test_chosen_jobs_are_changed_at_once(live: Live) -> None:
    for name in ("many-1", "many-2", "many-3", "more-1"):
        live.submit(name=name, hold=True)
    live.submit(name="many-done")
    live.wait("many-done", "completed")
    live.ask("POST", "/v1/jobs/many-3/cancel")
    before = live.journal.last
    assert live.ask("POST", "/v1/release", {"name": "many-*", "state": "waiting"})[1]["jobs"] == []
    assert live.ask("POST", "/v1/hold", {"name": "many-*"})[1]["jobs"] == ["many-1", "many-2"]
    assert live.journal.last == before  # they were held already
    assert live.ask("POST", "/v1/cancel", {"name": "many-*", "user": "somebody"})[1]["jobs"] == []
    answer = live.ask("POST", "/v1/cancel", {"name": "many-*", "state": "held"})
    assert answer == (200, {"jobs": ["many-1", "many-2"]})
    assert [live.ask("GET", f"/v1/jobs/many-{i}")[1]["job"]["status"] for i in (1, 2)] == [
        "cancelled"
    ] * 2
    assert live.ask("GET", "/v1/jobs/more-1")[1]["job"]["status"] == "held"
    for nothing in ({}, {"all": True}):
        status, refused = live.ask("POST", "/v1/cancel", nothing)
        assert status == 422 and "say which jobs" in refused["error"]


def test_what_a_waiting_job_asks_for_is_changed(live: Live) -> None:
    live.submit(name="amended", hold=True)
    body = {"gpus": 3, "duration_s": 50.0, "limit_s": 100.0, "weight": 2.0, "retries": 4}
    status, job = live.ask("POST", "/v1/jobs/amended/change", body)
    assert status == 200 and job["max_gpus"] == 3
    assert (job["remaining_s"], job["limit_s"], job["weight"]) == (50.0, 100.0, 2.0)
    before = live.journal.last
    assert live.ask("POST", "/v1/jobs/amended/change", {"weight": 2.0})[0] == 200
    assert live.journal.last == before
    for wrong, sentence in (
        ({"gpus": 90}, "it can never run here"),
        ({"gpus": 0}, "a job with GPUs stays one, and one without too"),
        ({"deadline_s": 5.0}, "deadline_s has passed"),
        ({"weight": -1}, "weight should be at least 0"),
        ({"name": "other"}, "name is not a known field"),
    ):
        status, answer = live.ask("POST", "/v1/jobs/amended/change", wrong)
        assert status == 422 and sentence in answer["error"], answer
    assert live.journal.last == before
    live.ask("POST", "/v1/jobs/amended/release")
    live.wait("amended", "completed")
    assert live.ask("POST", "/v1/jobs/amended/change", {"weight": 1.0})[0] == 409
    live.submit(1000.0, name="busy")
    live.wait("busy", "running")
    status, answer = live.ask("POST", "/v1/jobs/busy/change", {"gpus": 2})
    assert status == 409 and "busy runs, so its gpus cannot be changed" in answer["error"]
    assert live.ask("POST", "/v1/jobs/busy/change", {"limit_s": 0.5})[0] == 200
    assert live.wait("busy", "timeout")["reason"] == "its time limit of 500 ms was reached"


def test_signals_reach_what_runs_and_nothing_else(live: Live) -> None:
    live.submit(1000.0, name="hears")
    live.wait("hears", "running")
    assert live.ask("POST", "/v1/jobs/hears/signal", {"signal": "SIGUSR1"})[0] == 200
    assert live.executor.signals[-1] == (AttemptKey("hears", 1), signal.SIGUSR1)
    last = [entry.event for entry in live.journal.entries() if isinstance(entry.event, Signalled)]
    assert (last[-1].signal, last[-1].by) == ("USR1", user_name(os.geteuid()))
    for wrong in ("STOP", "10", "", "usr1", None):
        assert live.ask("POST", "/v1/jobs/hears/signal", {"signal": wrong})[0] == 422
    live.ask("POST", "/v1/jobs/hears/cancel")
    live.wait("hears", "cancelled")
    status, answer = live.ask("POST", "/v1/jobs/hears/signal", {"signal": "HUP"})
    assert status == 409 and "is not running" in answer["error"]


def test_requeued_jobs_wait_again(live: Live) -> None:
    live.submit(name="once")
    live.wait("once", "completed")
    assert live.ask("POST", "/v1/jobs/once/requeue")[0] == 200
    assert live.wait("once", "completed")["attempts"] == 2
    live.submit(name="idle", hold=True)
    status, answer = live.ask("POST", "/v1/jobs/idle/requeue")
    assert status == 409 and "it is on hold: release it" in answer["error"]
    body = {"name": "once", "state": "completed"}
    assert live.ask("POST", "/v1/requeue", body)[1] == {"jobs": ["once"]}
    until(lambda: live.ask("GET", "/v1/jobs/once")[1]["job"]["attempts"] == 3)
    live.wait("once", "completed")


def test_after_waits_and_says_so(live: Live) -> None:
    live.submit(1000.0, name="before")
    status, job = live.submit(name="behind", after=["before"])
    assert status == 201 and job["reason"] == "it comes after before"
    assert live.submit(after=["nothing"])[1] == {"error": "after: there is no job 'nothing'"}
    live.ask("POST", "/v1/jobs/before/cancel")
    assert (
        live.wait("behind", "cancelled")["reason"] == "before, which it comes after, was cancelled"
    )
    assert live.submit(after=["before"])[1] == {
        "error": "after: before was cancelled, so this would never start"
    }


def test_pages_show_every_job_once(live: Live) -> None:
    names = {live.submit(name=f"page-{i}", hold=True)[1]["id"] for i in range(7)}
    for finished in (False, True):
        if finished:
            for name in sorted(names):
                live.ask("POST", f"/v1/jobs/{name}/cancel")
        found, page = [], ""
        while True:
            flag = "finished=true&" if finished else ""
            answer = live.ask("GET", f"/v1/jobs?{flag}limit=2{page}")[1]
            assert len(answer["jobs"]) <= 2
            found += answer["jobs"]
            if answer["next"] is None:
                break
            page = f"&page={answer['next']}"
        assert len(found) == answer["total"] and names <= {job["id"] for job in found}
        assert len({job["id"] for job in found}) == len(found)
        key = "finished_s" if finished else "submit_s"
        times = [job[key] for job in found]
        assert times == sorted(times, reverse=finished)


def test_every_order_that_may_be_asked_for_is_known() -> None:
    assert SORT.split("|") == [*ORDERS]


@pytest.mark.parametrize("sort", [*ORDERS])
def test_every_order_is_kept_over_pages(live: Live, sort: str) -> None:
    if live.ask("GET", "/v1/jobs?name=sorted-*&limit=1")[1]["total"] == 0:
        for i in range(5):
            live.submit(name=f"sorted-{i}", hold=True, gpus=1 + i % 2, weight=1.0 + i // 2)
    whole = {}
    for direction in ("", "-"):
        seen: list[str] = []
        page = ""
        while True:
            answer = live.ask(
                "GET", f"/v1/jobs?name=sorted-*&sort={direction}{sort}&limit=2{page}"
            )[1]
            seen += [job["id"] for job in answer["jobs"]]
            if answer["next"] is None:
                break
            page = f"&page={answer['next']}"
        assert len(seen) == answer["total"] == len(set(seen)) == 5
        whole[direction] = seen
    assert whole[""] == whole["-"][::-1]
    field = {"gpus": "max_gpus", "weight": "weight", "name": "id"}.get(sort)
    if field is not None:
        values = [live.ask("GET", f"/v1/jobs/{name}")[1]["job"][field] for name in whole[""]]
        assert values == sorted(values)


def test_jobs_are_picked_by_name_status_user_and_tenant(live: Live) -> None:
    for name in ("pick-1", "pick-2", "pick-22"):
        live.submit(name=name, hold=True)
    live.submit(name="pick-done")
    live.wait("pick-done", "completed")

    def picked(query: str) -> set[str]:
        return {job["id"] for job in live.ask("GET", f"/v1/jobs?limit=1000&{query}")[1]["jobs"]}

    everything = {"pick-1", "pick-2", "pick-22", "pick-done"}
    assert picked("name=pick-?") == {"pick-1", "pick-2"}
    assert picked("name=pick-*&state=held,completed") == everything
    assert picked("name=pick-*&finished") == picked("name=pick-*&state=completed") == {"pick-done"}
    assert picked("name=pick-*&state=waiting") == picked("name=pick-*&tenant=none") == set()
    mine = live.ask("GET", "/v1/jobs/pick-1")[1]["job"]["user"]
    assert picked(f"name=pick-2*&user={mine}") == {"pick-2", "pick-22"}
    assert picked("name=pick-2*&user=somebody") == set()
    assert picked("name=[") == picked(f"name={'*a' * 120}*b") == set()


def test_sizes_types_and_profiles_reach_the_round(live: Live) -> None:
    live.submit(
        name="elastic",
        gpus={"min": 2, "max": 4},
        gpu_types=["a"],
        cpus_per_gpu=2,
        memory_gib_per_gpu=3,
        gpu_memory_gib=0,
        hold=True,
        profile={
            **{"checkpoint_s": 4, "rate": {"a": 0.5, "b": 1}, "memory_gib_per_gpu": 8},
            "memory_rates": {"4": 0.5},
        },
    )
    live.submit(name="cores", gpus=0, cpus=3, memory_gib=2, hold=True)
    live.submit(name="bare", gpus=0, hold=True, argv=["true"])
    jobs = live.loop.ask(
        lambda controller: {name: job.submission for name, job in controller.state.jobs.items()}
    )
    elastic, cores = jobs["elastic"].job, jobs["cores"].job
    assert elastic.profile.rate == {"a": 0.5} and elastic.profile.cpus_per_gpu == {2: 1.0}
    assert (elastic.profile.memory_gib_per_gpu, elastic.profile.checkpoint_s) == (3.0, 4.0)
    assert not elastic.profile.memory_rates, "its user says how much it takes"
    assert (elastic.gpus.min, elastic.gpus.max) == (2, 4)
    assert (cores.gpus, cores.cpus, cores.memory_gib) == (0, 3, 2.0)
    assert jobs["bare"].job.cpus == 1
    unstated = live.ask("POST", "/v1/jobs", {"argv": ["x"], "directory": "/", "hold": True})[1][
        "id"
    ]
    made = live.loop.ask(lambda controller: controller.state.jobs[unstated].submission)
    assert made.job.duration_s == 3600.0 and made.estimate == "nobody stated how long it runs"


def test_nodes_rounds_and_state_agree(live: Live) -> None:
    live.submit(1000.0, name="holder", gpus=3)
    live.wait("holder", "running")
    live.submit(0.1, name="another")
    live.wait("another", "completed")
    nodes = live.ask("GET", "/v1/nodes")[1]["nodes"]
    held = [
        (node["name"], one["gpus"])
        for node in nodes
        for one in node["holders"]
        if one["job"] == "holder"
    ]
    assert sum(gpus for _, gpus in held) == 3
    assert all(
        node["gpus_in_use"] == sum(one["gpus"] for one in node["holders"]) <= node["gpus"]
        for node in nodes
    )
    state = live.ask("GET", "/v1/state")[1]
    assert (state["nodes"], state["gpus"], state["gpus_usable"]) == (2, 8, 8)
    rounds = live.ask("GET", "/v1/rounds?limit=2")[1]["rounds"]
    numbers = [one["number"] for one in rounds]
    assert numbers == sorted(numbers, reverse=True) and len(numbers) == 2
    older = live.ask("GET", f"/v1/rounds?limit=1000&before={numbers[-1]}")[1]["rounds"]
    assert [one["number"] for one in older] == list(range(numbers[-1] - 1, 0, -1))
    live.ask("POST", "/v1/jobs/holder/cancel")
    live.wait("holder", "cancelled")
    until(lambda: live.ask("GET", "/v1/state")[1]["gpus_in_use"] == 0)


@pytest.mark.parametrize("stop", [True, False])
def test_where_nothing_can_be_written_nothing_is_done(folder: Path, stop: bool) -> None:
    live = Live(folder)
    try:
        live.submit(name="sound", hold=True)
        if stop:
            live.loop.stop()
        else:
            live.loop.ask(
                lambda controller: controller.journal._file.execute("PRAGMA query_only=ON")
            )
        status, answer = live.submit(name="unwritten", hold=True)
        assert (
            status == 503
            and ("stopping" if stop else "could not be written down") in answer["error"]
        )
        live.thread.join(30.0)
        assert live.ask("GET", "/v1/state")[0] == 503
    finally:
        live.close()
    reader = Journal(folder / "journal", read_only=True)
    assert "unwritten" not in str([entry.event for entry in reader.entries()])
    reader.close()


def test_what_a_busy_controller_did_not_get_to_is_not_done_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = Live(folder)
    try:
        live.submit(name="warm", hold=True)
        go = threading.Event()
        threading.Thread(
            target=lambda: live.loop.ask(lambda controller: go.wait(30.0)), daemon=True
        ).start()
        ask = live.loop.ask
        monkeypatch.setattr(live.loop, "ask", lambda call: ask(call, 0.3))
        status, answer = live.submit(name="late", hold=True)
        assert status == 503 and "busy" in answer["error"]
        go.set()
        monkeypatch.undo()
        assert live.ask("GET", "/v1/jobs/late")[0] == 404
    finally:
        live.close()


def test_a_gang_is_on_one_node_unless_asked_otherwise(folder: Path) -> None:
    """One GPU is free on each of two nodes of four: two of them are no place for a command that
    runs once."""
    live = Live(folder)
    try:
        for name in ("left", "right"):
            live.submit(1000.0, name=name, gpus=3, preemptible=False, duration_s=900.0)
            live.wait(name, "running")
        asked = {"submit": {"gpus": 2, "duration_s": 10.0}, "time_limit_s": 30}
        status, ahead = live.ask("POST", "/v1/what-if", asked)
        assert status == 200 and ahead["after"]["start_s"] > live.clock.now_s() + 600
        live.submit(10.0, name="whole", gpus=2)
        live.submit(10.0, name="range", gpus={"min": 2, "max": 4})
        live.submit(1.0, name="split", gpus=2, min_nodes=2)
        split = live.wait("split", "running", "completed")
        assert [(slot["node"], slot["gpus"]) for slot in split["placement"]] == [
            ("n0", 1),
            ("n1", 1),
        ]
        live.submit(1.0, name="either", gpus=2, min_nodes=1, max_nodes=2)
        assert len(live.wait("either", "completed")["placement"]) == 2
        for name in ("whole", "range"):
            found = live.ask("GET", f"/v1/jobs/{name}")[1]["job"]
            assert (found["status"], found["placement"]) == ("waiting", [])
            said = " ".join(live.ask("GET", f"/v1/jobs/{name}/explain")[1]["sentences"])
            assert (
                "It needs 2 GPUs on one node; 2 of the 8 a GPUs are free, but scattered over 2 "
                "nodes" in said
            )
        live.ask("POST", "/v1/jobs/left/cancel")
        assert len(live.wait("whole", "running")["placement"]) == 1
        assert len(live.wait("range", "running", "completed")["placement"]) == 1
    finally:
        live.close()
