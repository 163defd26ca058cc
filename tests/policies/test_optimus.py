"""Optimus: the rule by hand on small clusters, and Pollux's published completion times."""

from statistics import fmean

import pytest

from optsched import Job, JobPlan, Locality, Mode, Node, Profile, Running, Slot
from optsched.model.job import Elastic
from tests.data import needs_data
from tests.policies.test_tiresias import published, simulated
from tests.policies.verified import plan_of, times, where

FOUR = (Node(name="n0", gpus=4),)
CONCAVE = {1: 1.0, 2: 1.8, 3: 2.4, 4: 2.7}


def elastic(name: str, work_s: float, gpus: dict[int, float] | None = None, **more: float) -> Job:
    rates = CONCAVE if gpus is None else gpus
    return Job(
        id=name,
        duration_s=work_s,
        gpus=Elastic(min=min(rates), max=max(rates)),
        submit_s=more.pop("submit_s", 0.0),
        profile=Profile(gpus=rates, **more),
    )


def counts(found: dict[str, JobPlan], name: str) -> list[int]:
    """GPUs, for each segment."""
    return [sum(slots.values()) for slots in where(found[name])]


def test_gpus_go_where_they_save_most_and_come_back() -> None:
    # After one GPU each, the next saves a 90 x (1 - 1/1.8) = 40 s and the one after that 90 x
    # (1/1.8 - 1/2.4) = 12.5 s, b 18 x (1 - 1/1.8) = 8 s. b is done at 18; a has then done 18 x 2.4
    # and gets all four at the next minute.
    found = plan_of("optimus", elastic("a", 180.0), elastic("b", 18.0), nodes=FOUR)
    assert (counts(found, "a"), counts(found, "b")) == ([3, 4], [1])
    assert times(found["b"]) == [(0, 18)]
    assert times(found["a"]) == [(0, 60), (60, round(60 + (180 - 144) / 2.7, 3))]


def test_the_interval_is_set() -> None:
    found = plan_of(
        "optimus", elastic("a", 180.0), elastic("b", 18.0), nodes=FOUR, options={"interval": "20s"}
    )
    assert times(found["a"]) == [(0, 20), (20, round(20 + (180 - 48) / 2.7, 3))]


def test_a_resize_pays_for_saving_and_starting() -> None:
    a = elastic("a", 180.0, startup_s=3.0, restore_s=2.0, checkpoint_s=4.0)
    found = plan_of("optimus", a, elastic("b", 18.0), nodes=FOUR, options={"interval": "20s"})
    # 17 s at 2.4; saving until 24; set-up until 29 (it starts as soon as it is saved, not at the
    # next interval).
    assert times(found["a"]) == [(0, 24), (24, round(29 + (180 - 17 * 2.4) / 2.7, 3))]


def test_a_step_that_saves_nothing_ends_it() -> None:
    found = plan_of("optimus", elastic("a", 40.0, {1: 1.0, 2: 1.0, 4: 4.0}), nodes=FOUR)
    assert counts(found, "a") == [1]  # although four would be four times as fast


def test_larger_steps_are_weighed_by_gpu() -> None:
    # The step of a saves 30 x (1 - 1/2) = 15 s, 7.5 s for each GPU; those of b 18 x (1 - 1/1.8) = 8
    # s, then 2.5 s.
    nodes = (Node(name="n0", gpus=5),)
    found = plan_of(
        "optimus", elastic("a", 30.0, {2: 1.0, 4: 2.0}), elastic("b", 18.0), nodes=nodes
    )
    assert (counts(found, "a")[0], counts(found, "b")[0]) == (2, 3)


def test_every_job_gets_its_fewest_first() -> None:
    jobs = [elastic("a", 1000.0), *(Job(id=f"s{i}", duration_s=9.0) for i in range(3))]
    found = plan_of("optimus", *jobs, nodes=FOUR)
    assert counts(found, "a")[0] == 1
    assert all(times(found[f"s{i}"]) == [(0, 9)] for i in range(3))


def test_rigid_jobs_run_in_order_of_arrival_and_what_does_not_fit_is_skipped() -> None:
    jobs = [
        Job(id="a", gpus=3, duration_s=60.0),
        Job(id="b", gpus=2, duration_s=60.0),
        Job(id="c", gpus=1, duration_s=180.0),
        Job(id="d", gpus=1, duration_s=60.0),
    ]
    found = plan_of("optimus", *jobs, nodes=FOUR)
    assert [times(found[name]) for name in "abcd"] == [
        [(0, 60)],
        [(60, 120)],
        [(0, 180)],
        [(60, 120)],
    ]


def test_an_earlier_job_takes_its_gpus_back() -> None:
    jobs = [
        Job(id="a", gpus=4, duration_s=70.0),
        Job(id="b", gpus=3, duration_s=60.0, submit_s=1.0),
        Job(id="c", gpus=2, duration_s=60.0, submit_s=2.0),
    ]
    running = (
        Running(job="c", mode=Mode(gpus=2), placement=(Slot(node="n0", gpus=2),), remaining_s=60.0),
    )
    found = plan_of("optimus", *jobs, nodes=FOUR, now_s=5.0, running=running)
    assert times(found["a"]) == [(5, 75)]
    assert times(found["b"]) == [
        (75, 135)
    ]  # nothing runs then, so that it need not wait for the next interval
    assert found["c"].decision == "preempt"


def test_jobs_that_may_not_be_preempted_keep_what_they_have() -> None:
    a = Job(id="a", gpus=2, duration_s=100.0, preemptible=False)
    running = (
        Running(
            job="a", mode=Mode(gpus=2), placement=(Slot(node="n0", gpus=2),), remaining_s=100.0
        ),
    )
    found = plan_of("optimus", a, elastic("b", 100.0), nodes=FOUR, running=running)
    assert times(found["a"]) == [(0, 100)]
    assert counts(found, "b")[0] == 2


def test_equal_jobs_that_lose_work_when_resized_are_done_in_the_end() -> None:
    nodes = (Node(name="n0", gpus=3),)
    a, b = (elastic(name, 500.0, checkpoint_every_s=50.0) for name in "ab")
    found = plan_of("optimus", a, b, nodes=nodes, options={"interval": "10s"})
    assert counts(found, "a")[:2] == [
        2,
        1,
    ]  # whoever has more to do gets the third, and who that is changes
    assert times(found["a"])[0] == (0, 50)


def test_a_gang_without_a_place_takes_fewer() -> None:
    profile = Profile(gpus={1: 1.0, 2: 2.0}, locality=Locality(rack=0.0, cluster=0.0))
    held = [Job(id=name, gpus=1, duration_s=50.0, preemptible=False) for name in ("x", "y")]
    running = tuple(
        Running(job=name, mode=Mode(gpus=1), placement=(Slot(node=node, gpus=1),), remaining_s=50.0)
        for name, node in (("x", "n0"), ("y", "n1"))
    )
    found = plan_of(
        "optimus",
        *held,
        Job(id="a", duration_s=20.0, gpus=Elastic(min=1, max=2), profile=profile),
        nodes=(Node(name="n0", gpus=2), Node(name="n1", gpus=2)),
        running=running,
    )
    assert counts(found, "a") == [1]  # two are free, but on two nodes


def test_a_job_goes_to_the_gpu_type_on_which_it_is_fastest() -> None:
    nodes = (Node(name="k0", gpu_type="k80", gpus=2), Node(name="v0", gpu_type="v100", gpus=2))
    fast = Profile(rate={"v100": 1.0, "k80": 0.25})
    jobs = [
        Job(id=name, duration_s=10.0, profile=fast, gpus=Elastic(min=1, max=1)) for name in "abc"
    ]
    found = plan_of("optimus", *jobs, nodes=nodes)
    assert [where(found[name])[0] for name in "abc"] == [{"v0": 1}, {"v0": 1}, {"k0": 1}]


@needs_data("pollux_profiles")
@pytest.mark.parametrize("place", ["packed", pytest.param("emptiest", marks=pytest.mark.slow)])
def test_mean_completion_times_are_those_that_pollux_published(place: str) -> None:
    theirs, ours = (
        published("optimus", "workload-6"),
        simulated("optimus", "workload-6", place=place),
    )
    assert fmean(theirs.values()) == pytest.approx(5301.88, abs=0.01)
    assert fmean(ours.values()) == pytest.approx(fmean(theirs.values()), rel=0.02)
