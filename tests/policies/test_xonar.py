"""Co-run sets within GPU memory against co-running whatever comes next: the rules by hand, and one
busy cluster."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from optsched import Cluster, Instance, Job, Node, Profile, Sharing
from optsched.errors import InputError
from optsched.objectives import parse
from optsched.plugins.registry import policy
from optsched.simulate.metrics import measure, summary
from optsched.simulate.run import Simulation
from tests.clusters import equal_nodes
from tests.policies.verified import plan_of, times
from tests.verified import checked

WCT = parse("wct")
ONE = (Node(name="n0", gpus=1, gpu_memory_gib=16.0),)


def job(
    name: str, duration_s: float, submit_s: float = 0.0, duty: float | None = 0.4, gib: float = 6.0
) -> Job:
    sharing = None if duty is None else Sharing(duty=duty)
    return Job(
        id=name,
        duration_s=duration_s,
        submit_s=submit_s,
        profile=Profile(sharing=sharing, gpu_memory_gib=gib, startup_s=2.0),
    )


def results(instance: Instance, name: str, **options: str) -> dict[str, Any]:
    """The summary of a policy whose record is sound."""
    simulation = Simulation(instance, policy(name, options=options or None))
    simulation.run()
    record = simulation.record()
    checked(instance, record.plan(), replay=True)
    return summary(measure(record))


def test_the_least_gpu_time_goes_first_and_the_fullest_set_is_run() -> None:
    whole = {"gangs": "whole"}
    # GPU times: long 22 x 0.5, busy 12 x 0.9, idle 30 x 0.2. `idle` is first; it may be joined by
    # `long` (0.7), not by `busy` (1.1); when `idle` is done `busy` still may not join `long` (1.4).
    found = plan_of(
        "xonar-style",
        job("long", 60.0, duty=0.5),
        job("busy", 50.0, duty=0.9),
        job("idle", 28.0, duty=0.2),
        nodes=ONE,
        options=whole,
    )
    assert times(found["idle"]) == [(0, 30)] and times(found["long"]) == [(0, 30), (30, 62)]
    assert times(found["busy"]) == [(62, 114)]
    # 0.2 + 0.7 fills more than 0.2 + 0.5
    found = plan_of(
        "xonar-style",
        job("half", 60.0, duty=0.5),
        job("more", 50.0, duty=0.7),
        job("idle", 28.0, duty=0.2),
        nodes=ONE,
        options=whole,
    )
    assert found["idle"].segments[0].mode.share_with == "more"


def test_gangs_overlap_where_the_sum_of_rates_gains_most() -> None:
    """`gang` takes the free GPU and that of `calm`, where nothing is lost, not that of `busy`, nor
    that of `odd`, of which nothing is known. `wide` finds no three GPUs until it is done."""
    node = (Node(name="n0", gpus=4, gpu_memory_gib=16.0),)
    jobs = [
        job("calm", 200.0, duty=0.2),
        job("busy", 200.0, duty=0.7),
        job("odd", 200.0, duty=None),
        replace(job("gang", 100.0, submit_s=5.0, duty=0.5), gpus=2),
        replace(job("wide", 100.0, submit_s=6.0, duty=0.7), gpus=3),
    ]
    found = plan_of("xonar-style", *jobs, nodes=node)
    assert found["gang"].segments[0].mode.shared_gpus == {"calm": 1}
    assert times(found["gang"])[0] == (5, 107)
    assert found["wide"].segments[0].start_s > 100
    whole = plan_of("xonar-style", *jobs, nodes=node, options={"gangs": "whole"})
    assert whole["gang"].segments[0].start_s > 100


def test_who_has_waited_long_goes_first() -> None:
    """A second of waiting counts as one of GPU time, unless the option says otherwise."""
    jobs = (
        job("first", 100.0, duty=1.0),
        job("long", 60.0, 10.0, duty=1.0),
        job("short", 20.0, 90.0, duty=1.0),
    )
    found = plan_of("xonar-style", *jobs, nodes=ONE)
    assert found["long"].segments[0].start_s < found["short"].segments[0].start_s
    found = plan_of("xonar-style", *jobs, nodes=ONE, options={"ageing": "0"})
    assert found["long"].segments[0].start_s > found["short"].segments[0].start_s


def test_memory_caps_the_sets() -> None:
    jobs = (job("a", 50.0, gib=6.0), job("b", 60.0, gib=9.0))
    assert plan_of("xonar-style", *jobs, nodes=ONE)["b"].segments[0].start_s == 0.0
    found = plan_of("xonar-style", *jobs, nodes=ONE, options={"reserve_gib": "2"})
    assert found["b"].segments[0].start_s >= 52.0
    found = plan_of("xonar-style", jobs[0], job("b", 60.0, gib=10.5), nodes=ONE)
    assert found["b"].segments[0].start_s >= 52.0


def test_jobs_without_a_measured_share_run_alone() -> None:
    found = plan_of("xonar-style", job("a", 50.0), job("b", 60.0, duty=None), nodes=ONE)
    assert times(found["b"]) == [(52, 114)]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "xonar-style",
            {"reserve_gib": "much"},
            "option reserve_gib of policy xonar-style: 'much'",
        ),
        ("xonar-style", {"reserve_gib": "-1"}, "at least 0"),
        (
            "xonar-style",
            {"memory": "1"},
            "policy xonar-style has no option memory; it has reserve_gib, ageing and gangs",
        ),
        (
            "fifo-corun",
            {"attempts": "-1"},
            "option attempts of policy fifo-corun: '-1'; expected a whole number",
        ),
        (
            "fifo-corun",
            {"retries": "1"},
            "policy fifo-corun has no option retries; it has attempts",
        ),
    ],
)
def test_bad_options_are_refused(name: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        policy(name, options=options)


def starts(instance: Instance, **options: str) -> dict[str, list[tuple[float, float, str | None]]]:
    simulation = Simulation(instance, policy("fifo-corun", options=options or None))
    simulation.run()
    plan = simulation.record().plan()
    checked(instance, plan, replay=True)
    return {
        entry.id: [(part.start_s, part.end_s, part.stopped_by) for part in entry.segments]
        for entry in plan.jobs
    }


def test_whatever_comes_next_is_co_run_and_dies_where_the_memory_is_short() -> None:
    instance = Instance(
        cluster=Cluster(nodes=ONE),
        jobs=(job("a", 50.0), job("b", 10.0, 10.0, gib=10.5), job("c", 10.0, 11.0, gib=6.0)),
    )
    # b dies when its start-up is over, at 12 s; c, now before b, joins a for good (0.4 + 0.4:
    # nobody is slowed down) and leaves at 24 s, when b joins and dies again, and once more: at once
    # it may not, so when a is done it starts.
    found = starts(instance)
    assert found["b"][0] == (10.0, 12.0, "out_of_memory") and found["c"] == [(12.0, 24.0, None)]
    assert found["b"][1] == (24.0, 26.0, "out_of_memory")
    assert found["b"][-1] == (pytest.approx(52.0), pytest.approx(64.0), None)
    assert starts(instance, attempts="1")["b"] == [
        (10.0, 12.0, "out_of_memory"),
        (52.0, 64.0, None),
    ]
    assert starts(instance, attempts="0")["b"] == [(52.0, 64.0, None)]  # it never joins anybody


def test_the_first_in_line_blocks() -> None:
    pair = Profile(sharing=Sharing(duty=0.5))
    instance = Instance(
        cluster=Cluster(nodes=ONE),
        jobs=(
            Job(id="a", duration_s=10.0, profile=pair),
            Job(id="b", duration_s=20.0, profile=pair),
            Job(id="c", duration_s=5.0),
            Job(id="d", duration_s=5.0, profile=pair),
        ),
    )
    # c cannot share, so that d does not join b when a has gone
    assert starts(instance) == {
        "a": [(0.0, 10.0, None)],
        "b": [(0.0, 10.0, None), (10.0, 20.0, None)],
        "c": [(20.0, 25.0, None)],
        "d": [(25.0, 30.0, None)],
    }


def memory_heavy(seed: int, jobs: int = 300) -> Instance:
    """Sixteen nodes with four GPUs of 16 GiB, and jobs of which about every second pair exceeds
    that."""
    random = Random(seed)
    found, now_s = [], 0.0
    for i in range(jobs):
        now_s += random.expovariate(1 / 60)
        profile = Profile(
            name=f"m{i % 12}",
            sharing=Sharing(duty=random.choice([0.2, 0.3, 0.5, 0.7, 0.9])),
            startup_s=30.0,
            gpu_memory_gib=random.choice([3.0, 6.0, 9.0, 12.0]),
        )
        found.append(
            Job(
                id=f"j{i}",
                gpus=random.choice([1, 1, 1, 2, 4]),
                submit_s=now_s,
                duration_s=min(60_000.0, random.lognormvariate(7.5, 1.3)),
                profile=profile,
            )
        )
    nodes = equal_nodes(16, gpus=4, gpu_memory_gib=16.0)
    return Instance(name="memory heavy", cluster=Cluster(nodes=nodes), jobs=tuple(found))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_nothing_runs_out_of_memory_and_the_tail_is_shorter(seed: int) -> None:
    """With three or four times as many arrivals the tail is not always shorter: least GPU time
    first lets long gangs wait."""
    instance = memory_heavy(seed)
    blind = results(instance, "fifo-corun")
    careful = results(instance, "xonar-style", gangs="whole")
    assert blind["out_of_memory"] > 0 and blind["restarts"] == blind["out_of_memory"]
    assert careful["out_of_memory"] == careful["restarts"] == 0
    assert careful["jct_s"]["p99"] < blind["jct_s"]["p99"]
    assert results(instance, "xonar-style")["out_of_memory"] == 0
