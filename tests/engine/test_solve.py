"""Solvers that behave, and what the answer says of them."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from optsched import Cluster, Instance, Job, Node, Suspended
from optsched.engine import Progress, choose_solver, solve
from optsched.errors import InputError, SolverUnavailableError
from optsched.files import instance_hash
from optsched.objectives import parse
from tests.clusters import one_node
from tests.engine import fakes

HERE = dict(isolate=False)


@pytest.mark.parametrize("isolate", [True, False])
def test_a_better_plan_is_kept(isolate: bool) -> None:
    solution = solve(fakes.two_gpus(), "makespan", solver=fakes.Best(), seed=7, isolate=isolate)
    assert (solution.solver, solution.status, solution.fallback) == ("fake", "optimal", None)
    assert (solution.value, solution.bound, solution.gap) == (6.0, 6.0, 0.0)
    assert solution.notes == ("a note of the solver",)
    assert solution.seed == 7 and solution.objective == "makespan"
    assert solution.instance_hash == instance_hash(fakes.two_gpus())
    assert solution.wall_s is not None and solution.wall_s > 0


@pytest.mark.parametrize("isolate", [True, False])
def test_a_bound_confirms_the_heuristic(isolate: bool) -> None:
    options = {"bound": "20"}
    solution = solve(
        fakes.two_gpus(), "wct", solver=fakes.Prover(), options=options, isolate=isolate
    )
    assert (solution.solver, solution.status, solution.fallback) == ("fake", "optimal", None)
    assert solution.bound_source == "fake: a proof"
    assert "the plan is that of wspt, fake found no better one" in solution.notes


def test_a_weak_bound_leaves_the_combinatorial_one() -> None:
    solution = solve(fakes.two_gpus(), "wct", solver=fakes.Prover(), options={"bound": "3"}, **HERE)
    assert (solution.solver, solution.status, solution.bound) == ("fake", "feasible", 19.5)
    assert solution.bound_source is not None and "fake" not in solution.bound_source
    assert solution.fallback is None


def test_what_bounds_prove_needs_no_solver() -> None:
    instance = replace(fakes.two_gpus(), jobs=fakes.two_gpus().jobs[:2])
    solution = solve(instance, "makespan", solver=fakes.Raises())
    assert (solution.solver, solution.status, solution.fallback) == ("wspt", "optimal", None)
    assert any("fake did not run" in note for note in solution.notes)


@pytest.mark.parametrize(
    ("solver", "value", "note"),
    [
        (fakes.InvalidThenBest(), 6.0, "fake returned a plan that does not pass the verifier"),
        (fakes.OverclaimsThenBest(), 6.0, "a bound of 6.5 for makespan, but a verified plan has 6"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, fakes.Fake) else "",
)
def test_a_good_plan_of_a_faulty_solver_counts(solver: fakes.Fake, value: float, note: str) -> None:
    solution = solve(fakes.two_gpus(), "makespan", solver=solver, **HERE)
    assert (solution.solver, solution.value, solution.fallback) == ("fake", value, None)
    assert any(note in one for one in solution.notes)
    assert solution.bound == 6.0


@pytest.mark.parametrize("isolate", [True, False])
def test_a_crash_is_told_although_a_plan_came_before_it(isolate: bool) -> None:
    solution = solve(fakes.two_gpus(), "makespan", solver=fakes.BetterThenRaises(), isolate=isolate)
    assert (solution.solver, solution.value, solution.status) == ("fake", 6.5, "feasible")
    assert solution.fallback is not None
    assert solution.fallback.startswith("fake crashed: ZeroDivisionError")
    assert solution.fallback.endswith("; the plan is the best that it had found until then")


@pytest.mark.parametrize("isolate", [True, False])
def test_what_a_solver_refuses_is_no_crash(isolate: bool) -> None:
    solution = solve(fakes.two_gpus(), "makespan", solver=fakes.Refuses(), isolate=isolate)
    assert (solution.solver, solution.fallback) == (
        "wspt",
        "fake cannot go on: its licence is used up",
    )


def test_the_second_level_is_proved_only_after_the_first() -> None:
    class Levels(fakes.Fake):
        def solve(self, request, report):  # type: ignore[no-untyped-def]
            report.bound(1, 19.9, "too early")
            if request.options.first:
                report.bound(0, 20.0, "the first")

    before = solve(fakes.two_gpus(), "wct,makespan", solver=fakes.Fake(), **HERE)
    open_first = solve(fakes.two_gpus(), "wct,makespan", solver=Levels(), **HERE)
    assert open_first.levels == before.levels and open_first.status == "feasible"

    class Second(fakes.Fake):
        def solve(self, request, report):  # type: ignore[no-untyped-def]
            report.bound(0, 20.0, "the first")
            report.bound(1, 7.0, "the second")

    solution = solve(fakes.two_gpus(), "wct,makespan", solver=Second(), **HERE)
    assert [(level.value, level.bound) for level in solution.levels] == [(20.0, 20.0), (7.0, 7.0)]
    assert (solution.status, solution.bound_source) == ("optimal", "fake: the second")


def two_that_do_not_fit() -> Instance:
    return Instance(
        cluster=Cluster(nodes=(Node(name="n0", gpu_type="a100", gpus=2),), budgets={"money": 3.0}),
        jobs=tuple(Job(id=name, duration_s=1.0, budgets={"money": 2.0}) for name in "ab"),
    )


def test_infeasible_is_believed_where_nothing_else_is_known() -> None:
    solution = solve(two_that_do_not_fit(), solver=fakes.SaysInfeasible(), **HERE)
    assert (solution.status, solution.plan, solution.value, solution.gap) == (
        "infeasible",
        None,
        None,
        None,
    )
    assert "fake claims that no plan exists: the model has no solution" in solution.notes
    assert any(note.startswith("wspt gave no valid plan") for note in solution.notes)


def test_unknown_where_nobody_says_anything() -> None:
    assert solve(two_that_do_not_fit(), solver=fakes.Fake(), **HERE).status == "unknown"
    crashed = solve(two_that_do_not_fit(), solver=fakes.Raises(), **HERE)
    assert crashed.status == "unknown"
    assert crashed.fallback is not None and "ZeroDivisionError" in crashed.fallback


def test_nothing_to_plan() -> None:
    solution = solve(replace(fakes.two_gpus(), jobs=()), solver=fakes.Raises())
    assert (solution.status, solution.value, solution.bound) == ("optimal", 0.0, 0.0)


def test_a_policy_by_name_answers_alone() -> None:
    solution = solve(fakes.two_gpus(), "makespan", solver="fifo")
    assert (solution.solver, solution.value, solution.bound) == ("fifo", 7.0, 6.0)
    assert (solution.status, solution.fallback) == ("feasible", None)


def test_the_best_of_the_policies_is_the_heuristic() -> None:
    instance = Instance(
        cluster=one_node("n0", gpu_type="a100", gpus=1),
        jobs=(Job(id="long", duration_s=9.0, deadline_s=9.0), Job(id="short", duration_s=2.0)),
    )
    solution = solve(instance, "deadline", solver=fakes.Fake(), **HERE)
    assert solution.value == 0.0  # wspt runs the short job first and is late
    assert any("fifo" in note or "backfill" in note for note in solution.notes)


def test_progress_is_told() -> None:
    seen: list[Progress] = []
    hangs = fakes.BetterThenHangs()
    solve(fakes.two_gpus(), "makespan", solver=hangs, time_limit_s=2.0, on_progress=seen.append)
    assert seen[0].source == "wspt" and seen[0].value == 7.0
    assert (seen[-1].source, seen[-1].value, seen[-1].bound) == ("fake", 6.5, 6.0)
    assert seen[-1].gap == pytest.approx(0.5 / 6.5)
    assert all(a.elapsed_s <= b.elapsed_s for a, b in pairwise(seen))
    assert len([one for one in seen if one.source == "fake"]) >= 2  # also while nothing happens


def test_one_worker_depends_on_no_clock() -> None:
    found = [
        solve(
            fakes.two_gpus(),
            "wct",
            solver=fakes.Slow(),
            workers=1,
            seed=3,
            time_limit_s=5.0,
            options={"sleep_s": "0"},
        )
        for _ in range(2)
    ]
    assert found[0] == found[1]
    assert found[0].wall_s is None
    assert "limit 4.000000, seed 3, workers 1" in found[0].notes


def test_the_solver_is_told_what_time_is_left() -> None:
    solution = solve(
        fakes.two_gpus(), "wct", solver=fakes.Slow(), time_limit_s=5.0, options={"sleep_s": "0"}
    )
    (note,) = (note for note in solution.notes if note.startswith("limit"))
    assert 0.0 <= float(note.split()[1].rstrip(",")) < 5.0
    assert note.endswith("seed 0, workers 8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"solver": "nonsense"}, "nonsense"),
        ({"objective": "nonsense"}, "nonsense"),
        ({"time_limit_s": 0.0}, "time limit"),
        ({"time_limit_s": math.nan}, "time limit"),
        ({"workers": 0}, "workers"),
        ({"solver": type("Local", (fakes.Fake,), {})()}, "pickled"),
        ({"solver": type("Local", (fakes.Fake,), {"__module__": "__main__"})()}, "__main__"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        solve(fakes.two_gpus(), **arguments)  # type: ignore[arg-type]


def test_a_faulty_instance_is_refused() -> None:
    job = Job(id="a", duration_s=1.0, gpus=64)
    with pytest.raises(InputError, match="64"):
        solve(replace(fakes.two_gpus(), jobs=(job,)), solver="wspt")


def test_auto_takes_the_first_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    solvers: dict[str, fakes.Fake | Exception] = {}

    def registered(name: str) -> fakes.Fake:
        found = solvers[name]
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr("optsched.plugins.registry.solver", registered)
    monkeypatch.setattr("optsched.plugins.registry.names", lambda group: ("cpsat", "milp"))
    goal = parse("wct")
    cpsat, milp = fakes.Fake(), fakes.Fake()
    solvers.update(cpsat=cpsat, milp=milp)
    assert choose_solver(fakes.two_gpus(), goal) == (cpsat, None)
    solvers["cpsat"] = SolverUnavailableError("cpsat needs ortools, which is not installed")
    assert choose_solver(fakes.two_gpus(), goal) == (milp, None)
    solvers["milp"] = fakes.Unsupporting()
    chosen, reason = choose_solver(fakes.two_gpus(), goal)
    assert chosen is None
    assert (
        reason
        == "cpsat needs ortools, which is not installed; fake cannot plan this: it knows no GPUs"
    )
    many = replace(
        fakes.two_gpus(), jobs=tuple(Job(id=str(i), duration_s=1.0) for i in range(2001))
    )
    chosen, reason = choose_solver(many, goal)
    assert chosen is None and reason is not None and "2,000 jobs" in reason


def test_the_engine_is_light_to_import() -> None:
    import subprocess
    import sys

    root = Path(__file__).parents[2]
    heavy = "{'ortools', 'pulp', 'pandas', 'matplotlib', 'plotly'}"
    code = (
        f"import sys; sys.path.insert(0, {str(root)!r}); import optsched.engine; "
        f"print({heavy} & set(sys.modules))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        == "set()\n"
    )


@pytest.mark.parametrize("solver", ("cpsat", "milp", "wspt", "srtf", "auto"))
def test_a_job_that_was_preempted_too_often_is_planned_and_stays(solver: str) -> None:
    instance = Instance(
        cluster=one_node("n0", gpus=1),
        jobs=(
            Job(id="a", duration_s=100.0, max_preemptions=0),
            Job(id="b", duration_s=1.0, submit_s=10.0, weight=99.0),
        ),
        suspended=(Suspended(job="a", remaining_s=50.0),),
    )
    solution = solve(instance, solver=solver, isolate=False)
    assert solution.plan is not None and solution.fallback is None and not solution.notes[1:]
    if solver in ("cpsat", "milp"):
        assert (solution.status, solution.value) == ("optimal", 99.0 * 1.0 + 61.0)


@pytest.mark.parametrize(
    ("now_s", "submit_s", "objective", "noted"),
    [
        (1.7e9, 0.0, "wct", True),
        (1.7e9, 0.0, "makespan", False),
        (1.7e9, 1.6e9, "wct", False),
        (5e3, 0.0, "wct", False),
    ],
)
def test_a_wait_since_1970_is_noted(
    now_s: float, submit_s: float, objective: str, noted: bool
) -> None:
    instance = Instance(
        now_s=now_s,
        cluster=one_node("n0", gpus=1),
        jobs=(
            Job(id="a", duration_s=9.0, submit_s=submit_s),
            Job(id="b", duration_s=9.0, submit_s=now_s),
        ),
    )
    notes = solve(instance, objective, isolate=False).notes
    assert (
        any("submit_s of 1 of 2 jobs is 0 or left out, which is 1970" in note for note in notes)
        is noted
    )
