"""Places kept for gangs: a gang among a stream of small jobs starts after a time that is known
beforehand."""

import math
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Mode, Node, Outage, Profile, Running, Slot, Tenant
from optsched.driver import World, reservation
from optsched.driver.reservation import (
    GANG_PATIENCE_S,
    Reservation,
    Reservations,
    earliest,
    patience_s,
    too_much,
)
from optsched.estimates import Estimates
from optsched.estimates.noisy import Noisy
from optsched.model.cluster import Tier
from optsched.plugins import registry
from optsched.simulate.metrics import Metrics, measure
from optsched.simulate.run import Simulation
from optsched.simulate.virtual import VirtualWorld
from optsched_solvers.policies.parts.kept_places import KeptPlaces
from tests.clusters import equal_nodes, one_node

SAVES = Profile(checkpoint_s=10.0, restore_s=10.0)
NODES = ("n0", "n1")
RESERVING = ("optsched", "srsf", "srtf", "las")


def run(instance: Instance, policy: str, estimates: Estimates | None = None) -> Metrics:
    simulation = Simulation(instance, registry.policy(policy), estimates=estimates)
    simulation.run()
    return measure(simulation.record())


def stream(
    seed: int,
    *,
    nodes: int = 1,
    load: float = 1.0,
    small: int = 300,
    gangs: tuple[float, ...] = (600.0,),
    longest_s: float = 600.0,
    profile: Profile = SAVES,
    preemptible: bool = True,
    **more: object,
) -> Instance:
    """Jobs on one GPU that offer `load` on nodes of 8 GPUs, with gangs of 8 that run for so long
    each."""
    rng = random.Random(seed)
    now_s, jobs = 0.0, []
    gap_s = (30.0 + longest_s) / 2 / (8 * nodes * load)
    for k in range(small):
        jobs.append(
            Job(
                id=f"s{k}",
                gpus=1,
                duration_s=round(rng.uniform(30.0, longest_s), 1),
                submit_s=round(now_s, 1),
                profile=profile,
                preemptible=preemptible,
            )
        )
        now_s += rng.expovariate(1 / gap_s)
    for k, run_s in enumerate(gangs):
        jobs.append(
            Job(
                id=f"gang-{k}",
                gpus=8,
                duration_s=run_s,
                submit_s=100.0 + k,
                profile=profile,
                preemptible=preemptible,
            )
        )
    places = equal_nodes(nodes, gpus=8)
    return replace(Instance(cluster=Cluster(nodes=places), jobs=tuple(jobs)), **more)


def test_a_wait_that_is_over_but_for_rounding_is_over() -> None:
    at_s, long_s = 1e12, reservation.LONG_RUNS * GANG_PATIENCE_S
    world: Any = SimpleNamespace(
        now_s=at_s,
        waiting={"gang"},
        paused=set(),
        job=lambda _: Job(id="gang", gpus=8, duration_s=9.0),
        waited_s=lambda _: long_s - 5e-5,  # less than the clock can tell at this time
        attained_gpu_s=lambda _: 0.0,
        fewest_gpus=lambda _: 8,
        fastest_finish_s=lambda _: 9.0,
    )
    assert at_s + 5e-5 == at_s
    ripening = reservation._Ripening(
        cast(Any, SimpleNamespace(patient_runs=lambda *_: reservation.LONG_RUNS))
    )
    ripening.add(world, "gang", 0.0)
    assert ripening.ripe(world) == ["gang"]


@pytest.mark.parametrize("policy", ["optsched", "srtf"])
def test_no_place_is_kept_for_who_could_preempt_for_free_before_it_is_very_late(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = set[str]()
    make = Reservations._make

    def noted(self: Reservations, *args: Any) -> bool:
        found = make(self, *args)
        kept.update([self.current.job] if self.current is not None else [])
        return found

    monkeypatch.setattr(Reservations, "_make", noted)
    instance = stream(1, profile=Profile(), small=200)  # which is over before it is very late
    run(instance, policy)
    assert not kept
    run(instance, policy, Noisy(0.0))  # where run times are only believed it is as ever
    assert kept
    kept.clear()
    monkeypatch.setattr(reservation, "LONG_RUNS", 1.0)
    run(instance, policy)
    assert kept


def test_a_long_gang_of_all_gpus_runs_between_small_jobs_and_not_before_them() -> None:
    """Saving it takes little of what it has left, however short the jobs are that run when its
    patience ends: nobody waits for hours until it completes."""
    instance = stream(1, load=0.5, small=400, gangs=(20_000.0,))
    found, alone = run(instance, "optsched"), run(stream(1, load=0.5, small=400, gangs=()), "srtf")
    assert found.jct_s[:400].mean() <= 1.1 * alone.jct_s.mean()
    assert found.jct_s[400] <= instance.jobs[399].submit_s + 20_000.0 + 600.0


def bound_s(instance: Instance, gang: str) -> float:
    """The bound of docs/mathematics.md: patience, its own drain, and twice the longest stay for
    each gang before it and for one that may be there when its turn comes."""
    setup_s = max(
        job.profile.startup_s + job.profile.restore_s + job.profile.checkpoint_s
        for job in instance.jobs
    )
    longest_s = max(job.work_s for job in instance.jobs) + setup_s
    own = instance.job[gang]
    older = [
        job
        for job in instance.jobs
        if job.gpus == 8 and (job.submit_s, job.id) < (own.submit_s, own.id)
    ]
    others = 2 * any(job.gpus == 8 and job not in older and job is not own for job in instance.jobs)
    there = [job for job in instance.jobs if job.submit_s <= own.submit_s]
    backlog_s = sum(job.gpus * (job.work_s + setup_s) for job in there) / (
        8 * len(instance.cluster.nodes)
    )
    patience = patience_s(8, own.work_s + setup_s, backlog_s)
    return patience + (2 * len(older) + others + 1) * longest_s + 1.0


@pytest.mark.parametrize("policy", RESERVING)
def test_a_gang_among_small_jobs_waits_about_as_long_as_under_backfill(policy: str) -> None:
    """Without a place kept for it the gang waits until the stream ends, which is more than five
    hours here."""
    instance = stream(0, load=1.0, small=450)
    fifo, backfill, found = (
        run(instance, name).waiting_s[-1] for name in ("fifo", "backfill", policy)
    )
    assert found <= max(fifo, backfill) + GANG_PATIENCE_S + 600.0 + 20.0
    assert instance.jobs[449].submit_s > 15_000.0


@pytest.mark.parametrize("policy", ["srsf", "srtf", "las"])
@given(
    seed=st.integers(0, 10**6),
    nodes=st.integers(1, 3),
    load=st.floats(0.6, 1.6),
    gangs=st.lists(st.floats(50.0, 2000.0), min_size=1, max_size=3),
    preemptible=st.booleans(),
    period=st.sampled_from([None, 0.0, 60.0]),
)
@settings(max_examples=12)
def test_the_wait_of_a_gang_is_bounded(
    policy: str,
    seed: int,
    nodes: int,
    load: float,
    gangs: list[float],
    preemptible: bool,
    period: float | None,
) -> None:
    profile = replace(SAVES, checkpoint_every_s=period)
    instance = stream(
        seed,
        nodes=nodes,
        load=load,
        small=150 * nodes,
        gangs=tuple(gangs),
        profile=profile,
        preemptible=preemptible,
    )
    found = run(instance, policy)
    for k in range(len(gangs)):
        waited_s = found.waiting_s[len(instance.jobs) - len(gangs) + k]
        assert waited_s <= bound_s(instance, f"gang-{k}")


@pytest.mark.parametrize("seed", range(3))
def test_so_it_is_under_optsched(seed: int) -> None:
    instance = stream(seed, load=1.1, small=120, gangs=(300.0, 400.0), preemptible=seed != 1)
    found = run(instance, "optsched")
    for k in range(2):
        assert found.waiting_s[len(instance.jobs) - 2 + k] <= bound_s(instance, f"gang-{k}")


@pytest.mark.parametrize("policy", RESERVING)
def test_a_place_on_a_node_that_is_lost_is_kept_elsewhere(policy: str) -> None:
    lost = tuple(Outage(node="n0", start_s=at_s, end_s=at_s + 4000.0) for at_s in (760.0, 5000.0))
    instance = stream(3, nodes=2, load=0.9, small=350, outages=lost)
    assert run(instance, policy).waiting_s[-1] <= bound_s(instance, "gang-0") + 700.0


def test_a_gang_that_lacks_quota_gets_it() -> None:
    """Single GPUs of its own tenant keep the quota used up."""
    made = stream(5, nodes=2, load=0.5, small=400, tenants=(Tenant(name="t", gpu_quota=8),))
    instance = replace(made, jobs=tuple(replace(job, tenant="t") for job in made.jobs))
    assert run(instance, "srsf").waiting_s[-1] <= bound_s(instance, "gang-0")


def test_who_has_a_higher_priority_is_not_kept_out() -> None:
    made = stream(1, load=1.0, small=300)
    urgent = Job(id="urgent", gpus=1, duration_s=5000.0, submit_s=720.0, priority=1, profile=SAVES)
    found = run(replace(made, jobs=(*made.jobs, urgent)), "srsf")
    assert found.waiting_s[-1] <= 10.0


def test_the_earliest_place_is_the_one_that_is_left_first() -> None:
    jobs = tuple(
        Job(id=name, gpus=4, duration_s=run_s)
        for name, run_s in (("a", 500.0), ("b", 90.0), ("c", 200.0))
    )
    gang = Job(id="gang", gpus=8, duration_s=10.0)
    nodes = (Node(name="n0", gpus=8), Node(name="n1", gpus=8))
    world = VirtualWorld(Instance(cluster=Cluster(nodes=nodes), jobs=(*jobs, gang)))
    world.advance()
    for job_id, node in (("a", "n0"), ("b", "n1"), ("c", "n1")):
        option = world.fastest(job_id)
        world.start(job_id, option, world.free.layout.alone(world.free.layout.order[node], 4, 0))
    found = earliest(world, "gang")
    assert found is not None
    assert (found.due_s, [slot.node for slot in found.placement]) == (90.0, ["n0", "n1"])
    claims = [(world.hold("b").placement, 700.0)]
    later = earliest(world, "gang", claims)
    assert later is not None and (later.due_s, later.placement[0].node) == (500.0, "n0")
    never = [(world.hold(name).placement, math.inf) for name in ("a", "b")]
    assert earliest(world, "gang", never) is None
    assert world.free.gpus_on("n0") == 4


def test_patience_and_share() -> None:
    assert patience_s(8, 30.0) == GANG_PATIENCE_S
    assert patience_s(8, 4000.0) == 4000.0
    assert patience_s(1, 4000.0) > 7 * 86400.0
    assert not too_much(0, 64, 8)
    assert too_much(8, 8, 64)
    assert not too_much(8, 8, 128)


def test_setting_aside_leaves_a_room_as_it_was() -> None:
    made = stream(2, nodes=2, small=3)
    world = VirtualWorld(
        replace(
            made,
            cluster=Cluster(
                nodes=(Node(name="n0", gpus=8, cpus=9, memory_gib=7.3), Node(name="n1", gpus=8))
            ),
        )
    )
    need, placement = world.need("gang-0", world.fastest("gang-0")), world.fit("gang-0")
    assert placement is not None
    before = [world.free.gpus_on("n0"), world.free.cpus_on("n0"), world.free.memory_gib_on("n0")]
    aside = world.free.set_aside(need, placement[1])
    assert sum(world.free.gpus_on(name) for name in ("n0", "n1")) == 8
    world.free.take_back(aside)
    assert before == [
        world.free.gpus_on("n0"),
        world.free.cpus_on("n0"),
        world.free.memory_gib_on("n0"),
    ]


def test_what_is_taken_beside_a_place_set_aside_stays_taken() -> None:
    jobs = (Job(id="a", tenant="t", gpus=1, duration_s=10.0),)
    tenants, cluster = (Tenant(name="t", gpu_quota=3),), one_node(gpus=8)
    world = VirtualWorld(Instance(cluster=cluster, tenants=tenants, jobs=jobs))
    room, need = world.free, world.need("a", world.fastest("a"))
    place = room.layout.alone(0, 1, 0)
    [(row, _)] = need.shared
    aside = room.set_aside(need, place)
    room.take(need, place)
    room.take_back(aside)
    assert (room.left[row], room.gpus_on("n")) == (2, 7)


class Believed:
    """Beliefs by name."""

    name = "believed"

    def __init__(self, work_s: dict[str, float]) -> None:
        self._work_s = work_s

    def work_s(self, job: Job, now_s: float) -> float:
        return self._work_s[job.id]

    def completed(self, job: Job, worked_s: float, now_s: float) -> None:
        pass


def passed_gang() -> Instance:
    """A gang that comes to two nodes when they are busy with small jobs, which keep coming."""
    made = stream(4, nodes=2, load=0.8, small=60, gangs=(1000.0,), preemptible=False)
    *others, gang = made.jobs
    return replace(made, jobs=(*others, replace(gang, submit_s=500.0, preemptible=True)))


def waits_s(instance: Instance, estimates: Estimates | None = None) -> dict[str, float]:
    """How long each job waits in all under `optsched`."""
    simulation = Simulation(instance, registry.policy("optsched"), estimates=estimates)
    simulation.run()
    waiting_s = measure(simulation.record()).waiting_s.tolist()
    return {job.id: wait_s for job, wait_s in zip(instance.jobs, waiting_s, strict=True)}


def test_where_run_times_are_known_it_waits_at_most_twice_as_long_as_under_backfill() -> None:
    instance = passed_gang()
    backfill_s = run(instance, "backfill").waiting_s[-1]
    assert backfill_s > 100.0  # it does not start as soon as it comes
    assert waits_s(instance)["gang-0"] <= 2 * backfill_s


def test_where_they_are_only_believed_it_does_so_too() -> None:
    instance = passed_gang()
    believed = Believed({job.id: 300.0 for job in instance.jobs})
    simulation = Simulation(instance, registry.policy("backfill"), estimates=believed)
    simulation.run()
    backfill_s = measure(simulation.record()).waiting_s[-1]
    assert backfill_s > 100.0
    assert waits_s(instance, believed)["gang-0"] <= 2 * backfill_s


def test_an_early_place_that_is_overdue_is_looked_for_anew() -> None:
    """Jobs on the first node outrun their beliefs; those on the second end one after the other,
    while small ones wait for their GPUs."""
    node = Mode(gpus=1)
    there = {f"{n}-{k}": 1000.0 if n == "n0" else 210.0 + 10 * k for n in NODES for k in range(8)}
    held = [Job(id=name, gpus=1, duration_s=s, preemptible=False) for name, s in there.items()]
    gang = Job(id="gang", gpus=8, duration_s=1000.0, submit_s=10.0)
    later = [
        Job(id=f"s{k}", gpus=1, duration_s=3000.0, submit_s=20.0, preemptible=False)
        for k in range(8)
    ]
    instance = Instance(
        cluster=Cluster(nodes=tuple(Node(name=name, gpus=8) for name in NODES)),
        jobs=(*held, gang, *later),
        running=tuple(
            Running(
                job=job.id,
                mode=node,
                placement=(Slot(node=job.id[:2], gpus=1),),
                remaining_s=job.work_s,
            )
            for job in held
        ),
    )
    work_s = {job.id: job.work_s for job in instance.jobs}
    work_s |= {name: 100.0 for name in there if name.startswith("n0")}
    assert waits_s(instance, Believed(work_s))["gang"] == pytest.approx(270.0)


def passed_later(*later: Job) -> Instance:
    """A gang of 1,000 s that comes at 10 s to a node that is free at 100 s, and one GPU of it at
    50 s, a small job that would keep it waiting, and who comes later."""
    runs_s = (50.0, *7 * (100.0,))
    first = [
        Job(id=f"s{k}", gpus=1, duration_s=run_s, preemptible=False)
        for k, run_s in enumerate(runs_s)
    ]
    gang = Job(id="gang", gpus=8, duration_s=1000.0, submit_s=10.0)
    long = Job(id="long", gpus=1, duration_s=150.0, submit_s=20.0, preemptible=False)
    node = Node(name="n", gpus=8)
    return Instance(cluster=Cluster(nodes=(node,)), jobs=(*first, gang, long, *later))


def test_an_early_place_goes_to_a_shorter_gang() -> None:
    short = Job(id="short", gpus=8, duration_s=300.0, submit_s=30.0)
    assert waits_s(passed_later())["gang"] == pytest.approx(90.0)
    found = waits_s(passed_later(short))
    assert found["short"] == pytest.approx(70.0)
    assert found["gang"] > 390.0 - 1e-6


def test_no_place_is_kept_early_where_most_gpu_time_goes_to_gangs() -> None:
    long = Job(id="gang-2", gpus=8, duration_s=10_000.0, submit_s=15.0)
    assert waits_s(passed_later())["gang"] == pytest.approx(90.0)
    assert waits_s(passed_later(long))["gang"] == pytest.approx(190.0)


def test_who_starts_early_makes_way_for_a_shorter_gang_but_for_no_smaller_job() -> None:
    small = Job(id="small", gpus=1, duration_s=10.0, submit_s=200.0)
    found = waits_s(passed_later(small))
    assert (found["gang"], found["small"]) == pytest.approx((90.0, 900.0))
    assert waits_s(passed_later(replace(small, gpus=8)))["small"] == pytest.approx(0.0)


@pytest.mark.parametrize(("runs", "wait_s"), [(0.081, 90.0), (0.04, 190.0)])
def test_no_place_is_kept_early_that_would_wait_for_long_beside_what_its_gang_runs(
    runs: float, wait_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservation, "DRAIN_RUNS", runs)
    monkeypatch.setattr(reservation, "DRAIN_S", 0.0)
    assert waits_s(passed_later())["gang"] == pytest.approx(wait_s)


def test_early_places_wait_for_a_share_of_all_gpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first gang uses that share up; the second waits as long as small jobs pass it."""
    again = (
        Job(id="s9", gpus=1, duration_s=100.0, submit_s=1100.0, preemptible=False),
        Job(id="next", gpus=8, duration_s=600.0, submit_s=1110.0),
        Job(id="last", gpus=1, duration_s=500.0, submit_s=1120.0, preemptible=False),
    )
    waited_s = []
    monkeypatch.setattr(reservation, "SMALLER", 0.0)
    for share in (1.0, 0.01):
        monkeypatch.setattr(reservation, "DRAINED_EARLY", share)
        waited_s.append(waits_s(passed_later(*again))["next"])
    assert waited_s[0] < waited_s[1]


@pytest.mark.parametrize("policy", RESERVING)
@pytest.mark.parametrize("preempts", ["any", "lower", "never"])
@pytest.mark.parametrize("saves", [True, False])
def test_who_outstays_its_belief_on_a_place_that_is_due_makes_way(
    policy: str, preempts: str, saves: bool
) -> None:
    """Eight jobs are believed to end after 6,000 s and take 30,000; the gang is entitled to its
    place before that."""
    tier = Tier(name="all", priority=0, preempts=preempts)  # type: ignore[arg-type]
    cluster = Cluster(nodes=(Node(name="n", gpus=8),), tiers=(tier,))
    long = [
        Job(id=f"l{k}", gpus=1, duration_s=30_000.0, profile=SAVES, preemptible=saves)
        for k in range(8)
    ]
    gang = Job(id="gang", gpus=8, duration_s=5000.0, submit_s=10.0, profile=SAVES)
    last = Job(id="last", gpus=1, duration_s=1.0, submit_s=5500.0)  # rules are asked at events
    work_s = {"gang": 5000.0, "last": 1e6} | {job.id: 6000.0 for job in long}
    simulation = Simulation(
        Instance(name="outstayed", cluster=cluster, jobs=(*long, gang, last)),
        registry.policy(policy),
        estimates=Believed(work_s),
    )
    simulation.run()
    starts = {entry.id: entry.segments[0].start_s for entry in simulation.record().plan().jobs}
    if not saves:
        assert starts["gang"] == pytest.approx(30_000.0)
    elif preempts == "any":
        assert starts["gang"] <= 6000.0 + SAVES.checkpoint_s
    elif policy == "optsched":  # rules of a queue know no tiers
        assert starts["gang"] >= 30_000.0


@pytest.mark.parametrize("believed_s", [100.0, 1e6])
def test_who_started_on_its_place_is_protected_until_it_outruns_its_belief(
    believed_s: float,
) -> None:
    gang = Job(id="gang", gpus=8, duration_s=30_000.0, profile=SAVES)
    small = Job(id="small", gpus=1, duration_s=10.0, profile=SAVES)
    believed = Believed({"gang": believed_s, "small": 10.0})
    instance = Instance(cluster=one_node(gpus=8), jobs=(gang, small))
    world, kept = VirtualWorld(instance, estimates=believed), Reservations()
    world.advance()
    kept.current = earliest(world, "gang")
    fit = kept.place(world)
    assert fit is not None
    world.start("gang", *fit)
    kept.began(world)
    world.wake_at(90.0)
    world.advance()
    assert kept.protects(world, "gang", "small") and kept.pinned(world) == {"gang"}
    world.wake_at(120.0)
    world.advance()
    assert kept.protects(world, "gang", "small") == (believed_s > 120.0)
    assert bool(kept.pinned(world)) == (believed_s > 120.0)


@pytest.mark.parametrize(
    ("preemptible", "small_s", "gang_s"), [(True, 0.0, 200.0), (False, 900.0, 90.0)]
)
def test_no_place_is_kept_early_for_who_could_preempt_its_way_in(
    preemptible: bool, small_s: float, gang_s: float
) -> None:
    """Who starts on one would hold off those that come, however short they are."""
    made = passed_later(Job(id="small", gpus=1, duration_s=10.0, submit_s=200.0))
    dear = Profile(checkpoint_s=10.0, restore_s=10.0)
    jobs = tuple(replace(job, profile=dear, preemptible=preemptible) for job in made.jobs)
    found = waits_s(replace(made, jobs=jobs))
    assert (found["small"], found["gang"]) == pytest.approx((small_s, gang_s))


@pytest.mark.parametrize(("hold", "knows"), [(True, True), (True, False), (False, True)])
def test_a_job_starts_on_its_place_before_it_is_due_only_where_run_times_are_sure(
    hold: bool, knows: bool
) -> None:
    """In live rounds they are what users say, in others a guess."""
    places = KeptPlaces()
    world = cast(World, SimpleNamespace(run_times_hold=hold, knows_run_times=knows))
    assert places.reserved_for(world) is None
    places.reservations.current = cast(Reservation, SimpleNamespace(job="gang"))
    assert places.reserved_for(world) == ("gang" if hold and knows else None)


@pytest.mark.parametrize(
    ("holds", "runs"),
    [((1,) * 16, 1.0), ((4,) * 4, 4.0), ((12, 2, 2), 16 / 3), ((1, 1), 1.0), ((16,), 8.0)],
)
def test_a_gang_that_could_take_its_gpus_from_few_is_patient_for_longer(
    holds: tuple[int, ...], runs: float
) -> None:
    """The larger the jobs are that would have to go, the sooner it is worth more than they are."""
    held = [
        Job(id=f"h{k}", gpus=gpus, duration_s=500.0, profile=SAVES) for k, gpus in enumerate(holds)
    ]
    gang = Job(id="gang", gpus=16, duration_s=100.0, profile=SAVES)
    world = VirtualWorld(Instance(cluster=one_node(gpus=16), jobs=(*held, gang)))
    world.advance()
    for job in held:
        fit = world.fit(job.id)
        assert fit is not None
        world.start(job.id, *fit)
    assert reservation._Preemption(by_price=True).patient_runs(world, "gang") == pytest.approx(runs)


def test_who_came_back_is_looked_at_again_as_soon_as_it_may_be_preempted() -> None:
    """Nothing happens any more when the short gang may take its GPUs once more."""
    profile = Profile(checkpoint_s=2.0, restore_s=10.0, startup_s=5.0)
    drawn = [
        ("a", 4, 3600.0, 0.0),
        ("b", 4, 7200.0, 0.0),
        ("c", 8, 300.0, 60.0),
        ("d", 1, 60.0, 120.0),
    ]
    jobs = tuple(
        Job(id=name, gpus=gpus, duration_s=run_s, submit_s=submit_s, profile=profile)
        for name, gpus, run_s, submit_s in drawn
    )
    assert waits_s(Instance(cluster=one_node(gpus=8), jobs=jobs))["c"] < 600.0
