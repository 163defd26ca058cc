"""Hostile sequences of events against a controller in virtual time, and what must hold whatever
they are."""

import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from optsched import Elastic, Job, Node, Profile
from optsched.control.api.views import job_view
from optsched.control.controller import Controller
from optsched.control.explain.explaining import explain_job
from optsched.control.journal.events import Cancelled, Held, Released, Submitted
from optsched.control.journal.journal import Journal
from optsched.control.journal.state import State
from optsched.control.settings import NodeSettings, Settings, TenantSettings
from optsched.control.submission import Submission
from optsched.control.what_if.snapshot import snapshot
from optsched.executors.base import LAST_S

from .virtual import VirtualClock, VirtualExecutor

MEMORY = "/dev/shm"
"""Where a journal is written at once."""
NUMBERS = st.sampled_from(
    [
        0,
        -1,
        1,
        3,
        1000,
        1e3,
        2.5,
        10**12,
        10**30,
        1e308,
        math.inf,
        -math.inf,
        math.nan,
        1.7e9,
        1.7e12,
        9.9e9,
        "7",
        None,
        True,
        [],
        {},
    ]
)
FIELDS = st.sampled_from(
    [
        "step",
        "at_s",
        "first_step",
        "began_s",
        "total_steps",
        "saved_step",
        "saved_at_s",
        "checkpoint_s",
        "restore_s",
        "saves",
    ]
)
REPORTS = st.dictionaries(FIELDS, NUMBERS, max_size=6).map(
    lambda said: {"step": 5, "at_s": 1500.0, **said}
)
GPUS = st.one_of(
    st.integers(0, 8),
    st.builds(
        lambda low, more: Elastic(min=low, max=low + more), st.integers(1, 4), st.integers(0, 4)
    ),
)
PROFILES = st.sampled_from(
    [
        Profile(),
        Profile(checkpoint_s=1.0, restore_s=1.0),
        Profile(checkpoint_s=1e9, startup_s=1e9),
        Profile(rate={"b": 1.0}),
        Profile(memory_gib_per_gpu=40.0),
        Profile(name="model", model_gib=1.0, fetch_s=1.0),
        Profile(name="model", model_gib=2.0, fetch_s=1.0),
        Profile(checkpoint_every_s=1e9),
        Profile(cpus_per_gpu={4: 1.0}),
    ]
)
JOBS = st.fixed_dictionaries(
    {
        "gpus": GPUS,
        "weight": st.sampled_from([0.0, 1.0, 1e-9, 1e9]),
        "priority": st.sampled_from([0, -5, 10**9]),
        "duration_s": st.sampled_from([0.001, 5.0, 60.0, 3600.0, 1e9, 1e10]),
        "profile": PROFILES,
        "tenant": st.sampled_from([None, None, "a", "b", "gone"]),
        "preemptible": st.booleans(),
        "resources": st.sampled_from([{}, {}, {"licence": 1.0}, {"licence": 1e6}, {"gone": 1.0}]),
        "deadline_s": st.sampled_from([None, None, 1.0, 1e10]),
        "min_run_s": st.sampled_from([0.0, 0.0, 1e10]),
        "max_preemptions": st.sampled_from([None, None, 0, 1]),
    }
)
EVENTS = st.one_of(
    st.tuples(
        st.just("submit"),
        JOBS,
        st.integers(1, 60),
        st.sampled_from([0.0, 1.0, -1.0]),
        st.sampled_from([0, 0, 3]),
        st.sampled_from([None, 1, 10**12]),
    ),
    st.tuples(
        st.just("submit"),
        JOBS,
        st.integers(1, 60),
        st.sampled_from([0.0, 1.0, -1.0]),
        st.sampled_from([0, 0, 3]),
        st.sampled_from([None, 1, 10**12]),
    ),
    st.tuples(st.just("run"), st.integers(1, 30)),
    st.tuples(st.just("run"), st.integers(1, 30)),
    st.tuples(st.just("report"), st.integers(0, 5), REPORTS),
    st.tuples(st.just("reason"), st.sampled_from([None, "a\ud800", "\x00", "x" * 5000, "é"])),
    st.tuples(st.sampled_from(["hold", "release", "cancel"]), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.sampled_from([60.0, 86400.0, 40 * 86400.0, 3e9])),
    st.tuples(st.just("gpus"), st.sampled_from(["n0", "n1"]), st.integers(0, 8)),
    st.tuples(st.just("gone"), st.sampled_from(["n0", "n1"])),
    st.tuples(
        st.just("node"),
        st.sampled_from(["n0", "n1"]),
        st.sampled_from(
            [
                {"memory_gib": math.nan},
                {"memory_gib": -1.0},
                {"memory_gib": 1.0},
                {"cpus": 1},
                {"gpu_type": "b"},
                {"gpus": 10**9},
                {"name": ""},
            ]
        ),
    ),
    st.tuples(st.just("down"), st.sampled_from(["n0", "n1"])),
    st.tuples(st.just("up")),
    st.tuples(st.sampled_from(["silent", "deaf", "refuses"]), st.booleans()),
    st.tuples(st.just("stranger"), st.sampled_from(["n0", "n1"]), st.integers(1, 4)),
    st.tuples(
        st.just("restart"),
        st.sampled_from(["", "", "tenants", "quota", "resources", "licences", "all"]),
    ),
)
HISTORIES = st.lists(EVENTS, min_size=3, max_size=14)


def node(name: str, **more: Any) -> Node:
    return Node(
        **{"name": name, "gpu_type": "a", "gpus": 4, "cpus": 16, "memory_gib": 64.0, **more}
    )


def settings(edit: str = "") -> Settings:
    """cluster.toml as it was, or after an edit."""
    quota = 1 if edit in ("quota", "all") else 6
    tenants = (
        []
        if edit == "tenants"
        else [
            TenantSettings(name="a", gpu_quota=quota, borrow_gpus=2),
            TenantSettings(name="b", parent="a" if edit == "quota" else None, gpu_quota=quota),
        ]
    )
    licences = (
        {} if edit in ("resources", "all") else {"licence": 0.5 if edit == "licences" else 2.0}
    )
    return Settings(
        format="optsched-cluster/1",
        budget=60.0,
        nodes=(NodeSettings(name="n[0-1]", gpu_type="a", gpus=4),),
        tenants=tuple(tenants),
        resources=licences,
    )


class Hostile:
    """One history. Parts of turns that fail are collected in `bugs`, jobs that rounds were decided
    without in `left_out`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = VirtualClock()
        self.executor = VirtualExecutor((node("n0"), node("n1")), self.clock)
        self.bugs: list[str] = []
        self.edit = ""
        self.names: list[str] = []
        self.controller = self._new()

    def _new(self) -> Controller:
        found = Controller(
            settings(self.edit), self.executor, Journal(self.folder / "journal"), self.clock
        )
        found.bug = lambda what, error: self.bugs.append(f"{what}: {type(error).__name__}: {error}")
        return found

    def restart(self) -> None:
        """The next controller knows what the last one did."""
        before = told(self.controller.state)
        self.controller.journal.close()
        self.controller = self._new()
        assert told(self.controller.state) == before

    def run(self, seconds: float, turn_s: float = 1.0) -> None:
        end_s = self.clock.at_s + seconds
        while self.clock.at_s < end_s:
            self.controller.step()
            self.clock.at_s += turn_s
        self.controller.step()

    def submit(
        self,
        demands: dict[str, Any],
        seconds: float,
        saves_s: float,
        status: int,
        steps: int | None,
    ) -> str:
        name = f"j{len(self.names)}"
        if demands["gpus"] == 0:
            demands = {**demands, "cpus": 2, "profile": Profile()}
        self.controller.record(
            Submitted(
                submission=Submission(
                    job=Job(**{"id": name, "user": "u", **demands}),
                    argv=("work", str(seconds), str(saves_s), str(status)),
                    directory="/",
                    grace_s=6.0,
                    retries=1,
                    total_steps=steps,
                )
            )
        )
        self.names.append(name)
        return name

    def do(self, what: str, *rest: Any) -> None:
        """One event."""
        executor = self.executor
        if what == "submit":
            self.submit(rest[0], float(rest[1]), *rest[2:])
        elif what == "run":
            self.run(rest[0])
        elif what == "report":
            executor.reports[f"j{rest[0]}"] = rest[1]
        elif what in ("hold", "release", "cancel"):
            live = list(self.controller.state.open)
            if rest[0] < len(live):
                kinds = {"hold": Held, "release": Released, "cancel": Cancelled}
                self.controller.record(kinds[what](job=live[rest[0]], by="me"))
        elif what == "wait":
            self.clock.at_s = max(
                self.clock.at_s, min(LAST_S, self.clock.at_s + rest[0])
            )  # as `SteadyClock` does
            self.run(2)
        elif what == "gpus":
            executor.nodes = tuple(
                node(name, gpus=rest[1]) if name == rest[0] else one
                for one in executor.nodes
                for name in (one.name,)
            )
        elif what == "gone":
            executor.nodes = tuple(one for one in executor.nodes if one.name != rest[0])
        elif what == "node":
            executor.nodes = tuple(
                node(**{"name": rest[0], **rest[1]}) if one.name == rest[0] else one
                for one in executor.nodes
            )
        elif what == "down":
            executor.down = {rest[0]}
        elif what == "up":
            executor.down = set()
        elif what == "stranger":
            executor.stranger(rest[0], rest[1])
        elif what == "reason":
            executor.reason = rest[0]
        elif what == "restart":
            self.edit = rest[0]
            self.restart()
        else:
            setattr(executor, what, rest[0])
        self.look()

    def look(self) -> None:
        """What users ask is answered in any state, and can be sent."""
        now_s = self.clock.at_s
        seen = snapshot(self.controller)
        for job in self.controller.state.jobs.values():
            shown = job_view(self.controller, job, now_s)
            json.dumps(shown.reason, ensure_ascii=False).encode()
            assert explain_job(seen, job.id).sentences

    def calm(self) -> None:
        """Hostile input stops: nodes and cluster.toml are as they were, strangers are gone."""
        executor = self.executor
        executor.silent = executor.deaf = executor.refuses = False
        executor.down, executor.reason = set(), None
        executor.strangers.clear()
        executor.reports.clear()
        executor.nodes = (node("n0"), node("n1"))
        self.edit = ""
        self.restart()


def told(state: State) -> dict[str, Any]:
    """What a state says of jobs and attempts."""
    return {
        name: (
            job.status,
            job.left_s,
            job.profile,
            job.held,
            job.reason,
            job.finished_s,
            job.preemptions,
            job.failures,
            job.faults,
            job.ready_s,
            [(one.key, one.ended, one.lost, one.started_s) for one in job.attempts],
        )
        for name, job in state.jobs.items()
    }


def check_history(events: list[Any]) -> None:
    """What must hold whatever happens: no turn fails, no GPU is given twice (the executor sees to
    that), a restart changes nothing, each job ends or is kept for a reason that is told, and a
    plain job completes afterwards."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None) as folder:
        lab = Hostile(Path(folder))
        for what, *rest in events:
            lab.do(what, *rest)
        assert not lab.bugs, lab.bugs
        lab.calm()
        for job in list(lab.controller.state.open):
            lab.controller.record(Cancelled(job=job, by="me"))
        lab.run(40.0)
        plain = lab.submit({"gpus": 8, "duration_s": 5.0}, 5.0, 1.0, 0, None)
        lab.run(90.0)
        state = lab.controller.state
        assert state.jobs[plain].status == "completed", (state.jobs[plain], lab.controller.left_out)
        assert not state.open
        assert all(process.ended_s is not None for process in lab.executor.processes.values())
        assert not lab.bugs, lab.bugs
        lab.restart()
        lab.controller.journal.close()
