"""The round as a policy: no thrashing, no starving, and what it is for."""

from dataclasses import replace

import numpy as np
import pytest

import optsched_solvers.policies.optsched as rule
from optsched import Cluster, Instance, Job, Node
from optsched.driver import reservation
from optsched.errors import InputError
from optsched.estimates import Estimates
from optsched.estimates.noisy import Noisy
from optsched.estimates.unknown import Unknown
from optsched.model.plan import Plan
from optsched.model.profile import Profile, Sharing
from optsched.objectives import parse
from optsched.physics import hold_to_save_s, setup_s
from optsched.plugins.registry import policy
from optsched.round.facts import SETTLE
from optsched.simulate.run import Simulation, StalledError, simulate
from optsched.traces.generate.synth import generate
from optsched.verify import verify
from tests.clusters import one_node
from tests.verified import checked

WCT = parse("wct")


def crowded(seed: int, jobs: int = 60, longest_s: float = 5e4) -> Instance:
    """More work than a small cluster can do, arriving while it does it."""
    rng = np.random.default_rng(seed)
    made = generate(
        jobs=jobs,
        gpus=int(rng.choice([16, 32])),
        seed=seed,
        like=("mixed", "llm")[seed % 2],
        arrivals="poisson",
        load=float(rng.uniform(0.8, 2.0)),
    )
    jobs = tuple(
        replace(job, duration_s=min(job.duration_s or 0.0, longest_s)) for job in made.jobs
    )
    return replace(made, jobs=jobs)


def thrashing(instance: Instance, plan: Plan) -> list[str]:
    """Stays that began with a resume and ended with a preemption before they had paid for it."""
    found = []
    for job, entry in zip(instance.jobs, plan.jobs, strict=True):
        cost_s = hold_to_save_s(job) + setup_s(job, ran_before=True)
        for segment in entry.segments[1:-1]:
            if segment.end_s - segment.start_s < SETTLE * cost_s - 1e-3:
                found.append(
                    f"{job.id} {segment.start_s} to {segment.end_s}, {cost_s} s to preempt"
                )
    return found


def check_no_thrashing(rounds: int) -> None:
    decided, seed, most = 0, 0, 0
    while decided < rounds:
        instance = crowded(seed)
        made = policy("optsched", WCT)
        plan = simulate(instance, made)
        checked(instance, plan)
        assert thrashing(instance, plan) == []
        for job, entry in zip(instance.jobs, plan.jobs, strict=True):
            cost_s = hold_to_save_s(job) + setup_s(job, ran_before=True)
            held_s = sum(segment.end_s - segment.start_s for segment in entry.segments)
            most = max(most, len(entry.segments) - 1)
            assert len(entry.segments) - 1 <= 1 + held_s / (SETTLE * cost_s)
        assert all(record.bound >= record.value - 1e-9 for record in made.rounds)
        decided += len(made.rounds)
        seed += 1
    assert most > 1, "no job was preempted twice, so nothing was tested"


def test_no_job_is_preempted_before_the_last_time_is_paid_for() -> None:
    check_no_thrashing(300)


@pytest.mark.slow
def test_no_thrashing_in_10000_rounds() -> None:
    check_no_thrashing(10_000)


def test_a_gang_that_is_dear_to_save_is_not_preempted_for_each_small_job() -> None:
    """Each preemption would be worth it if no other small job came. Xion preempts it for each."""
    dear = Profile(checkpoint_s=600.0, restore_s=600.0)
    gang = Job(id="gang", gpus=8, duration_s=3000.0, profile=dear)
    small = (
        Job(id=f"s{k}", gpus=1, duration_s=60.0, submit_s=100.0 + 500.0 * k, profile=dear)
        for k in range(40)
    )
    instance = Instance(cluster=one_node(gpus=8), jobs=(gang, *small))

    def preemptions(name: str) -> int:
        plan = simulate(instance, policy(name, WCT))
        checked(instance, plan)
        return len(plan.jobs[0].segments) - 1

    assert preemptions("xion") > 10
    assert preemptions("optsched") <= 3


def test_a_gang_does_not_starve_behind_small_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A light gang among a stream of heavy small jobs that would fill the cluster for ever."""
    profile = Profile(checkpoint_s=10.0, restore_s=10.0)
    gang = Job(id="gang", gpus=4, duration_s=1000.0, weight=0.001, profile=profile)
    small = tuple(
        Job(id=f"s{k}", gpus=1, duration_s=100.0, weight=4.0, submit_s=24.0 * k, profile=profile)
        for k in range(200)
    )
    instance = Instance(cluster=one_node(gpus=4), jobs=(gang, *small))
    plan = simulate(instance, policy("optsched"))
    checked(instance, plan)
    assert plan.jobs[0].completion_s <= 1000 + 100 + 20 + 1000 + 100
    monkeypatch.setattr(reservation.Reservations, "entitled", lambda self, world: [])
    starved = simulate(instance, policy("optsched"))
    assert starved.jobs[0].completion_s > 4500
    assert len(plan.jobs[0].segments) <= 2


def test_it_beats_the_rules_it_generalises() -> None:
    """On contended clusters with costly checkpoints its weighted completion time is the smallest in
    sum."""
    totals = {name: 0.0 for name in ("fifo", "srtf", "srsf", "wspt", "optsched")}
    for seed in range(4):
        instance = crowded(seed)
        for name in totals:
            values = verify(instance, simulate(instance, policy(name)), WCT).values
            assert values is not None
            totals[name] += values[0]
    assert min(totals, key=lambda name: totals[name]) == "optsched", totals


@pytest.mark.parametrize("protected", [False, True])
def test_a_job_moves_to_the_faster_gpu_that_comes_free_although_nobody_waits(
    protected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks at moves every so often, also where nothing else happens, and at those of a job that
    started where a place was kept for it and is evicted by nobody."""
    if protected:
        monkeypatch.setattr(
            reservation.Reservations, "pinned", lambda self, world: {"b"} & world.running.keys()
        )
    nodes = (Node(name="new", gpu_type="new", gpus=1), Node(name="old", gpu_type="old", gpus=1))
    shape = Profile(rate={"new": 1.0, "old": 0.25}, checkpoint_s=5.0, restore_s=5.0)
    first, second = (
        Job(id=name, duration_s=length_s, profile=shape)
        for name, length_s in (("a", 20.0), ("b", 9e3))
    )
    instance = Instance(cluster=Cluster(nodes=nodes, reference_gpu="new"), jobs=(first, second))
    plan = simulate(instance, policy("optsched"))
    checked(instance, plan)
    assert [segment.placement[0].node for segment in plan.jobs[1].segments] == ["old", "new"]
    assert plan.jobs[1].segments[0].end_s <= rule.Optsched.Options().moves_s + 5.0


def test_who_moves_from_a_kept_place_stays_protected() -> None:
    nodes = (Node(name="new", gpu_type="new", gpus=1), Node(name="old", gpu_type="old", gpus=1))
    shape = Profile(rate={"new": 1.0, "old": 0.25}, checkpoint_s=5.0, restore_s=5.0)
    jobs = (
        Job(id=name, duration_s=length_s, profile=shape)
        for name, length_s in (("a", 20.0), ("b", 9e3))
    )
    cluster = Cluster(nodes=nodes, reference_gpu="new")
    simulation = Simulation(Instance(cluster=cluster, jobs=tuple(jobs)), policy("optsched"))
    world = simulation.world
    simulation.run(until=lambda: "b" in world.running)
    world.protected.add("b")
    simulation.run(until=lambda: "b" in world.running and world.placement("b")[0].node == "new")
    assert "b" in world.running and "b" in world.protected


@pytest.mark.parametrize("estimates", [Noisy(1.0, 3), Unknown()])
def test_wrong_beliefs_spoil_nothing_but_the_order(estimates: Estimates) -> None:
    """Jobs end before they are believed to, also in the instant in which they are to be
    preempted."""
    for seed in (1, 2):
        instance = crowded(seed, jobs=40)
        free = replace(
            instance,
            jobs=tuple(
                replace(
                    job,
                    submit_s=100.0 * round(job.submit_s / 100),
                    duration_s=100.0 * (1 + (job.duration_s or 0) // 100),
                    profile=replace(job.profile, checkpoint_s=0.0, restore_s=0.0, startup_s=0.0),
                )
                for job in instance.jobs
            ),
        )
        for one in (instance, free):
            simulation = Simulation(one, policy("optsched"), estimates=estimates)
            simulation.run()
            checked(one, simulation.record().plan())


def test_same_input_same_plan() -> None:
    instance = crowded(3, jobs=25)
    assert simulate(instance, policy("optsched")) == simulate(instance, policy("optsched"))


@pytest.mark.parametrize(
    "objective",
    ["tardiness", "flow2", "makespan", "ftf", "maxmin", "throughput", "energy", "deadline,wct"],
)
def test_every_objective_finishes_every_job(objective: str) -> None:
    instance = crowded(1, jobs=12, longest_s=3000.0)
    jobs = tuple(
        replace(job, deadline_s=job.submit_s + 3 * (job.duration_s or 0.0)) for job in instance.jobs
    )
    instance = replace(instance, jobs=jobs)
    goal = parse(objective)
    checked(instance, simulate(instance, policy("optsched", goal)), goal)


def ends(objective: str, cluster: Cluster, *jobs: Job) -> bool:
    """Whether all jobs are done after few decisions."""
    simulation = Simulation(
        Instance(cluster=cluster, jobs=jobs), policy("optsched", parse(objective))
    )
    decisions = iter(range(20))
    return simulation.run(until=lambda: next(decisions, None) is None)


ONE_GPU = Cluster(nodes=(Node(name="n", gpus=1),), budgets={"money": 1.0})


def test_what_changes_with_time_is_looked_at_once_a_round() -> None:
    """If each decision asked for another a round later, there would be ever more."""
    made = policy("optsched", parse("flow2"))
    plan = simulate(crowded(1, jobs=30), made)
    segments = sum(len(job.segments) for job in plan.jobs)
    last_s = max(job.completion_s for job in plan.jobs)
    assert len(made.rounds) <= 4 * segments + last_s / made.round_s


@pytest.mark.parametrize("objective", ["flow2", "energy_cost"])
def test_while_nothing_happens_it_looks_ever_less_often(objective: str) -> None:
    jobs = Job(id="a", duration_s=1e9), Job(id="b", duration_s=1e9, deadline_s=10.0)
    cluster = replace(ONE_GPU, energy_price_per_kwh=((0.0, 1.0), (3e5, 2.0)))
    made = policy("optsched", parse(objective))
    simulate(Instance(cluster=cluster, jobs=jobs), made)
    assert len(made.rounds) < 2000


def test_who_comes_after_a_long_quiet_time_is_looked_at_again_soon() -> None:
    jobs = (
        *(Job(id=name, duration_s=1e8, preemptible=False) for name in "ab"),
        Job(id="c", duration_s=1e4, submit_s=1.5e7),
    )
    made = policy("optsched", parse("flow2"))
    simulate(Instance(cluster=ONE_GPU, jobs=jobs), made)
    looked = [record.now_s for record in made.rounds]
    assert any(1.5e7 < now_s <= 1.5e7 + 2 * made.round_s for now_s in looked)


@pytest.mark.parametrize("objective", ["throughput", "tardiness", "lateness"])
def test_a_job_of_no_weight_runs_in_the_end(objective: str) -> None:
    a, b = Job(id="a", duration_s=1.0), Job(id="b", duration_s=1.0, submit_s=5.0, weight=0.0)
    assert ends(objective, ONE_GPU, a, b)


@pytest.mark.parametrize("objective", ["wct", "throughput", "tardiness"])
def test_it_stops_where_nobody_can_ever_start(objective: str) -> None:
    jobs = [Job(id=name, duration_s=1.0, budgets={"money": 0.75}) for name in "ab"]
    with pytest.raises(StalledError, match="what is left of the budgets allows no mode of job a"):
        ends(objective, ONE_GPU, *jobs)


@pytest.mark.parametrize(
    "options", [{"round": "x"}, {"round": "-1"}, {"speed": "1"}, {"solver": "none"}]
)
def test_wrong_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(InputError):
        simulate(crowded(0, jobs=5), policy("optsched", options=options))


@pytest.mark.parametrize("seed", range(2))
def test_at_a_pace_few_rounds_do_nearly_as_well(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between rounds what comes free goes to whoever fits, so that no GPU waits for the next
    one."""
    monkeypatch.setattr(rule, "FEW_JOBS", 0)
    made = generate(jobs=100, gpus=16, seed=seed)
    instance = replace(made, jobs=tuple(replace(job, submit_s=0.0) for job in made.jobs))
    means, rounds = [], []
    for options in ({}, {"pace": "0.1"}):
        paced = policy("optsched", WCT, options)
        plan = simulate(instance, paced)
        checked(instance, plan)
        means.append(np.mean([one.completion_s for one in plan.jobs]))
        rounds.append(len(paced.rounds))
    assert 2 * rounds[1] < rounds[0] and means[1] < means[0] * 1.05


@pytest.mark.parametrize("pace", ["-0.1", "1.1", "nan", "x"])
def test_a_pace_that_is_none_is_refused(pace: str) -> None:
    with pytest.raises(InputError, match=r"option pace of policy optsched: .*a number from 0 to 1"):
        policy("optsched", WCT, {"pace": pace})


def test_a_guest_takes_smaller_batches_where_the_memory_is_short() -> None:
    profile = Profile(
        sharing=Sharing(duty=0.3), gpu_memory_gib=10.0, gpu_memory_rates={4.0: 0.6, 5.0: 0.8}
    )
    instance = Instance(
        cluster=one_node(gpus=1, gpu_memory_gib=15.0),
        jobs=tuple(
            Job(id=name, submit_s=submit_s, duration_s=4000.0, profile=profile)
            for name, submit_s in (("host", 0.0), ("guest", 300.0))
        ),
    )
    plan = simulate(instance, policy("optsched", WCT))
    checked(instance, plan)
    taken = {segment.mode.gpu_memory_gib for entry in plan.jobs for segment in entry.segments}
    assert taken == {None, 5.0}
