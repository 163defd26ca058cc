"""What rounds know of jobs is kept between them, changes no round, and is forgotten with the
jobs."""

import gc
import weakref
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.round import carried_out
from optsched import Cluster, Job, Mode, Node, Profile, Running
from optsched.model.cluster import Tier
from optsched.model.instance import Instance, Slot
from optsched.model.job import first_come
from optsched.physics import catalogue
from optsched.physics.catalogue import catalogue_of
from optsched.round.build import build
from optsched.round.deadline import NEVER, Deadline, OutOfTimeError
from optsched.round.decide import decide
from optsched.round.known import KEPT_ROUNDS, Book, Known
from optsched.round.model import RoundModel
from optsched.round.plan import RoundSolution
from optsched.traces.generate.synth import generate


def decided(instance: Instance, last: RoundSolution | None = None) -> RoundSolution:
    return replace(decide(replace(instance), budget_s=60.0, last=last), wall_s=None)


def look_up(book: Book, instance: Instance) -> list[Known]:
    return book.look_up(catalogue_of(instance), instance.jobs, None, NEVER)


def test_a_round_is_the_same_whether_jobs_are_known_or_not() -> None:
    """Nothing old is used of jobs that changed."""
    instance = generate(jobs=40, gpus=64, seed=3, running=0.5)
    first = decided(instance)
    later = carried_out(instance, first, 0.1)
    jobs = tuple(
        replace(job, profile=replace(job.profile, startup_s=900.0)) if k % 3 == 0 else job
        for k, job in enumerate(later.jobs)
    )
    later = replace(later, jobs=jobs)
    known = decided(later, first)
    catalogue._catalogue.cache_clear()
    assert known == decided(later, first)


def test_a_job_that_moved_has_the_rate_of_where_it_is() -> None:
    cluster = Cluster(nodes=tuple(Node(name=kind, gpus=2, gpu_type=kind) for kind in "ab"))
    job = Job(id="j", gpus=2, duration_s=60.0, profile=Profile(rate={"a": 1.0, "b": 0.5}))
    instance, book = Instance(cluster=cluster, jobs=(job,)), Book()
    mode = Mode(gpus=2)
    for node, rate in (("a", 1.0), ("b", 0.5), ("b", 0.5)):
        placement = (Slot(node=node, gpus=2),)
        entry = Running(job="j", mode=mode, placement=placement, remaining_s=60.0)
        (known,) = look_up(book, instance)
        hold = known.holding(instance, entry)
        assert (hold.rate, hold.parts[0][0]) == (rate, "ab".index(node))
        assert known.holding(instance, replace(entry, remaining_s=1.0)) is hold


def test_jobs_are_in_order_whoever_comes_goes_or_changes_and_if_time_ran_out() -> None:
    instance, book = generate(jobs=40, gpus=64, seed=3, running=0.5), Book()
    jobs = instance.jobs
    changed = tuple(replace(job, submit_s=float(-k)) for k, job in enumerate(jobs))
    for some in (jobs[::2], jobs[1:], jobs[:5], changed, jobs):
        found = look_up(book, replace(instance, jobs=some))
        assert [known.job for known in found] == sorted(some, key=first_come)
    late = (*jobs[:20], *(replace(job, weight=9.0) for job in jobs[20:]))
    with pytest.raises(OutOfTimeError):
        book.look_up(catalogue_of(instance), late, None, Deadline(0.0))
    assert [known.job for known in look_up(book, instance)] == sorted(jobs, key=first_come)


def test_jobs_are_found_by_name_among_those_that_are_looked_for_and_no_others() -> None:
    instance, book = generate(jobs=40, gpus=64, seed=3, running=0.5), Book()
    every = look_up(book, instance)
    names = [known.job.id for known in every]
    some = every[3:9:2]
    assert book.positions(every, names[::-1]) == [*range(40)][::-1]
    expected = [some.index(known) if known in some else -1 for known in every]
    assert book.positions(some, [*names, "nobody"]) == [*expected, -1]


def test_who_goes_on_is_minded_by_those_who_start() -> None:
    """By who may not be beside it, and by who would need the uplinks that it fills."""
    nodes = tuple(Node(name=f"n{k}", gpus=2, rack=f"r{k}") for k in range(2))
    cluster = Cluster(nodes=nodes, rack_uplink_gbps={"r0": 10.0, "r1": 10.0})
    one = Job(id="one", duration_s=60.0, labels=("x",), preemptible=False)
    apart = Job(id="apart", duration_s=60.0, anti_affinity={"x": "node"})
    profile = Profile(network_gbps=10.0)
    wide = Job(id="wide", gpus=2, duration_s=60.0, profile=profile, preemptible=False)
    late = Job(id="late", gpus=2, duration_s=60.0, profile=profile)
    for first, second, on in ((one, apart, {"n1"}), (wide, late, set[str]())):
        places = tuple(Slot(node=node.name, gpus=1) for node in nodes[: first.gpus])
        entry = Running(
            job=first.id, mode=Mode(gpus=first.gpus), placement=places, remaining_s=60.0
        )
        found = decided(Instance(cluster=cluster, jobs=(first, second), running=(entry,)))
        placement = {entry.id: entry.placement for entry in found.jobs}
        assert {slot.node for slot in placement[second.id]} == on and not found.notes


def test_jobs_are_known_from_round_to_round_and_forgotten_after_they_left() -> None:
    instance, book = generate(jobs=40, gpus=64, seed=3, running=0.5), Book()
    before = look_up(book, instance)
    assert all(map(lambda a, b: a is b, before, look_up(book, instance)))
    few = replace(instance, jobs=instance.jobs[:1])
    for _ in range(2 * KEPT_ROUNDS):
        look_up(book, few)
    after = look_up(book, instance)
    same = {known.job.id for known in before if any(known is other for other in after)}
    assert same == {instance.jobs[0].id}


@pytest.mark.parametrize("gap", [1e-9, 0.5])
def test_nothing_of_a_round_is_left_to_the_collection_of_cyclic_garbage(
    gap: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    models: list[weakref.ref[RoundModel]] = []

    def noted(*args: Any, **given: Any) -> RoundModel:
        model = build(*args, **given)
        models.append(weakref.ref(model))
        return model

    monkeypatch.setattr("optsched.round.decide.build", noted)
    gc.disable()
    try:
        decide(generate(jobs=40, gpus=64, seed=3, running=0.5), budget_s=60.0, gap=gap)
        assert [model() for model in models] == [None]
    finally:
        gc.enable()


def test_who_waits_or_goes_on_is_told_so_by_the_same_object_in_each_round() -> None:
    instance = generate(jobs=40, gpus=64, seed=3, running=0.5)
    first = decided(instance)
    later = carried_out(instance, first, 0.1)
    second, third = decided(later, first), decided(replace(later, now_s=9.0), first)
    before = {entry.id: entry for entry in second.jobs}
    alike = [(before[entry.id], entry) for entry in third.jobs if entry == before[entry.id]]
    told = {entry.decision for one, entry in alike if one is entry}
    assert told == {"wait", "continue"}
    assert all(one is entry for one, entry in alike if entry.decision in told)


def test_nothing_stays_in_the_racks_of_the_next_round() -> None:
    """What a higher tier holds is put on nodes before anything of a lower one."""
    tier = Tier(name="high", priority=2, preempts="lower")
    cluster = Cluster(nodes=(Node(name="n", gpus=2),), tiers=(tier,))
    first = Job(id="a", duration_s=9.0, priority=2, labels=("x",))
    second = Job(id="b", duration_s=9.0, anti_affinity={"x": "node"})
    for jobs, told in (((first, second), "wait"), ((second,), "start"), ((first, second), "wait")):
        found = decide(Instance(cluster=cluster, jobs=jobs), budget_s=60.0)
        assert {entry.id: entry.decision for entry in found.jobs}["b"] == told
