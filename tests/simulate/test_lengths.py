"""What a job of uncertain length is worth: its Gittins rank."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched.driver.snapshot import snapshot
from optsched.estimates.errors import ASSUMED
from optsched.estimates.history import ASSUMED_WEIGHT, SAME_WEIGHT, Ended, History, Likeness
from optsched.estimates.lengths import Lengths
from optsched.model.cluster import Cluster, Node
from optsched.model.instance import Completed, Instance
from optsched.model.job import Job
from optsched.plugins.registry import policy
from optsched.simulate.run import Simulation
from optsched.simulate.virtual import VirtualWorld
from optsched.traces.profiles.checkpoint_cost import with_checkpoint_cost

ANN = Likeness(user="ann", command="train", gpus=1)
PRIOR_S = 600.0
NODE = Node(name="n", gpu_type="v100", gpus=1, gpu_memory_gib=16.0, cpus=4, memory_gib=64.0)


def brute_force(lengths: list[tuple[float, float]], done_s: float) -> float:
    """Return the least work per completion over all steps, by the definition."""
    left = [(length - done_s, weight) for length, weight in lengths if length > done_s]
    ranks = [
        sum(min(more_s, step_s) * weight for more_s, weight in left)
        / sum(weight for more_s, weight in left if more_s <= step_s)
        for step_s, _ in left
    ]
    return min(ranks, default=done_s)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5)), min_size=1, max_size=12),
    st.integers(0, 60),
)
def test_a_rank_is_the_least_work_per_completion(
    lengths: list[tuple[float, float]], done_s: float
) -> None:
    known = Lengths(*zip(*lengths, strict=True))
    assert known.rank_s(done_s) == pytest.approx(brute_force(lengths, done_s))
    assert known.rank_s(done_s) == known.rank_s(done_s)


@pytest.mark.parametrize(("done_s", "rank_s"), [(0.0, 100.0), (60.0, 40.0), (100.0, 100.0)])
def test_of_a_certain_length_the_rank_is_what_is_left(done_s: float, rank_s: float) -> None:
    assert Lengths([100.0, 100.0], [1.0, 2.0]).rank_s(done_s) == rank_s


def test_jobs_count_by_how_much_they_are_like_it() -> None:
    ended = Ended()
    ended.add(ANN, PRIOR_S, 60.0)
    ended.add(Likeness(user="ann", command="train", gpus=2), PRIOR_S, 6000.0)
    before = ended.rank_s(ANN, PRIOR_S, 0.0)
    expected = [(ratio * PRIOR_S, ASSUMED_WEIGHT / len(ASSUMED)) for ratio in ASSUMED]
    expected += [(60.0, SAME_WEIGHT), (6000.0, 1.0)]
    assert before == pytest.approx(brute_force(expected, 0.0))
    for _ in range(30):  # what others run says nothing
        ended.add(Likeness(user="eve", command="train", gpus=1), PRIOR_S, 1e-3)
    assert ended.rank_s(ANN, PRIOR_S, 0.0) == before
    ended.add(ANN, PRIOR_S, 60.0)
    assert ended.rank_s(ANN, PRIOR_S, 0.0) < before


def with_a_running(names: str, cost_s: float) -> VirtualWorld:
    jobs = tuple(Job(id=name, duration_s=5000.0) for name in names)
    instance = with_checkpoint_cost(Instance(cluster=Cluster(nodes=(NODE,)), jobs=jobs), cost_s)
    world = VirtualWorld(instance, History())
    assert world.advance()
    option, placement = world.fit("a") or pytest.fail("it fits")
    world.start("a", option, placement)
    return world


@pytest.mark.parametrize("cost_s", [0.0, 60.0])
def test_of_two_alike_who_runs_goes_on_where_turns_cost(cost_s: float) -> None:
    a, b = snapshot(with_a_running("ab", cost_s), by_rank=True).instance.jobs
    if cost_s:
        assert a.work_s < 0.8 * b.work_s
    else:
        assert a.work_s == b.work_s


def test_who_runs_has_its_own_rank_where_nobody_waits() -> None:
    world = with_a_running("a", 60.0)
    assert snapshot(world, by_rank=True).instance.jobs[0].work_s == world.rank_work_s("a")


@pytest.mark.parametrize("cost_s", [0.0, 60.0])
@pytest.mark.parametrize("knows", [False, True])
def test_a_job_that_may_be_very_short_is_tried_before_one_that_is_sure_to_be_long(
    knows: bool, cost_s: float
) -> None:
    def job(user: str, number: int, duration_s: float, submit_s: float = 0.0) -> Job:
        name = f"{user}-{number}"
        return Job(id=name, gpus=1, duration_s=duration_s, submit_s=submit_s, user=user)

    # ann's jobs take half of the time 10 s, else 10,000 s: longer in the mean than bob's 2,000 s
    past = [job("ann", i, 10.0 if i % 2 else 10_000.0) for i in range(40)]
    past += [job("bob", i, 2000.0) for i in range(40)]
    jobs = (
        job("bob", 100, 2000.0, 1e6),
        job("ann", 100, 10_000.0, 1e6 + 100),
        job("bob", 101, 2000.0, 1e6 + 150),
    )
    instance = Instance(
        cluster=Cluster(nodes=(NODE,)),
        jobs=jobs,
        past=tuple(Completed(job=done, completed_s=1000.0 + i) for i, done in enumerate(past)),
    )
    instance = with_checkpoint_cost(instance, cost_s)
    estimates = None if knows else History()
    simulation = Simulation(instance, policy("optsched"), estimates=estimates)
    simulation.run()
    plan = simulation.record().plan()
    stays = [(segment.start_s, job.id) for job in plan.jobs for segment in job.segments]
    starts = [job_id for _, job_id in sorted(stays)]
    assert starts[:2] == ["bob-100", "bob-101" if knows else "ann-100"]
    if not cost_s:
        after = ["ann-100"] if knows else ["bob-100", "bob-101", "ann-100"]
        assert starts[2:] == after
