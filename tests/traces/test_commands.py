"""`optsched import` and `optsched generate`: what they write can be read, and what they print."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from optsched import files, import_trace
from optsched.cli import generate, import_
from optsched.errors import InputError
from optsched.model.instance import Failure, Instance
from optsched.model.job import Job
from optsched.plugins import registry
from optsched.traces.clusters import cluster_of
from optsched.traces.generate import synth as generator
from optsched.traces.resample import resampled

from .test_gavel import line7, trace
from .test_psplib import SMALL


def run(command: Any, *arguments: Any) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture
def psplib_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.mm"
    path.write_text(SMALL)
    return path


def test_import_writes_an_instance_and_says_so(tmp_path: Path, psplib_file: Path) -> None:
    output = tmp_path / "small.json"
    result = run(import_.command, "psplib", psplib_file, "-o", output)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        f"read 5 jobs from {psplib_file}, kept 2\n"
        "  dropped 3: activities of no duration and demand (source, sink, milestones)\n"
        f"wrote {output}\n"
    )
    assert files.read_instance(output) == registry.importer("psplib").read(psplib_file).instance


@pytest.mark.parametrize("output", [[], ["-o", "-"]])
def test_import_to_stdout(psplib_file: Path, output: list[str]) -> None:
    result = run(import_.command, "psplib", psplib_file, *output)
    assert (
        files.load_instance(result.stdout) == registry.importer("psplib").read(psplib_file).instance
    )
    assert result.stderr.startswith("read 5 jobs")
    assert run(import_.command, "psplib", psplib_file, "--quiet", *output).stderr == ""


def test_import_json(tmp_path: Path) -> None:
    source = trace(tmp_path, line7("A3C", 2, 1, 0), line7("A3C", 2, 1, 1), line7("A3C", 2, 4, 2))
    output = tmp_path / "out.json.gz"
    result = run(
        import_.command,
        "gavel",
        source,
        "--jobs",
        1,
        "--cluster",
        "v100=6",
        "--gpus-per-node",
        2,
        "--no-overheads",
        "-o",
        output,
        "--json",
    )
    assert json.loads(result.stdout) == {
        "source": str(source),
        "instance": "small",
        "read": 3,
        "kept": 1,
        "dropped": {
            "job type and GPU count are not in the throughput table": 1,
            "after the first 1": 1,
        },
        "nodes": 3,
        "gpus": 6,
        "output": str(output),
    }
    assert files.read_instance(output).jobs[0].profile.restore_s == 0


def test_import_quiet_writes_only_the_file(tmp_path: Path, psplib_file: Path) -> None:
    output = tmp_path / "small.json"
    assert run(import_.command, "psplib", psplib_file, "-o", output, "-q").output == ""
    assert output.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cluster", "1:1:1"], "--cluster does not go with the format psplib"),
        (["--gpus-per-node", "4"], "--gpus-per-node does not go with the format psplib"),
        (["--no-overheads"], "--no-overheads does not go with the format psplib"),
        (["-o", "absent/x.json"], "does not exist"),
    ],
)
def test_import_refuses(psplib_file: Path, arguments: list[str], said: str) -> None:
    result = run(import_.command, "psplib", psplib_file, *arguments)
    assert isinstance(result.exception, InputError)
    assert said in str(result.exception)


def test_import_unknown_format(psplib_file: Path) -> None:
    result = run(import_.command, "slurm", psplib_file)
    assert result.exit_code == 2
    assert "'gavel'" in result.stderr and "'psplib'" in result.stderr


def test_import_checks_before_it_writes(tmp_path: Path, psplib_file: Path) -> None:
    """A job none of whose modes can run: found when the instance is checked, and nothing is
    written."""
    psplib_file.write_text(SMALL.replace("    2    6\n", "    0    6\n"))
    output = tmp_path / "small.json"
    result = run(import_.command, "psplib", psplib_file, "-o", output)
    assert isinstance(result.exception, InputError)
    assert "job j2 can never run: it needs 1 of R1, there is 0" in str(result.exception)
    assert not output.exists()


def test_generate_writes_what_the_generator_makes(tmp_path: Path) -> None:
    output = tmp_path / "g.json"
    result = run(
        generate.command,
        "--like",
        "llm",
        "--jobs",
        30,
        "--gpus",
        64,
        "--seed",
        3,
        "--arrivals",
        "poisson",
        "--load",
        1.5,
        "--running",
        0.2,
        "--gpu-types",
        2,
        "--no-overheads",
        "-o",
        output,
    )
    assert result.exit_code == 0, result.output
    assert output.read_text() == files.dump_instance(
        generator.generate(
            jobs=30,
            gpus=64,
            seed=3,
            like="llm",
            arrivals="poisson",
            load=1.5,
            running=0.2,
            gpu_types=2,
            overheads=False,
        )
    )
    assert result.stdout == (
        "llm-30-jobs-64-gpus-2-types-seed-3: 30 jobs, 6 of them running, on 64 GPUs (nodes: 3 "
        "a100, 5 v100)\n"
        f"wrote {output}\n"
    )


def test_generate_to_stdout_and_json() -> None:
    result = run(generate.command, "--like", "mixed", "--jobs", 10, "--gpus", 32, "--json")
    assert files.load_instance(result.stdout) == generator.generate(jobs=10, gpus=32, seed=0)
    assert json.loads(result.stderr) == {
        "instance": "mixed-10-jobs-32-gpus-seed-0",
        "jobs": 10,
        "running": 0,
        "failures": 0,
        "nodes": 5,
        "gpus": 32,
        "offered_load": None,
        "output": "-",
    }
    assert run(generate.command, "--jobs", 10, "--gpus", 32, "--quiet").stderr == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--jobs", "0", "--gpus", "8"],
        ["--gpus", "8"],
        ["--jobs", "5", "--gpus", "8", "--running", "2"],
    ],
)
def test_generate_usage(arguments: list[str]) -> None:
    assert run(generate.command, *arguments).exit_code == 2


def test_generate_load_needs_poisson() -> None:
    result = run(generate.command, "--like", "llm", "--jobs", 5, "--gpus", 8, "--load", 0.5)
    assert isinstance(result.exception, InputError)
    assert "--load goes with --arrivals poisson for --like llm" in str(result.exception)


def test_resampled_traces_have_jobs_and_intervals_of_the_trace(tmp_path: Path) -> None:
    lines = [line7("A3C", 2 + k, 1, 10 * k * k) for k in range(5)]
    source = trace(tmp_path, *lines)
    whole = import_trace("gavel", source).instance
    intervals_s = {10.0, 30.0, 50.0, 70.0}
    seen = set()
    for seed in range(5):
        made = import_trace("gavel", source, resample=True, seed=seed, jobs=40).instance
        assert made == import_trace("gavel", source, resample=True, seed=seed, jobs=40).instance
        assert len({job.id for job in made.jobs}) == 40
        starts_s = [job.submit_s for job in made.jobs]
        assert {b - a for a, b in pairwise(starts_s)} <= intervals_s
        assert {job.duration_s for job in made.jobs} <= {job.duration_s for job in whole.jobs}
        seen.add(tuple(starts_s))
    assert len(seen) == 5
    assert len(import_trace("gavel", source, resample=True).instance.jobs) == 5


def test_jobs_that_wait_for_others_are_not_resampled(psplib_file: Path) -> None:
    with pytest.raises(InputError, match="--resample: jobs of this trace wait for others"):
        import_trace("psplib", psplib_file, resample=True)


def test_resampled_jobs_keep_failures_and_time_to_their_deadlines() -> None:
    jobs = (Job(id="a", submit_s=5, duration_s=9, deadline_s=20),)
    before = Instance(
        cluster=cluster_of("v100=1", 1), jobs=jobs, failures=(Failure(job="a", work_s=3.0),)
    )
    after = resampled(before, 1, 3)
    assert [(job.id, job.submit_s, job.deadline_s) for job in after.jobs] == [
        (name, 5.0, 20.0) for name in ("a", "a~2", "a~3")
    ]
    assert [failure.job for failure in after.failures] == ["a", "a~2", "a~3"]
    none = replace(before, jobs=(), failures=())
    assert resampled(none, 1, 3) == none
