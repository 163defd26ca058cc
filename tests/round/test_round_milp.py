"""The textbook model: its names, its back ends, its limits."""

import subprocess
import sys

import pytest

from optsched import Cluster, Instance, Job, Locality, Mode, Node, Profile, Running, Slot
from optsched.errors import InputError, SolverUnavailableError
from optsched.objectives import parse
from optsched.round.build import build
from optsched.round.decide import decide
from optsched_solvers.rounds import highs as round_highs
from optsched_solvers.rounds import milp as round_milp
from optsched_solvers.rounds.milp import Textbook
from tests.clusters import equal_nodes

TOGETHER = Profile(locality=Locality(node=1.0, cluster=0.0))


def small() -> Instance:
    """Three gangs for two nodes, of which one has a GPU that is held."""
    return Instance(
        cluster=Cluster(
            nodes=(Node(name="n0", gpu_type="a", gpus=8), Node(name="n1", gpu_type="a", gpus=8))
        ),
        jobs=(
            Job(id="runs here", gpus=1, duration_s=900.0),
            Job(id="größe", gpus=8, duration_s=60.0, profile=TOGETHER),
            Job(id="four", gpus=4, duration_s=30.0, profile=TOGETHER),
            Job(id="other", gpus=8, duration_s=50.0, profile=TOGETHER),
        ),
        running=(
            Running(
                job="runs here",
                mode=Mode(gpu_type="a", gpus=1),
                placement=(Slot(node="n0", gpus=1),),
                started_s=-9e3,
                remaining_s=500.0,
            ),
        ),
    )


def test_rows_and_variables_carry_the_names_of_jobs_and_capacities() -> None:
    problem = Textbook(build(small(), parse("wct"), 300.0)).problem
    rows = {row.name for row in problem.constraints()}
    assert {"job_3_runs_here", "job_1_gr__e", "job_0_four"} <= rows
    assert any("GPUs_of_a_x_8" in name for name in rows)
    assert any("free_slots_of_8_GPUs_of_a_x_8" in name for name in rows)
    assert any(name.startswith("node_8_on_0_n0") for name in rows)
    names = [variable.name for variable in problem.variables()]
    assert len(set(names)) == len(names) and all(
        name.isascii() and " " not in name for name in names
    )
    assert "x_3_runs_here_keep" in names and "slots_of_8_on_0_n0" in names


@pytest.mark.parametrize("backend", ["cbc", "CBC", "PULP_CBC_CMD"])
def test_a_back_end_by_its_short_name_or_by_pulps(backend: str) -> None:
    found = decide(small(), solver="milp", budget_s=60.0, options={"backend": backend})
    assert found.status == "optimal" and found.bound_source == "milp (PULP_CBC_CMD)"
    assert found.value == pytest.approx(
        decide(small(), solver="highs", budget_s=60.0).value, rel=1e-12
    )


@pytest.mark.parametrize("backend", ["scip", "gurobi", "cplex", "highs"])
def test_other_back_ends_are_used_or_said_to_be_absent(backend: str) -> None:
    try:
        found = decide(small(), solver="milp", budget_s=60.0, options={"backend": backend})
    except SolverUnavailableError as error:
        assert "not installed" in str(error) and "PULP_CBC_CMD" in str(error)
    else:
        assert found.value == pytest.approx(
            decide(small(), solver="highs", budget_s=60.0).value, rel=1e-9
        )


@pytest.mark.parametrize(
    ("solver", "options", "says"),
    [
        ("milp", {"backend": "abacus"}, "abacus"),
        ("milp", {"speed": "9"}, "no option speed; it has backend"),
        ("highs", {"gap": "0"}, "gap"),
    ],
)
def test_bad_options_are_told(solver: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        decide(small(), solver=solver, options=options)


@pytest.mark.parametrize(("solver", "module"), [("milp", round_milp), ("highs", round_highs)])
def test_a_round_that_is_too_large_is_refused_and_keeps_all(
    solver: str, module: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_OPTIONS", 3)
    found = decide(small(), solver=solver, budget_s=60.0)
    assert found.fallback is not None and "options" in found.fallback and "3" in found.fallback
    assert [entry.decision for entry in found.jobs] == ["continue", "wait", "start", "start"]
    assert found.bound >= found.value


def test_too_little_time_for_a_back_end_still_gives_the_plan_that_keeps_all() -> None:
    found = decide(small(), solver="milp", budget_s=1e-3)
    assert found.notes == ("milp: too little time for a back end",)
    assert [entry.decision for entry in found.jobs] == ["continue", "wait", "start", "start"]


@pytest.mark.parametrize("solver", ["highs", "milp"])
@pytest.mark.parametrize(("gpus", "running"), [(6, 3), (4, 2)])
def test_gangs_on_one_node_take_slots(solver: str, gpus: int, running: int) -> None:
    """Two gangs of 3 fit a node of 6; two nodes of 4 take one each, whatever the number of GPUs
    says."""
    instance = Instance(
        cluster=Cluster(nodes=equal_nodes(2, gpu_type="a", gpus=gpus)),
        jobs=tuple(
            Job(id=f"j{i}", gpus=3, duration_s=60.0 + i, profile=TOGETHER) for i in range(3)
        ),
    )
    found = decide(instance, solver=solver, budget_s=60.0)
    assert found.status == "optimal"
    assert sum(entry.mode is not None for entry in found.jobs) == running


def test_the_solvers_are_found_without_loading_what_they_need() -> None:
    check = (
        "import sys; from optsched.plugins import registry; registry.round_solver('milp'); "
        "registry.round_solver('highs'); "
        "assert not {'pulp', 'ortools'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
