"""Every objective worked out by hand on one small plan; reading and writing their names."""

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optsched
from optsched import Cluster, Instance, Job, JobPlan, Mode, Node, Plan, Profile, Segment, Slot
from optsched.errors import InputError
from optsched.objectives import (
    TERMS,
    Hinge,
    Inverse,
    Linear,
    RankOfJobs,
    Square,
    Step,
    Usage,
    fastest_s,
    isolated_s,
    parse,
    values,
)
from tests.verified import checked

CLUSTER = Cluster(
    nodes=(
        Node(name="a", gpus=4, gpu_type="a100", gpu_price_per_h=3.6),
        Node(name="v", gpus=4, gpu_type="v100", gpu_price_per_h=1.8),
        Node(name="w", gpus=4, gpu_type="v100", gpu_price_per_h=0.9),
    ),
    carbon_g_per_kwh=((900.0, 100.0), (1100.0, 300.0)),
    energy_price_per_kwh=((900.0, 0.5), (1100.0, 0.25)),
)
BOTH = Profile(
    rate={"a100": 1.0, "v100": 0.5}, power_w={"a100": 400.0, "v100": 300.0}, startup_s=10.0
)
JOBS = (
    Job(
        id="x",
        gpus=4,
        duration_s=100.0,
        submit_s=1000.0,
        weight=2.0,
        deadline_s=1100.0,
        profile=BOTH,
    ),
    Job(
        id="y",
        gpus=2,
        duration_s=100.0,
        submit_s=900.0,
        weight=1.0,
        deadline_s=1300.0,
        profile=BOTH,
    ),
    Job(
        id="z",
        gpus=1,
        duration_s=50.0,
        submit_s=1040.0,
        weight=3.0,
        profile=Profile(rate={"a100": 1.0}),
    ),
    Job(id="c", gpus=0, cpus=2, duration_s=30.0, submit_s=1000.0, weight=0.0),
)


def one(
    job: str, decision: str, start_s: float, end_s: float, node: str, gpus: int, cpus: int = 0
) -> JobPlan:
    segment = Segment(
        start_s=start_s,
        end_s=end_s,
        mode=Mode(gpus=gpus, cpus=cpus),
        placement=(Slot(node=node, gpus=gpus, cpus=cpus),),
    )
    return JobPlan(id=job, decision=decision, segments=(segment,))  # type: ignore[arg-type]


INSTANCE = Instance(now_s=1000.0, cluster=CLUSTER, jobs=JOBS)
PLAN = Plan(
    jobs=(
        one("x", "start", 1000, 1110, "a", 4),  # 110 s after its submission, 10 s late
        one("y", "start", 1000, 1210, "w", 2),  # 310 s after its submission, in time
        one("z", "wait", 1110, 1160, "a", 1),  # 120 s after its submission
        one("c", "start", 1000, 1030, "v", 0, 2),  # 30 s after its submission
    )
)


def value(text: str, instance: Instance = INSTANCE, plan: Plan = PLAN) -> float:
    found = values(parse(text), instance, plan)
    assert len(found) == 1
    return found[0]


def test_the_plan_is_valid() -> None:
    checked(INSTANCE, PLAN)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wct", 2 * 110 + 1 * 310 + 3 * 120 + 0 * 30),
        ("makespan", 210),
        ("tardiness", 2 * 10),
        ("deadline", 2),
        ("lateness", 10),
        ("tail", 310),
        ("tail:0.75", 120),
        ("tail:0.5", 110),
        ("tail:0.25", 30),
        ("tail:0.01", 30),
        ("tail:1", 310),
        # 12 GPUs for 4 jobs: a share of 3. x: 100 s, by 4/3; y and z alone; c has no GPU
        ("ftf", max(110 / (100 * 4 / 3), 310 / 100, 120 / 50, 30 / 30)),
        ("maxmin", -100 / 310),
        ("throughput", -(2 * 100 / 110 + 1 * 100 / 310 + 3 * 50 / 120)),
        # x: 4 x 400 W for 110 s, y: 2 x 300 W for 210 s; z and c were not measured
        ("energy", (4 * 400 * 110 + 2 * 300 * 210) / 3.6e6),
        ("carbon", (4 * 400 * (100 * 100 + 10 * 300) + 2 * 300 * (100 * 100 + 110 * 300)) / 3.6e6),
        (
            "energy_cost",
            (4 * 400 * (100 * 0.5 + 10 * 0.25) + 2 * 300 * (100 * 0.5 + 110 * 0.25)) / 3.6e6,
        ),
        ("tardiness2", 2 * 10**2),
        ("flow2", 2 * 110**2 + 1 * 310**2 + 3 * 120**2 + 0 * 30**2),
        ("cost", (4 * 3.6 * 110 + 2 * 0.9 * 210 + 1 * 3.6 * 50) / 3600),
    ],
)
def test_value(name: str, expected: float) -> None:
    assert value(name) == pytest.approx(expected, rel=1e-12)


def test_every_objective_has_a_hand_computed_value() -> None:
    marks = next(mark for mark in test_value.pytestmark if mark.name == "parametrize")
    assert {case[0].split(":")[0] for case in marks.args[1]} == set(TERMS)


def test_sums_and_sequences() -> None:
    assert value("0.5*wct+2*makespan") == pytest.approx(0.5 * 890 + 2 * 210)
    assert values(parse("deadline,wct"), INSTANCE, PLAN) == (2.0, 890.0)
    assert values(parse("tardiness + makespan , tail:0.5 , cost"), INSTANCE, PLAN) == (
        230.0,
        110.0,
        pytest.approx(value("cost")),
    )


def test_jobs_without_a_deadline_do_not_count() -> None:
    free = replace(INSTANCE, jobs=tuple(replace(job, deadline_s=None) for job in JOBS))
    assert [value(name, free) for name in ("tardiness", "deadline", "lateness")] == [0.0, 0.0, 0.0]
    late = replace(INSTANCE, jobs=tuple(replace(job, deadline_s=5000.0) for job in JOBS))
    assert value("lateness", late) == 1210 - 5000, "lateness may be negative"


def test_a_deadline_is_met_within_rounding() -> None:
    cost = Step(1.0, 100.0)
    assert [cost.at(c) for c in (99.0, 100.0, 100.000_001, 100.001)] == [0.0, 0.0, 0.0, 1.0]


def test_shapes_of_job_costs() -> None:
    assert Linear(2.0, 10.0).at(7.0) == -6.0
    assert [Hinge(2.0, 10.0).at(c) for c in (7.0, 10.0, 12.0)] == [0.0, 0.0, 4.0]
    assert [Square(2.0, 10.0).at(c) for c in (7.0, 10.0, 13.0)] == [0.0, 0.0, 18.0]
    assert Inverse(6.0, 10.0).at(13.0) == -2.0
    at_once = Inverse(6.0, 10.0)  # what was left of the job rounds to nothing
    assert math.isfinite(at_once.at(10.0)) and math.isfinite(at_once.steepest(10.0, 13.0))
    weightless = replace(JOBS[0], weight=0.0)
    assert TERMS["throughput"].cost(INSTANCE, weightless) is None, "it never divides by zero"


@given(
    st.sampled_from([Linear, Hinge, Step, Square, Inverse]),
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(0, 100), st.floats(101, 200)), min_size=1),
)
def test_arrays_of_costs_are_the_costs_of_each(
    shape: type, cases: list[tuple[float, float, float]]
) -> None:
    scale, origin, end = (np.array(column) for column in zip(*cases, strict=True))
    each = [shape(s, o).at(e) for s, o, e in cases]
    assert shape(scale, origin).at(end).tolist() == each
    assert np.all(np.diff(shape(1.0, 50.0).at(np.linspace(50.5, 90.0, 40))) >= 0)


@given(st.floats(0, 50), st.floats(0.1, 50), st.floats(0, 1), st.floats(0, 60))
def test_no_cost_sags_by_more_than_it_says(a: float, gap: float, at: float, o: float) -> None:
    for shape in (Linear, Hinge, Step, Square, Inverse):
        cost = shape(2.0, -1.0 if shape is Inverse else min(o, a))  # no kink within the gap
        first, last = (cost.at(end) - cost.sag(end, gap) for end in (a, a + gap))
        if shape is not Step:
            assert cost.at(a + at * gap) >= first + at * (last - first) - 1e-9


def test_an_empty_plan_costs_nothing() -> None:
    assert [value(name, Instance(), Plan()) for name in TERMS] == [0.0] * len(TERMS)


def test_the_fastest_and_the_isolated_run_time() -> None:
    assert [fastest_s(INSTANCE, job) for job in JOBS] == [100.0, 100.0, 50.0, 30.0]
    assert [isolated_s(INSTANCE, job) for job in JOBS] == pytest.approx(
        [400 / 3, 100.0, 50.0, 30.0]
    )
    with pytest.raises(InputError, match="job big fits nowhere"):
        fastest_s(INSTANCE, Job(id="big", gpus=99, duration_s=1.0))


def test_coefficients_give_the_same_value_as_the_plan() -> None:
    """What a model adds up is what the verifier computes."""
    for name, term in TERMS.items():
        if isinstance(term, Usage):
            continue
        costs = [term.cost(INSTANCE, INSTANCE.job[entry.id]) for entry in PLAN.jobs]
        parts = [
            cost.at(entry.completion_s)
            for cost, entry in zip(costs, PLAN.jobs, strict=True)
            if cost
        ]
        assert term.combine(parts) == pytest.approx(value(name)), name


@pytest.mark.parametrize(
    ("text", "jobs", "rank"),
    [
        ("tail", 100, 99),
        ("tail", 101, 100),
        ("tail", 1, 1),
        ("tail:0.5", 4, 2),
        ("tail:0.5", 5, 3),
        ("tail:0.9", 10, 9),
        ("tail:0.1", 10, 1),
        ("tail:1", 7, 7),
        ("tail:0.001", 7, 1),
        ("tail:0.7", 10, 7),
        ("tail:0.29", 100, 29),
    ],
)
def test_the_quantile_is_the_smallest_value_that_enough_jobs_do_not_exceed(
    text: str, jobs: int, rank: int
) -> None:
    term = parse(text).levels[0][0][1]
    assert isinstance(term, RankOfJobs) and term.rank(jobs) == rank
    assert term.combine([float(n) for n in range(jobs, 0, -1)]) == rank


@pytest.mark.parametrize(
    "text",
    [
        "wct",
        "deadline,wct",
        "0.7*makespan+0.3*tail:0.9",
        "tail:0.5",
        "2*energy,cost,throughput+maxmin+ftf",
        "0.001*wct+1000000*lateness",
        "1234567.5*wct",
    ],
)
def test_names_come_back(text: str) -> None:
    assert parse(text).name == text


def test_weights_may_have_an_exponent() -> None:
    assert parse("1e+06*lateness+1e-3*wct,1E2*cost").name == "1000000*lateness+0.001*wct,100*cost"


@given(
    st.lists(
        st.lists(
            st.tuples(st.floats(1e-9, 1e9), st.sampled_from(sorted(TERMS)), st.floats(0.001, 1)),
            min_size=1,
            max_size=3,
        ),
        min_size=1,
        max_size=3,
    )
)
def test_any_name_means_what_was_meant(levels: list[list[tuple[float, str, float]]]) -> None:
    text = ",".join(
        "+".join(f"{w!r}*{name}" + (f":{q:.6f}" if name == "tail" else "") for w, name, q in level)
        for level in levels
    )
    objective = parse(text)
    assert parse(objective.name) == objective


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "objective '' is unknown"),
        ("wct,", "''"),
        ("wtc", "'wtc' is unknown (did you mean wct?); choose from carbon, cost, deadline"),
        ("wct++makespan", "''"),
        ("0*wct", "weight must be positive"),
        ("-1*wct", "weight must be positive"),
        ("1e999*wct", "weight must be positive"),
        ("1.2.3*wct", "must be numbers"),
        ("wct:0.5", "only tail"),
        ("tail:0", "above 0 and at most 1"),
        ("tail:1.5", "above 0 and at most 1"),
        ("tail:.", "must be numbers"),
        ("wct makespan", "unknown"),
        ("wct;makespan", "unknown"),
        ("nan*wct", "unknown"),
        ("WCT", "unknown"),
        ("2 wct", "unknown"),
        ("e*wct", "must be numbers"),
        ("tail:1e-3", "unknown"),
    ],
)
def test_a_wrong_name_is_explained(text: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text)
    assert says in str(error.value) and "\n" not in str(error.value)


def compared_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield comparisons of something like a term with the name of an objective."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            sides = [node.value, node.slice]
        elif isinstance(node, ast.Match):
            patterns = [
                inner.value
                for case in node.cases
                for inner in ast.walk(case.pattern)
                if isinstance(inner, ast.MatchValue)
            ]
            sides = [node.subject, *patterns]
        else:
            continue
        literals = {
            inner.value
            for side in sides
            if isinstance(side, ast.Constant | ast.Tuple | ast.List | ast.Set | ast.Dict)
            for inner in ast.walk(side)
            if isinstance(inner, ast.Constant)
        }
        others = [ast.unparse(side) for side in sides if not isinstance(side, ast.Constant)]
        if literals & set(TERMS) and re.search(r"\bterms?\b", " ".join(others)):
            yield node.lineno, ast.unparse(node).split("\n")[0]


def test_nothing_but_an_objective_asks_for_its_name() -> None:
    """What is special of an objective it says itself; the format of certificates names three."""
    root = Path(optsched.__file__).parents[1]
    sources = [*root.glob("optsched/**/*.py"), *root.glob("solvers/**/*.py")]
    found = [
        f"{source.relative_to(root)}:{line}: {text}"
        for source in sources
        if source.parent.name not in ("objectives", "verify_bound")
        for line, text in compared_names(ast.parse(source.read_text()))
    ]
    assert len(sources) > 500 and not found, found
    asks = "term.name == 'wct' or term.name in ('cost', 'y') or {'tail': 1}[term.name]"
    assert len(list(compared_names(ast.parse(asks)))) == 3
