"""Lists that are decoded by the free times of GPUs: each schedule is a valid plan of the value that
is told, and where no gang needs several gaps it is that of serial schedule generation."""

import math
import os
import random
import resource
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched.files.faults import find_faults
from optsched.model import Cluster, Elastic, Instance, Job, Node
from optsched.objectives import parse
from optsched.plugins.solver import SILENT
from optsched.traces.generate.synth import generate
from optsched_solvers.cpsat import beside, free_times
from optsched_solvers.cpsat.beside import Beside
from optsched_solvers.cpsat.clock import Budget
from optsched_solvers.cpsat.free_times import WORK_PER_JOB, Decoded, FreeTimes
from optsched_solvers.cpsat.list_search import ListSearch
from optsched_solvers.cpsat.lists import List, by_type
from optsched_solvers.cpsat.placing import REJOINED
from optsched_solvers.cpsat.progress import Progress
from optsched_solvers.scheduling.evaluate import Evaluator
from optsched_solvers.scheduling.plans import plan_of
from optsched_solvers.scheduling.problem import Problem
from optsched_solvers.scheduling.schedule_generation import generate as generate_schedule
from tests.clusters import one_node
from tests.oracles import tiny
from tests.solvers.test_lists import changed
from tests.verified import checked


def decoder(problem: Problem) -> FreeTimes:
    return FreeTimes(problem, Budget(60, 1, 0), WORK_PER_JOB)


def check(problem: Problem, decoded: Decoded) -> None:
    """Check the plan of a list, and that its value is at most what is told."""
    evaluator = Evaluator(problem)
    schedule = decoded.schedule
    checked(problem.instance, plan_of(problem, schedule), problem.objective)
    told, value = decoded.values(evaluator)[0], evaluator.values(schedule)[0]
    assert value <= told + 1e-9 * abs(told)


def walk(instance: Instance, data: st.DataObject, changes: int) -> None:
    """Decode a series of lists, each near the one kept, whole and from where they differ."""
    problem = Problem(instance, parse("wct"))
    if not problem.activities or not free_times.applies(problem):
        return
    with patch.object(free_times, "MOST_GAPS", 2):  # so that there is soon no room for another
        kept = decoder(problem)
    code = List([float(j) for j in range(len(problem.activities))], {}, frozenset(), {})
    for step in range(changes):
        whole, near = decoder(problem).decode(code), kept.decode(code)
        assert (whole is None) == (near is None)
        if whole is not None and near is not None:
            assert near.schedule == whole.schedule
            assert near.ends_s.tolist() == whole.ends_s.tolist()
            check(problem, near)
            kept.keep()
            if step < 2:
                kept._free, kept._stops = kept._chart.with_more_gaps(kept._free, kept._stops)
        code = changed(kept.kept.code if kept.kept else code, problem, data)


@settings(max_examples=80)
@given(instance=tiny.instances(most_jobs=7), data=st.data())
def test_plans_of_few_jobs_are_valid(instance: Instance, data: st.DataObject) -> None:
    nodes = (replace(node, cpus=None, memory_gib=None) for node in instance.cluster.nodes)
    cluster = replace(instance.cluster, nodes=tuple(nodes), resources={}, budgets={})
    jobs = tuple(replace(job, after=()) for job in instance.jobs)
    plain = replace(instance, cluster=cluster, jobs=jobs, tenants=())
    if not find_faults(plain):
        walk(plain, data, 5)


@pytest.mark.parametrize("types", [1, 3])
@settings(max_examples=3)
@given(data=st.data())
def test_plans_of_many_jobs_are_valid(types: int, data: st.DataObject) -> None:
    instance = generate(
        jobs=40, gpus=32, seed=3, like="llm", running=0.3, gpu_types=types, arrivals="batch"
    )
    assert free_times.applies(Problem(instance, parse("wct")))
    walk(instance, data, 20)


def test_jobs_that_are_all_kept_to_types_may_change_them() -> None:
    """A short job from another type finds gaps that were too short for all others."""
    rng = random.Random(1)
    instance = generate(
        jobs=40, gpus=32, seed=6, like="llm", running=0.3, gpu_types=3, arrivals="batch"
    )
    problem = Problem(instance, parse("wct"))
    types = [
        sorted({a.mode.gpu_type or "" for a in activity.alternatives if not a.fixed})
        for activity in problem.activities
    ]

    def to_any(j: int) -> tuple[int, ...]:
        return by_type(problem.activities[j], rng.choice(types[j]))

    kept, priority = decoder(problem), [rng.random() for _ in types]
    code = List(priority, {j: to_any(j) for j in range(len(types))}, frozenset(), {})
    for _ in range(30):
        whole, near = decoder(problem).decode(code), kept.decode(code)
        assert whole is not None and near is not None and len(near.parts) == 3
        assert near.schedule == whole.schedule
        kept.keep()
        j = rng.randrange(len(types))
        priority = [rng.random() if i == j else own for i, own in enumerate(code.priority)]
        code = replace(code, priority=priority, ways={**code.ways, j: to_any(j)})


@pytest.mark.parametrize("types", [1, 3])
@pytest.mark.parametrize("cool", [0.0, 0.01])
def test_a_walk_keeps_lists_that_are_decoded_as_from_the_beginning(types: int, cool: float) -> None:
    """With little room for gaps at first, and running jobs that are preempted and come back."""
    instance = generate(
        jobs=40, gpus=32, seed=3, like="llm", running=0.3, gpu_types=types, arrivals="batch"
    )
    problem = Problem(instance, parse("wct"))
    evaluator = Evaluator(problem)
    movable = [a.index for a in problem.activities if a.hold is not None][1:]
    choices = [
        [by_type(a, t) for t in sorted({str(o.mode.gpu_type) for o in a.alternatives})]
        for a in problem.activities
    ]

    def walked() -> list[Decoded]:
        with patch.object(free_times, "MOST_GAPS", 2):
            kept = decoder(problem)
        first = List([float(j) for j in range(len(choices))], {}, frozenset(), {})
        assert kept.decode(first) is not None
        kept.keep()
        kept.set_out(choices, [1.0] * len(choices), movable, (0.3, 0.8, 0.3), math.inf, 7)
        seen = []
        for _ in range(60):
            kept.walk_on(20, 0.0, 0.0, cool)
            seen.append(kept.arrive())
        return seen

    seen = walked()
    for near in seen[::10]:
        whole = decoder(problem).decode(near.code)
        assert whole is not None and near.schedule == whole.schedule
        check(problem, near)
    values = [near.values(evaluator)[0] for near in seen]
    assert (values == sorted(values, reverse=True)) == (cool == 0.0)
    assert values[-1] < 0.9 * values[0] and values == [own.values(evaluator)[0] for own in walked()]
    left = {j for near in seen for j in near.code.preempted}
    assert left and left <= {*movable}
    assert any(near.code.ways for near in seen) == (types > 1)


def test_a_walk_ends_with_its_work() -> None:
    problem = Problem(generate(jobs=30, gpus=32, seed=6, arrivals="batch"), parse("wct"))
    kept, jobs = decoder(problem), len(problem.activities)
    kept.decode(List([float(-j) for j in range(jobs)], {}, frozenset(), {}))
    kept.keep()
    kept.set_out([[]] * jobs, [1.0] * jobs, [], (0.3, 0.8, 0.3), math.inf, 7)
    assert kept._budget.work is not None
    least = kept._budget.work - 10 * jobs * WORK_PER_JOB
    while kept.walk_on(10_000, least, 0.0, 0.01):
        pass
    assert least - jobs * WORK_PER_JOB <= kept._budget.work <= least


def test_list_search_ends_with_each_job_kept_to_a_type() -> None:
    instance = generate(jobs=30, gpus=32, seed=6, gpu_types=3, arrivals="batch")
    problem = Problem(instance, parse("wct"))
    progress = Progress(problem, Evaluator(problem), SILENT, Budget(0.2, 1, 0))
    priority = [a.shortest_s for a in problem.activities]
    progress.offer(generate_schedule(problem, priority))
    search = ListSearch(progress, List(priority, {}, frozenset(), {}), quick=True)
    assert isinstance(search.decoder, FreeTimes) and search.decoder.kept is not None
    assert [*search.decoder.kept.parts] == [None]
    search.run(until=0.0)
    assert None not in search.decoder.kept.parts


def test_list_search_has_one_copy_less_while_its_processes_are_shared() -> None:
    problem = Problem(generate(jobs=30, gpus=32, seed=6, arrivals="batch"), parse("wct"))
    progress = Progress(problem, Evaluator(problem), SILENT, Budget(2.0, 3, 0))
    progress.offer(generate_schedule(problem, [a.shortest_s for a in problem.activities]))
    with patch.object(beside, "most", return_value=2):
        search = ListSearch(progress, None, quick=True)
    shared = iter([True, True, *8 * [False]])
    with patch.object(beside, "Beside", wraps=Beside) as started:
        search.run(0.0, lambda: next(shared))
    assert started.call_count == 2 * 1 + 8 * 2
    assert next(shared, None) is None


@settings(max_examples=60)
@given(
    jobs=st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(0, 5)), min_size=1, max_size=9
    ),
    order=st.randoms(use_true_random=False),
)
def test_on_one_node_gaps_are_filled_as_by_serial_generation(
    jobs: list[tuple[int, int, int]], order: object
) -> None:
    """Single GPUs and gangs that leave none free: a gap of GPUs that end at one time."""
    lengths = [float(length) for _, length, _ in jobs]
    instance = tiny.single_gpu(lengths)
    cluster = one_node(gpu_type="a", gpus=4)
    sized = tuple(
        replace(job, gpus=1 if gpus < 4 else 4, submit_s=float(after))
        for job, (gpus, _, after) in zip(instance.jobs, jobs, strict=True)
    )
    problem = Problem(replace(instance, cluster=cluster, jobs=sized), parse("wct"))
    assert free_times.applies(problem)
    priority = [float(j) for j in range(len(jobs))]
    order.shuffle(priority)  # type: ignore[attr-defined]
    quick = decoder(problem).decode(List(priority, {}, frozenset(), {}))
    serial = generate_schedule(problem, priority)
    assert quick is not None and serial is not None
    assert [c.start for c in quick.schedule] == [c.start for c in serial]


def test_an_elastic_gang_takes_fewer_gpus_where_it_is_done_sooner() -> None:
    cluster = Cluster(nodes=tuple(Node(name=name, gpu_type="a", gpus=2) for name in "ab"))
    jobs = (
        Job(id="0", gpus=2, duration_s=9.0),
        Job(id="1", gpus=Elastic(min=2, max=4), duration_s=5.0),
    )
    problem = Problem(Instance(cluster=cluster, jobs=jobs), parse("wct"))
    assert free_times.applies(problem)
    decoded = decoder(problem).decode(List([0.0, 1.0], {}, frozenset(), {}))
    assert decoded is not None and decoded.ends_s.tolist() == [9.0, 10.0]


def test_a_list_is_decoded_until_it_goes_on_as_the_one_kept() -> None:
    """Two equal jobs change places, in the front and later."""
    cluster = one_node(gpu_type="a", gpus=4)
    lengths_s = [float(3 + k // 2 % 7) for k in range(256)]
    problem = Problem(replace(tiny.single_gpu(lengths_s), cluster=cluster), parse("wct"))
    kept, order = decoder(problem), [float(j) for j in range(256)]

    def placed(priority: list[float]) -> int:
        """Return up to which place jobs are placed anew, in stops of four jobs."""
        code = List(priority, {}, frozenset(), {})
        near, whole = kept.decode(code), decoder(problem).decode(code)
        assert near is not None and whole is not None and near.schedule == whole.schedule
        kept.keep()
        return min(64, int(kept._lists.kept.parts[0, REJOINED]))

    assert placed(order) == 64
    swapped = [1.0, 0.0, *order[2:]]
    assert placed(swapped) == 1
    assert placed([*swapped[:100], 101.0, 100.0, *swapped[102:]]) == 26
    assert placed([*reversed(order)]) == 64


def test_a_list_that_is_soon_too_bad_is_given_up() -> None:
    problem = Problem(generate(jobs=64, gpus=8, seed=3, arrivals="batch"), parse("wct"))
    lists = decoder(problem)
    good = List([a.shortest_s for a in problem.activities], {}, frozenset(), {})
    decoded = lists.decode(good)
    assert decoded is not None
    lists.keep()
    best = decoded.values(Evaluator(problem))[0]
    bad = replace(good, priority=[-p for p in good.priority])
    assert lists.decode(bad, best) is None
    assert lists.decode(bad) is not None
    assert lists.decode(good, best) is not None


@pytest.mark.parametrize("least", ["cores", "memory", "licence", "before"])
def test_what_else_may_run_short_is_left_to_serial_generation(least: str) -> None:
    instance = generate(jobs=6, gpus=8, seed=1, arrivals="batch")
    node, job = instance.cluster.nodes[0], instance.jobs[-1]
    match least:
        case "cores":
            nodes = tuple(replace(n, cpus=1) for n in instance.cluster.nodes)
            cluster = replace(instance.cluster, nodes=nodes)
            instance = replace(instance, cluster=cluster)
        case "memory":
            nodes = tuple(replace(n, memory_gib=9.0) for n in instance.cluster.nodes)
            profile = replace(job.profile, memory_gib_per_gpu=8.0)
            jobs = (*instance.jobs[:-1], replace(job, profile=profile))
            cluster = replace(instance.cluster, nodes=nodes)
            instance = replace(instance, cluster=cluster, jobs=jobs)
        case "licence":
            cluster = replace(instance.cluster, resources={"licence": 1.0})
            jobs = (*instance.jobs[:-1], replace(job, resources={"licence": 1.0}))
            instance = replace(instance, cluster=cluster, jobs=jobs)
        case _:
            jobs = (*instance.jobs[:-1], replace(job, after=(instance.jobs[0].id,)))
            instance = replace(instance, jobs=jobs)
    assert node.gpus
    assert not free_times.applies(Problem(instance, parse("wct")))


def test_a_call_in_a_copy_of_the_process() -> None:
    with Beside(lambda: os.getpid()) as there, Beside(lambda: math.nan / 0) as failing:
        assert there.result() not in (None, os.getpid())
        assert failing.result() is None


def test_whether_a_call_has_returned_is_known_beside_a_thousand_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip("no process may have 4,096 open files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
    below = [os.dup(1) for _ in range(1100)]
    try:
        reader, writer = os.pipe()
        with Beside(lambda: os.read(reader, 1)) as there:
            assert there._reader > 1023 and not there.is_done
            os.write(writer, b"x")
            assert there.result() == b"x" and there.is_done
    finally:
        for descriptor in (*below, reader, writer):
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_call_in_a_copy_ends_when_it_is_left() -> None:
    reader, writer = os.pipe()
    with Beside(lambda: os.read(reader, 1)) as there:
        pass
    with pytest.raises(ChildProcessError):
        os.waitpid(there.pid, os.WNOHANG)
    os.close(reader)
    os.close(writer)
