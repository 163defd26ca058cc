"""The values of Gavel's programs on its own throughput table, against the published formulas
written job by job."""

import gzip
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from optsched import Cluster, Instance, Job, Node
from optsched.model.cluster import Tenant
from optsched.model.profile import Profile, Sharing
from optsched.plugins.registry import policy
from optsched.simulate.virtual import VirtualWorld
from optsched_solvers.policies.gavel.filling import Groups, fill
from optsched_solvers.policies.gavel.finish_time import fairest
from optsched_solvers.policies.gavel.max_min import normalised
from optsched_solvers.policies.gavel.max_min_pairs import SharingProblem
from optsched_solvers.policies.gavel.program import Allocation, Program, most, most_alone
from optsched_solvers.policies.gavel.sjf import shortest_first
from optsched_solvers.policies.gavel.sum_lp import largest_sum
from optsched_solvers.policies.gavel.water_filling import Divided, InOrder
from tests.data import DATA, needs_data
from tests.policies import gavel_plain as plain

TYPES = ("v100", "p100", "k80")
TO = 1e-4
PAIRED = pytest.mark.parametrize("pairs", [False, True])


@cache
def table() -> dict[str, Any]:
    with gzip.open(DATA / "gavel" / "simulation_throughputs.json.gz") as packed:
        found: dict[str, Any] = json.load(packed)
    return found


def program(
    jobs: int, seed: int, pairs: bool = False, workers: tuple[float, ...] = (6.0, 4.0, 5.0)
) -> Program:
    """Jobs of random types on 1, 2 or 4 GPUs, those of one type and size alike."""
    rng = np.random.default_rng(seed)
    rows = [
        name
        for name, row in table()["v100"].items()
        if row["null"] > 0
        and name.endswith((" 1)", " 2)", " 4)"))
        and table()["k80"][name]["null"] > 0
    ]
    rows = [rows[i] for i in rng.choice(len(rows), max(2, jobs * 2 // 3), replace=False)]
    kind = rng.integers(0, len(rows), jobs)
    alone = np.array(
        [[table()[t].get(name, {"null": 0.0})["null"] for t in TYPES] for name in rows]
    )
    gpus = np.array([float(name.split()[-1][:-1]) for name in rows])
    rate = np.zeros((len(rows), len(rows), len(TYPES)))
    for a, one in enumerate(rows):
        for b, two in enumerate(rows):
            for k, t in enumerate(TYPES):
                if gpus[a] == gpus[b] and min(own := table()[t][one].get(two, (0.0, 0.0))) > 0:
                    rate[a, b, k] = own[0]
    rate = np.where(
        np.minimum(rate, rate.transpose(1, 0, 2)) > 0, rate, 0.0
    )  # the table has pairs in one order only
    shared = SharingProblem(alone, rate, gpus, np.array(workers), kind) if pairs else None
    return Program(
        kind,
        alone[kind],
        np.repeat(gpus[kind][:, None], len(TYPES), axis=1),
        np.array(workers),
        shared,
    )


def check(made: Program, allocation: Allocation) -> np.ndarray:
    """The base constraints hold; the throughputs, added up combination by combination."""
    assert min([*allocation.share.ravel(), *allocation.fraction], default=0.0) >= -1e-9
    time, used = allocation.share.sum(axis=1), (allocation.share * made.gpus).sum(axis=0)
    throughput = (made.rate * allocation.share).sum(axis=1)
    listed = zip(
        allocation.first, allocation.second, allocation.column, allocation.fraction, strict=True
    )
    for i, j, k, fraction in listed:
        assert i != j
        rates = plain.rates_of(made, (int(i), int(j)), int(k))
        for job, rate in zip((i, j), rates, strict=True):
            time[job] += fraction
            throughput[job] += rate * fraction
        used[k] += made.gpus[i, k] * fraction
    assert (time <= 1 + 1e-6).all()
    assert (used <= made.workers * (1 + 1e-6)).all()
    assert allocation.throughput(made) == pytest.approx(throughput)
    return throughput


def equal_rate(made: Program) -> np.ndarray:
    found: np.ndarray = made.rate @ made.workers / made.workers.sum()
    return found


@needs_data("gavel")
@PAIRED
@pytest.mark.parametrize("seed", [0, 1])
def test_max_min_fairness(pairs: bool, seed: int) -> None:
    made = program(16 if pairs else 40, seed, pairs)
    weight = np.random.default_rng(seed).choice([1.0, 2.0, 5.0], len(made.kind))
    if pairs:
        found = most(made, weight * made.equal_rate() / made.gpus[:, 0])
    else:
        found = most_alone(made, normalised(made, weight))
    reached = (check(made, found.allocation) * made.gpus[:, 0] / weight / equal_rate(made)).min()
    assert reached == pytest.approx(plain.max_min(made, weight), rel=TO)
    assert found.bound >= found.value


@needs_data("gavel")
def test_max_min_fairness_that_knows_no_heterogeneity() -> None:
    made = program(20, 3)
    blind = Program(made.kind, np.ones_like(made.rate), made.gpus, made.workers)
    found = most_alone(blind, normalised(blind, np.ones(20)))
    assert found.value == pytest.approx(plain.max_min(blind, np.ones(20)), rel=TO)


@needs_data("gavel")
@PAIRED
def test_makespan(pairs: bool) -> None:
    made = program(14 if pairs else 30, 4, pairs)
    work = np.exp(np.random.default_rng(4).normal(10, 2, len(made.kind))) * made.rate[:, 0]
    found = most(made, work)
    longest_s = (work / check(made, found.allocation)).max()
    expected_s = plain.bisected(
        lambda end_s: plain.reaches(made, work / end_s), longest_s / 2, longest_s * 2
    )
    assert longest_s == pytest.approx(expected_s, rel=TO)
    assert 1 / found.value == pytest.approx(expected_s, rel=TO)


@needs_data("gavel")
@PAIRED
@pytest.mark.parametrize("seed", [5, 6])
def test_finish_time_fairness(pairs: bool, seed: int) -> None:
    """rho_m = (t_m + rem_m / throughput(m, X)) / (t_iso_m + rem_m / throughput(m, X_iso)); X_iso is
    N_j / m for each job over its GPUs, rows that exceed 1 scaled down to it."""
    made = program(10 if pairs else 25, seed, pairs)
    rng = np.random.default_rng(seed)
    jobs = len(made.kind)
    work = np.exp(rng.normal(8, 1.5, jobs)) * made.rate[:, 0]
    part = np.array([made.workers / jobs / own for own in made.gpus[:, 0]])
    part = np.array([row / max(1.0, row.sum()) for row in part])
    isolated = (made.rate * part).sum(axis=1)
    assert made.isolated_rate() == pytest.approx(isolated)
    age_s, past_s = rng.exponential(2e3, jobs), rng.exponential(1e3, jobs)
    alone_s = past_s + work / isolated
    found = fairest(made, age_s, alone_s, work)
    reached = ((age_s + work / check(made, found.allocation)) / alone_s).max()
    least = float((age_s / alone_s).max())

    def feasible(rho: float) -> bool:
        return rho > least and plain.reaches(made, work / (rho * alone_s - age_s))

    assert reached == pytest.approx(found.rho)
    assert reached == pytest.approx(plain.bisected(feasible, least, 2 * found.rho), rel=TO)
    assert found.bound <= found.rho <= found.bound * (1 + TO)


@needs_data("gavel")
@PAIRED
@pytest.mark.parametrize("slos", [False, True])
def test_total_throughput_for_the_price(pairs: bool, slos: bool) -> None:
    made = program(14 if pairs else 30, 7, pairs)
    jobs, price = len(made.kind), np.array([3.1, 2.0, 0.8])
    need = np.zeros(jobs)
    if slos:  # half of what all can have at the same time, for every other job
        need[::2] = 0.5 * most(made, made.rate[:, 0].copy()).value * made.rate[::2, 0]
    found = largest_sum(made, price, need)
    assert found is not None
    throughput = check(made, found)
    assert (throughput >= need * (1 - 1e-6)).all()
    value = (made.rate * found.share / price).sum()
    for i, j, k, fraction in zip(
        found.first, found.second, found.column, found.fraction, strict=True
    ):
        value += sum(plain.rates_of(made, (int(i), int(j)), int(k))) / price[k] * fraction
    assert value == pytest.approx(plain.largest_sum(made, price, need), rel=TO)


@needs_data("gavel")
@PAIRED
@pytest.mark.parametrize("factor", [0.999, 1.001])
def test_needs_that_cannot_be_met_are_known_as_such(pairs: bool, factor: float) -> None:
    made = program(14, 8, pairs)
    need = factor * most(made, made.rate[:, 0].copy()).value * made.rate[:, 0]
    found = largest_sum(made, np.ones(3), need)
    assert (found is None) == (plain.largest_sum(made, np.ones(3), need) is None) == (factor > 1)


def filling(made: Program, weights: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Normalised throughputs, every job a group."""
    jobs = len(made.kind)
    found = fill(
        Groups(np.ones(jobs), normalised(made, np.ones(jobs)), made.gpus, made.workers), weights
    )
    nobody = np.zeros(0, dtype=np.int64)
    reached: np.ndarray = check(
        made, Allocation(found.share, nobody, nobody, nobody, np.zeros(0))
    ) / equal_rate(made)
    assert (reached >= found.level / made.gpus[:, 0] * (1 - 1e-6) - 1e-6).all()
    return reached


@needs_data("gavel")
@pytest.mark.parametrize("seed", [9, 10])
def test_water_filling(seed: int) -> None:
    made = program(12, seed, workers=(5.0, 3.0, 8.0))
    weight = np.random.default_rng(seed).choice([1.0, 2.0], 12)
    reached = filling(made, lambda saturated: weight)
    assert reached == pytest.approx(plain.filled(made, lambda done: list(weight)), rel=5 * TO)
    least = (reached * made.gpus[:, 0] / weight).min()
    assert least == pytest.approx(plain.max_min(made, weight), rel=TO)


@needs_data("gavel")
@pytest.mark.parametrize("inside", ["fairness", "fifo"])
def test_hierarchical(inside: str) -> None:
    made = program(12, 11, workers=(5.0, 3.0, 8.0))
    entity, entity_weight = np.arange(12) % 3, np.array([1.0, 2.0, 3.0])
    weight = np.random.default_rng(11).choice([1.0, 2.0], 12)

    def published(done: list[bool]) -> list[float]:
        found = []
        for i, own in enumerate(entity):
            rest = [j for j in range(12) if entity[j] == own and not done[j]]
            if inside == "fairness":
                found.append(
                    float(entity_weight[own] * weight[i] / max(1e-9, sum(weight[j] for j in rest)))
                )
            else:
                found.append(float(entity_weight[own]) if rest and rest[0] == i else 0.0)
        return found

    ours = (
        Divided(entity, entity_weight, weight, np.ones(12))
        if inside == "fairness"
        else InOrder(entity, entity_weight)
    )
    assert filling(made, ours) == pytest.approx(plain.filled(made, published), rel=5 * TO, abs=1e-4)


@needs_data("gavel")
def test_shortest_job_first() -> None:
    """min_m rem_m / throughput(m, X): nothing is shorter than the shortest on its fastest type."""
    made = program(20, 12)
    work = np.exp(np.random.default_rng(12).normal(8, 1.5, 20)) * made.rate[:, 0]
    share = shortest_first(made, work)
    throughput = (made.rate * share).sum(axis=1)
    assert (share.sum(axis=1) <= 1).all() and (
        (share * made.gpus).sum(axis=0) <= made.workers
    ).all()
    best = []
    for i in range(20):
        lp = plain.Plain(made)
        best.append(work[i] / lp.best(lp.throughput(i)))
    ran = throughput > 0
    assert (work[ran] / throughput[ran]).min() == pytest.approx(min(best), rel=TO)


# -------------------------------------------------------------------------------------------------
# the policies

RATES = {"v100": 1.0, "p100": 0.5, "k80": 0.2}
PRICE = {"v100": 3.0, "p100": 1.0, "k80": 0.3}


def instance() -> Instance:
    """Twelve jobs that came at different times, on a few GPUs."""
    nodes = tuple(
        Node(name=f"{t}-{i}", gpu_type=t, gpus=2, gpu_price_per_h=PRICE[t])
        for t in TYPES
        for i in range(2)
    )
    jobs = []
    for i in range(12):
        rate = {t: round(r ** (0.5 + 0.1 * (i % 7)), 4) for t, r in RATES.items()}
        sharing = Sharing(partners={name: 0.55 + 0.07 * (i % 3) for name in ("p0", "p1", "p2")})
        jobs.append(
            Job(
                id=f"j{i:02}",
                submit_s=100.0 * i,
                gpus=1 + i % 2,
                duration_s=3000.0 + 700 * i,
                weight=1.0 + i % 3,
                tenant=("x", "y")[i % 2],
                deadline_s=90000.0,
                profile=Profile(name=f"p{i % 3}", rate=rate, sharing=sharing),
            )
        )
    tenants = Tenant(name="x"), Tenant(name="y", weight=3)
    return Instance(cluster=Cluster(nodes=nodes), jobs=tuple(jobs), tenants=tenants, now_s=1200.0)


def decided(name: str, **options: str) -> tuple[Instance, Program, np.ndarray]:
    """The first shares that a policy computes, as throughputs by job and GPU type, and the program
    they are of."""
    made = instance()
    world = VirtualWorld(made)
    world.advance()
    chosen: Any = policy(name, options=options)
    chosen.decide(world)
    active = chosen._active
    assert active.ids == [job.id for job in made.jobs]
    rate = np.array([[job.profile.rate[t] for t in TYPES] for job in made.jobs])
    gpus = np.array([[float(job.gpus)] * 3 for job in made.jobs])  # type: ignore[arg-type]
    pairs = None
    if "sharing" in options:
        factor = np.array([0.55 + 0.07 * (i % 3) for i in range(12)])
        alike = gpus[:, :1] == gpus[:, 0]
        pairs = SharingProblem(
            rate,
            (rate * factor[:, None])[:, None, :] * alike[:, :, None],
            gpus[:, 0],
            np.full(3, 4.0),
            np.arange(12),
        )
    program = Program(np.arange(12), rate, gpus, np.full(3, 4.0), pairs)
    throughput = active.ledger.share.T[:, :3] * rate
    if pairs is not None:
        for (one, two), share in zip(chosen._pairs, chosen._together.share.T, strict=True):
            i, j = active.row[one], active.row[two]
            throughput[i] += share[:3] * pairs.pair_rate[i, j]
            throughput[j] += share[:3] * pairs.pair_rate[j, i]
    return made, program, throughput


OPTIONS = pytest.mark.parametrize("options", [{}, {"sharing": "pairs"}])


@OPTIONS
def test_policies_solve_these_programs(options: dict[str, str]) -> None:
    made, program, by_type = decided("gavel-max-min", **options)
    reached = by_type.sum(axis=1)
    weight = np.array([job.weight for job in made.jobs])
    least = (reached * program.gpus[:, 0] / weight / equal_rate(program)).min()
    assert least == pytest.approx(plain.max_min(program, weight), rel=TO)

    made, program, by_type = decided("gavel-makespan", **options)
    reached = by_type.sum(axis=1)
    work = np.array([job.work_s for job in made.jobs])
    longest_s = (work / reached).max()
    assert longest_s == pytest.approx(
        plain.bisected(
            lambda end_s: plain.reaches(program, work / end_s), longest_s / 2, longest_s * 2
        ),
        rel=TO,
    )

    made, program, by_type = decided("gavel-finish-time-fairness", **options)
    reached = by_type.sum(axis=1)
    age_s = 1200.0 - np.array([job.submit_s for job in made.jobs])
    part = np.array(
        [[4.0 / 12 / own] * 3 for own in program.gpus[:, 0]]
    )  # rows of 1 and 1/2: none to scale
    alone_s = work / (program.rate * part).sum(axis=1)
    rho = ((age_s + work / reached) / alone_s).max()
    least = float((age_s / alone_s).max())
    assert rho == pytest.approx(
        plain.bisected(
            lambda at: at > least and plain.reaches(program, work / (at * alone_s - age_s)),
            least,
            2 * rho,
        ),
        rel=TO,
    )


@OPTIONS
@pytest.mark.parametrize(
    ("name", "costs"),
    [("gavel-throughput", "price"), ("gavel-throughput", "none"), ("gavel-slo", "price")],
)
def test_policies_of_the_largest_sum(options: dict[str, str], name: str, costs: str) -> None:
    made, program, by_type = decided(name, costs=costs, **options)
    price = np.array([PRICE[t] for t in TYPES]) if costs == "price" else np.ones(3)
    need = (
        np.array([job.work_s for job in made.jobs]) / (90000.0 - 1200.0)
        if name == "gavel-slo"
        else np.zeros(12)
    )
    assert (by_type.sum(axis=1) >= need * (1 - 1e-6)).all()
    assert (by_type / price).sum() == pytest.approx(plain.largest_sum(program, price, need), rel=TO)


@pytest.mark.parametrize("inside", ["fairness", "fifo"])
def test_tenants_get_what_their_weights_say(inside: str) -> None:
    made, program, by_type = decided("gavel-hierarchical", inside=inside)
    reached = by_type.sum(axis=1)
    weight = [job.weight for job in made.jobs]

    def published(done: list[bool]) -> list[float]:
        found = []
        for i in range(12):
            rest = [j for j in range(i % 2, 12, 2) if not done[j]]
            entity = 1.0 if i % 2 == 0 else 3.0
            part = weight[i] / max(1e-9, sum(weight[j] for j in rest))
            found.append(entity * (part if inside == "fairness" else float(rest[:1] == [i])))
        return found

    assert reached / equal_rate(program) == pytest.approx(
        plain.filled(program, published), rel=5 * TO, abs=1e-4
    )
    assert made.tenants[1].weight == 3
