"""The shipped studies, choices of the command line, and tables over many instances."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import phases, systems
from optsched.errors import InputError
from optsched.files import read_instance
from optsched.study.choice import chosen
from optsched.study.design import Across, Run, Study, read_study, runs
from optsched.study.intervals import Interval
from optsched.study.optima import Optimum, OptimumSpec, held_against, is_reached, optima_in
from optsched.study.results import Result
from optsched.study.summary import across_markdown, summaries, summary_markdown
from optsched.study.verdicts import FEWEST_SEEDS, shows
from optsched.traces.generate.synth import generate
from optsched.traces.profiles.checkpoint_cost import with_checkpoint_cost

ROOT = Path(__file__).parent.parent.parent
SHIPPED = sorted((ROOT / "instances" / "studies").glob("*.toml"))
SYSTEMS = sorted((ROOT / "instances" / "studies" / "systems").glob("*.toml"))
SYSTEMS += [phases.STUDY]
POLYNOMIAL = sorted((ROOT / "instances" / "studies" / "polynomial").glob("*.json"))


@pytest.mark.parametrize(
    "path", [one for one in SHIPPED if one.stem != "known-optima"], ids=lambda path: path.stem
)
def test_shipped_studies_can_be_read(path: Path) -> None:
    study = chosen(read_study(path))
    assert study.name == path.stem and runs(study)
    assert f"[{path.name}]({path.name})" in (path.parent / "README.md").read_text()


@pytest.mark.parametrize("path", SYSTEMS, ids=lambda path: path.stem)
def test_the_verdict_on_a_system_follows_from_what_is_published_of_its_study(path: Path) -> None:
    """Ten seeds, a rival whose queue does not block, `optsched` and its certified distance beside
    it, and on its page the verdict that its own numbers give."""
    study = read_study(path)
    methods = {method.name for method in study.all_methods}
    assert study.name == path.stem and study.name in methods and "optsched" in methods
    packs = all(method.command.startswith("pack ") for method in study.all_methods)
    assert len(study.seeds) >= FEWEST_SEEDS
    assert packs or methods & {"backfill", "srtf", "srsf"}  # a packing has no queue
    page = (systems.PAGES / f"{path.stem}.md").read_text()
    assert study.introduction in page
    if not packs:
        assert f"]({path.stem}.svg)" in page
        picture = (systems.PAGES / f"{path.stem}.svg").read_text()
        again = f"optsched study instances/studies/systems/{path.stem}.toml"
        command = f"Again: {phases.AGAIN if path == phases.STUDY else again}."
        assert command in picture, "the command depends on where results were written"
    assert page == systems.without_clock(page)
    for spec in study.instances:
        table = page.partition(f"\n### {spec.name}\n")[2].partition("\n### ")[0]
        head, own = (
            [cell.strip(" *") for cell in line.split("|")]
            for line in table.splitlines()
            if line.startswith(("| method |", "| `optsched` |"))
        )
        assert float(own[head.index("short of that %" if packs else "gap %")].split(" ")[0]) >= 0.0
    verdicts = set()
    for claim in study.claims:
        head = f"| `{claim.method}` against `{claim.against}`, {claim.column} |"
        [row] = [line for line in page.splitlines() if line.startswith(head)]
        seen = [
            Interval((0.0,) * FEWEST_SEEDS, float(mean) / 100, float(half) / 100)
            for mean, half in re.findall(r"([+-][\d.]+) ± ([\d.]+) %", row)
        ]
        showing = sum(shows(claim, change) for change in seen)
        verdict = re.search(r"\*\*(.*)\*\*", row)
        assert seen and verdict is not None
        assert (verdict[1] == "not shown") == (not showing)
        if verdict[1] == "shown":
            assert showing == len(seen)
        verdicts.add(verdict[1])
    [line] = [
        line for line in systems.overview().splitlines() if f"](systems/{path.stem}.md)" in line
    ]
    several = "shown in part" if study.claims else "nothing to hold"
    assert line.endswith(f"| {verdicts.pop() if len(verdicts) == 1 else several} |")


def test_the_overview_has_a_row_for_each_study_of_a_system() -> None:
    assert {path.stem for path in SYSTEMS} == {path.stem for path in systems.PAGES.glob("*.md")}
    marked = systems.MARKED.search(systems.OVERVIEW.read_text())
    assert marked is not None and marked[0] == systems.overview()
    told = systems.BEHIND.search(systems.OVERVIEW.read_text())
    assert told is not None and told[0] == systems.behind()


def test_a_page_has_no_columns_of_the_clock_and_a_row_has_the_range_of_what_is_seen() -> None:
    assert systems.without_clock("a|b\n| m | run s | gap % |\n|---|--:|--:|\n| x | 1 | 2 |\n") == (
        "a|b\n| m | gap % |\n|---|--:|\n| x | 2 |\n"
    )
    page = """# Some: thing
| `a` against `b`, mean JCT | -19 % (abstract (v1)) | 1 % -5.0 ± 1.0 %; 2 -10.0 % | **shown**: 9 |
| `a` against `c`, makespan | +5 % | x +0.5 ± 1.0 % | **not shown**: no interval |
"""
    assert systems.row("some", page) == (
        "| [Some](systems/some.md) | mean JCT -19 %; makespan +5 % | mean JCT -10.0 to -5.0 % "
        "against `b`; makespan +0.5 % against `c` | shown in part |"
    )


def test_what_is_told_is_that_of_each_instance() -> None:
    page = """# Some: thing

### Published and seen: verdicts

| claim | seen |
|---|---|
| `a` against `optsched`, mean JCT | -1 % |

### first

| method | mean JCT h | p99 JCT h |
|---|--:|--:|
| `a` | **1.25 ± 0.10** | 9.0 |
| `optsched` | 1.30 | **8.0** |

### second

| method | mean JCT h | workflow latency s |
|---|--:|--:|
| `optsched` | 0.00 ± 0.00 | **2.50 ± 0.10** |
"""
    assert systems.told(page, "workflow latency s", "mean JCT h") == {
        "first": ("mean JCT h", {"a": 1.25, "optsched": 1.3}),
        "second": ("workflow latency s", {"optsched": 2.5}),
    }
    assert systems.told(page, "p99 JCT h") == {"first": ("p99 JCT h", {"a": 9.0, "optsched": 8.0})}


@pytest.mark.parametrize(("p99", "is_told"), [("8.4", False), ("8.5", True)])
def test_a_much_longer_p99_is_told(
    p99: str, is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the rival that has the best mean, whoever has the best p99."""
    monkeypatch.setattr(systems, "PAGES", tmp_path)
    (tmp_path / "some.md").write_text(
        "# Some: thing\n\n### first\n\n| method | mean JCT h | p99 JCT h |\n|---|--:|--:|\n"
        f"| `a` | 1.25 | **8.0** |\n| `b` | 2.0 | 3.0 |\n| `optsched` | **1.2** | {p99} |\n"
    )
    said = systems.behind()
    assert "Of 1 tables" in said and "in 1. In the others" in said
    assert ("| [Some](systems/some.md) | first | `a` | 8 h | 8.5 h | +6.2% |" in said) == is_told


def test_published_optima_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTSCHED_DATA", str(tmp_path))
    monkeypatch.chdir(ROOT)
    study = read_study(ROOT / "instances" / "studies" / "known-optima.toml")
    with pytest.raises(InputError, match="instance j30: no file matches"):
        chosen(study)
    for folder, names in (
        ("psplib-j30", ("j301_2.sm", "j301_10.sm", "j301_1.sm")),
        ("psplib-mm-j10", ("j10 a.mm",)),
    ):
        (tmp_path / "known-optima" / folder).mkdir(parents=True)
        for name in names:
            (tmp_path / "known-optima" / folder / name).touch()
    with pytest.raises(InputError, match=r"optimum/optimum\.csv: cannot be read"):
        chosen(study)
    table = tmp_path / "known-optima" / "psplib-j30" / "optimum" / "optimum.csv"
    table.parent.mkdir()
    table.write_text("problem,optimum\nj301_1.sm,43\nj301_2.sm,\nj301_10.sm,45\n")
    (tmp_path / "known-optima" / "psplib-mm-j10" / "optimum.csv").write_text(
        "instance,objective\nj10 a,17\n"
    )
    found = runs(chosen(study))
    assert [(run.instance, run.group) for run in found][:4] == [
        ("j30 j301_1", "j30"),
        ("j30 j301_2", "j30"),
        ("j30 j301_10", "j30"),
        ("j10 multi-mode j10 a", "j10 multi-mode"),
    ]
    assert found[3].make == f"import psplib '{tmp_path}/known-optima/psplib-mm-j10/j10 a.mm'"
    assert [run.optimum for run in found[:4]] == [
        Optimum("makespan", 43.0),
        None,
        Optimum("makespan", 45.0),
        Optimum("makespan", 17.0),
    ]
    assert {run.method for run in found[:4]} == {"makespan"} and {
        run.method for run in found[4:10]
    } == {"wct"}
    assert all(run.optimum is not None and run.optimum.objective == "wct" for run in found[4:10])
    planted = found[10:]
    assert {run.optimum for run in planted} == {Optimum("makespan", 36000.0)} and len(
        planted
    ) == 3 * 3 * 3
    few = runs(chosen(study, limit=2))
    assert [run.instance for run in few][:2] == ["j30 j301_1", "j30 j301_2"] and len(
        few
    ) == 2 + 1 + 2 + 27


@pytest.mark.parametrize("path", POLYNOMIAL, ids=lambda path: path.stem)
def test_stated_optima_of_polynomial_instances(path: Path) -> None:
    # One machine: Smith's order. Equal weights on m machines: the k-th longest job counts ceil(k /
    # m) times.
    instance = read_instance(str(path))
    gpus = instance.cluster.total_gpus
    jobs = [(job.duration_s or 0.0, job.weight) for job in instance.jobs]
    if gpus == 1:
        now_s = value = 0.0
        for duration_s, weight in sorted(jobs, key=lambda one: one[0] / one[1]):
            now_s += duration_s
            value += weight * now_s
    else:
        assert {weight for _, weight in jobs} == {1}
        value = sum(
            d * (1 + k // gpus) for k, d in enumerate(sorted((d for d, _ in jobs), reverse=True))
        )
    table = OptimumSpec(objective="wct", file="optima.csv")
    assert optima_in(table, path.parent / "optima.csv")[path.stem] == Optimum("wct", value)
    assert (
        f"| {path.stem} | {value:,.0f} |"
        in (ROOT / "instances" / "studies" / "README.md").read_text()
    )


def test_values_in_place_of_the_files(tmp_path: Path) -> None:
    study = read_study(ROOT / "instances" / "studies" / "preemption-cost.toml")
    small = chosen(study, settings=[("seed", "7"), ("checkpoint", "0, 5m")])
    assert {dict(run.parameters)["seed"] for run in runs(small)} == {7}
    assert {dict(run.parameters)["checkpoint"] for run in runs(small)} == {"0", "5m"}
    sizes = chosen(
        read_study(ROOT / "instances" / "studies" / "solvers.toml"), settings=[("jobs", "10")]
    )
    assert sizes.parameters["jobs"] == (10,)
    for settings, said in (
        ([("rounds", "1")], "no such parameter; known are checkpoint, seed"),
        ([("seed", "one")], "seeds are whole numbers"),
    ):
        with pytest.raises(InputError, match=said):
            chosen(study, settings=settings)


def _result(
    group: str | None, status: str, gap: float, cpu_s: float, jct_h: float = 0.0, **parameters: int
) -> Result:
    run = Run("one", "m", tuple(parameters.items()), None, "f", "solve", group)
    answer = {"objective": {"status": status, "gap": gap}, "jct_s": {"mean": 3600 * jct_h}}
    return Result(run, answer, None, 0.0, cpu_s, 0.0)


def test_summaries_count_what_is_proved() -> None:
    results = [
        _result("g", "optimal", 0.0, 1.0),
        _result("g", "feasible", 0.5, 4.0),
        _result("g", "optimal", 0.0, 2.0),
    ]
    results.append(Result(results[0].run, None, "no", 0.0, 9.0, 0.0))
    (one,) = summaries(results)
    assert (one.runs, one.failed, one.proved) == (4, 1, 2)
    # gaps 0, 0, 50 %: mean 16.67, median 0; times 1, 2, 4 s.
    assert "| `m` | 4 | 1 | 2 (50.0 %) | 16.67 | 0.00 | 50.00 | 2.0 | 4.0 |" in summary_markdown(
        [one]
    )


def _against(
    optimum: float, status: str, value: float | None, bound: float | None, name: str = "makespan"
) -> Result:
    run = Run("one", "m", (), None, "f", "solve", "g", Optimum("makespan", optimum))
    goal = {"name": name, "status": status, "value": value, "bound": bound, "gap": 0.0}
    return held_against(Result(run, {"objective": goal}, None, 0.0, 1.0, 0.0))


@pytest.mark.parametrize(
    ("status", "value", "bound", "said"),
    [
        ("optimal", 43.0, 43.0, None),
        ("feasible", 45.0, 40.0, None),
        ("feasible", 43.0, 40.0, None),
        ("optimal", 42.0, 42.0, "the value 42 is below it"),
        ("feasible", 45.0, 44.0, "the bound 44 is above it"),
        ("optimal", 45.0, 43.0, "45 is said to be optimal"),
        ("feasible", 42.0, 44.0, "is below it and the bound 44"),
        ("unknown", None, 44.0, "the bound 44 is above it"),
        ("optimal", 43 + 1e-9, 43 + 1e-9, None),
    ],
)
def test_runs_that_contradict_a_known_optimum_are_errors(
    status: str, value: float | None, bound: float | None, said: str | None
) -> None:
    result = _against(43.0, status, value, bound)
    assert (result.reason is None) == (said is None) and (result.answer is None) == (
        said is not None
    )
    assert said is None or said in (result.reason or "")
    assert is_reached(result) == (said is None and value is not None and abs(value - 43) < 1e-6)
    text = summary_markdown(summaries([result]))
    assert ("**Error**: `m`, one: contradicts the known optimum 43 of makespan" in text) == (
        said is not None
    )
    assert f"| {int(is_reached(result))} of 1 |" in text


def test_an_optimum_is_that_of_one_objective() -> None:
    result = _against(43.0, "optimal", 9.0, 9.0, name="wct")
    assert result.reason is None and not is_reached(result)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "has no column instance; its columns are a, b"),
        ("instance,b\nx,2\n", "has no column optimum"),
        ("instance,optimum\nx,many\n", "line 2: optimum of x is 'many', no number"),
        ("instance,optimum\nx,nan\n", "no number"),
        ("instance,optimum\nx.sm,1\nx,2\n", "line 3: x is there with two values"),
    ],
)
def test_faults_of_tables_of_optima(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "optima.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        optima_in(OptimumSpec(objective="makespan", file="optima.csv"), path)


def test_tables_across_a_parameter() -> None:
    results = [
        _result(None, "feasible", 0.0, 1.0, jct, x=x, seed=seed)
        for x, seed, jct in ((1, 1, 2.0), (1, 2, 4.0), (9, 1, 5.0), (9, 2, 6.0))
    ]
    text = across_markdown(results, Across(parameter="x"))
    assert text.startswith("### one: mean JCT, h by x") and "| `m` | **3.00** | **5.50** |" in text


def test_one_checkpoint_cost_for_all() -> None:
    before = generate(jobs=20, gpus=16, seed=1)
    after = with_checkpoint_cost(before, 90.0)
    assert {(job.profile.checkpoint_s, job.profile.restore_s) for job in after.jobs} == {
        (90.0, 90.0)
    }
    assert [job.profile.startup_s for job in after.jobs] == [
        job.profile.startup_s for job in before.jobs
    ]


def test_faults_of_files() -> None:
    base = {"format": "optsched-study/1", "name": "a", "title": "b", "policies": ["fifo"]}
    for spec, said in (
        ({"files": "*.sm", "command": "generate --jobs 2"}, "no command but import FORMAT"),
        ({"files": "*.sm", "file": "a"}, "give no file"),
        ({"files": "{x}"}, "takes no parameter"),
        ({"file": "a", "optimum": {"objective": "wct"}}, "give value, a number, or the file"),
        ({"file": "a", "optimum": {"objective": "wct", "file": "b"}}, "goes with files"),
        (
            {"files": "a", "optimum": {"objective": "wct", "file": "b", "value": 3}},
            "names a column",
        ),
    ):
        text = json.dumps({**base, "instances": [{"name": "i", **spec}], "parameters": {"x": [1]}})
        with pytest.raises(ValueError, match=said):
            Study.model_validate_json(text)
    text = json.dumps({**base, "title": 257 * "b", "instances": [{"name": "i", "file": "a"}]})
    with pytest.raises(ValueError, match="at most 256 characters"):
        Study.model_validate_json(text)
