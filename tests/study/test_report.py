"""Reports of studies: the statistics by hand, what is compared with what, and pages and figures
that stand alone."""

import csv
import io
import itertools
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from optsched import files
from optsched.cli import main
from optsched.picture.panels import Heat, Intervals, Line
from optsched.study.design import InstanceSpec, Method, Run, Study, read_study
from optsched.study.latex import as_latex
from optsched.study.report import behaviour, quality, write_report
from optsched.study.report.compare import compare
from optsched.study.report.foot import busy, commands, in_common
from optsched.study.report.model import TELLS
from optsched.study.report.statistics import (
    benjamini_hochberg,
    paired_bootstrap,
    pareto,
    profile,
    ratios,
)
from optsched.study.results import Result, Results
from optsched.study.runner import run_study
from optsched.study.table import rows

INF, NAN = np.inf, np.nan


def study_of(methods: list[str], instances: list[str], seeds: list[int], **more: Any) -> Study:
    return Study(
        format="optsched-study/1",
        name="made",
        title=more.pop("title", "Made up"),
        seeds=tuple(seeds),
        instances=tuple(
            InstanceSpec(name=name, command="generate --seed {seed}") for name in instances
        ),
        methods=tuple(Method(name=name, command=f"simulate --policy {name}") for name in methods),
        **more,
    )


def simulated(
    method: str, instance: str, seed: int, jct_h: float | None, p99_h: float = 9.0, **answer: Any
) -> Result:
    """A finished simulation with a mean JCT, or a failed one."""
    run = Run(
        instance=instance,
        method=method,
        parameters=(("seed", seed),),
        make=f"generate --seed {seed}",
        file=None,
        command=f"simulate --policy {method}",
    )
    if jct_h is None:
        return Result(run, None, "killed", 1.0, 1.0, 0.1)
    said = {
        "jct_s": {"mean": 3600 * jct_h, "p99": 3600 * p99_h},
        "levels": [{"name": "wct", "value": 100 * jct_h, "bound": 50.0, "gap": 1 - 0.5 / jct_h}],
    } | answer
    return Result(
        run, said, None, 1.0, 1.0, 0.1, made_on={"optsched": "1+abc", "machine": "a machine"}
    )


# ------------------------------------------------------------------------------------------------
# statistics


def test_a_performance_profile_by_hand() -> None:
    # Three problems: A is best on the first two, 3 times the best on the third; B 1.5, 2 and best;
    # C fails, 4, not run.
    values = np.array([[2.0, 5.0, 30.0], [3.0, 10.0, 10.0], [INF, 20.0, NAN]])
    table = ratios(values)
    np.testing.assert_allclose(table, [[1, 1, 3], [1.5, 2, 1], [INF, 4, NAN]])
    for row, factors, shares in (
        (0, [1, 3], [2 / 3, 1]),
        (1, [1, 1.5, 2], [1 / 3, 2 / 3, 1]),
        (2, [4], [1 / 2]),
    ):
        found = profile(table[row])
        np.testing.assert_allclose(found[0], factors)
        np.testing.assert_allclose(found[1], shares)


def test_ratios_where_there_is_no_best_value_to_divide_by() -> None:
    values = np.array([[0.0, INF, -1.0], [0.0, INF, 2.0], [4.0, NAN, 3.0]])
    np.testing.assert_array_equal(ratios(values), [[1, NAN, NAN], [1, NAN, NAN], [INF, NAN, NAN]])


def test_the_pareto_front_is_what_no_other_point_dominates() -> None:
    assert pareto(np.array([1.0, 2, 3, 2, 1]), np.array([3.0, 2, 1, 3, 3])).tolist() == [
        True,
        True,
        True,
        False,
        True,
    ]
    points = np.random.default_rng(0).integers(6, size=(40, 2)).astype(float)
    front = pareto(points[:, 0], points[:, 1])
    for i, (x, y) in enumerate(points):
        beaten = any(a <= x and b <= y and (a, b) != (x, y) for a, b in points)
        assert front[i] == (not beaten)


def test_the_bootstrap_of_three_pairs_is_that_of_all_27_resamples() -> None:
    difference = np.array([0.0, 1.0, 2.0])
    means = sorted(sum(one) / 3 for one in itertools.product(difference, repeat=3))
    # The least mean, 0, has 1/27 = 3.7 % of them, which is more than 2.5 %; the same above.
    assert means[0] == 0 and means[-1] == 2
    found = paired_bootstrap(np.array([10.0, 21, 32]), np.array([10.0, 20, 30]))
    assert (found.mean, found.low, found.high, found.pairs) == (1.0, 0.0, 2.0, 3)
    assert (
        found.p == 0.25
    )  # 1/27 of the means are not above 0, but three signs are equal by chance in 2 of 8 cases


def test_the_bootstrap_interval_of_many_pairs_is_that_of_the_normal_distribution() -> None:
    difference = np.random.default_rng(1).normal(0.5, 2.0, 400)
    found = paired_bootstrap(difference, np.zeros(400))
    spread = 1.96 * difference.std() / np.sqrt(400)
    assert found.mean == pytest.approx(difference.mean())
    assert found.high - found.low == pytest.approx(2 * spread, rel=0.05)
    assert found == paired_bootstrap(difference, np.zeros(400))


def test_equal_differences_are_as_sure_as_their_number_allows() -> None:
    found = paired_bootstrap(np.arange(10) + 1.0, np.arange(10.0))
    assert (found.mean, found.low, found.high, found.p) == (1.0, 1.0, 1.0, pytest.approx(2 / 2**10))
    assert paired_bootstrap(np.ones(10), np.ones(10)).p == 1.0


def test_benjamini_hochberg_by_hand() -> None:
    # In order .005 .01 .03 .04 times 4 / rank: .02 .02 .04 .04; a later one that is less lowers
    # those before it.
    assert benjamini_hochberg([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert benjamini_hochberg([0.04, 0.03, 0.9]) == pytest.approx([0.06, 0.06, 0.9])
    assert benjamini_hochberg([]) == []


# ------------------------------------------------------------------------------------------------
# comparing


def test_methods_are_ranked_by_what_they_solve_and_then_by_their_ratios() -> None:
    study = study_of(["slow", "lame", "quick"], ["one"], [1, 2])
    found = compare(
        study,
        [
            simulated("slow", "one", 1, 4.0),
            simulated("slow", "one", 2, 4.0),
            simulated("lame", "one", 1, 1.0),
            simulated("lame", "one", 2, None),
            simulated("quick", "one", 1, 2.0),
            simulated("quick", "one", 2, 2.0),
        ],
    )
    assert found.methods == ("quick", "slow", "lame")
    assert found.problems == (("one", 1), ("one", 2)) and found.measure == {"one": "mean JCT"}
    np.testing.assert_allclose(found.ratios, [[2, 1], [4, 2], [1, INF]])
    chart = quality.profiles(found)
    assert chart is not None
    lame = next(mark for mark in chart.panels[0].marks if mark.name == "lame")
    assert isinstance(lame, Line) and set(lame.y) == {0.5}


def test_values_of_different_objectives_are_not_compared() -> None:
    def solved(method: str, command: str, value: float) -> Result:
        run = Run(
            instance="one",
            method=method,
            parameters=(),
            make=None,
            file="one.json",
            command=command,
        )
        said = {"objective": {"name": "any", "value": value, "bound": 0.0, "gap": 1.0}}
        return Result(run, said, None, 1.0, 1.0, 0.1)

    study = Study(
        format="optsched-study/1",
        name="made",
        title="Made up",
        instances=(InstanceSpec(name="one", file="one.json"),),
        methods=(
            Method(name="a", command="solve"),
            Method(name="b", command="solve --objective makespan"),
        ),
    )
    found = compare(
        study, [solved("a", "solve", 10.0), solved("b", "solve --objective makespan", 5.0)]
    )
    assert found.cases == ("one, wct", "one, makespan")
    assert quality.profiles(found) is None  # no problem has two methods
    assert compare(study, [solved("a", "solve", 10.0), solved("b", "solve", 5.0)]).cases == ("one",)


def test_differences_are_taken_over_the_seeds_both_have() -> None:
    seeds = range(1, 10)
    study = study_of(["a", "b", "c"], ["one"], list(seeds))
    results = [simulated("a", "one", seed, 1.0 + seed) for seed in seeds]
    results += [simulated("b", "one", seed, 2.0 + seed if seed > 1 else None) for seed in seeds]
    results += [
        simulated("c", "one", seed, 9.0 if seed > 2 else None) for seed in seeds
    ]  # 7 seeds are too few
    pairs = quality.differences(compare(study, results))
    assert [(pair[1], pair[2], pair[3].pairs, pair[3].mean) for pair in pairs] == [
        ("b", "a", 8, pytest.approx(1.0))
    ]
    assert pairs[0][4] == 2 / 2**8
    line = next(
        csv.DictReader(io.StringIO(quality.significance_csv(pairs, compare(study, results))))
    )
    assert (line["method"], line["against"], line["difference"], line["measure"]) == (
        "b",
        "a",
        "1",
        "mean JCT h",
    )


def test_clear_differences_are_filled() -> None:
    study = study_of(["a", "b"], ["one"], list(range(10)))
    results = [simulated("a", "one", seed, 1.0 + seed) for seed in range(10)]
    results += [simulated("b", "one", seed, 2.0 + seed) for seed in range(10)]
    found = compare(study, results)
    chart = quality.significance(found, quality.differences(found))
    assert chart is not None
    [mark] = chart.panels[0].marks
    assert isinstance(mark, Intervals) and mark.filled
    assert list(mark.mid) == pytest.approx(
        [100 * 1.0 / 5.5]
    )  # one hour more than a mean of 1 + 4.5 hours


def test_value_and_bound_at_an_instant_are_the_last_ones_before_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("wall_s,value,bound,source\n1.0,,3.0,\n2.0,8.0,3.0,wspt\n4.0,6.0,5.0,cpsat\n")
    value, bound = quality.at_times(quality.read_trace(path), np.array([0.5, 1.0, 3.9, 4.0, 9.0]))
    np.testing.assert_array_equal(value, [NAN, NAN, 8, 6, 6])
    np.testing.assert_array_equal(bound, [NAN, 3, 3, 5, 5])
    assert quality.read_trace(tmp_path / "none") == []


def test_lost_hours_add_up_by_cause() -> None:
    def lost(seed: int, hours: float) -> Result:
        return simulated(
            "a",
            "one",
            seed,
            1.0,
            gpu_h={
                "preemptions": {"checkpoints": hours, "restarts": 1.0, "lost_work": 2.0},
                "failures": {"lost_work": 0.0},
                "node_losses": {"lost_work": 0.0},
                "out_of_memory": {"starts": hours},
            },
        )

    chart = behaviour.lost_time(
        compare(study_of(["a"], ["one"], [1, 2]), [lost(1, 1.0), lost(2, 3.0)])
    )
    assert chart is not None
    assert [(mark.name, list(mark.lengths)) for mark in chart.panels[0].marks] == [  # type: ignore[union-attr]
        ("preemptions", [5.0]),
        ("out of memory", [2.0]),
    ]  # means of 4 and 6, of 1 and 3


def test_many_instances_are_gathered_in_the_table_of_gaps() -> None:
    names = [f"i{k}" for k in range(60)]
    chart = quality.gaps(
        compare(study_of(["a"], names, [1]), [simulated("a", name, 1, 1.0) for name in names])
    )
    assert chart is not None
    [heat] = chart.panels[0].marks
    assert (
        isinstance(heat, Heat)
        and len(heat.texts[0]) == 1 + quality.MOST_CASES
        and "of 60 instances" in chart.note
    )
    assert heat.texts[0][0] == "50.0"


# ------------------------------------------------------------------------------------------------
# pages and figures


def many(count: int, seeds: int = 8) -> tuple[Study, list[Result]]:
    """A study of so many methods with curves."""
    names = [f"method-{k}" for k in range(count)]
    results = []
    for instance in ("one", "two"):
        for k, name in enumerate(names):
            for seed in range(seeds):
                jct_h = 2.0 + 0.1 * k + 0.01 * seed
                curves = {
                    "jct_s": [600.0 * (k + 1), 3600.0 * jct_h],
                    "gpus_held": {"edges_s": [0.0, 3600.0, 7200.0], "share": [1.0, 0.5]},
                }
                results.append(
                    simulated(name, instance, seed, jct_h, p99_h=20 - 0.1 * k, curves=curves)
                )
    return study_of(
        names, ["one", "two"], list(range(seeds)), title="A <b>study</b> & more"
    ), results


def test_the_report_of_fifty_methods_stands_alone_and_can_be_read(tmp_path: Path) -> None:
    study, found = many(50, seeds=8)
    folder = Results(tmp_path / "out")
    write_report(study, tmp_path / "study.toml", "optsched study study.toml -o out", found, folder)
    figures = {path.name: path.read_bytes() for path in (tmp_path / "out" / "figures").iterdir()}
    drawn = {"gaps", "profile", "pareto", "jct", "use", "significance"}
    assert set(figures) == {f"{name}.{kind}" for name in drawn for kind in ("svg", "pdf")} | {
        "significance.csv"
    }
    for name in drawn:
        ET.fromstring(figures[f"{name}.svg"])
        assert figures[f"{name}.pdf"].startswith(b"%PDF")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "A &lt;b&gt;study&lt;/b&gt; &amp; more" in page and "<b>study</b>" not in page
    assert page.count("plotly.js v") == 1 and not re.search(
        r"<(script|link|img)[^>]*(src|href)=", page
    )
    assert (
        page.count("Again: optsched study study.toml -o out.") == len(drawn) + 1
        and "Run on a machine." in page
    )
    assert f"The best {TELLS} methods are told apart; 40 others are in grey." in page


def test_the_same_results_give_the_same_files(tmp_path: Path) -> None:
    study, found = many(2, seeds=8)
    written = []
    for name in ("first", "second"):
        write_report(study, tmp_path / "study.toml", "again", found, Results(tmp_path / name))
        there = sorted((tmp_path / name).rglob("*.*"))
        written.append({path.relative_to(tmp_path / name): path.read_bytes() for path in there})
    assert len(written[0]) == 15 and written[0] == written[1]


def test_a_study_of_which_every_run_failed_has_a_report_too(tmp_path: Path) -> None:
    study, found = study_of(["a"], ["one"], [1]), [simulated("a", "one", 1, None)]
    write_report(study, tmp_path / "study.toml", "again", found, Results(tmp_path / "out"))
    assert "failed: killed" in (tmp_path / "out" / "report.html").read_text()


SMALL = """
format = "optsched-study/1"
name = "small"
title = "Plans"
plans = true
policies = ["fifo"]

[[instances]]
name = "mixed"
command = "generate --like mixed --jobs 8 --gpus 16"

[[methods]]
name = "wspt"
command = "solve --solver wspt"
"""


def test_traces_and_plans_are_kept_and_drawn(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(SMALL)
    study, folder = read_study(path), Results(tmp_path / "out")
    found = run_study(study, folder, workers=2)
    fifo, wspt = (one.answer or {} for one in found)
    assert "jobs" not in wspt  # its plan
    assert found[0].made_on["numpy"] == np.__version__ and "cores" in found[0].made_on["machine"]
    assert len(fifo["curves"]["jct_s"]) == 8
    assert fifo["curves"]["jct_s"][-1] == pytest.approx(fifo["jct_s"]["max"], rel=1e-5)
    trace = quality.read_trace(folder.beside(found[1].address, "trace.csv"))
    assert trace[-1][1] == wspt["objective"]["value"] and trace[-1][2] == wspt["objective"]["bound"]
    for one in found:
        _, plan = files.read_plan(folder.beside(one.address, "plan.json.gz"))
        assert plan is not None and len(plan.jobs) == 8
    write_report(study, path, "again", found, folder)
    page = (tmp_path / "out" / "report.html").read_text()
    links = re.findall(r'<a href="(gantt/[^"]+)">Gantt</a>', page)
    assert links == [f"gantt/{one.address}.html" for one in found]
    for link in links:
        picture = (tmp_path / "out" / link).read_text()
        assert 'src="plotly.min.js"' in picture and len(picture) < 1_000_000
    assert (tmp_path / "out" / "gantt" / "plotly.min.js").stat().st_size > 1_000_000
    assert 'id="anytime"' in page


def test_thinned_curves_are_quantiles(tmp_path: Path) -> None:
    path = tmp_path / "many.json"
    runner = CliRunner()
    made = runner.invoke(
        main, ["generate", "--like", "mixed", "--jobs", "500", "--gpus", "64", "-o", str(path)]
    )
    assert made.exit_code == 0, made.output
    words = [
        "simulate",
        str(path),
        "--policy",
        "fifo",
        "--json",
        "--curves",
        "-o",
        str(tmp_path / "out"),
    ]
    total = json.loads(runner.invoke(main, words).stdout)
    with open(tmp_path / "out" / "jobs.csv", newline="") as lines:
        jct_s = sorted(float(row["jct_s"]) for row in csv.DictReader(lines))
    points = total["curves"]["jct_s"]
    assert len(points) == 200
    # The k-th of 200 is the ceil(2.5 k)-th smallest of 500.
    assert points == pytest.approx([jct_s[-(-5 * k // 2) - 1] for k in range(1, 201)], rel=1e-5)
    held = total["curves"]["gpus_held"]
    spent = float(np.dot(held["share"], np.diff(held["edges_s"])))
    assert spent / held["edges_s"][-1] == pytest.approx(total["use"]["gpus"], rel=1e-3)


def test_tables_for_papers_are_plain_latex() -> None:
    found = [simulated("a_b", "50% of {x}", 1, 2.5), simulated("c", "50% of {x}", 1, None)]
    text = as_latex(rows(found))
    assert (
        r"a\_b & $2.50$ & $9.0$ &" in text
        and r"\multicolumn{" in text
        and r"& gap & run \\" in text
    )
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    widths = {
        line.count("&")
        for line in text.splitlines()
        if line.endswith(r"\\") and "multicolumn" not in line
    }
    assert len(widths) == 1


def test_too_few_seeds_are_said(tmp_path: Path) -> None:
    study, found = many(2, seeds=4)
    write_report(study, tmp_path / "study.toml", "again", found, Results(tmp_path / "out"))
    page = (tmp_path / "out" / "report.html").read_text()
    assert (
        "that takes 8 seeds at least, and here no instance has more than 4" in page
        and "0.12" in page
    )  # 2 / 2^4
    assert (
        'id="significance"' not in page
        and not (tmp_path / "out" / "figures" / "significance.csv").exists()
    )
    assert quality.too_few_seeds(compare(*many(1, seeds=4))) is None  # there is nothing to compare
    assert quality.too_few_seeds(compare(*many(2))) is None


def test_commands_of_many_instances_are_told_by_what_they_share() -> None:
    instances = [
        InstanceSpec(name=f"j {k}", command=f"import psplib j30{k}_1.sm", group="j30")
        for k in range(480)
    ]
    instances.append(InstanceSpec(name="own", file="own.json"))
    study = Study(
        format="optsched-study/1",
        name="a",
        title="b",
        instances=tuple(instances),
        policies=("fifo",),
    )
    assert commands(study) == [
        "# j30: 480 instances, of files like these",
        "optsched import psplib j30*_1.sm -o INSTANCE",
        "INSTANCE=own.json",
        "optsched simulate INSTANCE --policy fifo --timing --json",
    ]
    assert in_common(["aXb", "aYYb", "ab"]) == "a*b" and in_common(["aa", "a"]) == "a*"


def test_a_busy_machine_is_said() -> None:
    run = simulated("a", "one", 1, 1.0).run
    quick, slow = Result(run, {}, None, 10.0, 9.0, 0.1), Result(run, {}, None, 30.0, 3.0, 0.1)
    assert busy([quick]) == "" == busy([])
    assert "runs had 30% of a core" in busy([quick, slow])  # 12 of 40 s
    assert (
        busy([quick, Result(run, None, "stopped", 30.0, 3.0, 0.1)]) == ""
    )  # says nothing of the machine
