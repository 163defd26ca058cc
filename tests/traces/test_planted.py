"""Planted packings: they fill the cluster to the last GPU, and what was planted can be found."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from optsched.cli import main
from optsched.engine import solve
from optsched.errors import InputError
from optsched.files.faults import find_faults
from optsched.traces.generate.planted import HORIZON_S, generate


@given(
    nodes=st.integers(1, 6),
    per_node=st.integers(1, 9),
    jobs=st.integers(3, 60),
    seed=st.integers(0, 1000),
)
def test_the_pieces_fill_the_cluster(nodes: int, per_node: int, jobs: int, seed: int) -> None:
    instance = generate(jobs=jobs, gpus=nodes * per_node, seed=seed, gpus_per_node=per_node)
    assert not find_faults(instance) and len(instance.jobs) == jobs
    assert instance.cluster.total_gpus == nodes * per_node
    spent_s = 0.0
    for job in instance.jobs:
        assert isinstance(job.gpus, int) and job.duration_s is not None
        spent_s += job.gpus * job.duration_s
        assert job.submit_s == 0 and 0 < job.duration_s <= HORIZON_S and job.duration_s % 60 == 0
        assert job.gpus <= per_node or job.gpus % per_node == 0
        if per_node in (1, 2, 4, 8):
            assert job.gpus in (1, 2, 4, 8, 16, 32)
    assert spent_s == nodes * per_node * HORIZON_S
    assert instance == generate(jobs=jobs, gpus=nodes * per_node, seed=seed, gpus_per_node=per_node)


def test_other_seeds_plant_other_gangs() -> None:
    found = {
        tuple(
            (job.gpus, job.duration_s)
            for job in generate(jobs=20, gpus=12, seed=seed, gpus_per_node=6).jobs
        )
        for seed in range(5)
    }
    assert len(found) == 5
    sizes = {job.gpus for job in generate(jobs=60, gpus=18, seed=1, gpus_per_node=6).jobs}
    assert sizes & {3, 5, 6, 12}  # not only powers of two


@pytest.mark.parametrize(("per_node", "jobs"), [(4, 6), (3, 6)])
def test_the_least_makespan_is_the_planted_one(per_node: int, jobs: int) -> None:
    instance = generate(jobs=jobs, gpus=2 * per_node, seed=3, gpus_per_node=per_node)
    solution = solve(
        instance, "makespan", solver="cpsat", time_limit_s=120, isolate=False, checked=True
    )
    assert (solution.status, solution.value, solution.bound) == ("optimal", HORIZON_S, HORIZON_S)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"jobs": 0, "gpus": 8}, "jobs must be between"),
        ({"jobs": 5, "gpus": 0}, "gpus must be between"),
        ({"jobs": 5, "gpus": 8, "gpus_per_node": 0}, "gpus_per_node must"),
        ({"jobs": 5, "gpus": 8, "seed": -1}, "seed"),
        ({"jobs": 1, "gpus": 24}, "24 GPUs for 10 h are cut into 2 to 14,400 jobs, not 1"),
        (
            {"jobs": 20, "gpus": 12},
            "12 GPUs are no whole nodes of 8; ask for 8 or 16, or give --gpus-per-node",
        ),
        ({"jobs": 20, "gpus": 5}, "5 GPUs are no whole nodes of 8; ask for 8, or"),
        ({"jobs": 601, "gpus": 1, "gpus_per_node": 1}, "1 to 600 jobs, not 601"),
    ],
)
def test_arguments_out_of_range(words: dict[str, int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        generate(**{"seed": 0, **words})


def test_the_command(tmp_path: Path) -> None:
    line = ["generate", "--like", "planted", "--jobs", "9", "--gpus", "12", "--gpus-per-node", "6"]
    found = CliRunner().invoke(main, [*line, "-o", str(tmp_path / "a.json"), "--json"])
    assert found.exit_code == 0, found.output
    said = json.loads(found.stdout)
    assert (said["jobs"], said["nodes"], said["gpus"]) == (9, 2, 12)
    for more, why in (
        (["--load", "2"], "--load goes with --like philly"),
        (["--days", "2"], "--days goes"),
        (["--uplinks", "10"], "--uplinks goes"),
        (["--checkpoint", "5m"], "--checkpoint goes"),
    ):
        wrong = CliRunner().invoke(main, [*line, *more, "-o", str(tmp_path / "b.json")])
        assert wrong.exit_code == 2 and why in wrong.output and not (tmp_path / "b.json").exists()
