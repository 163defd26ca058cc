"""Strict priorities of whole plans: the jobs of the highest come first, whatever it costs the
others."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import assume, given, settings

from optsched.bounds import all_bounds
from optsched.cli import main
from optsched.engine import solve
from optsched.files import dump_instance, write_text
from optsched.model.cluster import Cluster, Node
from optsched.model.instance import Instance
from optsched.model.job import Job
from optsched.objectives import MOST_TIERS, TERMS, Usage, by_priority, parse, values
from optsched.traces.generate.synth import generate
from tests.oracles import brute_force, tiny

from .test_cpsat import assert_optimal
from .test_milp import proves
from .test_milp import solve as solve_milp


def with_priorities(instance: Instance, tiers: int = 2) -> Instance:
    jobs = (replace(job, priority=k % tiers) for k, job in enumerate(instance.jobs))
    return replace(instance, jobs=tuple(jobs))


def two_jobs() -> Instance:
    """One GPU; the short job is of the lower priority."""
    node = Node(name="n", gpu_type="a", gpus=1)
    jobs = (Job(id="long", duration_s=100.0, priority=3), Job(id="short", duration_s=1.0))
    return Instance(cluster=Cluster(nodes=(node,)), jobs=jobs)


@pytest.mark.parametrize(
    ("objective", "is_split"),
    [
        ("wct", "wct@2,wct@1,wct"),
        ("deadline,wct", "deadline@2,wct@2,deadline@1,wct@1,deadline,wct"),
        ("tail:0.9+2*energy", "tail:0.9@2+2*energy,tail:0.9@1+2*energy,tail:0.9+2*energy"),
        ("energy,wct", "wct@2,wct@1,energy,wct"),
        ("wct@1,makespan", "wct@1,makespan"),
    ],
)
def test_an_objective_by_priority(objective: str, is_split: str) -> None:
    instance = with_priorities(generate(jobs=6, gpus=4, seed=1), tiers=3)
    goal = by_priority(parse(objective), instance)
    assert goal.name == is_split and parse(is_split) == goal
    assert by_priority(parse(objective), with_priorities(instance, tiers=1)) == parse(objective)


def test_of_many_priorities_the_lowest_are_one() -> None:
    instance = with_priorities(generate(jobs=100, gpus=4, seed=1), tiers=100)
    levels = by_priority(parse("wct"), instance).levels
    assert len(levels) == MOST_TIERS
    assert [level[0][1].priority for level in levels] == [*range(99, 85, -1), 85, None]


def test_each_level_counts_the_jobs_of_its_priority_or_above() -> None:
    instance = two_jobs()
    plan = solve(instance, ignore_priorities=True).plan
    assert plan is not None
    assert values(parse("wct,wct@0,wct@3,wct@4,makespan@3,tail:0.5"), instance, plan) == (
        102.0,
        102.0,
        101.0,
        0.0,
        101.0,
        1.0,
    )


def test_they_are_strict_unless_ignored() -> None:
    strict, ignored = solve(two_jobs()), solve(two_jobs(), ignore_priorities=True)
    assert [(level.name, level.value, level.gap) for level in strict.levels] == [
        ("wct@3", 100.0, 0.0),
        ("wct", 201.0, 0.0),
    ]
    assert [(level.name, level.value) for level in ignored.levels] == [("wct", 102.0)]


@pytest.mark.parametrize("objective", ["wct", "makespan", "tail:0.5", "deadline"])
@given(instance=tiny.instances(most_jobs=4))
@settings(max_examples=5)
def test_optima_and_bounds_against_brute_force(objective: str, instance: Instance) -> None:
    instance = with_priorities(instance)
    goal = by_priority(parse(objective), instance)
    assume(len(goal.levels) == 2)
    best = brute_force.optimum(instance, goal)
    assume(best is not None)
    assert best is not None
    assert_optimal(instance, goal.name, best[0])
    alone = [brute_force.optimum(instance, replace(goal, levels=(own,))) for own in goal.levels]
    for bound in all_bounds(instance, goal):
        least = alone[bound.level]
        assert least is not None
        assert bound.value <= least[0][0] + 1e-9 * abs(least[0][0]) + 1e-4


@pytest.mark.parametrize("empty", [t.name for t in TERMS.values() if not isinstance(t, Usage)])
def test_a_level_in_which_no_job_counts_is_none(empty: str) -> None:
    solution = solve(two_jobs(), f"wct@3,{empty}@99,wct", solver="cpsat", workers=1, isolate=False)
    assert solution.fallback is None
    assert [level.value for level in solution.levels] == [100.0, 0.0, 201.0]


def test_milp_obeys_them_too() -> None:
    instance = two_jobs()
    goal = by_priority(parse("wct"), instance)
    heard, best = solve_milp(instance, goal.name)
    proves(heard, best, (100.0, 201.0))


def test_the_jobs_below_a_few_important_ones_are_planned_about_as_well_as_without_these(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("optsched_solvers.cpsat.clock.WORK_PER_SECOND", 0.004)
    instance = generate(
        jobs=40, gpus=16, seed=1, like="mixed", arrivals="batch", load=0.9, running=0.3
    )
    jobs = (replace(job, priority=int(k >= 38)) for k, job in enumerate(instance.jobs))
    instance = replace(instance, jobs=tuple(jobs))
    strict, ignored = (
        solve(instance, workers=1, time_limit_s=30.0, isolate=False, ignore_priorities=flag)
        for flag in (False, True)
    )
    assert strict.levels[0].gap == 0.0
    assert strict.value is not None and ignored.value is not None
    assert strict.value < 1.25 * ignored.value


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_the_command_line_plans_verifies_and_ignores_them(tmp_path: Path) -> None:
    instance, plan = tmp_path / "instance.json", tmp_path / "plan.json"
    write_text(instance, dump_instance(two_jobs()))
    done = run("solve", instance, "-o", plan, "--json")
    said = json.loads(done.stdout)
    assert said["objective"]["name"] == "wct@3,wct"
    assert run("verify", instance, plan).exit_code == 0
    done = run("solve", instance, "--ignore-priorities", "--json")
    assert json.loads(done.stdout)["objective"]["name"] == "wct"
    done = run("solve", instance, "--objective", "energy@3")
    assert done.exit_code == 2 and "leave out @3" in done.stderr
