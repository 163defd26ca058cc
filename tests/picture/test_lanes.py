"""Rows of the picture: nothing overlaps, gangs are whole, what runs on stays where it is."""

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Node
from optsched.picture.lanes import PAST, Lanes, assign_lanes
from tests.list_schedule import list_schedule, solution_of
from tests.picture.cases import busy_morning, shared_gpus

JOBS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 1, 2, 3, 4, 6]),
        st.integers(1, 50),
        st.integers(0, 60),
        st.booleans(),
    ),
    min_size=1,
    max_size=14,
)


def overlaps(instance: Instance, plan, lanes: Lanes) -> list[tuple]:
    """Pairs of blocks on one row at one time; a shared GPU has two halves."""
    entries = {entry.id: entry for entry in plan.jobs}
    on_row = defaultdict(list)
    for block in lanes.blocks:
        if block.segment == PAST:
            continue
        segment = entries[instance.jobs[block.job].id].segments[block.segment]
        for row in range(block.first_row, block.first_row + block.rows):
            for half in (0, 1) if block.half is None else (block.half,):
                on_row[row, half].append((segment.start_s, segment.end_s, block.job))
    return [
        (row, a, b)
        for row, pieces in on_row.items()
        for a, b in zip(sorted(pieces), sorted(pieces)[1:], strict=False)
        if a[1] > b[0] + 1e-4
    ]


@given(JOBS)
@settings(max_examples=60)
def test_no_two_jobs_on_one_gpu(drawn):
    nodes = (
        Node(name="n0", gpu_type="x", gpus=4, cpus=8),
        Node(name="n1", gpu_type="x", gpus=3, cpus=8),
    )
    jobs = tuple(
        Job(
            id=f"j{i}",
            gpus=gpus,
            cpus=2 if not gpus and on_node else 0,
            duration_s=duration,
            submit_s=submit,
        )
        for i, (gpus, duration, submit, on_node) in enumerate(drawn)
    )
    instance = Instance(cluster=Cluster(nodes=nodes), jobs=jobs)
    plan = solution_of(instance).plan
    lanes = assign_lanes(instance, plan)
    assert overlaps(instance, plan, lanes) == []
    rows_of = defaultdict(int)
    for block in lanes.blocks:
        rows_of[block.job, block.segment] += block.rows
        assert all(
            lanes.rows[row].node == lanes.rows[block.first_row].node
            for row in range(block.first_row, block.first_row + block.rows)
        )
    for i, job in enumerate(jobs):
        assert rows_of[i, 0] == max(1, job.gpus)


def test_gpu_rows_come_first_then_lanes_of_cpu_jobs_then_jobs_without_node():
    instance = busy_morning()
    lanes = assign_lanes(instance, list_schedule(instance))
    assert [row.node for row in lanes.rows] == ["a"] * 4 + ["a"] + ["b"] * 2 + [None]
    assert [row.gpu for row in lanes.rows] == [0, 1, 2, 3, None, 0, 1, None]


def test_a_job_that_continues_stays_on_its_gpus():
    instance = busy_morning()
    lanes = assign_lanes(instance, list_schedule(instance))
    first = {
        block.segment: (block.first_row, block.rows) for block in lanes.blocks if block.job == 0
    }
    assert first == {PAST: (0, 4), 0: (0, 4)}


def test_sharing_jobs_get_a_half_each():
    instance = shared_gpus()
    plan = list_schedule_shared(instance)
    blocks = [block for block in assign_lanes(instance, plan).blocks if block.segment == 0]
    assert [(block.first_row, block.rows) for block in blocks] == [(0, 2), (0, 2)]
    assert sorted(block.half for block in blocks) == [0, 1]
    assert overlaps(instance, plan, assign_lanes(instance, plan)) == []


def list_schedule_shared(instance: Instance):
    """Both go on; the duties add up to 0.8, so neither slows the other."""
    return solution_of(instance, list_schedule(instance)).plan
