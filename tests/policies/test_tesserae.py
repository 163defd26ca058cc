"""Tesserae: who is packed, and which nodes a new placement is named after."""

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Mode, Node, Profile, Running, Sharing, Slot
from optsched.driver.view import Fit
from optsched.driver.world import World
from optsched_solvers.policies.tesserae import pairs, renamed
from tests.clusters import equal_nodes, one_node
from tests.policies.verified import plan_of, times, where

ONE = (Node(name="n0", gpus=1),)
NODES = equal_nodes(4, gpus=4)


def busy(name: str, duty: float, **about: object) -> Job:
    profile = Profile(sharing=Sharing(duty=duty))
    return Job(id=name, duration_s=400.0, profile=profile, **about)  # type: ignore[arg-type]


def test_a_job_without_a_place_joins_whom_it_goes_with_best() -> None:
    jobs = busy("a", 0.8), busy("b", 0.3), busy("c", 0.6)
    world = World(Instance(cluster=one_node("n0", gpus=2), jobs=jobs))
    placed = {name: world.fit(name) for name in ("a", "b")}
    assert pairs(world, ["c"], {name: fit for name, fit in placed.items() if fit}) == {"c": "b"}


def test_pairs_that_gain_nothing_wait() -> None:
    plan = plan_of("tesserae-style", busy("a", 1.0), busy("b", 1.0), nodes=ONE)
    assert times(plan["a"]) == [(0.0, 400.0)] and times(plan["b"])[0][0] == 400.0
    plan = plan_of("tesserae-style", busy("a", 0.5), busy("b", 0.5), nodes=ONE)
    assert times(plan["a"])[0][0] == times(plan["b"])[0][0] == 0.0
    options = {"packing": "none"}
    plan = plan_of("tesserae-style", busy("a", 0.5), busy("b", 0.5), nodes=ONE, options=options)
    assert times(plan["b"])[0][0] == 400.0


def test_a_pair_stays_together_whichever_of_both_is_placed_first() -> None:
    """Neither is moved in any round while nobody else comes."""
    options = {"interval": "50s"}
    plan = plan_of("tesserae-style", busy("a", 0.5), busy("b", 0.5), nodes=ONE, options=options)
    for entry in plan.values():
        assert {segment.mode.share_with for segment in entry.segments} <= {None, "a", "b"}
        assert times(entry)[0][0] == 0.0 and times(entry)[-1][1] == 400.0


def test_who_runs_stays_where_it_is_as_others_come_before_it() -> None:
    """The four of them are placed anew in another order, but on the nodes where they run."""
    jobs = [Job(id=f"j{i}", gpus=4, duration_s=2000.0, submit_s=0.0) for i in range(2)]
    late = Job(id="late", gpus=4, duration_s=100.0, submit_s=30.0, priority=1)
    options = {"interval": "60s"}
    moved = plan_of(
        "tesserae-style", *jobs, late, nodes=NODES[:3], options={**options, "migration": "none"}
    )
    assert [node for entry in moved.values() for node in where(entry)] != [
        where(entry)[0] for entry in moved.values()
    ]
    kept = plan_of("tesserae-style", *jobs, late, nodes=NODES[:3], options=options)
    assert all(len(where(entry)) == 1 for entry in kept.values())


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6))
@settings(max_examples=150)
def test_the_names_keep_as_many_jobs_as_any(moves: list[tuple[int, int]]) -> None:
    """Single GPUs that run on one node and are placed on another, against all exchanges of
    nodes."""
    jobs, running, target, free = [], [], [], [[4] * 4, [4] * 4]
    for k, (now, then) in enumerate(moves):
        if not (free[0][now] and free[1][then]):
            continue
        free[0][now] -= 1
        free[1][then] -= 1
        jobs.append(Job(id=f"j{k}", duration_s=100.0))
        running.append(
            Running(
                job=f"j{k}",
                mode=Mode(gpus=1),
                placement=(Slot(node=f"n{now}", gpus=1),),
                started_s=-1000.0,
                remaining_s=50.0,
            )
        )
        target.append((now, then))
    world = World(Instance(cluster=Cluster(nodes=NODES), jobs=tuple(jobs), running=tuple(running)))
    whole = World(Instance(cluster=Cluster(nodes=NODES), jobs=tuple(jobs))).free
    placed: dict[str, Fit] = {
        job.id: (world.options(job.id)[0], (Slot(node=f"n{then}", gpus=1),))
        for job, (_, then) in zip(jobs, target, strict=True)
    }
    new = renamed(world, placed, {}, whole)
    kept = sum(
        new[job.id][1][0].node == f"n{now}" for job, (now, _) in zip(jobs, target, strict=True)
    )
    assert kept == max(
        sum(order[then] == now for now, then in target) for order in permutations(range(4))
    )
