"""Means with intervals, what is best within them, verdicts on published results, and the files for
other programs."""

import csv
import io
import json
import math
import statistics

import jsonschema
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import systems
from optsched.cli import main
from optsched.files.columns import columns_csv
from optsched.study.design import Claim
from optsched.study.exports import long_parquet, long_table, summary
from optsched.study.intervals import T_975, mean_interval
from optsched.study.latex import as_latex
from optsched.study.report import behaviour
from optsched.study.report.compare import compare
from optsched.study.report.quality import differences, significance
from optsched.study.results import Result
from optsched.study.table import as_csv, as_markdown, rows
from optsched.study.verdicts import FEWEST_SEEDS, findings, verdicts_markdown

from .test_report import simulated, study_of

SEEDS = [*range(FEWEST_SEEDS)]
CLAIM = Claim(method="a", against="b", published=-0.2)


def runs(own_h: list[float], other_h: list[float], instance: str = "one") -> list[Result]:
    """Runs of a and b, one a seed."""
    return [
        simulated(method, instance, seed, jct_h)
        for method, all_h in (("a", own_h), ("b", other_h))
        for seed, jct_h in enumerate(all_h)
    ]


def test_an_interval_by_hand() -> None:
    interval = mean_interval([*map(float, range(1, 11))])
    assert interval.mean == 5.5
    assert interval.half == pytest.approx(2.262 * statistics.stdev(range(1, 11)) / math.sqrt(10))
    assert mean_interval([3.0]).half is None
    assert list(T_975) == sorted(T_975, reverse=True)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60), st.floats(-1e3, 1e3))
def test_a_mean_is_level_with_itself_however_it_spreads(values: list[float], by: float) -> None:
    """A constant shift is clear, however much seeds differ, beyond rounding."""
    own = mean_interval(values)
    assert own.low <= own.mean <= own.high and own.level_with(own)
    if abs(by) > 1e-3:
        assert not own.level_with(mean_interval([value + by for value in values]))


@pytest.mark.parametrize(
    ("own_h", "verdict", "why"),
    [
        ([7.5 + 0.1 * seed for seed in SEEDS], "shown", "of what was published"),
        ([9.7 + 0.01 * seed for seed in SEEDS], "shown in part", "of what was published"),
        ([8.0 if seed % 2 else 12.5 for seed in SEEDS], "not shown", "no interval excludes 0"),
        ([12.0 + 0.1 * seed for seed in SEEDS], "not shown", "no interval excludes 0"),
        ([5.0, 5.1], "not shown", f"2 seeds of {FEWEST_SEEDS}"),
        ([], "not shown", "no pair of runs"),
    ],
)
def test_a_verdict_follows_from_its_interval(own_h: list[float], verdict: str, why: str) -> None:
    study = study_of(["a", "b"], ["one"], SEEDS, claims=(CLAIM,))
    [finding] = findings(study, runs(own_h, [10.0] * FEWEST_SEEDS))
    assert finding.verdict == verdict and why in finding.why
    change = finding.changes.get("one")
    if verdict != "not shown":
        assert change is not None and change.high < 0
    assert f"**{verdict}**" in verdicts_markdown([finding])


def test_a_claim_of_more_is_shown_by_more_and_on_the_instances_it_is_about() -> None:
    more = Claim(method="a", against="b", published=0.3, only=("two hours",))
    study = study_of(["a", "b"], ["one", "two hours"], SEEDS, claims=(more, CLAIM))
    level = [10.0] * FEWEST_SEEDS
    made = runs([8.0 - 0.01 * seed for seed in SEEDS], level, "one")
    made += runs([13.0 + 0.01 * seed for seed in SEEDS], level, "two hours")
    upward, downward = findings(study, made)
    assert (upward.verdict, [*upward.changes]) == ("shown", ["two hours"])
    assert (downward.verdict, downward.why) == ("shown in part", "on 1 of 2 instances")


@pytest.mark.parametrize(
    ("own_h", "direction", "verdict"),
    [(8.0, "less", "shown"), (8.0, "more", "not shown"), (13.0, "more", "shown")],
)
def test_where_no_number_was_published_the_direction_decides(
    own_h: float, direction: str, verdict: str
) -> None:
    claim = CLAIM.model_copy(update={"published": direction})
    study = study_of(["a", "b"], ["one"], SEEDS, claims=(claim,))
    made = runs([own_h + 0.01 * seed for seed in SEEDS], [10.0] * FEWEST_SEEDS)
    [finding] = findings(study, made)
    assert finding.verdict == verdict
    told = verdicts_markdown([finding])
    assert f"mean JCT | {direction} | one " in told
    assert f"mean JCT {direction}" in systems.row("some", f"# A: b\n{told}")
    schema = json.loads(CliRunner().invoke(main, ["schema", "study-summary"]).output)
    again = summary(study, "again", made, [finding]).model_dump_json()
    jsonschema.validate(json.loads(again), schema)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"claims": (Claim(method="a", against="z", published=-0.1),)}, "against names z"),
        ({"claims": (CLAIM.model_copy(update={"only": ("x",)}),)}, "only names x"),
        ({"baseline": "z"}, "baseline names z"),
    ],
)
def test_a_claim_names_what_is_there(change: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        study_of(["a", "b"], ["one"], SEEDS, **change)


@pytest.mark.parametrize("faulty", [{"published": 0.0}, {"column": "beauty"}, {"published": -1.5}])
def test_a_claim_says_something(faulty: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Claim(**{"method": "a", "against": "b", "published": -0.1, **faulty})  # type: ignore[arg-type]


def test_the_best_is_bold_and_shared_where_the_difference_may_be_nothing() -> None:
    made = runs([1.0, 2.0, 3.0], [1.1, 1.9, 3.1])  # which differ by less than they vary
    made += [simulated("c", "one", seed, 2.0 + seed) for seed in range(3)]  # later by 1 h each time
    study = study_of(["a", "b", "c"], ["one"], [0, 1, 2])
    text = as_markdown(rows(made), study.all_methods)
    assert "| `a` | **2.00 ± 2.48** |" in text and "| `b` | **2.03 ± 2.50** |" in text
    assert "| `c` | 3.00 ± 2.48 |" in text
    assert r"a & $\mathbf{2.00} \pm 2.48$ &" in as_latex(rows(made))


def test_files_for_other_programs_say_what_the_table_says() -> None:
    study = study_of(["a", "b"], ["one"], SEEDS, claims=(CLAIM,))
    made = [*runs([8.0] * FEWEST_SEEDS, [10.0] * FEWEST_SEEDS), simulated("a", "one", 99, None)]
    table = long_table(made)
    lines = [*csv.DictReader(io.StringIO(columns_csv(table)))]
    own = [float(line["value"]) for line in lines if line["metric"] == "mean_jct_h"]
    assert own == [8.0] * FEWEST_SEEDS + [10.0] * FEWEST_SEEDS
    assert "mean_jct_h" in as_csv(made).splitlines()[0]
    told = json.loads(summary(study, "again", made, findings(study, made)).model_dump_json())
    schema = json.loads(CliRunner().invoke(main, ["schema", "study-summary"]).output)
    jsonschema.validate(told, schema)
    assert told["rows"][0]["failed"] == ["killed"]
    assert told["rows"][1]["metrics"]["mean_jct_h"]["mean"] == 10.0
    seen = told["claims"][0]["seen"]["one"]
    assert seen["seeds"] == FEWEST_SEEDS and seen["low"] == seen["high"] == pytest.approx(-0.2)


def test_the_long_table_as_parquet_says_the_same() -> None:
    data = long_parquet({"every": [1, "2m", None], "value": [1.0, 2.0, 3.0]})
    if data is None:
        pytest.skip("neither polars nor pyarrow is installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    read = parquet.read_table(io.BytesIO(data)).to_pydict()
    assert read == {"every": ["1", "2m", None], "value": [1.0, 2.0, 3.0]}


def test_jobs_are_paired_with_themselves() -> None:
    """The first job completes twice as early, the second half as early, the third as before."""

    def with_jobs(method: str, jct_s: list[float]) -> Result:
        return simulated(method, "one", 1, 1.0, curves={"sample_jct_s": jct_s})

    made = [with_jobs("a", [100.0, 100.0, 50.0]), with_jobs("b", [200.0, 50.0, 50.0])]
    chart = behaviour.speedups(compare(study_of(["a", "b"], ["one"], [1]), made), "b")
    assert chart is not None
    [line] = chart.panels[0].marks
    assert [*line.x] == [0.5, 0.5, 1.0, 2.0] and [*line.y] == [0.0, 1 / 3, 2 / 3, 1.0]  # type: ignore[union-attr]
    assert behaviour.speedups(compare(study_of(["a"], ["one"], [1]), made[:1]), "a") is None


def test_a_method_that_is_far_off_is_said_beyond_the_axis() -> None:
    names = [f"m{k}" for k in range(9)]
    made = [
        simulated(name, "one", seed, (10.0 + k if k < 8 else 100.0) + 0.1 * seed)
        for k, name in enumerate(names)
        for seed in range(8)
    ]
    table = compare(study_of(names, ["one"], [*range(8)]), made)
    chart = significance(table, differences(table))
    assert chart is not None
    axis = chart.panels[0].x
    assert "beyond: m8 +" in axis.title and axis.high is not None and axis.high < 100.0
