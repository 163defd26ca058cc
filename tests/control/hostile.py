"""Hostile sequences of events against a controller in virtual time, and what must hold whatever
they are."""

import json
import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from optsched import Elastic, Job, Node, Profile
from optsched.control.api.views import job_view
from optsched.control.controller import Controller
from optsched.control.explain.explaining import explain_job
from optsched.control.journal.events import (
    Cancelled,
    Changed,
    Held,
    Released,
    Requeued,
    Submitted,
    WindowLifted,
    WindowSet,
)
from optsched.control.journal.journal import Journal
from optsched.control.journal.state import State
from optsched.control.reloading import reload
from optsched.control.settings import (
    LabelLimits,
    LimitSettings,
    NodeSettings,
    Settings,
    SharesSettings,
    TenantSettings,
    TierSettings,
    WindowSettings,
)
from optsched.control.submission import Submission
from optsched.control.what_if.snapshot import snapshot
from optsched.executors.base import LAST_S
from optsched.model.cluster import FOR_EVER_S, Window

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
        Profile(memory_gib_per_gpu=40.0, memory_rates={3.0: 0.25}),
        Profile(gpu_memory_gib=80.0, gpu_memory_rates={10.0: 0.5}),
    ]
)
PLACES = {
    "labels": st.sampled_from([(), (), ("x",)]),
    "node_labels": st.sampled_from(
        [{}, {}, {"ib": "required"}, {"ib": "forbidden"}, {"gone": "required"}]
    ),
    "affinity": st.sampled_from([{}, {}, {"x": "node"}, {"never": "rack"}]),
    "anti_affinity": st.sampled_from([{}, {}, {"x": "node"}, {"x": "rack"}]),
    "max_nodes": st.sampled_from([None, None, 1, 2]),
}
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
        "after": st.sampled_from([(), (), (), ("j0",), ("j1",), ("j9",)]),
        **PLACES,
    }
)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "weight": st.sampled_from([0.0, 1e9]),
        "priority": st.sampled_from([-5, 10**9]),
        "tenant": st.sampled_from(["b", "gone", None]),
        "duration_s": st.sampled_from([0.001, 1e10]),
        "resources": st.sampled_from([{"licence": 2.0}, {"gone": 1.0}]),
        "deadline_s": st.sampled_from([-1e10, 1e10]),
        **PLACES,
    },
)
WINDOWS = st.builds(
    dict,
    name=st.sampled_from(["one", "two"]),
    nodes=st.sampled_from([("n0",), ("n0", "n1"), ("gone",)]),
    after_s=st.sampled_from([-1e9, -5.0, 0.0, 5.0, 60.0, 1e6, 8e9]),
    length_s=st.sampled_from([1e-3, 10.0, 3600.0, 1e10]),
    users=st.sampled_from([(), (), ("u",)]),
    resources=st.sampled_from([{}, {}, {"licence": 0.0}]),
    quotas=st.sampled_from([{}, {}, {"a": 1}, {"b": 0, "gone": 1}]),
)
EDITS = {
    "windows": {
        "windows": (
            WindowSettings(nodes=("n0",), every="day", length=3600.0),
            WindowSettings(
                every="monday", length=86400.0, resources={"licence": 0.0}, quotas={"a": 0}
            ),
        )
    },
    "rates": {
        "objective": "wct+1000*energy_cost",
        "energy_price_per_kwh": {"00:00": 0.1, "12:00": 0.0},
    },
    "tiers": {
        "tiers": (
            TierSettings(name="high", priority=10**9, preempts="never"),
            TierSettings(name="low", priority=-5, preempts="lower"),
        )
    },
    "limits": {
        "limits": LimitSettings(
            max_gpus=2,
            max_running=1,
            time_limit=5.0,
            max_gpu_hours=0.0,
            gpu_hours_per="day",
            labels={"ib": LabelLimits(max_gpus=0)},
        )
    },
    "shares": {"shares": SharesSettings(half_life=60.0)},
    "policy": {"policy": "tiresias"},
}
"""Further edits of cluster.toml, by name."""
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
        st.sampled_from(["", "", "tenants", "quota", "resources", "licences", "all", *EDITS]),
    ),
    st.tuples(st.just("reload"), st.sampled_from(["", "quota", "resources", *EDITS])),
    st.tuples(st.just("change"), st.integers(0, 5), CHANGES),
    st.tuples(st.just("requeue"), st.integers(0, 5)),
    st.tuples(st.just("window"), WINDOWS),
    st.tuples(st.just("labels"), st.sampled_from(["n0", "n1"]), st.sampled_from([(), ("ib",)])),
)
BY_USERS: dict[str, Callable[..., Any]] = {
    "hold": Held,
    "release": Released,
    "requeue": Requeued,
    "cancel": Cancelled,
}
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
        **EDITS.get(edit, {}),  # type: ignore[arg-type]
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
        if what == "run":
            self.run(rest[0])
        elif what == "wait":
            self.clock.at_s = max(
                self.clock.at_s, min(LAST_S, self.clock.at_s + rest[0])
            )  # as `SteadyClock` does
            self.run(2)
        elif what == "restart":
            self.edit = rest[0]
            self.restart()
        elif what == "reload":
            self.edit = rest[0]
            reload(self.controller, lambda: settings(self.edit), lambda changed: self.executor)
        elif not (self.of_jobs(what, *rest) or self.of_nodes(what, *rest)):
            setattr(self.executor, what, rest[0])
        self.look()

    def of_jobs(self, what: str, *rest: Any) -> bool:
        """What users do; False where it is something else."""
        live = list(self.controller.state.open)
        if what == "submit":
            self.submit(rest[0], float(rest[1]), *rest[2:])
        elif what in BY_USERS:
            if rest[0] < len(live):
                self.controller.record(BY_USERS[what](job=live[rest[0]], by="me"))
        elif what == "report":
            self.executor.reports[f"j{rest[0]}"] = rest[1]
        elif what == "change":
            self.change(*rest)
        elif what == "window":
            self.announce(**rest[0])
        else:
            return False
        return True

    def of_nodes(self, what: str, *rest: Any) -> bool:
        """What happens to nodes; False where it is something else."""
        executor = self.executor

        def other(make: Callable[[Node], Node]) -> None:
            nodes = executor.nodes
            executor.nodes = tuple(make(one) if one.name == rest[0] else one for one in nodes)

        if what == "gpus":
            other(lambda one: node(one.name, gpus=rest[1]))
        elif what == "node":
            other(lambda one: node(**{"name": one.name, **rest[1]}))
        elif what == "labels":
            other(lambda one: replace(one, labels=rest[1]))
        elif what == "gone":
            executor.nodes = tuple(one for one in executor.nodes if one.name != rest[0])
        elif what == "down":
            executor.down = {rest[0]}
        elif what == "up":
            executor.down = set()
        elif what == "stranger":
            executor.stranger(rest[0], rest[1])
        elif what == "reason":
            executor.reason = rest[0]
        else:
            return False
        return True

    def change(self, number: int, fields: dict[str, Any]) -> None:
        """What one open job asks for is changed."""
        live = list(self.controller.state.open.values())
        if number < len(live):
            known = live[number].submission
            self.controller.record(
                Changed(submission=replace(known, job=replace(known.job, **fields)))
            )

    def announce(self, after_s: float, length_s: float, **window: Any) -> None:
        """A window is announced."""
        from_s = min(LAST_S, self.clock.at_s + after_s)
        to_s = min(FOR_EVER_S, from_s + length_s)
        if from_s < to_s:
            window = Window(from_s=from_s, to_s=to_s, **window)
            self.controller.record(WindowSet(window=window, by="me"))

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
        for name in ("one", "two"):
            self.controller.record(WindowLifted(name=name, by="me"))
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
