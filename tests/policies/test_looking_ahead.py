"""Trials change nothing until they are carried out, and playouts foretell what then happens."""

import gc
import random
import weakref
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import certified_large, preempt_or_continue
from optsched.bounds import lower_bounds
from optsched.driver import playout
from optsched.driver.playout import Playouts
from optsched.driver.snapshot import snapshot
from optsched.driver.trial import Trial
from optsched.driver.view import PolicyError
from optsched.driver.world import World
from optsched.model.cluster import Cluster, Node, Window
from optsched.model.instance import Instance
from optsched.model.job import Elastic, Job
from optsched.model.profile import Profile, Sharing
from optsched.objectives import parse
from optsched.plugins import registry
from optsched.simulate.run import Simulation, simulate
from optsched.simulate.virtual import VirtualWorld
from optsched_solvers.policies.optsched import Optsched, Step
from optsched_solvers.policies.parts.agenda import Agenda, outline, search
from tests.clusters import equal_nodes, one_node

WCT = parse("wct")
SEEDS, COSTS_S = st.integers(0, 10**6), st.sampled_from([0.0, 30.0, 300.0])


def drawn(seed: int, cost_s: float, jobs: int = 24, at_once: bool = True) -> Instance:
    """Jobs of one to eight GPUs on two nodes of eight."""
    draw = random.Random(seed)
    profile = Profile(checkpoint_s=cost_s, restore_s=cost_s, startup_s=5.0)
    return Instance(
        cluster=Cluster(nodes=equal_nodes(2, gpus=8)),
        jobs=tuple(
            Job(
                id=f"j{i:02}",
                gpus=draw.choice((1, 1, 2, 4, 8)),
                duration_s=round(draw.uniform(60.0, 3000.0), 1),
                submit_s=0.0 if at_once else round(draw.uniform(0.0, 4000.0), 1),
                weight=draw.choice((1.0, 1.0, 2.5)),
                profile=profile,
            )
            for i in range(jobs)
        ),
    )


class ListRule:
    """The rule of playouts, as a policy: for comparison."""

    name = "list"
    title = "seconds to completion times the root of GPUs, by weight"

    def decide(self, world: World) -> None:
        def rank(job: str) -> tuple[float, tuple[float, int]]:
            gpus = world.service_gpus(job) ** 0.5
            return world.fastest_finish_s(job) * gpus / world.job(job).weight, world.order(job)

        for job in sorted(world.waiting, key=rank):
            fit = world.fit(job)
            if fit is not None:
                world.start(job, *fit)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6), cost_s=st.sampled_from([0.0, 30.0, 300.0]), begun=st.integers(0, 12)
)
def test_a_playout_completes_jobs_when_the_simulator_does(
    seed: int, cost_s: float, begun: int
) -> None:
    """Nobody arrives, so that what a playout says is what the same rule does in virtual time."""
    instance = drawn(seed, cost_s)
    simulation = Simulation(instance, ListRule())
    simulation.run(until=lambda: simulation.done >= begun)
    world = simulation.world
    places = [*world.waiting, *world.running, *world.saving]
    foretold = Playouts(world, WCT).completions_s(Trial(world))
    simulation.run()
    ends = {entry.id: entry.completion_s for entry in simulation.record().plan().jobs}
    assert np.allclose(foretold, [ends[job] for job in places], atol=1e-3)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    cost_s=st.sampled_from([0.0, 30.0, 300.0]),
    victims=st.integers(1, 4),
)
def test_it_foretells_preemptions_too(seed: int, cost_s: float, victims: int) -> None:
    instance = drawn(seed, cost_s)
    rule = ListRule()
    simulation = Simulation(instance, rule)
    simulation.run(until=lambda: simulation.done >= 3)
    world = simulation.world
    trial = Trial(world)
    places = [*world.waiting, *world.running, *world.saving]
    for job in [job for job in world.running if world.may_preempt(job)][:victims]:
        trial.preempt(job)
    foretold = Playouts(world, WCT).completions_s(trial)
    trial.carry_out()
    rule.decide(world)
    simulation.run()
    ends = {entry.id: entry.completion_s for entry in simulation.record().plan().jobs}
    assert np.allclose(foretold, [ends[job] for job in places], atol=1e-3)


def elastic(seed: int, cost_s: float, jobs: int = 16) -> Instance:
    """The same jobs, of any number of GPUs from one to eight with ever less gain."""
    rates = {1: 0.2, 2: 0.38, 4: 0.65, 8: 1.0}
    instance = drawn(seed, cost_s, jobs)
    return replace(
        instance,
        jobs=tuple(
            replace(job, gpus=Elastic(min=1, max=8), profile=replace(job.profile, gpus=rates))
            for job in instance.jobs
        ),
    )


def test_once_nobody_waits_an_elastic_job_grows_into_what_comes_free() -> None:
    """One runs on two of four GPUs until the other two come free after 100 s; it is saved for 10 s
    and set up for 10 + 5 s, and does what is left of it in half of the time."""
    profile = Profile(checkpoint_s=10.0, restore_s=10.0, startup_s=5.0, gpus={2: 0.5, 4: 1.0})
    world = VirtualWorld(
        Instance(
            cluster=one_node(gpus=4),
            jobs=(
                Job(id="rigid", gpus=2, duration_s=95.0, profile=replace(profile, gpus={})),
                Job(id="grows", gpus=Elastic(min=2, max=4), duration_s=297.5, profile=profile),
            ),
        )
    )
    world.advance()
    trial = Trial(world)
    for job in ("rigid", "grows"):
        fit = trial.fit(job)
        assert fit is not None
        trial.start(job, *fit)
    playouts = Playouts(world, WCT, grow=True)
    ends_s = dict(zip(playouts.place, playouts.completions_s(trial).tolist(), strict=True))
    assert ends_s == {"rigid": 100.0, "grows": 600.0 - 250.0 + 25.0}
    assert playouts.plan_cost(trial, world.instance)[0] == 100.0 + 600.0  # no such plan is promised


@settings(max_examples=25)
@given(SEEDS, COSTS_S)
def test_who_grows_is_done_earlier_and_delays_nobody(seed: int, cost_s: float) -> None:
    simulation = Simulation(elastic(seed, cost_s), ListRule())
    simulation.run(until=lambda: simulation.done >= 2)
    trial = Trial(simulation.world)
    staying_s = Playouts(simulation.world, WCT).completions_s(trial)
    growing_s = Playouts(simulation.world, WCT, grow=True).completions_s(trial)
    assert np.all(growing_s <= staying_s + 1e-6)


def test_a_trial_changes_nothing_until_it_is_carried_out() -> None:
    world = VirtualWorld(drawn(1, 30.0))
    world.advance()
    before = {*world.waiting}, {*world.running}, world.free.gpus_on("n0"), world.free.gpus_on("n1")
    trial = Trial(world)
    ListRule().decide(trial)
    assert trial.running and trial.free.gpus_on("n0") == 0
    after = {*world.waiting}, {*world.running}, world.free.gpus_on("n0"), world.free.gpus_on("n1")
    assert after == before
    trial.carry_out()
    assert {*world.running} == {*trial.running} and world.free.gpus_on("n1") == trial.free.gpus_on(
        "n1"
    )


def test_who_is_pinned_or_has_just_started_is_not_preempted_in_a_trial() -> None:
    instance = drawn(2, 30.0)
    simulation = Simulation(instance, ListRule())
    simulation.run(until=lambda: simulation.done >= 2)
    world = simulation.world
    free = [job for job in world.running if world.may_preempt(job)]
    trial = Trial(world, pinned=free[:1])
    assert not trial.may_preempt(free[0]) and trial.may_preempt(free[1])
    with pytest.raises(PolicyError):
        trial.preempt(free[0])
    trial.preempt(free[1])
    assert free[1] in trial.saving and not trial.may_preempt(free[1])


@pytest.mark.parametrize("seed", range(3))
def test_optsched_is_no_worse_than_xion_where_saving_is_dear(seed: int) -> None:
    instance = drawn(seed, 300.0, jobs=40, at_once=False)

    def total_s(policy: str) -> float:
        plan = simulate(instance, registry.policy(policy, WCT, {}))
        weight = {job.id: job.weight for job in instance.jobs}
        return sum(weight[entry.id] * entry.completion_s for entry in plan.jobs)

    assert total_s("optsched") <= 1.02 * total_s("xion")


def test_a_pair_of_which_one_moves_is_a_pair_no_more() -> None:
    """It starts again by itself while its partner still says that it shares."""
    profile = Profile(sharing=Sharing(duty=0.6))
    instance = Instance(
        cluster=Cluster(nodes=(Node(name="n0", gpus=1), Node(name="n1", gpus=1))),
        jobs=tuple(Job(id=name, duration_s=100.0, profile=profile) for name in ("a", "b", "c")),
    )
    world = VirtualWorld(instance)
    world.advance()
    option = world.fastest("a")
    for name, node in (("a", 0), ("c", 1)):
        world.start(name, option, world.free.layout.alone(node, 1, 0))
    world.start_sharing("b", option, "a")
    world.go_on_to(10.0)
    trial = Trial(world)
    trial.preempt("c")
    trial.preempt("b")
    assert trial.hold("a").partner == "b"
    trial.start("b", option, world.free.layout.alone(1, 1, 0))
    ends = Playouts(world, WCT).completions_s(trial)
    assert np.isfinite(ends).all()


@pytest.mark.parametrize("at_once", [True, False])
def test_what_a_victim_loses_is_foretold_where_it_starts_again(at_once: bool) -> None:
    """At the rate that it has there, whether the trial starts it or the list rule does."""
    profile = Profile(rate={"a": 1.0, "b": 0.5}, checkpoint_every_s=60.0)
    nodes = (Node(name="n0", gpus=1, gpu_type="a"), Node(name="n1", gpus=1, gpu_type="b"))
    jobs = tuple(Job(id=name, duration_s=100.0, profile=profile) for name in "xy")
    world = VirtualWorld(Instance(cluster=Cluster(nodes=nodes), jobs=jobs))
    world.advance()
    fast, slow = world.options("x")
    here, there = (world.free.layout.alone(i, 1, 0) for i in range(2))
    world.start("x", fast, here)
    world.go_on_to(10.0)
    trial = Trial(world)
    trial.preempt("x")
    trial.start("y", fast, here)
    if at_once:
        trial.start("x", slow, there)
    playouts = Playouts(world, WCT)
    ends_s = playouts.completions_s(trial)
    assert [ends_s[playouts.place[name]] for name in "xy"] == [210.0, 110.0]


def test_what_a_trial_has_started_leaves_less_room_beside_others() -> None:
    profile = Profile(sharing=Sharing(duty=0.5), cpus_per_gpu={2: 1.0})
    instance = Instance(
        cluster=one_node("n0", gpus=2, cpus=5),
        jobs=tuple(Job(id=name, duration_s=100.0, profile=profile) for name in ("a", "b", "c")),
    )
    world = VirtualWorld(instance)
    world.advance()
    option = world.fastest("a")
    place = world.free.layout.alone(0, 1, 2)
    world.start("a", option, place)
    world.go_on_to(10.0)
    trial = Trial(world)
    assert trial.may_share("b", option, "a")
    trial.start("c", option, place)
    assert world.may_share("b", option, "a") and not trial.may_share("b", option, "a")
    with pytest.raises(PolicyError, match="not enough room"):
        trial.start_sharing("b", option, "a")


def test_gpus_of_a_pair_are_free_when_both_have_left() -> None:
    """One saves while the other, which has nothing to save, is gone at once."""
    sharing = Sharing(duty=0.5)
    slow, quick = Profile(sharing=sharing, checkpoint_s=60.0), Profile(sharing=sharing)
    instance = Instance(
        cluster=one_node("n0", gpus=1),
        jobs=(
            Job(id="slow", duration_s=100.0, profile=slow),
            Job(id="quick", duration_s=100.0, profile=quick),
        ),
    )
    world = VirtualWorld(instance)
    world.advance()
    world.start("slow", world.fastest("slow"), world.free.layout.alone(0, 1, 0))
    world.start_sharing("quick", world.fastest("quick"), "slow")
    world.go_on_to(10.0)
    trial = Trial(world)
    trial.preempt("slow")
    trial.preempt("quick")
    assert trial.free.gpus_on("n0") == 0
    trial.carry_out()
    assert world.free.gpus_on("n0") == 0
    assert np.isfinite(Playouts(world, WCT).completions_s(Trial(world))).all()


def test_a_trial_is_played_anew_once_more_is_commanded_or_claimed() -> None:
    world = VirtualWorld(drawn(3, 30.0))
    world.advance()
    playouts, trial = Playouts(world, WCT), Trial(world)
    before = playouts.completions_s(trial)
    assert playouts.completions_s(trial) is before
    last = max(trial.waiting, key=lambda job_id: before[playouts.place[job_id]])
    fit = trial.fit(last)
    assert fit is not None
    trial.start(last, *fit)
    started = playouts.completions_s(trial)
    assert started[playouts.place[last]] < before[playouts.place[last]]
    other = next(iter(trial.waiting))
    trial.claim(other, world.fastest(other), fit[1])
    assert (playouts.completions_s(trial) != started).any()


def test_playouts_are_freed_at_once() -> None:
    """They know of all jobs, and a decision has them anew."""
    world = VirtualWorld(drawn(3, 30.0))
    world.advance()
    playouts = Playouts(world, WCT)
    playouts.completions_s(Trial(world))
    gone = weakref.ref(playouts)
    gc.disable()
    try:
        del playouts
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("seed", range(5))
def test_claims_are_looked_at_only_where_something_comes_free(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is played is the same as if all of them were looked at each time."""
    nodes = equal_nodes(6, gpus=8)
    quick = Profile(checkpoint_s=20.0, restore_s=20.0)
    made = drawn(seed, 300.0, jobs=60)
    jobs = [replace(job, profile=quick) if i % 2 else job for i, job in enumerate(made.jobs)]
    world = VirtualWorld(replace(made, cluster=Cluster(nodes=nodes), jobs=tuple(jobs)))
    world.advance()
    for job_id in [*world.waiting]:
        if (fit := world.fit(job_id)) is not None:
            world.start(job_id, *fit)
    world.go_on_to(10.0)
    draw, trial = random.Random(seed), Trial(world)
    room = trial.free.copy()
    for job_id in draw.sample([*world.running], 8):
        trial.preempt(job_id)
        room.give(world.hold(job_id).need, world.placement(job_id), finished=False)
    for job_id in trial.victims[::2] + draw.sample([*trial.waiting], 12):
        if (fit := world.fit(job_id, room)) is not None:
            trial.take(room, job_id, fit)
            trial.claim(job_id, *fit)
    assert len(trial.claims) > 2
    ends_s = Playouts(world, WCT).completions_s(trial)
    of_placement = playout._groups

    def all_together(claims: dict[str, playout._Claim]) -> dict[str, playout._Group]:
        groups = of_placement(claims)
        for group in groups.values():
            group.always = True
        return groups

    monkeypatch.setattr(playout, "_groups", all_together)
    assert (Playouts(world, WCT).completions_s(trial) == ends_s).all()


def test_beyond_many_starts_the_rest_is_costed_as_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing completes before its own run time, and the GPU time of all is there by the end."""
    monkeypatch.setattr(playout, "MOST_STARTS", 5)
    instance = drawn(3, 30.0, jobs=40)
    world = VirtualWorld(instance)
    world.advance()
    ends = Playouts(world, WCT).completions_s(Trial(world))
    runs = [world.fastest_finish_s(job) for job in world.waiting]
    assert (ends >= np.array(runs) - 1e-6).all()
    work = sum(run * world.service_gpus(job) for run, job in zip(runs, world.waiting, strict=True))
    assert work / 16 <= ends.max() <= work / 16 + 2 * max(runs)


class Following(ListRule):
    """The list rule until there is an agenda, then that."""

    def __init__(self) -> None:
        self.agenda: Agenda | None = None
        self.victims: list[str] = []

    def decide(self, world: World) -> None:
        if self.agenda is None:
            super().decide(world)
            return
        step = self.agenda.step(world, (), self.victims)
        assert step is not None
        step.carry_out()
        self.victims = []
        if (next_s := self.agenda.next_start_s(world.now_s)) is not None:
            world.wake_at(next_s)


@settings(max_examples=10)
@given(seed=SEEDS, cost_s=COSTS_S, begun=st.integers(0, 12))
def test_a_plan_that_is_found_comes_true_and_is_no_worse_than_its_outline(
    seed: int, cost_s: float, begun: int
) -> None:
    """Nobody arrives, so that each job completes when the plan says."""
    rule = Following()
    simulation = Simulation(drawn(seed, cost_s), rule)
    simulation.run(until=lambda: simulation.done >= begun and not simulation.world.saving)
    world = simulation.world
    playouts, nothing = Playouts(world, WCT), Trial(world)
    found = search(world, snapshot(world), WCT, [outline(world, playouts, nothing)], 0.5)
    assert found is not None
    rule.agenda, rule.victims = found
    step = found[0].step(world, (), found[1])
    assert step is not None
    assert playouts.cost(step)[0] <= playouts.cost(nothing)[0] * (1 + 1e-9)
    rule.decide(world)
    simulation.run()
    ends_s = {entry.id: entry.completion_s for entry in simulation.record().plan().jobs}
    for job_id, end_s in rule.agenda.ends_s.items():
        assert ends_s[job_id] == pytest.approx(end_s, abs=1e-3)


def test_a_bold_search_finds_an_optimum_that_a_cold_one_misses() -> None:
    world = VirtualWorld(preempt_or_continue.load("node-07", certified_large.SET))
    world.advance()
    playouts = Playouts(world, WCT)
    outlines = [outline(world, playouts, Trial(world))]
    found = search(world, snapshot(world), WCT, outlines, 2.0, bold=True)
    assert found is not None
    step = found[0].step(world, (), found[1])
    assert step is not None
    optimum = preempt_or_continue.stored(certified_large.SET)["node-07"]["value"]
    assert playouts.cost(step)[0] == pytest.approx(optimum)


def test_a_search_preempts_nobody_who_is_pinned() -> None:
    rule = ListRule()
    simulation = Simulation(drawn(4, 30.0), rule)
    simulation.run(until=lambda: simulation.done >= 2)
    world = simulation.world
    playouts, now = Playouts(world, WCT), snapshot(world)
    outlines = [outline(world, playouts, Trial(world))]

    def victims(pinned: set[str]) -> list[str]:
        found = search(world, replace(now, pinned=pinned), WCT, outlines, 2.0)
        assert found is not None
        return found[1]

    assert victims(set()) and not victims({*world.running})


def test_an_agenda_ends_where_the_world_is_not_as_planned() -> None:
    world = VirtualWorld(drawn(5, 30.0))
    world.advance()
    playouts = Playouts(world, WCT)
    found = search(world, snapshot(world), WCT, [outline(world, playouts, Trial(world))], 0.5)
    assert found is not None
    agenda = found[0]
    assert agenda.step(world, ()) is not None
    first = next(job for job, (start_s, _, _) in agenda.starts.items() if start_s == 0.0)
    without = {job: end_s for job, end_s in agenda.ends_s.items() if job != first}
    assert Agenda(agenda.starts, without).step(world, ()) is None  # it knows nothing of this job
    world.start(first, *world.fit(first))
    sooner = {**agenda.ends_s, first: agenda.ends_s[first] - 1.0}
    assert Agenda(agenda.starts, sooner).step(world, ()) is None  # it will be late
    world.go_on_to(min(world.expected_release_s(job) for job in world.running) / 2)
    assert agenda.step(world, ()) is None  # nobody else has started


class Planning(Optsched):
    """Notes of each decision the jobs that are here, what its plan costs them, and whether it chose
    among plans."""

    def __init__(self) -> None:
        super().__init__(Optsched.Options())
        self.plans: list[tuple[set[str], float, bool]] = []
        self._placed = False
        self._protected: set[str] = set()

    def decide(self, world: World) -> None:
        super().decide(world)
        self._placed = self.reservations.current is not None

    def _take(self, step: Step) -> None:
        world = step.trial.origin
        playouts = Playouts(world, WCT)
        kept = self._placed or self.reservations.current is not None  # a place for a gang
        kept, self._protected = kept or world.protected != self._protected, set(world.protected)
        chose = not kept and self._preemptions_matter(world)
        here, cost = {*playouts.place}, playouts.cost(step.trial)[0]
        self.plans.append((here, cost, chose and bool(world.waiting)))
        super()._take(step)


@pytest.mark.parametrize(
    ("seed", "cost_s"),
    [
        (2, 30.0),  # here it is the last plan that is best
        (106, 30.0),  # a claim starts at once on what another waits for
        (0, 300.0),
    ],
)
def test_while_nobody_comes_no_plan_is_worse_than_the_last(seed: int, cost_s: float) -> None:
    check_that_plans_get_no_worse(seed, cost_s)


@pytest.mark.slow
@settings(max_examples=30)
@given(seed=SEEDS, cost_s=st.sampled_from([30.0, 300.0]))
def test_of_many_plans_none_is_worse_than_the_last(seed: int, cost_s: float) -> None:
    check_that_plans_get_no_worse(seed, cost_s)


def check_that_plans_get_no_worse(seed: int, cost_s: float) -> None:
    """Check it while nobody comes: going on with the last plan is always among what is tried."""
    instance, policy = drawn(seed, cost_s), Planning()
    plan = simulate(instance, policy)
    done = {
        entry.id: instance.job[entry.id].weight * (entry.completion_s or 0.0) for entry in plan.jobs
    }
    totals = [
        (cost + sum(value for job, value in done.items() if job not in here), chose)
        for here, cost, chose in policy.plans
    ]
    assert sum(chose for _, chose in totals) > 3
    for (before, _), (after, chose) in pairwise(totals):
        assert not chose or after <= before * (1 + 1e-7)


class Watched(Optsched):
    """Keeps its first step, with what it costs played to the end and what if all were done now."""

    seen: tuple[Step, float, float] | None = None

    def _take(self, step: Step) -> None:
        if self.seen is None:
            playouts = Playouts(step.trial.origin, WCT)
            self.seen = step, *playouts.plan_cost(step.trial, step.trial.origin.instance)
        super()._take(step)


@pytest.mark.parametrize("name", preempt_or_continue.names(("pair", "queue", "mix-1", "weight")))
def test_the_gap_of_the_plan_is_none_above_the_optimum(name: str) -> None:
    """The plan is real, so no better than the optimum, and the optimum no better than the bound."""
    policy = Watched(Optsched.Options(prove=True))
    Simulation(preempt_or_continue.load(name), policy).run(until=lambda: policy.seen is not None)
    assert policy.seen is not None
    step, value, base = policy.seen
    optimum = preempt_or_continue.stored()[name]["value"]
    assert step.plan_gap is not None and 0 <= step.plan_gap <= 1
    assert value - step.plan_gap * (value - base) <= optimum * (1 + 1e-9)
    assert value >= optimum * (1 - 1e-9)


def test_the_gap_of_the_plan_is_told_of_rates_of_jobs_that_come_now() -> None:
    """One of two alike jobs waits, and each could be alone: no bound is as good as the plan."""
    jobs = [Job(id=name, duration_s=100.0) for name in "ab"]
    policy = Optsched(Optsched.Options(prove=True), parse("throughput"))
    simulate(Instance(cluster=one_node(gpus=1), jobs=tuple(jobs)), policy)
    assert [record.plan_gap for record in policy.rounds] == [1.0, 0.0]


def test_the_gap_of_the_plan_counts_fairness_among_the_jobs_that_are_here() -> None:
    """Two of three gangs fit at once, so the last is done twice as late as it would be alone, which
    is all that the bound knows. Those that come later halve nobody's share in either."""
    jobs = [Job(id=f"{k}", gpus=2, duration_s=100.0, submit_s=1000.0 * (k > 2)) for k in range(6)]
    policy = Optsched(Optsched.Options(prove=True), parse("ftf"))
    simulate(Instance(cluster=one_node(gpus=4), jobs=tuple(jobs)), policy)
    assert policy.rounds[0].plan_gap == pytest.approx(0.5)


def test_no_gap_is_told_of_a_plan_that_may_come_otherwise() -> None:
    """A window is to come: when those that it stops would go on is only guessed."""
    jobs = tuple(Job(id=name, duration_s=100.0) for name in "ab")
    window = Window(nodes=("n",), from_s=150.0, to_s=160.0)
    there = Cluster(nodes=(Node(name="n", gpus=1),), windows=(window,))
    policy = Optsched(Optsched.Options(prove=True), WCT)
    simulate(Instance(cluster=there, jobs=jobs), policy)
    assert policy.rounds[0].plan_gap is None


def test_what_is_proved_of_a_plan_is_recorded_of_each_decision_that_follows_it() -> None:
    """The plan made at first comes true, since nobody waits so long that a place is kept, so that
    no schedule of all costs less than it says."""
    instance = drawn(6, 60.0, jobs=10)
    policy = registry.policy("optsched", WCT, {"prove": "true"})
    plan = simulate(instance, policy)
    weight = {job.id: job.weight for job in instance.jobs}
    total_s = sum(weight[entry.id] * entry.completion_s for entry in plan.jobs)
    begins = [record for record in policy.rounds if record.now_s == instance.now_s]
    planned = [record for record in policy.rounds if record.bound is None]
    assert begins and planned and all(0.0 <= record.plan_gap < 1.0 for record in planned)
    [bound] = lower_bounds(instance, WCT)
    could_save = max(record.plan_gap for record in begins) * total_s
    assert total_s - could_save <= bound.value + 1e-6 * total_s


def test_a_step_leads_where_it_did_once_what_starts_beside_it_is_part_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Played again it would be costed by more starts than what it is compared with."""
    monkeypatch.setattr(playout, "MOST_STARTS", 5)
    world = VirtualWorld(drawn(3, 30.0, jobs=40))
    world.advance()
    playouts, trial = Playouts(world, WCT), Trial(world)
    before = playouts.completions_s(trial)
    assert playouts.begin(trial) and trial.started
    assert (playouts.completions_s(trial) == before).all()
    assert not playouts.begin(trial)


class Deciding(Optsched):
    """Keeps the last step that it took."""

    step: Step | None = None

    def _take(self, step: Step) -> None:
        self.step = step
        super()._take(step)


def test_once_jobs_keep_coming_gpus_are_left_idle_for_a_gang_that_fits_soon() -> None:
    """Whoever would start there holds them ten times as long as the gang waits for the others; what
    is done by then starts all the same."""
    dear = Profile(checkpoint_s=300.0, restore_s=300.0)
    jobs = (
        Job(id="first", gpus=2, duration_s=200.0, profile=dear),
        Job(id="gang", gpus=4, duration_s=100.0, submit_s=1.0, profile=dear),
        Job(id="long", gpus=1, duration_s=2000.0, submit_s=1.0, profile=dear),
        Job(id="short", gpus=1, duration_s=150.0, submit_s=1.0, profile=dear),
    )
    policy = Deciding(Optsched.Options())
    simulation = Simulation(Instance(cluster=one_node(gpus=4), jobs=jobs), policy)
    simulation.run(until=lambda: simulation.world.now_s >= 1.0)
    assert {*simulation.world.running} == {"first", "short"}
    assert policy.step is not None and policy.step.awaited == ("gang",)
    assert not simulation.world.claims  # the next decision is free not to keep them
    simulation.run()
    starts_s = {entry.id: entry.segments[0].start_s for entry in simulation.record().plan().jobs}
    assert starts_s == {"first": 0.0, "short": 1.0, "gang": 200.0, "long": 300.0}
