"""RLTune: features, reward, ways and mapping by hand and by brute force; learning is reproducible
and saved."""

import json
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Node, Profile, files
from optsched.cli import learn as learn_command
from optsched.errors import InputError
from optsched.plugins.registry import policy
from optsched.simulate.virtual import VirtualWorld
from optsched.traces.generate.synth import generate
from optsched_solvers.policies.rltune import DEFAULT_WEIGHTS, training
from optsched_solvers.policies.rltune.queue import Moment
from optsched_solvers.policies.rltune.scorer import Present, features, from_vector, read, untrained
from optsched_solvers.policies.rltune.training import (
    base_score,
    batch,
    judge,
    parts,
    reward,
    score,
    train,
)
from optsched_solvers.policies.rltune.ways import best_ways, choose, cost, on_nodes, shapes
from tests.clusters import one_node
from tests.policies.verified import plan_of, times, where

NEARLY = 1 - 1e-5


def test_features_by_hand() -> None:
    # 192 GPUs, 10 free on 36 nodes of which 4 are fragmented. Two jobs of 4 and 16 GPUs wait for 6
    # h and 13 h. Demand over supply: 4/10/192; to come: (10 - 4) - 16 = -10 -> (192 - 10) /
    # 384.00001, and (10 - 16) - 4 = -10.
    waits_s, gpus = np.array([6 * 3600.0, 13 * 3600.0]), np.array([4.0, 16.0])
    found = features(Present(10, 192, 4, 36, 8), waits_s, gpus, [(2, 5), (0, 0)])
    assert found[0] == pytest.approx(
        [0.5, 0.5, 0.4 / 192, 182 / 384.00001, 4 / 36, NEARLY, 1.5 * NEARLY], abs=1e-12
    )
    assert found[1] == pytest.approx(
        [NEARLY, NEARLY, 1.6 / 192, 182 / 384.00001, 4 / 36, 1e-5, 1e-5], abs=1e-12
    )
    for tiers, ways, now in (
        ((1, 0), 1 / 3, NEARLY),
        ((1, 3), 2 / 3, 1.5 * NEARLY),
        ((0, 1), 1 / 3, 1e-5),
    ):
        row = features(Present(0, 192, 0, 36, 8), np.zeros(1), np.ones(1), [tiers])[0]
        assert (
            row[5:] == pytest.approx([ways, now]) and row[2] == NEARLY
        )  # no GPU is free: 1 / 1e-5 / 192


@pytest.mark.parametrize(
    "base, learned, expected", [(20, 5, 0.75), (5, 20, -0.75), (0.5, 0.25, 0.25), (-0.4, -0.6, 0.2)]
)
def test_the_reward_is_the_published_one(base: float, learned: float, expected: float) -> None:
    assert reward(base, learned) == pytest.approx(expected)  # (base - rl) / max(base, rl, 1)


def brute(
    free: list[int], gpus: int, per_node: int, nodes_used: int
) -> set[tuple[tuple[int, int], ...]]:
    """What each node gives, by how much it has free: all ways on so many nodes, nodes that are
    alike taken for one."""
    found = set()
    for nodes in combinations(range(len(free)), nodes_used):
        for taken in product(*(range(1, free[i] + 1) for i in nodes)):
            if sum(taken) == gpus:
                found.add(tuple(sorted(zip((free[i] for i in nodes), taken, strict=True))))
    return found


def effect(
    free: list[int], pattern: tuple[tuple[int, int], ...], per_node: int
) -> tuple[int, int, float]:
    """Changes of fragmented nodes, of GPUs in use on them and of the variance of utilisation, from
    the definitions."""
    after, left = [], list(pattern)
    for count in free:
        mine = next((pair for pair in left if pair[0] == count), None)
        if mine is not None:
            left.remove(mine)
        after.append(count - (mine[1] if mine else 0))
    partial = [[one for one in state if 0 < one < per_node] for state in (free, after)]
    variance = [float(np.var([1 - one / per_node for one in state])) for state in (free, after)]
    return (
        len(partial[1]) - len(partial[0]),
        sum(per_node - one for one in partial[1]) - sum(per_node - one for one in partial[0]),
        variance[1] - variance[0],
    )


@given(free=st.lists(st.integers(1, 4), min_size=1, max_size=5), gpus=st.integers(1, 9))
@settings(max_examples=80)
def test_ways_against_brute_force(free: list[int], gpus: int) -> None:
    per_node, counts = 4, tuple((n, free.count(n)) for n in (4, 3, 2, 1) if n in free)
    first, second = shapes(counts, gpus, per_node)
    fewest = -(-gpus // per_node)
    for tier, used in ((first, fewest), (second, fewest + 1)):
        every = brute(free, gpus, per_node, used)
        for shape in tier:
            pattern = tuple(sorted(shape.pattern))
            assert pattern in every
            frag, waste, balance = effect(free, pattern, per_node)
            assert (shape.frag, shape.waste) == (frag, waste)
            assert shape.balance == pytest.approx(balance if len(free) > 1 else 0.0, abs=1e-9)
        if tier is second:
            assert gpus > 1 or not tier
            assert all(shape.frag <= 0 for shape in tier)
    # The public enumeration leaves a kind of node half used only when it is the last: what it finds
    # on one node is all.
    if fewest == 1:
        assert {shape.pattern for shape in first} == brute(free, gpus, per_node, 1)


def program(
    free: dict[int, int], ways: list[Any], per_node: int, next_gpus: int, inert: bool
) -> float:
    """The optimum of the whole program, by CP-SAT; `inert` leaves out the direction that the
    published rows lack."""
    from ortools.sat.python import cp_model

    model: Any = cp_model.CpModel()
    x = [model.NewBoolVar("") for _ in ways]
    model.AddExactlyOne(x)
    high, low = model.NewIntVar(0, 99, ""), model.NewIntVar(0, 99, "")
    cost_ = []
    big = per_node + 10
    for node, before in free.items():
        left = before - sum(dict(way).get(node, 0) * one for way, one in zip(ways, x, strict=True))
        f, y, b = (model.NewBoolVar("") for _ in range(3))
        model.Add(left <= high)
        model.Add(left >= low)
        model.Add(left >= 1 - big * (1 - f))
        model.Add(left <= per_node - 1 + big * (1 - f))
        if not inert:
            model.Add(left <= big * f + per_node * b)
            model.Add(left >= per_node * b)
        model.Add(left >= next_gpus * y)
        cost_.append(10 * f - 5 * y)
    model.Minimize(sum(cost_) + 3 * (high - low))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.Solve(model) == cp_model.OPTIMAL
    return float(solver.ObjectiveValue()) / 10


@given(
    free=st.lists(st.integers(1, 4), min_size=2, max_size=5),
    gpus=st.integers(2, 7),
    after=st.integers(1, 5),
)
@settings(max_examples=25)
def test_the_mapping_solves_the_program(free: list[int], gpus: int, after: int) -> None:
    by_free = {n: [i for i, one in enumerate(free) if one == n] for n in (4, 3, 2, 1) if n in free}
    first, second = shapes(tuple((n, len(nodes)) for n, nodes in by_free.items()), gpus, 4)
    ways = [
        way.assignment
        for way in best_ways(
            [on_nodes(one, by_free) for one in first], [on_nodes(one, by_free) for one in second]
        )
    ]
    assert len(ways) <= 4
    if ways:
        left = dict(enumerate(free))
        best = choose(left, ways, 4, after)[0]
        assert cost(left, ways[best], 4, after) == pytest.approx(
            program(left, ways, 4, after, inert=False)
        )


def test_the_published_rows_do_not_count_fragments() -> None:
    # Free 4 and 2 of 4 GPUs, a gang of 2: on the full node both are left with 2 (f = 2, range 0),
    # on the other one with 4 and 0 (f = 0, range 4). With the term: 2 against 0.3 x 4 - 0.5 (the
    # next gang of 4 fits): 2.0 and 0.7.
    free, ways = {0: 4, 1: 2}, [((0, 2),), ((1, 2),)]
    assert [cost(free, way, 4, 4) for way in ways] == pytest.approx([2.0, 0.7])
    assert choose(free, ways, 4, 4) == [1, 0]
    assert program(free, ways, 4, 4, inert=False) == pytest.approx(0.7)
    assert program(free, ways, 4, 4, inert=True) == pytest.approx(
        0.0
    )  # it takes the way that fragments two nodes


def test_two_sizes_of_nodes_are_two_pools() -> None:
    # Two nodes of 2 and one of 8: a gang of 4 is on both small ones or on the large one, of 6 on
    # the large one alone.
    nodes = (Node(name="s0", gpus=2), Node(name="s1", gpus=2), Node(name="l0", gpus=8))
    jobs = (Job(id="four", gpus=4, duration_s=9.0), Job(id="six", gpus=6, duration_s=9.0))
    world = VirtualWorld(Instance(cluster=Cluster(nodes=nodes), jobs=jobs))
    world.advance()
    moment = Moment(world)
    assert moment.tiers("four") == (2, 0) and moment.tiers("six") == (1, 0)
    present = moment.present()
    assert (
        present.free_gpus,
        present.gpus,
        present.fragmented,
        present.nodes,
        present.per_node,
    ) == (12, 12, 0, 3, 8)


def test_nobody_passes_the_gang_that_was_picked(tmp_path: Path) -> None:
    weights = np.zeros(len(untrained(0).vector()))  # all scores equal: the first in the queue
    path = tmp_path / "w.json"
    path.write_text(from_vector(weights).dump())
    jobs = [
        Job(id="a", gpus=3, duration_s=10.0),
        Job(id="b", gpus=4, duration_s=5.0, submit_s=1.0),
        Job(id="c", gpus=1, duration_s=5.0, submit_s=2.0),
        Job(id="cpu", gpus=0, cpus=1, duration_s=5.0, submit_s=3.0),
    ]
    found = plan_of(
        "rltune", *jobs, nodes=(Node(name="n", gpus=4, cpus=4),), options={"weights": str(path)}
    )
    assert [times(found[name]) for name in ("a", "b", "c", "cpu")] == [
        [(0, 10)],
        [(10, 15)],
        [(15, 20)],
        [(3, 8)],
    ]
    assert where(found["b"]) == [{"n": 4}]
    # It would end after b can start at 10, and b leaves it no room beside.
    jobs.append(Job(id="long", gpus=1, duration_s=9.0, submit_s=2.0))
    more = {"weights": str(path), "backfill": "yes"}
    found = plan_of("rltune", *jobs, nodes=(Node(name="n", gpus=4, cpus=4),), options=more)
    assert [times(found[name]) for name in ("b", "c", "long")] == [[(10, 15)], [(2, 7)], [(15, 24)]]
    # By score, not by arrival: of two that pass b, for one of which there is room, the smaller one.
    jobs[2:] = [
        Job(id="d", gpus=2, duration_s=5.0, submit_s=2.0),
        Job(id="e", gpus=1, duration_s=5.0, submit_s=2.0),
    ]
    jobs[0] = Job(id="a", gpus=2, duration_s=10.0)
    smallest = {"rule": "smallest", "backfill": "yes"}
    found = plan_of("rltune", *jobs, nodes=(Node(name="n", gpus=4, cpus=4),), options=smallest)
    assert [times(found[name]) for name in ("d", "e")] == [[(15, 20)], [(2, 7)]]
    with pytest.raises(InputError, match="expected no or yes"):
        policy("rltune", options={"backfill": "maybe"})


def test_the_fastest_type_that_has_a_way_is_taken() -> None:
    # The slow node would be filled, the fast one fragmented.
    nodes = (Node(name="slow", gpus=2, gpu_type="p"), Node(name="fast", gpus=4, gpu_type="v"))
    rates = Profile(rate={"p": 0.5, "v": 1.0})
    jobs = [Job(id=name, gpus=2, duration_s=9.0, profile=rates) for name in "abc"]
    found = plan_of("rltune", *jobs, nodes=nodes)
    assert sorted(next(iter(where(found[name])[0])) for name in "abc") == ["fast", "fast", "slow"]
    assert where(found["a"]) == [{"fast": 2}]


def test_a_plain_rule_picks_in_place_of_the_network() -> None:
    four = (Node(name="n", gpus=4),)
    jobs = [
        Job(id="first", gpus=3, duration_s=10.0),
        Job(id="wide", gpus=4, duration_s=5.0, submit_s=1.0),
        Job(id="small", gpus=2, duration_s=5.0, submit_s=1.0),
    ]
    found = plan_of("rltune", *jobs, nodes=four, options={"rule": "smallest"})
    assert [times(found[job.id]) for job in jobs] == [[(0, 10)], [(15, 20)], [(10, 15)]]


@pytest.mark.parametrize(
    "text, says",
    [
        ("{", "is not a weights file"),
        ('{"format": "optsched-weights/1"}', "rltune"),
        (
            '{"format": "optsched-weights/1", "policy": "rltune", "layers": [{"weights": [[1]], '
            '"bias": [0]}]}',
            "expected",
        ),
        ('{"format": "optsched-weights/1", "policy": "rltune", "layers": 3}', "must have weights"),
        ('{"format": "optsched-weights/1", "policy": "rltune", "layers": []}', "0 layers"),
    ],
)
def test_bad_weights_are_named(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        policy("rltune", options={"weights": str(path)})
    with pytest.raises(InputError, match="depth"):
        policy("rltune", options={"depth": "3"})


def workload(jobs: int = 60) -> Instance:
    return generate(jobs=jobs, gpus=16, seed=3, like="mixed", arrivals="poisson", load=1.5)


def test_jobs_are_split_in_time_and_learning_never_sees_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    split = parts(workload())
    order = sorted(workload().jobs, key=lambda job: job.submit_s)
    assert split.size == 36 and len(split.train) == 1
    assert [job.id for job in split.select[0].jobs] == [job.id for job in order[36:48]]
    held = {job.id for one in split.held_out for job in one.jobs}
    assert held == {job.id for job in order[48:]}
    seen: set[str] = set()
    real = training.score

    def noted(instance: Instance, *more: Any) -> float:
        seen.update(job.id for job in instance.jobs)
        return real(instance, *more)

    monkeypatch.setattr(training, "score", noted)
    monkeypatch.setattr(training, "judge", lambda *given: [])
    train([workload()], generations=1)
    assert seen and not seen & held
    with pytest.raises(InputError, match="ten at least"):
        parts(workload(9))


def test_scores_by_hand() -> None:
    # One GPU: x runs 0-20, y (submitted at 10) 20-25, so it waited 10 and took 15; 15 / max(5, 10)
    # = 1.5.
    jobs = (Job(id="x", duration_s=20.0), Job(id="y", duration_s=5.0, submit_s=10.0))
    one = Instance(cluster=one_node(gpus=1), jobs=jobs)
    expected = {
        "bounded-slowdown": 1.25,
        "wait": 5.0,
        "wct": 17.5,
        "slowdown": 2.0,
        "utilisation": -1.0,
    }
    assert {name: score(one, policy("fifo"), name) for name in expected} == pytest.approx(expected)
    assert all(base_score(rule, "wait", False, one) == 5.0 for rule in ("wfp", "f1", "smallest"))


def test_learning_is_reproducible_and_beats_where_it_began() -> None:
    one, two = (train([workload()], seed=4, generations=2)[0] for _ in range(2))
    assert (one.scorer.vector() == two.scorer.vector()).all() and one.selected == two.selected
    assert one.selected >= training.reward(
        base_score("fifo", "bounded-slowdown", False, parts(workload()).select[0]),
        score(parts(workload()).select[0], training.Scoring(untrained(4)), "bounded-slowdown"),
    )


def test_the_command_saves_what_the_policy_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = tmp_path / "i.json", tmp_path / "w.json"
    files.write_text(path, files.dump_instance(workload()))

    def run(*given: str) -> Any:
        return CliRunner().invoke(
            learn_command.command, ["rltune", str(path), *given], standalone_mode=False
        )

    result = run("--generations", "1", "--seed", "2", "-o", str(out))
    assert result.exception is None and "mean reward on held-out batches" in result.output
    text = out.read_text()
    assert read(out).about["command"] == "optsched learn rltune i.json --seed 2 --generations 1"
    assert json.loads(run("--generations", "1", "--seed", "2", "-o", str(out), "--json").stdout)[
        "held_out"
    ]
    assert out.read_text() == text
    assert (
        policy("rltune", options={"weights": str(out)}).scorer.vector().shape
        == untrained(0).vector().shape
    )  # type: ignore[attr-defined]
    real, calls = training.score, iter(range(10**6))

    def interrupted(*given: Any) -> float:
        if next(calls) == 8:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(training, "score", interrupted)
    assert run("--generations", "9", "-o", str(out)).exception is None
    assert read(out).about["generation"] == 0  # the best so far
    monkeypatch.undo()
    for wrong, says in (("--base=nobody", "nobody"), ("--objective=fun", "fun")):
        assert says in str(run(wrong).exception)
    refused = CliRunner().invoke(learn_command.command, ["fifo", str(path)], standalone_mode=False)
    assert "learns nothing" in str(refused.exception)


def test_the_weights_in_the_package_say_how_to_make_them() -> None:
    scorer = read(DEFAULT_WEIGHTS)
    assert scorer.about["command"].startswith("optsched learn rltune ")
    assert scorer.dump() == DEFAULT_WEIGHTS.read_text()


def test_the_weights_in_the_package_beat_the_base_rule_where_they_were_not_learned() -> None:
    held_out = [
        batch(
            generate(jobs=250, gpus=32, seed=seed, like="mixed", arrivals="poisson", load=1.3),
            0,
            250,
        )
        for seed in (11, 12)
    ]
    found = judge(read(DEFAULT_WEIGHTS), held_out, "bounded-slowdown", "fifo")
    assert np.mean([gain for _, _, gain in found]) > 0
