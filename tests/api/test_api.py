"""The Python API: what people write in a notebook, and what they are told when it is wrong."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import optsched as opt
from optsched.cli import main

EXAMPLE = Path(__file__).parents[2] / "instances" / "examples" / "preempt-or-continue.json"


@pytest.fixture
def model() -> opt.Model:
    m = opt.Model("lab", resources={"licences": 2})
    m.add_tenant("vision", gpu_quota=16)
    m.add_nodes("a100-[0-3]", gpu_type="a100", gpus=8)
    bert = m.add_job("bert", gpus=8, hours=2, checkpoint_s=25)
    m.add_running(bert, "a100-0", remaining_s=3600)
    train = m.add_job("train", gpus=32, minutes=30, weight=4, tenant=None)
    m.add_job("eval", gpus=8, minutes=10, after=[train])
    return m


@pytest.fixture(scope="module")
def solution() -> opt.Solution:
    return opt.solve(EXAMPLE, time_limit_s=10)


def test_a_model_makes_the_instance_that_the_nouns_make(model: opt.Model) -> None:
    mode = opt.Mode(gpus=8, gpu_type="a100")
    assert model.instance == opt.Instance(
        name="lab",
        cluster=opt.Cluster(
            nodes=tuple(opt.Node(name=f"a100-{i}", gpu_type="a100", gpus=8) for i in range(4)),
            resources={"licences": 2},
        ),
        tenants=(opt.Tenant(name="vision", gpu_quota=16),),
        jobs=(
            opt.Job(id="bert", gpus=8, duration_s=7200.0, profile=opt.Profile(checkpoint_s=25)),
            opt.Job(id="train", gpus=32, duration_s=1800.0, weight=4),
            opt.Job(id="eval", gpus=8, duration_s=600.0, after=("train",)),
        ),
        running=(
            opt.Running(
                job="bert",
                mode=mode,
                placement=(opt.Slot(node="a100-0", gpus=8),),
                remaining_s=3600,
            ),
        ),
    )


def test_a_solution_shows_and_explains_itself(model: opt.Model, tmp_path: Path) -> None:
    s = model.solve(objective="wct", time_limit_s=10)
    assert s.status == "optimal" and s.gap == 0
    assert s.jobs["eval"].start_s == s.jobs["train"].end_s == 1825
    assert s.explain("bert").startswith("bert is preempted")
    s.plot(tmp_path / "plan.svg")
    assert (tmp_path / "plan.svg").read_text().startswith("<?xml")
    assert "<svg" in s._repr_html_() and "optimal: no plan of this instance" in s._repr_html_()
    with pytest.raises(opt.InputError, match="no such kind of picture"):
        s.plot("plan.bmp")


def test_print_shows_what_the_command_line_shows() -> None:
    shown = CliRunner().invoke(main, ["solve", str(EXAMPLE), "--workers", "1"]).output
    assert str(opt.solve(str(EXAMPLE), workers=1)) == shown.rstrip("\n")
    shown = CliRunner().invoke(main, ["simulate", str(EXAMPLE), "--policy", "srtf"]).output
    assert str(opt.simulate(EXAMPLE, "srtf")) == shown.rstrip("\n")


def test_decide_simulate_verify_bound_and_explain(model: opt.Model) -> None:
    now = opt.decide(model, budget_s=60)
    assert now.status == "optimal" and "no round of this instance" in str(now)
    run = opt.simulate(model, policy="srtf", round_s=60)
    assert run.metrics["jobs"] == 3 and run.metrics["jct_s"]["mean"] >= 600
    report = opt.verify(model, run.plan)
    assert report.ok and report.values is not None
    assert opt.bound(model)[0].value <= report.values[0]
    assert opt.explain(model, now)["bert"] == now.explain("bert")
    assert opt.explain(model, job="eval") == {"eval": "eval waits for train to complete."}
    with pytest.raises(opt.InputError, match="'nobody' is not a job of lab"):
        opt.explain(model, job="nobody")


def test_what_was_preempted_before_comes_back_with_what_is_left(model: opt.Model) -> None:
    model.add_suspended(model.add_job("back", gpus=4, hours=1), remaining_s=600, preemptions=2)
    assert model.instance.suspended == (opt.Suspended(job="back", remaining_s=600, preemptions=2),)
    first = opt.decide(model, budget_s=60)
    assert {
        entry.id: entry.decision for entry in opt.decide(model, budget_s=60, last=first).jobs
    } == {entry.id: entry.decision for entry in first.jobs}


def test_files_come_back_as_they_went(
    model: opt.Model, solution: opt.Solution, tmp_path: Path
) -> None:
    opt.write_instance(model, tmp_path / "lab.json.gz")
    assert opt.read_instance(tmp_path / "lab.json.gz") == model.instance
    opt.write_plan(solution, tmp_path / "plan.json")
    assert opt.read_plan(tmp_path / "plan.json") == solution.plan
    again = opt.solve(EXAMPLE, initial=tmp_path / "plan.json", time_limit_s=5)
    assert again.value == solution.value


def test_a_frame_of_polars_or_pandas_or_a_sentence(
    model: opt.Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for library in ("polars", "pandas"):
        monkeypatch.setitem(sys.modules, library, None)
    s = opt.simulate(model, "fifo")
    with pytest.raises(opt.InputError, match="pip install polars"):
        s.to_frame()
    (tmp_path / "pandas.py").write_text("def DataFrame(columns): return columns\n")
    monkeypatch.delitem(sys.modules, "pandas")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert s.to_frame()["id"] == ["bert", "train", "eval"]
    assert opt.decide(model).to_frame()["decision"][0] == "preempt"


def test_faults_are_one_exception_with_a_sentence_for_each(model: opt.Model) -> None:
    for wrong, said in (
        (lambda: model.add_job("bert"), "job 'bert' is in the model already"),
        (lambda: model.add_job("x", gpu=2), "Job has no field .gpu. .did you mean gpus"),
        (lambda: model.add_running("nobody", "a100-0", remaining_s=1), "add it first"),
        (lambda: model.add_running("eval", "a100-9", remaining_s=1), r"'a100-9' is not in the"),
        (lambda: model.add_nodes("a[1-", gpus=1), r"a\[1-"),
        (lambda: opt.solve("nowhere.json"), "nowhere.json: cannot be read"),
        (lambda: opt.solve(EXAMPLE, gap=-1.0), "gap -1"),
    ):
        with pytest.raises(opt.InputError, match=said):
            wrong()
    model.add_job("big", gpus=64, minutes=1)
    model.add_job("lost", gpus=1, minutes=1, after=["nothing"])
    with pytest.raises(opt.InputError) as caught:
        model.solve()
    assert "lab: 2 faults" in str(caught.value)


def test_rooms_and_functions_of_one_name_live_together() -> None:
    """`optsched.simulate` is a package and a function, whichever is asked for first."""
    code = (
        "import optsched as opt, sys\n"
        "assert 'optsched.simulate' not in sys.modules\n"
        f"first = opt.simulate({str(EXAMPLE)!r}, 'fifo').metrics['jobs']\n"
        "import optsched.simulate.run, optsched.verify\n"
        "from optsched.simulate import run\n"
        f"assert opt.simulate({str(EXAMPLE)!r}, 'fifo').metrics['jobs'] == first == 4\n"
        "assert opt.simulate.run is run and callable(opt.verify) and callable(opt.explain)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
