"""Solver `milp` and the realisation of its grids: against brute force, and the truth of what it
says."""

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optsched.errors import InputError, SolverUnavailableError
from optsched.files.faults import find_faults
from optsched.model.cluster import Cluster, Node, Tenant
from optsched.model.instance import Instance, Running, Slot
from optsched.model.job import Elastic, Job, Mode
from optsched.model.plan import JobPlan, Plan, Segment
from optsched.model.profile import Locality, Profile
from optsched.objectives import parse
from optsched.plugins.options import read_options
from optsched.plugins.solver import Report, Request
from optsched.verify import verify
from optsched_solvers.milp import SOLVER, backend
from optsched_solvers.milp.alternatives import Ways, find_ways
from optsched_solvers.scheduling.plans import plan_of
from optsched_solvers.scheduling.problem import Problem
from optsched_solvers.scheduling.schedule_generation import generate
from tests.clusters import equal_nodes
from tests.oracles import brute_force, tiny
from tests.verified import checked


@dataclass
class Heard:
    """What a solver reported."""

    plans: list[Plan] = field(default_factory=list)
    bounds: dict[int, float] = field(default_factory=dict)
    infeasible: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def report(self) -> Report:
        return Report(
            plan=self.plans.append,
            bound=lambda level, value, source: self.bounds.__setitem__(level, value),
            infeasible=self.infeasible.append,
            note=self.notes.append,
        )


def solve(
    instance: Instance,
    objective: str,
    limit_s: float = 600.0,
    incumbent: Plan | None = None,
    **chosen: str,
) -> tuple[Heard, tuple[float, ...] | None]:
    """What was heard, and the best plan's values; every plan must verify."""
    heard = Heard()
    goal = parse(objective)
    SOLVER.solve(
        Request(
            instance=instance,
            objective=goal,
            time_limit_s=limit_s,
            incumbent=incumbent,
            options=read_options("solver milp", SOLVER.Options, chosen),
        ),
        heard.report(),
    )
    found = []
    for plan in heard.plans:
        values = checked(instance, plan, goal)
        found.append(values)
    return heard, min(found, default=None)


def proves(heard: Heard, values: tuple[float, ...] | None, optimum: tuple[float, ...]) -> None:
    """The plan has the optimal values and the bounds close the gap without passing them."""
    assert values == pytest.approx(optimum, rel=1e-6, abs=1e-9)
    for level, best in enumerate(optimum):
        assert best - 1e-6 * abs(best) - 1e-12 <= heard.bounds[level] <= best + 1e-9 * abs(best)


def one_type(*jobs: Job, gpus: int = 4, nodes: int = 1, **fields: object) -> Instance:
    hosts = equal_nodes(nodes, gpu_type="a", gpus=gpus)
    return Instance(cluster=Cluster(nodes=hosts), jobs=jobs, **fields)  # type: ignore[arg-type]


def random_jobs(seed: int, count: int, longest: int = 20) -> tuple[Job, ...]:
    random = Random(seed)
    return tuple(
        Job(
            id=f"j{k}",
            gpus=random.choice((1, 1, 2, 4)),
            duration_s=float(random.randint(1, longest)),
            weight=float(random.choice((1, 2, 4))),
            submit_s=float(random.randint(0, longest)),
        )
        for k in range(count)
    )


# --------------------------------------------------------------------------------- against brute
# force

OBJECTIVES = (
    "wct",
    "makespan",
    "tardiness",
    "deadline,wct",
    "lateness",
    "tail:0.5",
    "ftf",
    "maxmin",
    "throughput",
    "energy,wct",
    "cost,makespan",
    "makespan+0.5*wct",
)


def only_measured(job: Job) -> Job:
    """Core levels and gang sizes without gaps, so that brute force tries just the modes that
    planners see."""
    table = {1: 0.5, 2: 1.0} if job.profile.cpus_per_gpu else {}
    gpus = (
        replace(job.gpus, max=min(job.gpus.max, 3)) if isinstance(job.gpus, Elastic) else job.gpus
    )
    return replace(job, gpus=gpus, profile=replace(job.profile, cpus_per_gpu=table))


@settings(max_examples=15)
@given(tiny.instances(), st.sampled_from(OBJECTIVES), st.booleans())
def test_value_and_bound_against_brute_force(
    instance: Instance, objective: str, with_incumbent: bool
) -> None:
    instance = replace(instance, jobs=tuple(only_measured(job) for job in instance.jobs))
    assume(not find_faults(instance))
    goal = parse(objective)
    assert SOLVER.supports(instance, goal) is None
    best = brute_force.optimum(instance, goal)
    heard, values = solve(
        instance, objective, incumbent=best[1] if best and with_incumbent else None
    )
    if best is None:
        assert heard.infeasible and not heard.plans
        return
    optimum = best[0]
    if not heard.notes:  # all times are on the grid, or what was found on it is true
        proves(heard, values, optimum)
    assert values is not None
    for level, bound in heard.bounds.items():
        assert bound <= optimum[level] + 1e-9 * abs(optimum[level])


@settings(max_examples=6)
@given(st.integers(0, 10**6), st.sampled_from(("wct", "makespan")))
def test_coarse_grids_give_valid_bounds(seed: int, objective: str) -> None:
    random = Random(seed)
    jobs = tuple(replace(job, duration_s=random.uniform(1, 9)) for job in random_jobs(seed, 4))
    instance = one_type(*jobs, nodes=2, gpus=3)
    jobs = tuple(job for job in jobs if job.gpus != 4)
    instance = replace(instance, jobs=jobs)
    best = brute_force.optimum(instance, parse(objective))
    assert best is not None
    heard, values = solve(instance, objective, max_variables="200")
    assert values is not None
    assert heard.bounds[0] <= best[0][0] * (1 + 1e-9) and best[0][0] <= values[0] + 1e-9
    if values[0] > best[0][0] + 1e-6:
        assert any("rounded down" in note for note in heard.notes)


# --------------------------------------------------------------------------------- preempt or
# continue


@pytest.mark.parametrize(
    ("left_s", "waiter_s", "save_s", "startup_s", "restore_s"),
    [
        (60, 20, 5, 3, 4),
        (60, 37, 5, 3, 4),
        (60, 39, 5, 3, 4),
        (60, 40, 5, 3, 4),
        (60, 41, 5, 3, 4),
        (60, 59, 0, 0, 0),
        (10, 20, 5, 3, 4),
    ],
)
def test_preempts_exactly_when_the_pair_rule_says(
    left_s: float, waiter_s: float, save_s: float, startup_s: float, restore_s: float
) -> None:
    """DESIGN 7: preempt r for w exactly when rem_r - rem_w > 2 pause_r + load_w + load_r."""
    profile = Profile(checkpoint_s=save_s, startup_s=startup_s, restore_s=restore_s)
    runs = Job(id="r", duration_s=100.0, submit_s=-40.0, profile=profile)
    waits = Job(id="w", duration_s=float(waiter_s), profile=replace(profile, checkpoint_s=0.0))
    entry = Running(
        job="r",
        mode=Mode(gpu_type="a", gpus=1),
        placement=(Slot(node="n0", gpus=1),),
        started_s=-40.0,
        remaining_s=float(left_s),
    )
    instance = one_type(runs, waits, gpus=1, running=(entry,))
    assert not find_faults(instance)
    heard, _ = solve(instance, "wct")
    gain = left_s - waiter_s - (2 * save_s + startup_s + startup_s + restore_s)
    decision = heard.plans[-1].jobs[0].decision
    if gain != 0:
        assert decision == ("preempt" if gain > 0 else "continue")


# ----------------------------------------------------------------------------------- capacities by
# hand


def test_memory_cores_budget_and_quota_bind() -> None:
    hungry = Profile(cpus_per_gpu={4: 1.0}, memory_gib_per_gpu=30.0)
    two = (Job(id="a", duration_s=5.0, profile=hungry), Job(id="b", duration_s=5.0, profile=hungry))

    def largest(node: Node, jobs: tuple[Job, ...] = two, **fields: object) -> float:
        instance = Instance(cluster=Cluster(nodes=(node,)), jobs=jobs, **fields)  # type: ignore[arg-type]
        heard, values = solve(instance, "makespan")
        assert values is not None
        proves(heard, values, values)
        return values[0]

    node = Node(name="n0", gpu_type="a", gpus=4, cpus=8, memory_gib=60.0)
    assert largest(node) == 5.0
    assert largest(replace(node, cpus=7)) == 10.0
    assert largest(replace(node, memory_gib=59.9)) == 10.0
    assert largest(replace(node, gpus=1)) == 10.0
    owned = tuple(replace(job, tenant="t") for job in two)
    assert largest(node, owned, tenants=(Tenant(name="t", gpu_quota=1),)) == 10.0


def test_a_budget_forces_the_slow_mode() -> None:
    fast = Mode(duration_s=2.0, gpus=1, budgets={"kwh": 3.0})
    modes = (fast, Mode(duration_s=6.0, gpus=1, budgets={"kwh": 1.0}))
    jobs = tuple(Job(id=name, modes=modes) for name in ("a", "b"))

    def total(budget: float) -> float:
        cluster = Cluster(nodes=(Node(name="n", gpus=2),), budgets={"kwh": budget})
        heard, values = solve(Instance(cluster=cluster, jobs=jobs), "wct")
        assert values is not None
        proves(heard, values, values)
        return values[0]

    assert [total(6.0), total(5.0), total(2.0)] == [4.0, 8.0, 12.0]
    cluster = Cluster(nodes=(Node(name="n", gpus=2),), budgets={"kwh": 1.5})
    heard, values = solve(Instance(cluster=cluster, jobs=jobs), "wct")
    assert values is None and heard.infeasible


def test_fragmented_nodes_are_not_added_up() -> None:
    """A gang of 2 that is fast on one node only waits for one of two nodes that hold a job each."""
    packed = Profile(locality=Locality(node=1.0, rack=0.1, cluster=0.1))
    singles = tuple(Job(id=f"s{k}", duration_s=10.0) for k in range(2))
    gang = Job(id="gang", gpus=2, duration_s=10.0, profile=packed)
    slots = tuple(
        Running(
            job=job.id,
            mode=Mode(gpu_type="a", gpus=1),
            placement=(Slot(node=f"n{k}", gpus=1),),
            started_s=0.0,
            remaining_s=10.0,
        )
        for k, job in enumerate(replace(job, preemptible=False) for job in singles)
    )
    jobs = (*(replace(job, preemptible=False) for job in singles), gang)
    instance = one_type(*jobs, gpus=2, nodes=2, running=slots)
    heard, values = solve(instance, "makespan")
    proves(heard, values, (20.0,))
    flat = one_type(*jobs[:2], replace(gang, profile=Profile()), gpus=2, nodes=2, running=slots)
    heard, values = solve(flat, "makespan")
    proves(heard, values, (10.0,))


def ways_of(instance: Instance) -> Ways:
    return find_ways(Problem(instance, parse("wct")))


def test_interchangeable_nodes_are_one_bin_and_others_are_not() -> None:
    jobs = random_jobs(3, 4)
    assert len(ways_of(one_type(*jobs, nodes=5)).bins) == 1
    packed = replace(jobs[0], gpus=2, profile=Profile(locality=Locality(node=1.0, cluster=0.5)))
    ways = ways_of(one_type(packed, *jobs[1:], nodes=5))
    assert (len(ways.bins), ways.exact) == (5, True)


def test_many_splits_fall_back_to_a_relaxation_whose_plan_still_verifies() -> None:
    profile = Profile(locality=Locality(node=1.0, rack=0.9, cluster=0.6))
    jobs = tuple(
        Job(id=f"j{k}", gpus=6, duration_s=float(4 + k), profile=profile) for k in range(6)
    )
    instance = one_type(*jobs, gpus=4, nodes=8)
    assert ways_of(instance).exact  # too large for one node, and in no rack: all splits are alike
    nodes = instance.cluster.nodes
    racks = tuple(replace(node, rack=f"r{k // 4}") for k, node in enumerate(nodes))
    instance = replace(instance, cluster=Cluster(nodes=racks))
    assert not ways_of(instance).exact
    heard, values = solve(instance, "wct", limit_s=10.0)
    assert values is not None
    assert heard.bounds[0] <= values[0]
    assert any("counted together" in note for note in heard.notes)


# ------------------------------------------------------------------------------------- truth of the
# status


def test_an_incumbent_of_the_optimal_value_is_proved_not_cut_off() -> None:
    instance = one_type(*random_jobs(4, 6))
    _, values = solve(instance, "wct")
    assert values is not None
    heard, _ = solve(instance, "wct")
    best = next(
        plan for plan in heard.plans if verify(instance, plan, parse("wct")).values == values
    )
    proves(*solve(instance, "wct", incumbent=best), values)


def test_an_incumbent_outside_the_plan_class_does_not_spoil_the_bound() -> None:
    """Running the long job in two pieces around the short one beats every plan of the class."""
    long, short = (
        Job(id="long", duration_s=10.0),
        Job(id="short", duration_s=1.0, submit_s=2.0, weight=9.0),
    )
    instance = one_type(long, short, gpus=1)
    mode, place = Mode(gpu_type="a", gpus=1), (Slot(node="n0", gpus=1),)

    def piece(start_s: float, end_s: float) -> Segment:
        return Segment(start_s=start_s, end_s=end_s, mode=mode, placement=place)

    split = Plan(
        jobs=(
            JobPlan(id="long", decision="start", segments=(piece(0.0, 2.0), piece(3.0, 11.0))),
            JobPlan(id="short", decision="wait", segments=(piece(2.0, 3.0),)),
        )
    )
    assert verify(instance, split, parse("wct")).values == (20.0,)
    heard, _ = solve(instance, "wct", incumbent=split)
    assert all(bound <= 20.0 for bound in heard.bounds.values())
    assert not heard.infeasible
    proves(*solve(instance, "wct"), (22.0,))


def list_plan(instance: Instance) -> Plan:
    """First come, first served."""
    problem = Problem(instance, parse("wct"))
    schedule = generate(problem, [job.submit_s for job in instance.jobs])
    assert schedule is not None
    return plan_of(problem, schedule)


def test_a_stopped_search_reports_a_bound_below_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optsched_solvers.milp.search.NODES_PER_S", 1 / 60)
    instance = one_type(*random_jobs(1, 15), nodes=2)
    heard, values = solve(instance, "wct", incumbent=list_plan(instance))
    assert values is not None
    assert not heard.notes  # the grid is exact, so only the stopped search leaves a gap
    assert heard.bounds[0] < values[0] * (1 - 1e-6)


def market_split() -> Any:
    """A small market-split problem (Cornuejols and Dawande, 1998): no bound but 0 for a long
    time."""
    import pulp

    random = Random(1)
    problem = pulp.LpProblem("market", pulp.LpMinimize)
    chosen = [problem.add_variable(f"x{k}", cat="Binary") for k in range(40)]
    slack = [problem.add_variable(f"s{k}", lowBound=0) for k in range(10)]
    problem.setObjective(pulp.lpSum(slack))
    for row in range(5):
        demand = [random.randint(0, 99) for _ in chosen]
        split = pulp.lpSum(a * x for a, x in zip(demand, chosen, strict=True))
        problem += split + slack[2 * row] - slack[2 * row + 1] == sum(demand) // 2
    return problem


def test_outcome_of_a_stopped_search_is_feasible_with_the_bound_of_the_log(tmp_path: Path) -> None:
    import pulp

    problem = market_split()
    outcome = backend.run(problem, backend.DEFAULT, 60.0, 1, 0, 50, tmp_path)
    assert outcome.status == "feasible"
    assert problem.status == pulp.LpStatusOptimal  # the trap
    assert outcome.bound is not None and -1e-3 <= outcome.bound <= 0.0


def test_two_workers_prove_the_same() -> None:
    instance = one_type(*random_jobs(5, 6))
    heard = Heard()
    request = Request(instance=instance, objective=parse("wct"), time_limit_s=60.0, workers=2)
    SOLVER.solve(request, heard.report())
    _, values = solve(instance, "wct")
    assert values is not None
    assert heard.bounds[0] == pytest.approx(values[0], rel=1e-6)


def test_same_request_same_plan() -> None:
    instance = one_type(*random_jobs(8, 8), nodes=2)
    once, again = solve(instance, "wct")[0], solve(instance, "wct")[0]
    assert (once.plans, once.bounds) == (again.plans, again.bounds)


def test_no_files_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    _, values = solve(one_type(*random_jobs(2, 3)), "wct")
    assert values is not None
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------ what it
# cannot do


def test_unknown_and_absent_back_ends_are_named() -> None:
    instance = one_type(*random_jobs(2, 2))
    with pytest.raises(InputError, match=r"no 'Nonesuch'; available here: .*PULP_CBC_CMD"):
        solve(instance, "wct", backend="Nonesuch")
    with pytest.raises(SolverUnavailableError, match=r"MIPCL_CMD is not installed; .*PULP_CBC_CMD"):
        solve(instance, "wct", backend="MIPCL_CMD")


@pytest.mark.parametrize(
    ("key", "value"), [("max_variables", "many"), ("max_variables", "0"), ("colour", "red")]
)
def test_bad_options_are_refused(key: str, value: str) -> None:
    with pytest.raises(InputError, match=key):
        solve(one_type(*random_jobs(2, 2)), "wct", **{key: value})


def test_refuses_large_instances_and_shared_gpus() -> None:
    goal = parse("wct")
    refusal = SOLVER.supports(one_type(*random_jobs(1, 61)), goal)
    assert refusal is not None and "61 jobs" in refusal
    entry = Running(
        job="j0",
        mode=Mode(gpu_type="a", gpus=1, share_with="j1"),
        placement=(Slot(node="n0", gpus=1),),
        remaining_s=1.0,
    )
    refusal = SOLVER.supports(one_type(*random_jobs(1, 2), running=(entry,)), goal)
    assert refusal is not None and "j0" in refusal
    assert SOLVER.supports(one_type(*random_jobs(1, 40), nodes=4), goal) is None


def test_a_job_that_fits_nowhere_is_infeasible() -> None:
    heard, values = solve(one_type(Job(id="big", gpus=9, duration_s=1.0)), "wct")
    assert values is None
    assert heard.infeasible == ["job big fits nowhere on the cluster"]


def test_no_jobs_is_an_empty_plan_of_value_0() -> None:
    heard, values = solve(one_type(), "deadline,wct")
    proves(heard, values, (0.0, 0.0))
