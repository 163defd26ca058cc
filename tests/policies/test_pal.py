"""PAL: who chooses first, and what is chosen of speed and locality."""

from optsched import Job, Locality, Node, Profile
from tests.policies.verified import plan_of, times, where

SLOW_AND_FAST = (
    Node(name="slow", gpu_type="slow", gpus=2),
    Node(name="fast", gpu_type="fast", gpus=2),
)


def job(name: str, gpus: int, rate: float, away: float | None = None) -> Job:
    """A job whose rate is `rate` on the fast GPUs, and `away` times that over several nodes."""
    locality = None if away is None else Locality(rack=away, cluster=away)
    profile = Profile(rate={"slow": 1.0, "fast": rate}, locality=locality)
    return Job(id=name, gpus=gpus, duration_s=100.0, profile=profile)


def placed(*jobs: Job, nodes: tuple[Node, ...] = SLOW_AND_FAST, **options: str) -> dict[str, dict]:
    """Where each job is first."""
    plan = plan_of("pal-style", *jobs, nodes=nodes, options=options)
    return {job_id: where(entry)[0] for job_id, entry in plan.items()}


def test_whoever_feels_the_speed_most_chooses_first() -> None:
    for hot, cold in (("a", "b"), ("b", "a")):
        jobs = job(cold, 2, 1.1), job(hot, 2, 2.0)
        assert placed(*jobs) == {cold: {"slow": 2}, hot: {"fast": 2}}
        assert placed(*jobs, place="packed") == {"a": {"slow": 2}, "b": {"fast": 2}}


def test_speed_is_weighed_against_locality() -> None:
    """A gang of two takes two nodes with one fast GPU each, or one slow node, by the larger
    product."""
    nodes = (
        Node(name="f0", gpu_type="fast", gpus=1),
        Node(name="f1", gpu_type="fast", gpus=1),
        Node(name="s", gpu_type="slow", gpus=2),
    )
    spread, local = {"f0": 1, "f1": 1}, {"s": 2}
    assert placed(job("gang", 2, 1.5, away=0.8), nodes=nodes)["gang"] == spread
    assert placed(job("gang", 2, 1.5, away=0.6), nodes=nodes)["gang"] == local
    assert placed(job("gang", 2, 1.5, away=0.6), nodes=nodes, place="pm-first")["gang"] == spread
    assert placed(job("gang", 2, 1.5, away=0.8), nodes=nodes, place="packed")["gang"] == local


def test_a_gang_may_take_gpus_of_several_speeds_and_goes_as_the_slowest() -> None:
    nodes = tuple(
        Node(name=f"{speed}{i}", gpu_type=speed, gpus=2) for speed in ("slow", "fast") for i in "01"
    )
    plan = plan_of("pal-style", job("hot", 2, 3.0), job("gang", 4, 2.0), nodes=nodes)
    assert where(plan["hot"]) == [{"fast0": 2}]
    assert where(plan["gang"]) == [{"slow0": 2, "fast1": 2}]
    assert times(plan["gang"]) == [(0.0, 100.0)]


def test_whoever_comes_back_first_in_order_moves_to_the_fast_gpus() -> None:
    """The job that feels it more moves once the fast GPUs come free, at the next interval."""
    first = job("first", 2, 3.0)
    second = job("second", 2, 2.0)
    plan = plan_of("pal-style", first, second, nodes=SLOW_AND_FAST, options={"interval": "20s"})
    assert where(plan["first"]) == [{"fast": 2}]
    assert where(plan["second"]) == [{"slow": 2}, {"fast": 2}]
    assert times(plan["second"])[-1] == (40.0, 70.0)
