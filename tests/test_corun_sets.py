"""Sets of jobs on GPUs: rates and choices by hand, and pairs against the simulator."""

from dataclasses import replace

import pytest

from benchmarks.corun_sets import STUDY, WORKLOAD, Play, Rule, Sets
from optsched import Cluster, Instance, Job, Node, Profile, generate, simulate
from optsched.model.profile import Sharing


def job(name: str, duty: float | None, work_s: float = 100.0, **pairs: float) -> Job:
    sharing = Sharing(duty=duty, partners=pairs)
    profile = Profile(name=name[0], gpu_memory_gib=5.0, sharing=sharing)
    return Job(id=name, gpus=1, duration_s=work_s, profile=profile)


def instance(*jobs: Job, gpus: int = 1) -> Instance:
    node = Node(name="n", gpus=gpus, gpu_type="p100", gpu_memory_gib=16.0)
    return Instance(cluster=Cluster(nodes=(node,)), jobs=jobs)


def test_rates_of_three() -> None:
    three = instance(job("a", 0.3, a=0.8), job("b", 0.5), job("c", 0.6))
    sets = Sets(three, Rule("any", 3, 16.0))
    assert sets.rate("a", ()) == 1.0 and sets.rate("a", ("a",)) == 0.8
    assert sets.rate("b", ("c",)) == pytest.approx(1 / 1.1)  # in turns
    assert sets.rate("a", ("a", "a")) == pytest.approx(1 / 1.5)  # 0.25 for each partner
    assert sets.rate("a", ("b", "c")) == pytest.approx(1 / 1.4)  # 0.3 + 0.5 + 0.6
    worst = Sets(three, Rule("any", 3, 16.0, "worst"))
    assert worst.rate("a", ("a", "a")) == 0.8


def test_what_may_be_together() -> None:
    some = instance(job("a", 0.3), job("b", 0.5), job("c", 0.6), job("d", None))
    fill, free = Sets(some, Rule("fill", 3, 16.0)), Sets(some, Rule("any", 3, 16.0))
    assert fill.may(("a", "a", "a")) and fill.may(("a", "b")) and not fill.may(("b", "c"))
    assert free.may(("b", "c")) and not free.may(("a", "d"))  # nothing known of d
    assert not free.may(("a", "a", "a", "a")) and not Sets(some, Rule("any", 3, 14.0)).may(
        ("a", "a", "a")
    )


@pytest.mark.parametrize(
    ("rule", "ends_s"),
    [
        (Rule("any", 1, 16.0), [100.0, 200.0, 300.0]),
        (Rule("fill", 2, 16.0), [100.0, 100.0, 200.0]),  # c joins nobody, a and b end together
        (Rule("any", 3, 16.0), [140.0, 140.0, 140.0]),  # all in turns: 1.4 times as long
    ],
)
def test_three_jobs_on_a_gpu(rule: Rule, ends_s: list[float]) -> None:
    three = instance(job("a", 0.3), job("b", 0.5), job("c", 0.6))
    assert [*Play(three, rule).run().values()] == pytest.approx(ends_s)


def test_sets_of_least_interference_are_chosen_together() -> None:
    """Two GPUs hold x and y; a goes well with either, b with x alone."""
    partners = {"x": {"a": 1.0, "b": 0.9}, "y": {"a": 0.9, "b": 0.2}}
    jobs = [
        replace(job(name, 0.9, 1000.0, **pairs), submit_s=0.0) for name, pairs in partners.items()
    ]
    late = {"a": {"x": 1.0, "y": 0.9}, "b": {"x": 0.9, "y": 0.2}}
    jobs += [replace(job(name, 0.9, 10.0, **pairs), submit_s=1.0) for name, pairs in late.items()]
    play = Play(instance(*jobs, gpus=2), Rule("any", 2, 16.0))
    ends_s = play.run()
    assert ends_s["a"] == pytest.approx(1 + 10 / 0.9) and ends_s["b"] == pytest.approx(1 + 10 / 0.9)


def test_a_gang_overlaps_in_part() -> None:
    """`g` takes the free GPU and the one beside `a`, and goes at the pace of the slower."""
    gang = replace(job("g", 0.9, 100.0), gpus=2)
    jobs = (job("a", 0.3, 1000.0), replace(gang, submit_s=1.0))
    ends_s = Play(instance(*jobs, gpus=2), Rule("parts", 2, 16.0)).run()
    assert ends_s["g"] == pytest.approx(1 + 100 * 1.2)
    assert Play(instance(*jobs, gpus=2), STUDY).run()["g"] == pytest.approx(1100.0)


def test_pairs_are_those_of_the_simulator() -> None:
    study = generate("even", seed=1, **{**WORKLOAD, "jobs": 60})
    plan = simulate(study, "xonar-style", options={"gangs": "whole"}).solution.plan
    assert plan is not None
    ends_s = Play(study, STUDY).run()
    assert ends_s == pytest.approx({entry.id: entry.completion_s for entry in plan.jobs})
