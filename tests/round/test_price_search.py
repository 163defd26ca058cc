"""The solver `price` on what is hard for it: many rows, sharing, nodes that no row covers, gaps
asked for."""

import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

import optsched.round.deadline as deadline
import optsched_solvers.price.dual as dual
import optsched_solvers.price.solver as solver
from benchmarks.families import with_few_cores, with_quotas, with_sharing, with_types
from optsched import Cluster, Instance, Job, Mode, Node, Profile, Running, Sharing, Slot
from optsched.objectives import parse
from optsched.round.build import build
from optsched.round.decide import decide, job_rounds
from optsched.round.exact import program
from optsched.round.model import Kind, RoundModel
from optsched.round.nodes import Nodes
from optsched.round.place import Packing
from optsched.round.realise import keep_all, realise
from optsched.round.solver import RoundRequest
from optsched.round.verify import verify_round
from optsched.traces.generate.synth import generate
from optsched_solvers.native.highs import Outcome, maximise
from optsched_solvers.price import SOLVER, neighbourhoods
from optsched_solvers.price.columns import by_columns
from optsched_solvers.price.guests import with_guest_rows
from optsched_solvers.price.quotas import quota_bound
from tests.clusters import one_node
from tests.oracles.round_brute_force import best_round, combinations_of

from .random_rounds import rounds
from .test_solvers_agree import at_least, model_of


def scarce_cores() -> Instance:
    """A gang whose cores no single node has: it needs the node on which another job runs, which has
    to move for it."""
    return Instance(
        cluster=Cluster(
            nodes=(
                Node(name="n0", gpu_type="a", gpus=1),
                Node(name="n1", gpu_type="a", gpus=3, cpus=5, memory_gib=32.0),
            )
        ),
        jobs=(
            Job(id="other", gpus=3, duration_s=85.0),
            Job(id="runs", gpus=1, duration_s=48.0),
            Job(
                id="late",
                gpus=3,
                duration_s=31.0,
                deadline_s=150.0,
                profile=Profile(cpus_per_gpu={2: 1.0}),
            ),
        ),
        running=(
            Running(
                job="runs",
                mode=Mode(gpu_type="a", gpus=1),
                placement=(Slot(node="n0", gpus=1),),
                remaining_s=48.0,
            ),
        ),
    )


def test_a_running_job_moves_off_the_only_node_with_enough_cores() -> None:
    instance = scarce_cores()
    found = decide(instance, "tardiness", round_s=60.0, refill=False, budget_s=60.0)
    assert {entry.id: entry.decision for entry in found.jobs} == {
        "other": "wait",
        "runs": "migrate",
        "late": "start",
    }
    best, _ = best_round(build(instance, parse("tardiness"), 60.0, refill=False))
    assert found.value == pytest.approx(best, rel=1e-9)
    assert at_least(found.bound, best)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_jobs_share_the_cores_of_each_node(seed: int) -> None:
    """The best choice on the rows of whole classes takes cores that no single node has together
    with the GPUs."""
    found = decide(with_few_cores(300, 256, seed), refill=False, budget_s=60.0, gap=0.01)
    assert found.gap <= 0.01


@settings(max_examples=50)
@given(rounds(most_jobs=14))
def test_what_must_be_is_put_on_nodes_whatever_is_wished_for(instance: Instance) -> None:
    """Each packing is a round that the verifier accepts."""
    model = model_of(instance)
    if not model.jobs:
        return
    packings: list[Packing] = []
    wish = np.where(model.must, model.options.first[:-1], model.options.first[1:] - 1)
    realise(request_of(model, packings, []), wish, model.options.value)
    assert packings
    for packing in packings:
        assert not verify_round(instance, job_rounds(packing))
        assert (packing.chosen[model.must] >= 0).all()


def request_of(
    model: RoundModel,
    packings: list[Packing],
    bounds: list[float],
    *,
    left_s: float = 1e9,
    gap: float = 0.0,
) -> RoundRequest:
    """A request that writes down what is reported."""

    def keep(packing: Packing) -> bool:
        packings.append(packing)
        return True

    return RoundRequest(
        model=model,
        deadline_s=time.monotonic() + left_s,
        gap=gap,
        seed=0,
        report_packing=keep,
        report_bound=lambda bound, _: bounds.append(bound),
        report_prices=lambda _: None,
        note=lambda _: None,
    )


@pytest.mark.parametrize(
    "make", [lambda: with_quotas(3000, 4096, 600), lambda: with_sharing(3000, 4096)]
)
def test_a_plan_and_a_bound_come_first(make: Callable[[], Instance]) -> None:
    """Before the first look at the clock, which here says that all time is over."""
    model = build(make(), parse("wct"), 300.0)
    packings: list[Packing] = []
    bounds: list[float] = []
    SOLVER.solve(request_of(model, packings, bounds, left_s=-1.0))
    assert len(packings) == len(bounds) == 1
    assert bounds[0] >= packings[0].worth() > 0


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many relaxations were solved, as the length of what is given back."""
    passes: list[int] = []
    real = dual.relaxed

    def one(model: RoundModel, prices: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        passes.append(1)
        return real(model, prices)

    monkeypatch.setattr(dual, "relaxed", one)
    return passes


@pytest.mark.parametrize(
    ("make", "rows", "gap"),
    [
        (lambda: with_quotas(3000, 4096, 600), 600, 5e-3),
        (lambda: with_sharing(3000, 4096), 10, 2e-3),
    ],
)
def test_many_rows_and_sharing_reach_a_small_gap(
    make: Callable[[], Instance], rows: int, gap: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = counted(monkeypatch)
    found = decide(make(), budget_s=600.0, gap=gap)
    assert len(found.prices) >= rows
    assert found.fallback is None and found.gap <= gap
    assert len(passes) <= 2 * dual.MOST_PASSES


@pytest.mark.parametrize("gap", [1e-2, 2e-4])
def test_the_gap_that_was_asked_for_is_reached(gap: float) -> None:
    """With more options than one exact program takes, prices and packing alone must do."""
    instance = generate(jobs=10_000, gpus=16_384, seed=1, like="llm", running=0.5)
    found = decide(instance, round_s=300.0, refill=False, budget_s=600.0, gap=gap)
    assert found.gap <= gap


def test_more_options_than_an_exact_program_takes_are_no_end() -> None:
    """What is nearest to the margin is decided exactly, and what is better leaves less open."""
    instance = generate(jobs=500, gpus=600, seed=1, like="llm", running=0.5)
    roughly = decide(instance, budget_s=600.0, gap=0.0, options={"core": "0"})
    found = decide(instance, budget_s=600.0, gap=0.0, options={"core": "400"})
    assert found.gap < roughly.gap
    assert found.value > roughly.value


@settings(max_examples=40)
@given(rounds(most_jobs=14), st.sampled_from([0.0, 0.9]))
def test_steps_along_averaged_slopes_prove_a_bound(instance: Instance, known: float) -> None:
    model = model_of(instance)
    if not model.jobs:
        return
    best = maximise(program(model), 60.0).value
    floor = known * best
    *_, found = dual._volume(model, dual.first_prices(model), lambda: 60.0, (1e-6,), floor)
    assert at_least(found.bound, best)
    assert found.bound == pytest.approx(model.bound(found.prices), rel=1e-9)
    assert (found.weights >= 0).all() and found.weights.max(initial=0.0) <= 1 + 1e-9
    first = dual.first_prices(model)
    *_, planes = dual._cutting_planes(model, first, lambda: 60.0, (1e-6,), 0.0)
    if planes.bound > 0:
        event(f"within 1 % of cutting planes: {found.bound <= 1.01 * planes.bound}")


@settings(max_examples=60)
@given(rounds(most_jobs=4, most_nodes=3, sizes=(1, 2, 3, 4)), st.data())
def test_any_prices_of_guests_give_a_bound(instance: Instance, data: st.DataObject) -> None:
    model = model_of(instance)
    assume(model.jobs and combinations_of(model) <= 20_000)
    priced = with_guest_rows(model)
    event(f"rows of guests: {len(priced.rows.limits) > len(model.rows.limits)}")
    prices = np.array(
        data.draw(
            st.lists(
                st.one_of(st.just(0.0), st.floats(0.0, 2.0)),
                min_size=len(priced.rows.limits),
                max_size=len(priced.rows.limits),
            )
        )
    )
    best, _ = best_round(model)
    assert at_least(priced.bound(prices), best)


@pytest.mark.parametrize("duty", [0.4, 1.0])
def test_prices_above_the_dearest_prove_no_more(duty: float) -> None:
    """Of equal jobs, beside which others may run or not."""
    profile = Profile(sharing=Sharing(duty=duty))
    jobs = tuple(Job(id=str(k), gpus=1, duration_s=70.0, profile=profile) for k in range(9))
    running = tuple(
        Running(
            job=job.id,
            mode=Mode(gpu_type="a", gpus=1),
            placement=(Slot(node="n", gpus=1),),
            remaining_s=70.0,
        )
        for job in jobs[:2]
    )
    cluster = one_node(gpu_type="a", gpus=3)
    model = with_guest_rows(model_of(Instance(cluster=cluster, jobs=jobs, running=running)))
    rng = np.random.default_rng(1)
    for _ in range(50):
        prices = model.dearest * rng.choice([0.0, 0.7, 1.0, 1.5, 9.0], len(model.rows.limits))
        assert at_least(model.bound(prices), model.bound(np.minimum(prices, model.dearest)))


def test_prices_that_have_run_away_are_brought_back() -> None:
    """Where all of something must be kept any price of it proves as much, and so high a one
    nothing: sums have no digits left."""
    nodes = tuple(Node(name=name, gpu_type=name, gpus=2) for name in "ab")
    kept = Running(
        job="kept",
        mode=Mode(gpu_type="a", gpus=2),
        placement=(Slot(node="a", gpus=2),),
        remaining_s=50.0,
    )
    jobs = (
        Job(id="kept", gpus=2, duration_s=60.0, preemptible=False),
        *(Job(id=str(k), gpus=1 + k % 2, duration_s=70.0 + 7.3 * k) for k in range(8)),
    )
    instance = Instance(cluster=Cluster(nodes=nodes), jobs=jobs, running=(kept,))
    first = decide(instance, round_s=300.0, budget_s=60.0)
    away = tuple(replace(row, price=1e12) for row in first.prices)
    again = decide(instance, round_s=300.0, budget_s=60.0, last=replace(first, prices=away))
    assert not again.notes and again.status == "optimal"
    assert again.bound == pytest.approx(first.value, rel=1e-9)


def test_who_left_a_partner_that_stays_alone_does_not_go_on_beside_it() -> None:
    """Not even where the job would move to other GPUs of the same node."""
    profile = Profile(sharing=Sharing(duty=0.9), checkpoint_s=1.0, restore_s=1.0)
    jobs = tuple(Job(id=name, gpus=1, duration_s=50.0, profile=profile) for name in "pq")
    running = tuple(
        Running(
            job=name,
            mode=Mode(gpu_type="a", gpus=1, share_with=partner),
            placement=(Slot(node="n", gpus=1),),
            remaining_s=40.0,
        )
        for name, partner in ("pq", "qp")
    )
    cluster = one_node(gpu_type="a", gpus=2)
    model = model_of(Instance(cluster=cluster, jobs=jobs, running=running))
    keep, move = model.options.of(0)
    alone = next(o for o in model.options.of(1) if model.options.kind[o] == Kind.ALONE)
    packing = Packing(model)
    packing.nodes.index()
    assert packing.put(1, alone) and not packing.put(0, keep)
    assert packing.put(0, move) and packing.chosen[0] == move


def test_guests_have_prices() -> None:
    """Without rows of their own the relaxation puts all waiting jobs beside the same few running
    ones."""
    model = build(with_sharing(300, 400), parse("wct"), 300.0)
    priced = with_guest_rows(model)
    assert len(priced.rows.limits) > len(model.rows.limits)
    *_, alone = dual.optimise(model, None, lambda: 60.0)
    *_, together = dual.optimise(priced, None, lambda: 60.0, floor=keep_all(model).worth())
    assert together.bound < alone.bound * (1 - 1e-4)


@settings(max_examples=60)
@given(rounds(most_jobs=5, most_nodes=3, sizes=(1, 2, 3, 4)), st.data())
def test_quotas_that_hold_give_a_bound_no_worse_than_their_prices(
    instance: Instance, data: st.DataObject
) -> None:
    """At any prices, above every choice that the rows allow, and what a choice that fills the quota
    is worth there."""
    jobs = [
        job if job.id in instance.running_job else replace(job, tenant="t") for job in instance.jobs
    ]
    model = model_of(replace(instance, jobs=tuple(jobs)))
    assume(model.jobs and combinations_of(model) <= 20_000)
    priced = with_guest_rows(model)
    some, count = st.sampled_from([0.0, 0.0, 0.1, 0.3, 0.7]), len(priced.rows.limits)
    prices = np.array(data.draw(st.lists(some, min_size=count, max_size=count)))
    prices *= model.options.value.max()
    (bound, fillings), best = quota_bound(priced, prices), best_round(model)[0]
    event(f"sharper: {bound < priced.bound(prices) * (1 - 1e-9)}")
    assert at_least(bound, best)
    assert bound <= priced.bound(prices)
    quotas = [r for r, row in enumerate(priced.rows.limits) if row.what == "quota" and prices[r]]
    if fillings and len(quotas) == 1:
        weights = np.arange(len(model.options.value)) % 7 / 6
        liked = [option for option in fillings[0].choice(weights).values() if option >= 0]
        assert priced.usage(np.array(liked, dtype=np.int64))[quotas[0]] <= (
            priced.rows.capacity[quotas[0]] + 1e-9
        )
        filled = fillings[0].choice(np.zeros(len(model.options.value)))
        choice = np.array([option for option in filled.values() if option >= 0], dtype=np.int64)
        used = priced.usage(choice)[quotas[0]]
        event("filled")
        assert used <= priced.rows.capacity[quotas[0]] + 1e-9
        reduced = priced.reduced_values(prices)
        others = np.setdiff1d(np.arange(len(model.jobs)), list(filled))
        worth = float(prices @ priced.rows.capacity) + priced.best_reduced(reduced)[others].sum()
        worth += reduced[choice].sum() - prices[quotas[0]] * (
            priced.rows.capacity[quotas[0]] - used
        )
        assert bound == pytest.approx(worth, rel=1e-9, abs=1e-9)


@settings(max_examples=40)
@given(rounds(most_jobs=14), st.floats(0.0, 1.0), st.sampled_from([1e-3, 0.05, 10.0]))
def test_cutting_planes_end_at_one_bound_however_far_they_look_at_first(
    instance: Instance, start: float, radius: float
) -> None:
    model = with_guest_rows(model_of(instance))
    first = np.full(len(model.rows.limits), start)
    bounds = {
        each: [
            found.bound
            for found in dual._cutting_planes(model, first, lambda: 60.0, (1e-9,), 0.0, radius=each)
        ][-1]
        for each in (radius, dual.FIRST_RADIUS)
    }
    assert bounds[radius] == pytest.approx(bounds[dual.FIRST_RADIUS], rel=1e-5, abs=1e-5)


@settings(max_examples=40)
@given(rounds(most_jobs=14), st.floats(0.0, 1.0))
def test_generated_columns_end_at_the_linear_relaxation(instance: Instance, start: float) -> None:
    """From any prices on, at the bound of cutting planes, with weights that are a solution."""
    model = with_guest_rows(model_of(instance))
    if not model.jobs:
        return
    *_, planes = dual._cutting_planes(model, dual.first_prices(model), lambda: 60.0, (1e-9,), 0.0)
    prices = np.full(len(model.rows.limits), start)
    *_, (_, bound, weights, _) = by_columns(model, prices, 1.0, (1e-9,), lambda: 60.0)
    assert bound <= planes.bound + 1e-5 * max(1.0, abs(planes.bound))
    assert at_least(bound, maximise(program(model_of(instance)), 60.0).value)
    if weights is not None:
        taken = np.bincount(model.options.job, weights=weights, minlength=len(model.jobs))
        assert (taken <= 1 + 1e-6).all() and (taken[model.must] >= 1 - 1e-6).all()


@pytest.mark.parametrize(
    "instance", [generate(jobs=60, gpus=64, seed=1, running=0.5), with_types(60, 64, 12)]
)
def test_no_better_prices_are_sought_than_enough(instance: Instance) -> None:
    model = model_of(instance)
    start, plan = dual.first_prices(model), keep_all(model).chosen

    def last(enough: float) -> dual.Prices:
        *_, found = dual.improve(model, start, plan, lambda: 60.0, (1e-9,), enough)
        return found

    best = last(-np.inf)
    enough = (model.bound(start) + best.bound) / 2
    found = last(enough)
    assert best.bound < found.bound <= enough
    assert found.cuts < best.cuts
    assert found.bound == pytest.approx(model.bound(found.prices), rel=1e-9)


@settings(max_examples=40)
@given(rounds(most_jobs=14))
def test_jobs_are_kept_at_once_as_one_by_one(instance: Instance) -> None:
    model = model_of(instance)
    at_once, one_by_one = Nodes(model), Nodes(model)
    holds = np.arange(len(model.patterns.kept))
    if not at_once.keep_all(holds):
        event("not all at once")
        return
    assert all(one_by_one.keep(k) for k in holds.tolist())
    for a, b in zip(_amounts(at_once), _amounts(one_by_one), strict=True):
        assert a == pytest.approx(b, abs=1e-6)
    at_once.index()
    assert not at_once.keep_all(holds)


def _amounts(nodes: Nodes) -> tuple[list[float], ...]:
    gbps = [*nodes._domains.gbps.values()]
    return [*nodes.gpus], nodes.cpus, nodes.memory, nodes._left, gbps


@settings(max_examples=30)
@given(rounds(most_jobs=4, most_nodes=3, sizes=(1, 2, 3, 4)), st.floats(0.0, 2.0))
def test_prices_of_another_round_are_only_a_start(instance: Instance, price: float) -> None:
    """However wrong they are, what is proved holds, and the same is found as without them."""
    model = model_of(instance)
    assume(model.jobs and combinations_of(model) <= 20_000)
    known = {row.name: price * model.options.value.max() for row in model.rows.limits}
    found = []
    for prices in (known, {}):
        packings: list[Packing] = []
        bounds: list[float] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dual, "MANY_ROWS", 0 if prices else dual.MANY_ROWS)
            SOLVER.solve(replace(request_of(model, packings, bounds), prices=prices))
        assert not any(verify_round(instance, job_rounds(packing)) for packing in packings)
        found.append((max(packing.worth() for packing in packings), min(bounds)))
    (value, bound), (cold_value, cold_bound) = found
    assert at_least(bound, best_round(model)[0])
    assert value == pytest.approx(cold_value) and bound == pytest.approx(cold_bound)


class Clock:
    """Time that passes only when it is looked at, and in exact programs."""

    PROGRAM_S = 20.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=self.look))
        monkeypatch.setattr(solver, "within", self.within)
        monkeypatch.setattr(neighbourhoods, "MISSES", 3)

    def look(self) -> float:
        self.now_s += 1.0
        return self.now_s

    def within(self, seconds: float, call: Callable[[], Outcome]) -> Outcome | None:
        """The result of a program, if there is time for it."""
        self.now_s += self.PROGRAM_S
        return None if seconds < self.PROGRAM_S else call()


@pytest.mark.parametrize(
    "make",
    [
        lambda: generate(jobs=300, gpus=300, seed=3, like="llm", running=0.5),
        lambda: with_quotas(200, 256, 45),
        lambda: with_sharing(90, 96),
        lambda: with_types(200, 200, 12),
        lambda: with_few_cores(90, 96),
    ],
)
def test_more_time_is_never_worse(
    make: Callable[[], Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time is counted work here, so that the same steps are taken in the same time."""
    model = build(make(), parse("wct"), 300.0, refill=False)
    clock = Clock(monkeypatch)
    values, limits = [], []
    for budget_s in (5.0, 12.0, 25.0, 50.0, 90.0, 130.0, 180.0, 250.0, 350.0, 500.0, 800.0, 5000.0):
        packings: list[Packing] = []
        bounds: list[float] = []
        request = request_of(model, packings, bounds)
        SOLVER.solve(replace(request, deadline_s=clock.now_s + budget_s))
        values.append(max(packing.worth() for packing in packings))
        limits.append(min(bounds))
    assert values == sorted(values) and limits == sorted(limits, reverse=True)
    assert values[0] < values[-1] <= limits[-1] * (1 + 1e-9)
