"""What a site adds for jobs that users submit themselves, when Slurm is asked for them, and who
does not take them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from optsched.cli import main
from optsched.control.settings import read_settings
from optsched.errors import InputError
from optsched.executors.base import AttemptKey, Order, RefusedError
from optsched.executors.opening import open_executor
from optsched.executors.orders import check
from optsched.executors.sbatch.jobs_json import HeldJobs
from optsched.executors.slurm.client import SlurmClient
from optsched.executors.slurm.setup import setup_sbatch
from optsched.model.instance import Slot
from tests.live.slurm_cluster import SlurmCluster

from .test_sbatch_answers import OLD


def test_lua_names_the_partition() -> None:
    files = setup_sbatch("n[1-4]", 'a"b', "/state")
    assert sorted(files) == ["cluster.toml", "job_submit.lua", "slurm.conf.part"]
    assert (
        '["a\\"b"] = true' in files["job_submit.lua"]
        and '"/state/sbatch/reports"' in files["job_submit.lua"]
    )
    assert "@" not in files["job_submit.lua"].replace("@param", "")
    assert "sbatch = true" in files["cluster.toml"]
    assert Path(files["cluster.toml"].split("shared = ")[1].split()[0].strip('"')) == Path("/state")
    assert '"/run/optsched/a\\"b.heartbeat"' in files["job_submit.lua"]
    settings = [
        line.partition("=")[0]
        for line in files["slurm.conf.part"].splitlines()
        if not line.startswith("#")
    ]
    assert settings == ["JobSubmitPlugins"]  # nothing that other partitions would feel


class Slurm(SlurmClient):
    """Answers from texts."""

    def __init__(self, *, knows_fields: bool = True) -> None:
        self.listed, self.knows_fields, self.asked = "7 PENDING", knows_fields, 0

    def ask(self, program: str, *words: str, given: str = "", unix_times: bool = False) -> str:
        assert "--partition=gpu" in words
        if "--json" in words:
            self.asked += 1
            return json.dumps({"jobs": [OLD]})
        if not self.knows_fields:
            raise RefusedError("Invalid job format specification")
        return self.listed


def test_json_is_asked_for_when_something_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Slurm()
    jobs = HeldJobs(slurm, "gpu")
    for _ in range(3):
        assert [job.target for job in jobs.ask(anew=False)] == ["7"]
    assert slurm.asked == 1
    slurm.listed = "7 RUNNING"
    jobs.ask(anew=False)
    assert slurm.asked == 2
    jobs.ask(anew=True)
    assert slurm.asked == 3
    monkeypatch.setattr("optsched.executors.sbatch.jobs_json.READ_S", 0.0)
    jobs.ask(anew=False)
    assert slurm.asked == 4


def test_fields_that_a_release_does_not_know() -> None:
    slurm = Slurm(knows_fields=False)
    jobs = HeldJobs(slurm, "gpu")
    for _ in range(2):
        assert [job.target for job in jobs.ask(anew=False)] == ["7"]
    assert slurm.asked == 2


@pytest.mark.parametrize("more", [["--user", "ann"], ["--user", "root", "--reservation", "r"]])
def test_setup_for_one_user_is_refused(more: list[str]) -> None:
    done = CliRunner().invoke(main, ["setup", "slurm", "--nodes", "n[1-2]", "--sbatch", *more])
    assert done.exit_code == 2


def test_setup(tmp_path: Path) -> None:
    words = [
        "setup",
        "slurm",
        "--nodes",
        "n[1-2]",
        "--user",
        "root",
        "--partition",
        "gpu",
        "--sbatch",
    ]
    done = CliRunner().invoke(
        main, [*words, "--shared", "/shared/o", "-o", str(tmp_path / "setup")]
    )
    assert done.exit_code == 0, done.output
    settings = read_settings(tmp_path / "setup" / "cluster.toml")
    assert (
        settings.table("slurm").sbatch
        and settings.table("slurm").partition == "gpu"
        and settings.attempts == Path("/shared/o")
    )
    lua = (tmp_path / "setup" / "job_submit.lua").read_text()
    assert '{ ["gpu"] = true }' in lua and '"/shared/o/sbatch/reports"' in lua


def test_who_is_stopped_for_others_by_default(tmp_path: Path) -> None:
    head = 'format = "optsched-cluster/1"\nexecutor = "slurm"\n[slurm]\n'
    (tmp_path / "cluster.toml").write_text(head)
    rules = read_settings(tmp_path / "cluster.toml").table("slurm")
    assert (rules.preempt, rules.min_run_s, rules.max_preemptions) == ("savers", 300.0, 5)
    for wrong in ('preempt = "some"', "max_preemptions = -1", 'min_run = "soon"'):
        (tmp_path / "cluster.toml").write_text(f"{head}{wrong}\n")
        with pytest.raises(InputError, match=f"slurm.{wrong.split()[0]}: "):
            read_settings(tmp_path / "cluster.toml")


@pytest.mark.parametrize("option", ["qos_weight", "account_weight"])
def test_weights_by_names_that_slurm_does_not_check(
    option: str, holding: SlurmCluster, tmp_path: Path
) -> None:
    (tmp_path / "cluster.toml").write_text(
        'format = "optsched-cluster/1"\nexecutor = "slurm"\n[slurm]\nsbatch = true\npartition = '
        '"optsched"\n'
        f'conf = "{holding.conf}"\n{option} = {{ high = 4 }}\n'
    )
    with pytest.raises(InputError, match=f"slurm.{option}: anybody could name one"):
        open_executor(read_settings(tmp_path / "cluster.toml"))


def test_another_executor_takes_no_such_jobs() -> None:
    """As after `sbatch = true` was taken out again: its words are no command."""
    placement = (Slot(node="n1"),)
    order = Order(
        key=AttemptKey("7", 1),
        placement=placement,
        argv=("sbatch", "x"),
        directory="/",
        origin="1.2",
    )
    with pytest.raises(RefusedError, match="whose jobs this executor does not take"):
        check(order)
