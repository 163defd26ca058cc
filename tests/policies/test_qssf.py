"""QSSF: its priority against the published formula computed from a table of jobs, and its
queues."""

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Completed, Instance, Job, Node, Tenant
from optsched.estimates import learned
from optsched.plugins.registry import policy
from optsched.simulate.run import Simulation
from optsched_solvers.policies import qssf
from optsched_solvers.policies.qssf import RollingGpuTime, close_matches
from tests.policies.verified import plan_of, times

FOUR = (Node(name="n0", gpus=4),)
NAMES = ["train_resnet50", "train_resnet101", "bert-large", "bert-base", "eval"]


@dataclass
class Row:
    user: str
    name: str
    gpus: int
    duration_s: float


ROWS = st.builds(
    Row,
    st.sampled_from("uvw"),
    st.sampled_from(NAMES),
    st.sampled_from([1, 2, 8]),
    st.integers(1, 9999).map(float),
)


def published_gpu_s(rows: Sequence[Row], new: Row) -> float:
    """The estimator of the public code, line by line: difflib with cutoff 0.6 and two matches over
    the names seen; the user's jobs of these names, those of as many GPUs first; else all jobs of
    these names; else the user's; else all."""
    names = list(dict.fromkeys(row.name for row in rows))
    matches = difflib.get_close_matches(new.name, names, n=2, cutoff=0.6)
    own = [row for row in rows if row.user == new.user]
    if not matches:
        return fmean(row.duration_s for row in own or rows) * new.gpus
    wanted = [new.name] if matches[0] == new.name else matches
    found = [row for row in own if row.name in wanted]
    if not found:
        return fmean(row.duration_s for row in rows if row.name in wanted) * new.gpus
    return (
        fmean(row.duration_s for row in [row for row in found if row.gpus == new.gpus] or found)
        * new.gpus
    )


def job_of(row: Row, job_id: str = "j") -> Job:
    return Job(id=job_id, user=row.user, command=row.name, gpus=row.gpus, duration_s=row.duration_s)


@given(
    rows=st.lists(ROWS, min_size=1, max_size=20),
    new=st.builds(
        Row,
        st.sampled_from("uvx"),
        st.sampled_from([*NAMES, "train_resnet152", "zzzz"]),
        st.sampled_from([1, 2, 4]),
        st.just(1.0),
    ),
)
@settings(max_examples=200)
def test_the_rolling_estimate_is_that_of_the_public_code(rows: list[Row], new: Row) -> None:
    rolling = RollingGpuTime()
    for row in rows:
        rolling.completed(job_of(row), row.duration_s)
    # With equally close names difflib's choice depends on their order, which is by last use here:
    # pass on what it sees.
    latest = list(dict.fromkeys(row.name for row in reversed(rows)))[::-1]
    ordered = sorted(rows, key=lambda row: latest.index(row.name))
    assert rolling.gpu_s(job_of(new)) == pytest.approx(published_gpu_s(ordered, new))


@given(names=st.lists(st.text("abc1", max_size=6), max_size=30, unique=True), name=st.text("abc1"))
@settings(max_examples=100)
def test_close_matches_are_those_of_difflib(names: list[str], name: str) -> None:
    assert close_matches(name, names) == difflib.get_close_matches(name, names, n=2, cutoff=0.6)


def test_until_something_has_completed_nothing_is_expected() -> None:
    assert RollingGpuTime().gpu_s(Job(id="j", duration_s=5.0)) is None


def test_the_priority_mixes_both_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.setattr(learned, "FIRST_TRAINING", 40)
    jobs = [
        Job(
            id=f"j{i}",
            user="uv"[i % 2],
            command=NAMES[i % 3],
            gpus=1 + i % 3,
            submit_s=100.0 * i,
            duration_s=20.0 + 7 * (i % 5),
        )
        for i in range(60)
    ]
    new = Job(id="new", user="u", command="bert-large", gpus=2, duration_s=5.0, submit_s=9000.0)
    rule = policy("qssf")
    assert isinstance(rule, qssf.Qssf) and rule.model is not None
    simulation = Simulation(Instance(cluster=Cluster(nodes=FOUR), jobs=(*jobs, new)), rule)
    simulation.run(until=lambda: "new" in simulation.world.running)
    assert rule.model.trained
    # All have run at once, each for its own duration.
    rows = [
        Row(job.user or "", job.command or "", 1 + i % 3, job.work_s) for i, job in enumerate(jobs)
    ]
    rolling_gpu_s = published_gpu_s(rows, Row("u", "bert-large", 2, 1.0))
    learned_s = rule.model.work_s(new, 9000.0)
    assert rule.expected_gpu_s["new"] == pytest.approx(0.1 * rolling_gpu_s + 0.9 * learned_s * 2)


def test_without_scikit_learn_the_rolling_part_counts_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(qssf, "find_spec", lambda name: None)
    history = [
        Job(id="s", user="u", command="a", duration_s=5.0),
        Job(id="l", user="u", command="b", duration_s=50.0),
    ]
    one = (Node(name="n0", gpus=1),)
    late = [
        Job(id="l2", user="u", command="b", duration_s=9.0, submit_s=60.0),
        Job(id="s2", user="u", command="a", duration_s=10.0, submit_s=61.0),
        Job(id="now", user="u", command="a", duration_s=20.0, submit_s=56.0),
    ]
    found = plan_of("qssf", *history, *late, nodes=one)
    assert times(found["s2"]) == [(76, 86)] and times(found["l2"]) == [
        (86, 95)
    ]  # a took 5 s last time, b 50 s


def test_what_was_done_before_counts_unless_it_is_to_be_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(qssf, "find_spec", lambda name: None)
    past = tuple(
        Completed(job=Job(id=f"p{i}", user="u", command=name, duration_s=length_s), completed_s=99)
        for i, (name, length_s) in enumerate((("aaa", 90.0), ("bbb", 5.0)))
    )
    jobs = (
        Job(id="x", user="u", command="aaa", duration_s=4.0, submit_s=100.0),
        Job(id="y", user="u", command="bbb", duration_s=4.0, submit_s=100.0),
    )
    nodes = (Node(name="n0", gpus=1),)
    instance = Instance(now_s=100.0, cluster=Cluster(nodes=nodes), jobs=jobs, past=past)
    first = {}
    for how in ("yes", "no"):
        simulation = Simulation(instance, policy("qssf", options={"past": how}))
        simulation.run()
        first[how] = min(simulation.record().plan().jobs, key=lambda one: one.segments[0].start_s)
    assert (first["yes"].id, first["no"].id) == ("y", "x")


def test_the_first_that_does_not_fit_holds_up_its_tenant_only() -> None:
    tenants = (Tenant(name="a"), Tenant(name="b"))
    found = plan_of(
        "qssf",
        Job(id="run", gpus=2, duration_s=10.0, tenant="a"),
        Job(id="wide", gpus=3, duration_s=5.0, tenant="a", submit_s=1.0),
        Job(id="behind", gpus=4, duration_s=1.0, tenant="a", submit_s=1.0),
        Job(id="other", gpus=2, duration_s=4.0, tenant="b", submit_s=2.0),
        nodes=FOUR,
        tenants=tenants,
    )
    assert times(found["other"]) == [(2, 6)]
    assert times(found["wide"]) == [(10, 15)] and times(found["behind"]) == [(15, 16)]


def test_gangs_are_consolidated() -> None:
    # Two nodes with one GPU free each: a pair waits for a node although both together have room.
    jobs = [
        *(Job(id=f"r{i}", duration_s=10.0 * (i + 1)) for i in range(2)),
        Job(id="w", gpus=2, duration_s=5.0, submit_s=1.0),
    ]
    nodes = (Node(name="n0", gpus=2), Node(name="n1", gpus=1))
    found = plan_of("qssf", jobs[0], jobs[1], jobs[2], nodes=nodes)
    assert (
        found["w"].segments[0].start_s in (10.0, 20.0)
        and len(found["w"].segments[0].placement) == 1
    )


def test_facts_are_the_mean_error_of_the_logarithm() -> None:
    jobs = [
        Job(id="a", duration_s=100.0),
        Job(id="b", duration_s=200.0, submit_s=150.0),
        Job(id="c", duration_s=75.0, submit_s=400.0),
    ]
    rule = policy("qssf")
    assert isinstance(rule, qssf.Qssf)
    Simulation(Instance(cluster=Cluster(nodes=FOUR), jobs=tuple(jobs)), rule).run()
    # Expected: ten minutes (nothing is known), 100 s, the mean of 100 and 200 s.
    assert rule.facts()["predicted_jobs"] == 3
    assert rule.facts()["mean_absolute_log_error"] == pytest.approx(
        (math.log(6) + math.log(2) + math.log(2)) / 3
    )
