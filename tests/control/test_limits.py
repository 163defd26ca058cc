"""How many jobs of a user and of a tenant may wait and run, and GPUs be held: refused where work is
accepted, kept waiting where it starts."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Elastic, Job, Profile
from optsched.control.api.views import job_view
from optsched.control.budgets_left import BudgetView, budgets_view
from optsched.control.caps import Cap
from optsched.control.journal.events import Cancelled, WindowSet
from optsched.control.learned import NEVER_S
from optsched.control.limits import _last_in_the_way, why_refused
from optsched.control.settings import (
    LabelLimits,
    LimitSettings,
    Settings,
    TenantSettings,
    UserLimits,
)
from optsched.control.what_if.future import outlook
from optsched.control.what_if.snapshot import snapshot
from optsched.model.cluster import Window

from .hostile import MEMORY, Hostile
from .hostile import settings as cluster_settings

TENANTS = (TenantSettings(name="a", max_running=2, max_queued=3), TenantSettings(name="b"))
JOBS = st.fixed_dictionaries(
    {
        "gpus": st.one_of(st.integers(1, 3), st.just(Elastic(min=1, max=4))),
        "user": st.sampled_from(["ann", "bob"]),
        "tenant": st.sampled_from([None, "a"]),
        "duration_s": st.sampled_from([5.0, 60.0]),
        "weight": st.sampled_from([1.0, 50.0]),
        "priority": st.sampled_from([0, 1]),
    }
)


def limited(**more: Any) -> Settings:
    limits = LimitSettings(**{"max_running": 3, "max_gpus": 4, **more})
    limits.users.setdefault("odd", UserLimits(max_gpus=7))
    return cluster_settings().model_copy(update={"limits": limits, "tenants": TENANTS})


class Limited(Hostile):
    """A lab with limits, in which nothing ever goes beyond them."""

    def __init__(self, folder: Path, how: Settings) -> None:
        super().__init__(folder)
        self.limit(how)

    def limit(self, how: Settings) -> None:
        self.controller.settings = how
        self.controller.tenants = tuple(tenant.tenant() for tenant in how.tenants)

    def held(self, **whose: str) -> list[int]:
        """GPUs of each running job of a user or tenant."""
        (what, name), *_ = whose.items()
        return [
            attempt.mode.gpus
            for attempt in self.controller.state.live_attempts()
            if getattr(self.controller.state.jobs[attempt.key.job].submission.job, what) == name
        ]

    def why(self, name: str) -> str:
        job = self.controller.state.jobs[name]
        return job_view(self.controller, job, self.clock.at_s).reason or ""

    def job(self, user: str = "ann", seconds: float = 50.0, **more: Any) -> str:
        demands = {"gpus": 1, "duration_s": seconds, "user": user, **more}
        return self.submit(demands, seconds, 0.0, 0, None)


@pytest.fixture
def lab(tmp_path: Path) -> Limited:
    return Limited(tmp_path, limited())


@given(st.lists(st.one_of(JOBS, st.integers(1, 20)), min_size=4, max_size=20))
@settings(max_examples=25)
def test_nothing_goes_beyond_a_limit(events: list[Any]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        lab = Limited(Path(folder), limited())
        for event in events:
            if isinstance(event, int):
                for _ in range(event):
                    lab.run(0)
                    for user in ("ann", "bob"):
                        assert len(lab.held(user=user)) <= 3 and sum(lab.held(user=user)) <= 4
                    assert len(lab.held(tenant="a")) <= 2
                    lab.clock.at_s += 1.0
            else:
                lab.submit(event, event["duration_s"], 1.0, 0, None)
        lab.run(600, turn_s=2.0)
        assert not lab.controller.state.open and not lab.bugs
        lab.controller.journal.close()


def test_those_that_wait_are_told_why_and_start_in_turn(lab: Limited) -> None:
    names = [lab.job() for _ in range(5)]
    lab.job("bob")
    lab.run(3)
    assert len(lab.held(user="ann")) == 3 and len(lab.held(user="bob")) == 1
    assert lab.why(names[3]).startswith("ann may run 3 jobs at once (max_running in cluster.toml)")
    lab.run(60)
    assert len(lab.held(user="ann")) == 2


def test_gpus_that_do_not_fit_let_smaller_jobs_past(lab: Limited) -> None:
    lab.job(gpus=3)
    large, small = lab.job(gpus=2), lab.job(gpus=1)
    lab.run(3)
    state = lab.controller.state
    assert state.jobs[large].live is None and state.jobs[small].live is not None
    assert "ann may hold 4 GPUs at once" in lab.why(large)


def test_an_elastic_job_grows_into_what_is_left(lab: Limited) -> None:
    name = lab.job(gpus=Elastic(min=1, max=8), seconds=500.0)
    lab.run(5)
    assert lab.held(user="ann") == [4]
    lab.limit(limited(users={"ann": UserLimits(max_gpus=8)}))
    lab.controller._due = True
    lab.run(20)
    assert lab.held(user="ann") == [8] and lab.controller.state.jobs[name].status == "running"


def test_an_elastic_job_has_a_size_at_which_it_can_start(lab: Limited) -> None:
    lab.job("odd", gpus=Elastic(min=1, max=8), seconds=500.0)
    lab.run(5)
    assert lab.held(user="odd") == [4]


def test_a_lower_limit_ends_nothing(lab: Limited) -> None:
    for _ in range(3):
        lab.job(seconds=100.0)
    lab.run(3)
    lab.limit(limited(max_running=1, max_gpus=1))
    late = lab.job()
    lab.run(20)
    assert len(lab.held(user="ann")) == 3 and "may run 1 job " in lab.why(late)


def test_who_waits_for_a_window_takes_nobody_s_turn(lab: Limited) -> None:
    tenants = (TenantSettings(name="a", gpu_quota=4),)
    lab.limit(limited().model_copy(update={"tenants": tenants}))
    for name, most in (("day", 3), ("night", 2)):
        window = Window(from_s=0.0, to_s=lab.clock.at_s + 1e4, name=name, quotas={"a": most})
        lab.controller.record(WindowSet(window=window, by="root"))
    large, small = lab.job(gpus=4, tenant="a"), lab.job(gpus=1, tenant="a")
    lab.run(5)
    assert lab.held(user="ann") == [1] and lab.why(small) == ""
    assert lab.why(large).startswith("its tenant a may hold 2 GPUs while night lasts and holds 1")


@pytest.mark.parametrize(("begins_s", "longest_s"), [(0.0, 1.0), (30.0, 60.0)])
def test_who_waits_for_nodes_in_maintenance_takes_nobody_s_turn(
    lab: Limited, begins_s: float, longest_s: float
) -> None:
    """The first needs both nodes, of which one is not there, or not for as long as it runs."""
    lab.limit(limited(max_running=1, max_gpus=8))
    at_s = lab.clock.at_s
    window = Window(nodes=("n1",), from_s=at_s + begins_s, to_s=at_s + 1e4)
    lab.controller.record(WindowSet(window=window, by="root"))
    unsaved = Profile(checkpoint_every_s=NEVER_S)
    wide = lab.job(gpus=8, max_nodes=2, seconds=longest_s, profile=unsaved)
    fits = lab.job(seconds=10.0)
    lab.run(3)
    reason = lab.why(wide)
    assert ("run into a window" if begins_s else "closes n1 to it") in reason
    assert lab.why(fits) == ""
    assert lab.held(user="ann") == [1] and not lab.bugs


def test_what_may_not_wait_is_refused(lab: Limited) -> None:
    how = limited(max_queued=2)
    state = lab.controller.state

    def refused(user: str, tenant: str | None, privileged: bool = False, gpus: int = 1) -> Any:
        job = Job(id="new", user=user, tenant=tenant, gpus=gpus, duration_s=1.0)
        return why_refused(how, state, job, privileged=privileged)

    assert refused("ann", None) is None
    for _ in range(2):
        lab.job()
    assert refused("ann", None).startswith("ann has 2 jobs waiting or on hold, and may have 2")
    assert refused("ann", None, privileged=True) is None and refused("bob", None) is None
    for user in ("bob", "cyd", "dan"):
        lab.job(user, tenant="a")
    assert refused("eve", "a").startswith("tenant a has 3 jobs")
    job = Job(id="sweep-0", user="eve", duration_s=1.0)
    many = why_refused(how, state, job, privileged=False, jobs=9)
    assert many == (
        "eve has 0 jobs waiting or on hold, and may have 2 (max_queued in cluster.toml): 9 more "
        "are too many; submit 2 at a time"
    )
    assert "it needs 5 GPUs, and ann may hold 4" in refused("ann", None, True, gpus=5)


def test_who_looks_ahead_sees_turns(lab: Limited) -> None:
    lab.limit(limited(max_gpus=None))
    first = [lab.job(seconds=100.0), lab.job(seconds=50.0), lab.job(seconds=80.0)]
    lab.run(3)
    late = [lab.job(seconds=30.0) for _ in range(2)]
    free = lab.job("bob", seconds=30.0)
    lab.run(2)
    seen = snapshot(lab.controller)
    assert seen.turns == {late[0]: (first[1],), late[1]: (first[2],)}
    ahead = outlook(seen)
    assert ahead.instance.job[late[0]].after == (first[1],) and not ahead.left_out
    assert ahead.instance.job[free].after == ()
    assert any("limits" in note for note in ahead.notes)
    lab.controller.record(Cancelled(job=first[1], by="me"))
    assert outlook(snapshot(lab.controller)).instance.job[late[0]].after == ()


def test_turns_of_gpus(lab: Limited) -> None:
    lab.limit(limited(max_running=None))
    wide, narrow = lab.job(gpus=3, seconds=40.0), lab.job(gpus=1, seconds=90.0)
    lab.run(3)
    two, one = lab.job(gpus=2), lab.job(gpus=2)
    seen = snapshot(lab.controller)
    assert seen.turns == {two: (wide,), one: (narrow,)}


DAY_S = 86400.0
GROUP = (
    TenantSettings(name="group", max_gpu_hours=0.5),
    TenantSettings(name="a", parent="group"),
    TenantSettings(name="b", parent="a"),
)


def left(lab: Limited, user: str | None) -> list[Any]:
    """Whose budgets there are, and of each all, what is used and expected, and what is left,
    GPU-seconds."""
    return [
        (row.user, row.tenant, *(round(3600 * hours) for hours in hours_of(row)))
        for row in budgets_view(lab.controller, user).rows
    ]


def hours_of(row: BudgetView) -> tuple[float, ...]:
    return row.gpu_h, row.used_gpu_h + row.expected_gpu_h, row.left_gpu_h


def budgeted(**more: Any) -> Settings:
    limits = LimitSettings(**{"max_gpu_hours": 0.1, "gpu_hours_per": "day", **more})
    return cluster_settings().model_copy(update={"limits": limits, "tenants": GROUP})


@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.sampled_from(["ann", "bob"]),
                st.sampled_from([None, "a", "b", "group"]),
                st.sampled_from([1, 2, 4]),
                st.integers(1, 400),
            ),
            st.integers(1, 200),
        ),
        max_size=15,
    )
)
@settings(max_examples=12)
def test_no_budget_is_gone_beyond(events: list[Any]) -> None:
    """With run times that are believed as they are; what fits is let through."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        lab = Limited(Path(folder), budgeted(max_gpu_hours=0.3, users={"bob": UserLimits()}))
        lab.clock.at_s = 20_000 * DAY_S
        for event in events:
            if isinstance(event, int):
                lab.run(event)
            else:
                user, tenant, gpus, seconds = event
                lab.job(user, float(seconds), tenant=tenant, gpus=gpus)
        lab.run(2500, turn_s=5.0)
        now_s, state = lab.clock.at_s, lab.controller.state
        assert now_s < 20_001 * DAY_S and not lab.bugs
        used = lab.controller.meter.spent(20_000 * DAY_S, now_s)
        assert not any(job.live for job in state.open.values())
        of_ann, of_bob = (
            sum(gpu_s for (user, _), gpu_s in used.items() if user == name)
            for name in ("ann", "bob")
        )
        of_group = sum(gpu_s for (_, tenant), gpu_s in used.items() if tenant)
        slack = 8 * 5.0  # GPUs times how late an end may be seen
        assert max(of_ann, of_bob) <= 0.3 * 3600 + slack and of_group <= 0.5 * 3600 + slack
        for job in state.open.values():
            noun = job.submission.job
            needs = job.left_s * noun.gpus  # type: ignore[operator]
            spent = of_ann if noun.user == "ann" else of_bob
            over = spent + needs > 0.3 * 3600
            assert over or (noun.tenant is not None and of_group + needs > 0.5 * 3600)
        lab.controller.journal.close()


def test_a_budget_keeps_jobs_waiting_until_the_next_period(lab: Limited) -> None:
    lab.limit(budgeted())
    lab.clock.at_s = 20_000 * DAY_S
    first, late = lab.job(seconds=200.0), lab.job(seconds=200.0)
    small, other = lab.job(seconds=100.0), lab.job("bob", seconds=200.0)
    lab.run(3)
    state = lab.controller.state
    assert all(state.jobs[name].live is not None for name in (first, small, other))
    assert lab.why(late) == (
        "ann may use 0.1 GPU-hours a day (max_gpu_hours in cluster.toml): 0 are used, 0.06 are "
        "expected of jobs that run or come before it, and 0.06 of it; the next day begins on "
        "2024-10-05"
    )
    assert left(lab, "ann") == [("ann", None, 360, 300, 60), (None, "group", 1800, 0, 1800)]
    seen = outlook(snapshot(lab.controller))
    assert "max_gpu_hours" in seen.left_out[late] and not snapshot(lab.controller).turns
    lab.run(300)
    assert state.jobs[small].finished == "completed" and state.jobs[late].live is None
    used_h = budgets_view(lab.controller, "ann").rows[0].used_gpu_h
    assert 300 <= 3600 * used_h <= 310 and left(lab, "ann")[0][3:] == (
        round(3600 * used_h),
        round(360 - 3600 * used_h),
    )
    lab.clock.at_s = 20_001 * DAY_S
    lab.run(70)
    assert state.jobs[late].live is not None and not lab.bugs


def test_what_runs_beyond_a_budget_goes_on_and_a_larger_one_is_used_at_once(lab: Limited) -> None:
    lab.limit(budgeted(max_gpu_hours=None))
    running, late = lab.job(tenant="b", seconds=1700.0), lab.job(tenant="a", seconds=200.0)
    lab.run(3)
    state = lab.controller.state
    assert state.jobs[running].live is not None and state.jobs[late].live is None
    assert lab.why(late).startswith("tenant group may use 0.5 GPU-hours a day")
    lab.limit(budgeted(max_gpu_hours=0.0))
    lab.controller._due = True
    third = lab.job()
    lab.run(3)
    assert state.jobs[running].live is not None and "ann may use 0 GPU-hours" in lab.why(third)
    group = (TenantSettings(name="group", max_gpu_hours=1.0), *GROUP[1:])
    lab.limit(budgeted(max_gpu_hours=None).model_copy(update={"tenants": group}))
    lab.controller._due = True
    lab.run(3)
    assert state.jobs[late].live is not None and state.jobs[third].live is not None


def test_what_is_left_of_budgets(lab: Limited) -> None:
    """What jobs that run are expected to use counts for their user, their tenant and those above;
    a budget that is exceeded has nothing left; users are told of nobody else."""
    users = {"eve": UserLimits(max_gpu_hours=2.0)}
    lab.limit(budgeted(max_gpu_hours=None, users=users, gpu_hours_per="forever"))
    assert budgets_view(lab.controller, None).until_s is None
    lab.job("ann", 400.0, tenant="b", gpus=2)
    lab.run(3)
    group = (None, "group", 1800, 800, 1000)
    assert left(lab, None) == [("eve", None, 7200, 0, 7200), group]
    assert left(lab, "ann") == [group] and left(lab, "eve")[1:] == [group]
    lab.limit(budgeted(max_gpu_hours=0.01))
    assert [row[-1] for row in left(lab, "ann")] == [0, 1000]
    lab.limit(cluster_settings())
    assert left(lab, None) == []


def labelled(**more: Any) -> Settings:
    """The second node has the label fast."""
    limits = LimitSettings(labels={"fast": LabelLimits(**more)})
    return cluster_settings().model_copy(update={"limits": limits, "tenants": GROUP})


class Labelled(Limited):
    """A lab whose second node has the label fast."""

    def __init__(self, folder: Path, how: Settings) -> None:
        super().__init__(folder, how)
        self.executor.nodes = tuple(
            replace(node, labels=("fast",)) if node.name == "n1" else node
            for node in self.executor.nodes
        )

    def on_fast(self, **whose: str) -> int:
        """GPUs held on the second node by jobs of a user, or of a tenant."""
        (what, name), *_ = whose.items()
        jobs = self.controller.state.jobs
        return sum(
            slot.gpus
            for attempt in self.controller.state.live_attempts()
            for slot in attempt.placement
            if slot.node == "n1" and getattr(jobs[attempt.key.job].submission.job, what) == name
        )


FAST = {"node_labels": {"fast": "required"}}


@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.fixed_dictionaries(
                    {
                        "gpus": st.one_of(st.integers(1, 4), st.just(Elastic(min=1, max=4))),
                        "node_labels": st.sampled_from([{}, {"fast": "required"}]),
                        "max_nodes": st.sampled_from([None, 2]),
                        "tenant": st.sampled_from([None, "a", "b"]),
                        "user": st.sampled_from(["ann", "bob", "cyd"]),
                    }
                ),
                st.integers(1, 60),
            ),
            st.integers(1, 20),
        ),
        min_size=4,
        max_size=16,
    )
)
@settings(max_examples=15)
def test_limits_on_labelled_nodes_hold(events: list[Any]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        how = labelled(max_gpus=2, users={"bob": 3}, tenants={"a": 2})
        lab = Labelled(Path(folder), how)
        for event in events:
            if isinstance(event, int):
                for _ in range(event):
                    lab.run(0)
                    assert lab.on_fast(user="ann") <= 2 and lab.on_fast(user="bob") <= 3
                    assert lab.on_fast(tenant="a") + lab.on_fast(tenant="b") <= 2
                    lab.clock.at_s += 1.0
            else:
                demands, seconds = event
                lab.submit({**demands, "duration_s": float(seconds)}, float(seconds), 1.0, 0, None)
        lab.run(1000, turn_s=2.0)
        for job in lab.controller.state.open.values():
            assert job.submission.job.node_labels and "may hold" in lab.why(job.id)
        assert not lab.bugs
        lab.controller.journal.close()


def test_who_is_limited_on_nodes_asks_for_them(tmp_path: Path) -> None:
    lab = Labelled(tmp_path, labelled(users={"ann": 2}))
    lab.run(2)
    first, late = lab.job(gpus=2, **FAST), lab.job(**FAST)
    anywhere, wide = lab.job(gpus=4), lab.job(gpus=8, max_nodes=2)
    free = lab.job("bob", gpus=2)
    lab.run(3)
    state = lab.controller.state
    assert lab.on_fast(user="ann") == 2 and lab.on_fast(user="bob") == 2
    assert state.jobs[first].live is not None and state.jobs[free].live is not None
    assert state.jobs[anywhere].live.placement[0].node == "n0"  # type: ignore[union-attr]
    assert lab.why(late).startswith(
        "ann, on nodes with label fast, may hold 2 GPUs at once (max_gpus in cluster.toml), and 2"
    )
    assert lab.why(wide).startswith("it could only run on nodes with label fast, where there are")
    assert snapshot(lab.controller).turns[late] == (first,)
    large = Job(id="new", user="ann", gpus=3, duration_s=1.0, **FAST)  # type: ignore[arg-type]
    refused = why_refused(lab.controller.settings, state, large, privileged=False)
    assert refused is not None and "it needs 3 GPUs, and ann, on nodes" in refused
    lab.limit(labelled())
    lab.controller._due = True
    lab.run(2)
    assert not state.jobs[late].kept_off and not state.jobs[wide].kept_off


def test_who_runs_on_nodes_that_are_limited_later_goes_on_and_counts(tmp_path: Path) -> None:
    lab = Labelled(tmp_path, labelled())
    lab.run(2)
    names = [lab.job(gpus=4, seconds=300.0) for _ in range(2)]
    lab.run(3)
    lab.limit(labelled(max_gpus=2))
    lab.controller._due = True
    lab.run(5)
    state = lab.controller.state
    assert all(state.jobs[name].live is not None for name in names) and not lab.bugs
    assert lab.on_fast(user="ann") == 4
    late = lab.job(**FAST)
    lab.run(3)
    assert lab.why(late).startswith("ann, on nodes with label fast, may hold 2 GPUs at once")


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=12))
def test_in_turn_no_limit_is_passed(jobs: list[tuple[int, bool]]) -> None:
    """Whoever starts as soon as those it comes after have ended, in whatever order they end."""
    cap, names, before = Cap("ann", None, 3, 4), list[str](), [0]
    running: list[tuple[str, int]] = []
    for number, (gpus, ends) in enumerate(jobs):
        last = _last_in_the_way(cap, gpus, names, before)
        if last:  # all of the line up to it have ended, as they end in order
            gone = max(names.index(name) for name in last)
            running = [own for own in running if names.index(own[0]) > gone]
        elif ends and running:
            running.pop()
        names.append(f"j{number}")
        before.append(before[-1] + gpus)
        running.append((names[-1], gpus))
        assert len(running) <= 3 and sum(own[1] for own in running) <= 4


def test_a_job_that_cannot_run_takes_nobodys_turn(lab: Limited) -> None:
    lab.limit(limited(max_running=1))
    lab.executor.down = {"n1"}
    large = lab.job(gpus=4, max_nodes=2, profile=Profile(rate={"b": 1.0}))
    wide, fits = lab.job(gpus=4, seconds=10.0, tenant="gone"), lab.job(seconds=10.0)
    lab.run(3)
    jobs = lab.controller.state.jobs
    assert jobs[fits].live is not None and jobs[large].live is None and jobs[wide].live is None
    assert "can never run" in lab.why(large) and "tenant" in lab.why(wide)
    assert not snapshot(lab.controller).turns and not lab.bugs
