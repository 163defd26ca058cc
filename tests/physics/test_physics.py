"""Rates, set-up and lost work: DESIGN 5, worked out by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched import (
    Clock,
    Cluster,
    Elastic,
    Instance,
    Job,
    Locality,
    Mode,
    Node,
    Profile,
    Running,
    Sharing,
    Slot,
)
from optsched import physics as ph

TABLE = {2: 0.5, 4: 0.9, 8: 1.0}


@pytest.mark.parametrize(
    ("count", "rate"),
    [
        (0, 0.0),
        (1, 0.25),
        (2, 0.5),
        (3, 0.7),
        (4, 0.9),
        (5, 0.925),
        (6, 0.95),
        (8, 1.0),
        (9, 1.0),
        (1000, 1.0),
    ],
)
def test_interpolation(count: int, rate: float) -> None:
    assert ph.interpolate(TABLE, count) == pytest.approx(rate, abs=1e-12)


def test_interpolation_of_short_tables() -> None:
    assert ph.interpolate({}, 0) == ph.interpolate({}, 7) == 1.0
    assert ph.interpolate({4: 0.8}, 2) == pytest.approx(0.4)
    assert ph.interpolate({4: 0.8}, 4) == ph.interpolate({4: 0.8}, 400) == 0.8
    assert ph.interpolate({8: 1.0, 2: 0.5, 4: 0.9}, 3) == ph.interpolate(TABLE, 3), (
        "order does not matter"
    )


@given(
    st.dictionaries(st.integers(1, 50), st.floats(0, 10), min_size=1, max_size=5),
    st.integers(0, 60),
)
def test_interpolation_stays_between_its_neighbours(table: dict[int, float], count: int) -> None:
    below = [table[n] for n in sorted(table) if n <= count][-1:] or [0.0]
    above = [table[n] for n in sorted(table) if n >= count][:1] or below
    low, high = sorted((below[0], above[0]))
    assert low - 1e-12 <= ph.interpolate(table, count) <= high + 1e-12


CLUSTER = Cluster(
    nodes=(
        Node(name="a", gpus=8, gpu_type="a100", rack="r0"),
        Node(name="b", gpus=8, gpu_type="a100", rack="r0"),
        Node(name="c", gpus=8, gpu_type="a100", rack="r1"),
        Node(name="d", gpus=8, gpu_type="v100"),
        Node(name="e", gpus=8, gpu_type="v100"),
        Node(name="f", gpus=8),
    )
)


def on(*names: str) -> tuple[Slot, ...]:
    return tuple(Slot(node=name, gpus=1) for name in names)


@pytest.mark.parametrize(
    ("names", "span"),
    [
        ((), "node"),
        (("a",), "node"),
        (("d",), "node"),
        (("a", "b"), "rack"),
        (("a", "c"), "cluster"),
        (("a", "b", "c"), "cluster"),
        (("d", "e"), "cluster"),
        (("a", "d"), "cluster"),
    ],
)
def test_span(names: tuple[str, ...], span: ph.Span) -> None:
    assert ph.span(CLUSTER, on(*names)) == span


@pytest.mark.parametrize(
    ("locality", "rates"),
    [
        (None, (1.0, 1.0, 1.0)),
        (Locality(), (1.0, 1.0, 1.0)),
        (Locality(node=0.9), (0.9, 0.9, 0.9)),
        (Locality(rack=0.8), (1.0, 0.8, 0.8)),
        (Locality(cluster=0.5), (1.0, 1.0, 0.5)),
        (Locality(node=1.0, rack=0.9, cluster=0.7), (1.0, 0.9, 0.7)),
    ],
)
def test_locality(locality: Locality | None, rates: tuple[float, ...]) -> None:
    profile = Profile(locality=locality)
    assert tuple(ph.locality_rate(profile, span) for span in ("node", "rack", "cluster")) == rates


FULL = Profile(
    name="full",
    rate={"a100": 0.9, "v100": 0.5},
    gpus={4: 0.5, 8: 1.0},
    cpus_per_gpu={2: 0.6, 4: 1.0},
    locality=Locality(node=1.0, rack=0.8, cluster=0.5),
    sharing=Sharing(duty=0.8, partners={"other": 0.75}),
)


def test_the_rate_is_the_product_of_all_tables() -> None:
    job = Job(id="j", gpus=8, duration_s=1.0, profile=FULL)
    mode = Mode(gpus=8, cpus_per_gpu=3)
    assert ph.rate(job, mode, "a100", "node") == pytest.approx(0.9 * 1.0 * 0.8)
    assert ph.rate(job, mode, "v100", "cluster") == pytest.approx(0.5 * 1.0 * 0.8 * 0.5)
    assert ph.rate(job, mode, "h100", "node") == 0.0, "a type missing from the table is unmeasured"
    assert ph.rate(job, mode, None, "node") == pytest.approx(0.8), (
        "GPUs of no named type have no factor"
    )
    six = ph.rate(job, replace(mode, gpus=6, cpus_per_gpu=1), "a100", "rack")
    assert six == pytest.approx(0.9 * 0.75 * 0.3 * 0.8)
    assert ph.sharing_rate(FULL, Profile(name="other")) == 0.75


def test_without_a_profile_everything_runs_at_one() -> None:
    job = Job(id="j", gpus=3, duration_s=1.0)
    assert ph.rate(job, Mode(gpus=3), "a100", "cluster") == 1.0
    assert ph.rate(Job(id="c", gpus=0, cpus=4, duration_s=1.0), Mode(cpus=4), None, "node") == 1.0
    on_cores = Job(id="c", gpus=0, cpus=4, duration_s=1.0, profile=FULL)
    assert ph.rate(on_cores, Mode(cpus=4), "v100", "node") == 1.0, (
        "GPU tables say nothing of a CPU-only job"
    )


def test_an_elastic_job_without_a_table_scales_in_proportion() -> None:
    job = Job(id="j", gpus=Elastic(min=1, max=8), duration_s=1.0)
    assert [ph.count_rate(job, n) for n in (1, 4, 8)] == [0.125, 0.5, 1.0]
    measured = replace(job, profile=Profile(gpus={4: 0.8, 8: 1.0}))
    assert [ph.count_rate(measured, n) for n in (1, 4, 8)] == pytest.approx([0.2, 0.8, 1.0])


def test_a_listed_mode_has_its_own_duration_whatever_the_tables_say() -> None:
    slow, fast = Mode(duration_s=30.0, gpus=1), Mode(duration_s=10.0, gpus=2)
    job = Job(id="j", modes=(slow, fast), profile=FULL)
    assert job.work_s == 30.0
    assert ph.rate(job, slow, "v100", "node") == 1.0 and ph.rate(job, fast, "v100", "node") == 3.0
    assert ph.rate(job, fast, "v100", "rack") == pytest.approx(2.4)
    assert ph.run_s(job, fast, 30.0, 3.0) == 10.0
    for work_s in range(1, 30):
        for run_s in range(1, 30):
            job = Job(id="k", modes=(Mode(duration_s=float(work_s)), Mode(duration_s=float(run_s))))
            rate = ph.rate(job, job.modes[1], None, "node")
            assert ph.run_s(job, job.modes[1], job.work_s, rate) == run_s, (
                "a whole run has no rounding"
            )
            assert ph.run_s(job, job.modes[1], job.work_s / 2, rate) == pytest.approx(run_s / 2)
            assert ph.run_s(job, job.modes[1], job.work_s, rate / 2) == pytest.approx(run_s * 2)


@pytest.mark.parametrize(
    ("mine", "other", "rate"),
    [
        (Sharing(duty=0.4), Sharing(duty=0.5), 1.0),
        (Sharing(duty=0.8), Sharing(duty=0.8), 1 / 1.6),
        (Sharing(duty=0.8), None, 0.0),
        (Sharing(duty=0.8), Sharing(), 0.0),
        (None, Sharing(duty=0.8), 0.0),
        (Sharing(), Sharing(duty=0.8), 0.0),
        (Sharing(partners={"other": 0.7}), None, 0.7),
        (Sharing(duty=0.8, partners={"other": 0.7}), Sharing(duty=0.8), 0.7),
        (Sharing(duty=0.8, partners={"third": 0.7}), Sharing(duty=0.8), 1 / 1.6),
    ],
)
def test_sharing(mine: Sharing | None, other: Sharing | None, rate: float) -> None:
    assert ph.sharing_rate(
        Profile(sharing=mine), Profile(name="other", sharing=other)
    ) == pytest.approx(rate)


def test_a_start_pays_start_up_and_a_resume_pays_restore_on_top() -> None:
    job = Job(
        id="j", duration_s=1.0, profile=Profile(startup_s=2.0, restore_s=3.0, checkpoint_s=4.0)
    )
    assert ph.setup_s(job, ran_before=False) == 2.0 and ph.setup_s(job, ran_before=True) == 5.0
    assert ph.hold_to_save_s(job) == 4.0
    periodic = replace(job, profile=replace(job.profile, checkpoint_every_s=60.0))
    assert ph.hold_to_save_s(periodic) == 0.0, (
        "with periodic checkpoints nothing is saved on demand"
    )


@pytest.mark.parametrize(
    ("every_s", "worked_s", "lost_s"),
    [
        (None, 100.0, 0.0),
        (0.0, 100.0, 0.0),
        (30.0, 0.0, 0.0),
        (30.0, 29.0, 29.0),
        (30.0, 30.0, 0.0),
        (30.0, 95.0, 5.0),
        (30.0, 29.999_999, 0.0),
    ],
)
def test_work_since_the_last_periodic_checkpoint_is_lost(
    every_s: float | None, worked_s: float, lost_s: float
) -> None:
    job = Job(id="j", duration_s=1.0, profile=Profile(checkpoint_every_s=every_s))
    assert ph.lost_s(job, worked_s) == pytest.approx(lost_s, abs=1e-4)


def running(job: Job, now_s: float = 1000.0, **fields: float) -> tuple[Instance, Running]:
    entry = Running(
        job=job.id,
        mode=Mode(gpus=1, gpu_type="a100"),
        placement=on("a"),
        **{"remaining_s": 50.0, "started_s": 900.0, **fields},
    )  # type: ignore[arg-type]
    return Instance(now_s=now_s, cluster=CLUSTER, jobs=(job,), running=(entry,)), entry


def test_remaining_work_after_a_preemption() -> None:
    on_demand = Job(id="j", duration_s=100.0, profile=Profile(rate={"a100": 0.5}))
    periodic = replace(on_demand, profile=Profile(rate={"a100": 0.5}, checkpoint_every_s=30.0))
    assert ph.remaining_after_preemption_s(*running(on_demand)) == 50.0
    # 100 s since the start, checkpoints after 30, 60 and 90 s: 10 s at rate 0.5 are lost
    assert ph.remaining_after_preemption_s(*running(periodic)) == pytest.approx(55.0)
    assert ph.remaining_after_preemption_s(
        *running(periodic, last_checkpoint_s=980.0)
    ) == pytest.approx(60.0)
    # a checkpoint from before this start does not reach back beyond it
    assert ph.remaining_after_preemption_s(
        *running(periodic, last_checkpoint_s=10.0)
    ) == pytest.approx(55.0)
    never = replace(periodic, profile=Profile(rate={"a100": 2.0}, checkpoint_every_s=1e6))
    assert ph.remaining_after_preemption_s(*running(never)) == 100.0, (
        "no more than all work is lost"
    )


def test_a_job_that_still_sets_up_has_nothing_to_lose() -> None:
    """Resumed with half of its work done, and preempted again before work went on."""
    job = Job(id="j", duration_s=100.0, profile=Profile(restore_s=500.0, checkpoint_every_s=1e6))
    assert ph.unsaved_s(running(job, setup_s=400.0)[1], 1000.0) == 0.0
    assert ph.remaining_after_preemption_s(*running(job, setup_s=400.0)) == 50.0


def test_may_preempt() -> None:
    job = Job(id="j", duration_s=100.0, min_run_s=100.0, max_preemptions=2)
    assert ph.may_preempt(*running(job)) and ph.may_preempt(*running(job, preemptions=1))
    assert not ph.may_preempt(*running(job, preemptions=2))
    assert not ph.may_preempt(*running(replace(job, min_run_s=100.5)))
    assert not ph.may_preempt(*running(replace(job, preemptible=False)))
    assert ph.may_preempt(*running(replace(job, max_preemptions=None), preemptions=99))


def test_demands() -> None:
    job = Job(
        id="j",
        gpus=2,
        duration_s=1.0,
        profile=Profile(memory_gib_per_gpu=3.0, power_w={"a100": 250.0}),
    )
    mode = Mode(gpus=2, cpus_per_gpu=4)
    assert (
        ph.memory_gib(job, mode, 2) == 6.0
        and ph.cpus(mode, 2) == 8
        and ph.power_w(job, mode, "a100", 2) == 500.0
    )
    assert ph.power_w(job, mode, "v100", 2) == ph.power_w(job, mode, None, 2) == 0.0
    cores = Job(id="c", gpus=0, cpus=3, memory_gib=5.0, duration_s=1.0)
    assert ph.memory_gib(cores, Mode(cpus=3), 0) == 5.0 and ph.cpus(Mode(cpus=3), 0) == 3


CLOCKED = Profile(
    rate={"a100": 1.0, "v100": 0.5},
    gpus={1: 0.6, 2: 1.0},
    power_w={"a100": 400.0},
    clocks={1200: Clock(rate=1.1, power=1.5), 900: Clock(rate=0.85, power=0.6)},
)


def test_a_clock_changes_rate_and_power() -> None:
    job = Job(id="j", gpus=2, duration_s=1.0, profile=CLOCKED)
    slow, fast = Mode(gpus=2, clock_mhz=900), Mode(gpus=2, clock_mhz=1200)
    assert ph.clocks(job) == (None, 900, 1200)
    assert ph.rate(job, slow, "a100", "node") == 0.85 and ph.rate(
        job, fast, "v100", "node"
    ) == pytest.approx(0.55)
    assert ph.power_w(job, slow, "a100", 2) == 480.0 and ph.power_w(job, fast, "a100", 1) == 600.0
    assert ph.power_w(job, fast, "v100", 2) == 0.0
    assert ph.rate(job, Mode(gpus=2, clock_mhz=901), "a100", "node") == 0.0, (
        "nothing is known of it"
    )
    assert ph.clocks(Job(id="k", duration_s=1.0)) == (None,)
    listed = Job(id="l", modes=(Mode(duration_s=8.0, gpus=2),), profile=CLOCKED)
    assert ph.rate(listed, listed.modes[0], "v100", "node") == 1.0
    assert ph.power_w(listed, listed.modes[0], "a100", 2) == 800.0


LEAN = Profile(
    cpus_per_gpu={1: 0.4, 4: 1.2},
    memory_gib_per_gpu=16.0,
    memory_rates={4.0: 0.5, 8.0: 0.9},
    gpu_memory_gib=20.0,
    gpu_memory_rates={12.0: 0.75},
)


def test_the_scarcer_of_cores_and_memory_decides() -> None:
    job = Job(id="j", gpus=2, duration_s=1.0, profile=LEAN)
    assert ph.memory_levels(job) == (None, 8.0, 4.0) and ph.gpu_memory_levels(job) == (None, 12.0)
    for cores, gib, expected in (
        (1, None, 0.4),
        (4, None, 1.2),
        (1, 4.0, 0.4),
        (4, 4.0, 0.5),
        (4, 8.0, 0.9),
        (4, 5.0, 0.0),
    ):
        mode = Mode(gpus=2, cpus_per_gpu=cores, memory_gib_per_gpu=gib)
        assert ph.rate(job, mode, None, "node") == expected
        assert ph.memory_gib(job, mode, 2) == 2 * (16.0 if gib is None else gib)
    bare = replace(job, profile=replace(LEAN, cpus_per_gpu={}))
    assert ph.rate(bare, Mode(gpus=2, memory_gib_per_gpu=8.0), None, "node") == 0.9


def test_less_gpu_memory_is_slower_and_fits_smaller_gpus() -> None:
    job = Job(id="j", gpus=2, duration_s=1.0, profile=replace(LEAN, cpus_per_gpu={}))
    small, other = Mode(gpus=2, gpu_memory_gib=12.0), Mode(gpus=2, gpu_memory_gib=13.0)
    assert ph.rate(job, small, None, "node") == 0.75 and ph.rate(job, other, None, "node") == 0.0
    node = Node(name="n", gpus=4, gpu_memory_gib=16.0)
    assert ph.fits_type(job, small, node) and not ph.fits_type(job, Mode(gpus=2), node)
    place = (Slot(node="n", gpus=2),)
    cluster = Cluster(nodes=(replace(node, gpu_memory_gib=32.0),))
    assert ph.beyond_gpu_memory(cluster, job, small, job, Mode(gpus=2), place) is None
    assert ph.beyond_gpu_memory(cluster, job, Mode(gpus=2), job, Mode(gpus=2), place) == "n"


def test_gpus_draw_on_the_power_cap() -> None:
    job = Job(id="j", gpus=2, duration_s=1.0, profile=CLOCKED, resources={"licence": 1.0})
    mode = Mode(gpus=2, clock_mhz=900)
    cap = Cluster(resources={"power_w": 1e4, "licence": 2.0})
    assert ph.held_resources(cap, job, mode, "a100") == {"licence": 1.0, "power_w": 480.0}
    assert ph.held_resources(cap, job, mode, "v100") is job.resources, "nothing was measured"
    assert (
        ph.held_resources(Cluster(resources={"licence": 2.0}), job, mode, "a100") is job.resources
    )
    own = replace(job, resources={"power_w": 20.0})
    assert ph.held_resources(cap, own, mode, "a100") == {"power_w": 500.0}
    assert ph.held_resources(cap, replace(own, gpus=0), Mode(), None) == {"power_w": 20.0}


@pytest.mark.parametrize(
    ("names", "racks"),
    [
        ((), ()),
        (("a",), ()),
        (("a", "b"), ()),
        (("a", "c"), ("r0", "r1")),
        (("c", "d"), ("r1",)),
        (("d", "e"), ()),
        (("a", "b", "c"), ("r0", "r1")),
    ],
)
def test_only_gangs_over_several_racks_use_uplinks(
    names: tuple[str, ...], racks: tuple[str, ...]
) -> None:
    limited = replace(CLUSTER, rack_uplink_gbps={"r1": 40.0, "r0": 10.0})
    job = Job(id="j", gpus=2, duration_s=1.0, profile=Profile(network_gbps=12.5))
    assert ph.uplinks(limited, job, on(*names)) == dict.fromkeys(racks, 12.5)
    assert ph.uplinks(replace(CLUSTER, rack_uplink_gbps={"r1": 40.0}), job, on(*names)) == (
        {"r1": 12.5} if "r1" in racks else {}
    )
    assert ph.uplinks(CLUSTER, job, on(*names)) == {}
    assert ph.uplinks(limited, Job(id="k", duration_s=1.0), on(*names)) == {}


@pytest.mark.parametrize(
    ("mode", "node", "fits"),
    [
        (Mode(gpus=1), Node(name="n", gpus=1), True),
        (Mode(gpus=1), Node(name="n"), False),
        (Mode(cpus=1), Node(name="n"), True),
        (Mode(gpus=1, gpu_type="a100"), Node(name="n", gpus=1, gpu_type="v100"), False),
        (Mode(gpus=1, gpu_type="a100"), Node(name="n", gpus=1), False),
        (Mode(gpus=1), Node(name="n", gpus=1, gpu_memory_gib=10.0), True),
        (Mode(gpus=1), Node(name="n", gpus=1, gpu_memory_gib=9.5), False),
    ],
)
def test_fits_type(mode: Mode, node: Node, fits: bool) -> None:
    assert (
        ph.fits_type(Job(id="j", duration_s=1.0, profile=Profile(gpu_memory_gib=10.0)), mode, node)
        is fits
    )
