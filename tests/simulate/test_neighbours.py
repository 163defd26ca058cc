"""Jobs that must, or must not, be near others, and nodes that they must or must not be on: places,
simulations, rounds and the verifier against the rules written out."""

from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Node, Running, Slot
from optsched.driver.demand import Demands
from optsched.driver.layout import Layout
from optsched.driver.placement import Room
from optsched.engine import solve
from optsched.errors import InputError
from optsched.files import dump_instance, load_instance
from optsched.model.instance import Placement
from optsched.model.job import Mode
from optsched.model.plan import JobPlan, Plan, Segment
from optsched.objectives import parse
from optsched.physics.catalogue import Catalogue
from optsched.physics.unplanned import unplanned
from optsched.physics.unschedulable import why_never
from optsched.plugins.registry import policy
from optsched.round.decide import decide
from optsched.round.verify import verify_round
from optsched.simulate.run import StalledError, simulate
from optsched.verify import verify
from tests.clusters import one_node
from tests.verified import checked

WCT = parse("wct")
RULES = {"node label", "anti-affinity", "affinity"}
LABELS = st.lists(st.sampled_from(["x", "y"]), unique=True, max_size=2).map(tuple)
NEAR = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["node", "rack"]), max_size=1)
NODE_LABELS = st.dictionaries(
    st.just("ssd"), st.sampled_from(["required", "forbidden"]), max_size=1
)


@st.composite
def clusters(draw: Any) -> Cluster:
    nodes = [
        Node(
            name=f"n{i}",
            gpu_type="a",
            gpus=draw(st.integers(1, 3)),
            rack=draw(st.sampled_from([None, "r0", "r1"])),
            labels=draw(st.sampled_from([(), ("ssd",)])),
        )
        for i in range(draw(st.integers(1, 4)))
    ]
    return Cluster(nodes=tuple(nodes))


@st.composite
def jobs(draw: Any, name: str, affinity: bool = True) -> Job:
    return Job(
        id=name,
        gpus=draw(st.integers(1, 4)),
        submit_s=float(draw(st.integers(0, 3)) * 10),
        duration_s=float(draw(st.integers(1, 5)) * 7),
        labels=draw(LABELS),
        node_labels=draw(NODE_LABELS),
        affinity=draw(NEAR) if affinity else {},
        anti_affinity=draw(NEAR),
    )


@st.composite
def instances(draw: Any, affinity: bool = True) -> Instance:
    cluster = draw(clusters())
    drawn = [draw(jobs(f"j{i}", affinity)) for i in range(draw(st.integers(1, 6)))]
    able = tuple(job for job in drawn if why_never(Catalogue.of(cluster), job) is None)
    assume(able)
    return Instance(cluster=cluster, jobs=able)


def where(cluster: Cluster, placement: Placement, level: str) -> list[str | None]:
    """The node, or the rack, of each slot."""
    if level == "node":
        return [slot.node for slot in placement]
    return [cluster.node[slot.node].rack for slot in placement]


def labels_hold(cluster: Cluster, job: Job, placement: Placement) -> bool:
    """Whether each node has the labels that the job requires, and none that it forbids."""
    return all(
        (label in cluster.node[slot.node].labels) == (wanted == "required")
        for slot in placement
        for label, wanted in job.node_labels.items()
    )


def may_join(cluster: Cluster, job: Job, placement: Placement, there: dict[Job, Placement]) -> bool:
    """Whether a job may start there beside others, each rule written out."""
    if not labels_hold(cluster, job, placement):
        return False
    for one, other in ((job, other) for other in there):
        places = {one: placement, other: there[other]}
        for shy, met in ((one, other), (other, one)):
            for label, level in shy.anti_affinity.items():
                if label in met.labels:
                    for a in where(cluster, places[shy], level):
                        if a is not None and a in where(cluster, places[met], level):
                            return False
    for label, level in job.affinity.items():
        with_it = [other for other in there if label in other.labels]
        own = where(cluster, placement, level)
        if None in own:
            return False
        if not with_it and label in job.labels:
            if len(set(own)) > 1:
                return False
            continue
        for place in own:
            if not any(place in where(cluster, there[other], level) for other in with_it):
                return False
    return True


def splits(cluster: Cluster, free: dict[str, int], gpus: int) -> list[Placement]:
    """Every way to take so many GPUs of what is free."""
    ways = product(*(range(min(count, gpus) + 1) for count in free.values()))
    return [
        tuple(Slot(node=n, gpus=g) for n, g in zip(free, way, strict=True) if g)
        for way in ways
        if sum(way) == gpus
    ]


@given(clusters(), st.data())
@settings(max_examples=200)
def test_a_place_is_found_where_there_is_one_and_it_is_one(cluster: Cluster, data: Any) -> None:
    drawn = [data.draw(jobs(f"j{i}")) for i in range(data.draw(st.integers(1, 5)))]
    layout = Layout(cluster, ())
    demands = Demands(Instance(cluster=cluster, jobs=tuple(drawn)), layout)
    room, free = Room(layout), {node.name: node.gpus for node in cluster.nodes}
    there: dict[Job, Placement] = {}
    for job in drawn:
        needs = demands.of(job)[1].needs
        found = room.place(needs[0]) if needs else None
        able = [
            split
            for split in splits(cluster, free, int(job.gpus))  # type: ignore[call-overload]
            if may_join(cluster, job, split, there)
        ]
        assert (found is None) == (not able), (found, able)
        if needs:
            for split in splits(cluster, free, int(job.gpus)):  # type: ignore[call-overload]
                labelled = all(needs[0].nodes >> layout.order[slot.node] & 1 for slot in split)
                assert (labelled and room.holds(needs[0], split)) == (split in able)
        if found is None:
            continue
        assert found in able
        before = room.copy()
        room.take(needs[0], found)
        both = room.overlap(before)
        assert both.holds(needs[0], found) <= before.holds(needs[0], found)
        there[job] = found
        for slot in found:
            free[slot.node] -= slot.gpus
        if data.draw(st.booleans()):
            room.give(needs[0], found, finished=True)
            del there[job]
            for slot in found:
                free[slot.node] += slot.gpus


def breaks(instance: Instance, plan: Plan) -> bool:
    """Whether no order of the starts of a moment makes each of them one that may be."""
    stays = [(instance.job[entry.id], segment) for entry in plan.jobs for segment in entry.segments]
    there: dict[Job, Placement] = {}
    for at_s in sorted({segment.start_s for _, segment in stays}):
        there = {
            job: segment.placement
            for job, segment in stays
            if segment.start_s < at_s < segment.end_s
        }
        coming = [(job, segment) for job, segment in stays if segment.start_s == at_s]
        while coming:
            able = [
                (job, segment)
                for job, segment in coming
                if may_join(instance.cluster, job, segment.placement, there)
            ]
            if not able:
                return True
            needs_to_be_first = [
                (job, segment)
                for job, segment in able
                if any(
                    label in job.labels and not any(label in other.labels for other in there)
                    for label in job.affinity
                )
            ]
            chosen = (needs_to_be_first or able)[0]
            coming.remove(chosen)
            there[chosen[0]] = chosen[1].placement
    return False


@given(
    instances(), st.sampled_from(("fifo", "backfill", "srtf", "las", "optsched", "themis", "sjf"))
)
@settings(max_examples=150)
def test_simulations_keep_the_rules(instance: Instance, name: str) -> None:
    try:
        plan = simulate(instance, policy(name))
    except StalledError as error:
        assert any(job.affinity for job in instance.jobs), error
        return
    checked(instance, plan)


@given(instances(), st.data())
@settings(max_examples=200)
def test_the_verifier_finds_what_breaks_a_rule(instance: Instance, data: Any) -> None:
    plans = []
    for job in instance.jobs:
        option = Catalogue.of(instance.cluster).options(job)[0]
        free = {node.name: node.gpus for node in instance.cluster.nodes}
        placement = data.draw(st.sampled_from(splits(instance.cluster, free, option.mode.gpus)))
        start_s = data.draw(st.sampled_from([0.0, 10.0, 20.0]))
        segment = Segment(
            start_s=start_s, end_s=start_s + 15.0, mode=option.mode, placement=placement
        )
        plans.append(JobPlan(id=job.id, decision="start", segments=(segment,)))
    plan = Plan(jobs=tuple(plans))
    found = {violation.rule for violation in verify(instance, plan, WCT).violations}
    if not any(job.affinity for job in instance.jobs):
        assert bool(RULES & found) == breaks(instance, plan)
    elif not breaks(instance, plan):
        assert not RULES & found


@given(instances(), st.data())
@settings(max_examples=100)
def test_rounds_keep_the_rules(instance: Instance, data: Any) -> None:
    """What `decide` plans may be, beside what runs; where nobody needs others near, no job waits
    that could have been put beside all that were decided."""
    at_once = replace(instance, jobs=tuple(replace(job, submit_s=0.0) for job in instance.jobs))
    first = at_once.jobs[0]
    option = Catalogue.of(at_once.cluster).options(first)[0]
    free = {node.name: node.gpus for node in at_once.cluster.nodes}
    able = [
        split
        for split in splits(at_once.cluster, free, option.mode.gpus)
        if may_join(at_once.cluster, first, split, {})
    ]
    if able and data.draw(st.booleans()):
        placement = data.draw(st.sampled_from(able))
        running = Running(
            job=first.id, mode=option.mode, placement=placement, remaining_s=first.work_s
        )
        at_once = replace(at_once, running=(running,))
    decided = decide(at_once, round_s=30.0, budget_s=5.0)
    chosen = {
        at_once.job[entry.id]: entry.placement for entry in decided.jobs if entry.mode is not None
    }
    assert not verify_round(at_once, decided.jobs)
    assert not breaks(at_once, _held(at_once, chosen))
    if any(job.affinity for job in at_once.jobs):
        return
    for slot in (slot for placement in chosen.values() for slot in placement):
        free[slot.node] -= slot.gpus
    for job in at_once.jobs:
        if job not in chosen:
            ways = splits(at_once.cluster, free, int(job.gpus))  # type: ignore[call-overload]
            assert not any(may_join(at_once.cluster, job, way, chosen) for way in ways)


def _held(instance: Instance, chosen: dict[Job, Placement]) -> Plan:
    runs = instance.running_job
    return Plan(
        jobs=tuple(
            JobPlan(
                id=job.id,
                decision="start",
                segments=(
                    Segment(
                        start_s=-1.0 if job.id in runs else 0.0,
                        end_s=9.0,
                        mode=Mode(gpus=int(job.gpus)),  # type: ignore[call-overload]
                        placement=placement,
                    ),
                ),
            )
            for job, placement in chosen.items()
        )
    )


FOUR = Cluster(
    nodes=tuple(
        Node(name=f"n{i}", gpu_type="a", gpus=2, rack=f"r{i // 2}", labels=("ssd",) * (i % 2))
        for i in range(4)
    )
)


def test_replicas_that_keep_apart_are_on_nodes_of_their_own() -> None:
    replicas = tuple(
        Job(id=f"j{i}", duration_s=10.0, labels=("db",), anti_affinity={"db": "node"})
        for i in range(6)
    )
    instance = Instance(cluster=FOUR, jobs=replicas)
    plan = simulate(instance, policy("fifo"))
    starts = sorted(entry.segments[0].start_s for entry in plan.jobs)
    assert starts == [0.0] * 4 + [10.0] * 2
    racks = tuple(replace(job, anti_affinity={"db": "rack"}) for job in replicas)
    plan = simulate(replace(instance, jobs=racks), policy("fifo"))
    starts = sorted(entry.segments[0].start_s for entry in plan.jobs)
    assert starts == [0.0] * 2 + [10.0] * 2 + [20.0] * 2


@pytest.mark.parametrize("name", ["fifo", "srtf", "las", "optsched"])
def test_who_runs_beside_whom_it_keeps_from_may_go_on(name: str) -> None:
    cluster = one_node(gpu_type="a", gpus=4)
    replicas = tuple(
        Job(id=f"j{i}", duration_s=10.0 + i, labels=("db",), anti_affinity={"db": "node"})
        for i in range(3)
    )
    running = tuple(
        Running(
            job=job.id,
            mode=Mode(gpu_type="a", gpus=1),
            placement=(Slot(node="n", gpus=1),),
            remaining_s=job.duration_s,
        )
        for job in replicas[:2]
    )
    instance = Instance(cluster=cluster, jobs=replicas, running=running)
    decided = decide(instance, round_s=30.0, budget_s=5.0)
    assert [entry.decision for entry in decided.jobs] == ["continue", "continue", "wait"]
    plan = simulate(instance, policy(name))
    checked(instance, plan)
    assert [entry.segments[0].start_s for entry in plan.jobs] == [0.0, 0.0, 11.0]
    anew = replace(plan.jobs[1], decision="start")
    alone = replace(instance, running=running[:1])
    broken = verify(alone, replace(plan, jobs=(plan.jobs[0], anew, plan.jobs[2])), WCT)
    assert {violation.rule for violation in broken.violations} == {"anti-affinity"}


def test_who_needs_another_near_waits_for_it_and_starts_with_it() -> None:
    near = Job(id="a", duration_s=5.0, affinity={"db": "rack"})
    late = Job(id="b", duration_s=9.0, labels=("db",), submit_s=30.0)
    plan = simulate(Instance(cluster=FOUR, jobs=(near, late)), policy("backfill"))
    first, second = (entry.segments[0] for entry in plan.jobs)
    assert first.start_s == second.start_s == 30.0
    assert {FOUR.node[s.placement[0].node].rack for s in (first, second)} == {"r0"}


def test_a_simulation_that_cannot_go_on_says_who_needs_whom() -> None:
    alone = Job(id="a", duration_s=5.0, affinity={"db": "rack"})
    sentence = "job a cannot start: no rack where it could run has a job with label db"
    with pytest.raises(StalledError, match=sentence):
        simulate(Instance(cluster=FOUR, jobs=(alone,)), policy("fifo"))


def test_planners_that_do_not_know_it_say_so_and_labels_of_nodes_they_know() -> None:
    shy = Instance(
        cluster=FOUR,
        jobs=tuple(
            Job(id=f"j{i}", duration_s=10.0, labels=("db",), anti_affinity={"db": "node"})
            for i in range(2)
        ),
    )
    reason = unplanned(shy)
    assert reason == "job j0 minds which others are near it, which its model does not know"
    solution = solve(shy, solver="cpsat", time_limit_s=2.0, workers=1, isolate=False)
    assert solution.fallback is not None and reason in solution.fallback
    assert solution.plan is not None and verify(shy, solution.plan, WCT).ok
    picky = Instance(
        cluster=FOUR,
        jobs=tuple(
            Job(id=f"j{i}", gpus=2, duration_s=10.0, node_labels={"ssd": "forbidden"})
            for i in range(3)
        ),
    )
    for solver in ("cpsat", "milp"):
        solution = solve(
            picky, "makespan", solver=solver, time_limit_s=5.0, workers=1, isolate=False
        )
        assert solution.status == "optimal" and solution.value == 20.0
    job = replace(picky.jobs[0], gpus=4, max_nodes=1)
    assert why_never(Catalogue.of(FOUR), job) is not None
    job = replace(picky.jobs[0], gpus=6)
    assert why_never(Catalogue.of(FOUR), job) == (
        "no node on which it would fit is as its node_labels say: ssd (forbidden)"
    )


def test_files_hold_it_and_say_what_is_wrong() -> None:
    job = Job(
        id="j",
        duration_s=1.0,
        labels=("db", "v2"),
        node_labels={"ssd": "required"},
        affinity={"web": "rack"},
        anti_affinity={"db": "node"},
    )
    instance = Instance(cluster=FOUR, jobs=(job, Job(id="w", duration_s=1.0, labels=("web",))))
    text = dump_instance(instance)
    assert load_instance(text) == instance
    with pytest.raises(InputError, match=r"anti_affinity.db: job j: should be 'node' or 'rack'"):
        load_instance(text.replace('"db": "node"', '"db": "cluster"'))
    with pytest.raises(InputError, match=r"labels\[0\]: job j: is empty; write a text"):
        load_instance(text.replace('["db", "v2"]', '["", "v2"]'))


def test_every_pair_of_jobs_of_a_label_is_apart() -> None:
    """A job with the label but no rule of its own keeps away from one that has the rule, too."""
    shy = Job(id="a", duration_s=10.0, gpus=1, anti_affinity={"x": "rack"})
    met = tuple(Job(id=f"b{i}", duration_s=10.0, gpus=1, labels=("x",)) for i in range(4))
    plan = simulate(Instance(cluster=FOUR, jobs=(shy, *met)), policy("fifo"))
    at = {entry.id: entry.segments[0] for entry in plan.jobs}
    rack = {name: FOUR.node[one.placement[0].node].rack for name, one in at.items()}
    together = [
        (one, other)
        for one, other in combinations(at, 2)
        if at[one].start_s == at[other].start_s and rack[one] == rack[other]
    ]
    assert together and all("a" not in pair for pair in together)
