"""What is drawn: parts of segments, pauses, queue and use, checked against the plan."""

import math
from itertools import pairwise

import pytest

from optsched import Cluster, Instance, Plan
from optsched.picture.axis import node_groups, time_unit
from optsched.picture.chart import BLOCKED, chart
from optsched.picture.facts import job_facts, percent, quantity, totals
from optsched.picture.palette import job_colour, shade
from tests.clusters import equal_nodes
from tests.list_schedule import list_schedule, solution_of
from tests.picture.cases import busy_morning, shared_gpus


@pytest.fixture(scope="module")
def preempted():
    instance = busy_morning()
    plan = list_schedule(instance, preempted=("long",), order=("short", "late", "chained", "back"))
    return instance, solution_of(instance, plan).plan


def bars_of(drawn, job, kind):
    """Times of a job's bars of a kind, once however many nodes it is on."""
    return sorted(
        {(bar.start_s, bar.end_s) for bar in drawn.bars if bar.job == job and bar.kind == kind}
    )


def test_bars_are_the_physics_of_a_preemption(preempted):
    instance, plan = preempted
    drawn = chart(instance, plan)
    back_s = plan.jobs[0].segments[1].start_s - instance.now_s
    assert bars_of(drawn, 0, "save") == [(0, 60)]
    assert bars_of(drawn, 0, "setup") == [(back_s, back_s + 150)]
    assert bars_of(drawn, 0, "work") == [(back_s + 150, back_s + 150 + 6700)]
    assert bars_of(drawn, 0, "past") == [(drawn.start_s, 0)]
    assert [(pause.job, pause.stop_s, pause.back_s) for pause in drawn.pauses] == [(0, 60, back_s)]


def test_bars_of_a_job_tile_its_segments(preempted):
    instance, plan = preempted
    drawn = chart(instance, plan)
    for i, entry in enumerate(plan.jobs):
        held = math.fsum(
            end_s - start_s
            for kind in ("setup", "work", "save")
            for start_s, end_s in bars_of(drawn, i, kind)
        )
        assert held == pytest.approx(
            math.fsum(part.end_s - part.start_s for part in entry.segments)
        )


def test_a_resumed_job_restores_and_a_continuing_one_does_not():
    instance = busy_morning()
    drawn = chart(instance, list_schedule(instance))
    assert bars_of(drawn, 0, "setup") == []
    ((start_s, end_s),) = bars_of(drawn, 6, "setup")
    assert end_s - start_s == 150
    ((start_s, end_s),) = bars_of(drawn, 1, "setup")
    assert end_s - start_s == 30


def test_only_the_late_job_is_late(preempted):
    instance, plan = preempted
    drawn = chart(instance, plan)
    assert drawn.late == {2}
    assert {bar.job for bar in drawn.bars if bar.late} == {2}


def test_use_adds_up_to_the_gpu_seconds_held(preempted):
    instance, plan = preempted
    drawn = chart(instance, plan)
    area = sum(
        value * (after - at)
        for series in drawn.use
        for at, after, value in zip(series.times_s, series.times_s[1:], series.values, strict=False)
    )
    held = sum(
        part.mode.gpus * (part.end_s - part.start_s)
        for entry in plan.jobs
        for part in entry.segments
    )
    assert area == pytest.approx(held)
    assert (
        max(map(sum, zip(*(series.values for series in drawn.use), strict=True)))
        <= drawn.total_gpus
    )
    assert totals(instance, plan, drawn).gpu_use == pytest.approx(held / 6 / drawn.end_s)


def test_queue_adds_up_to_the_waiting_times(preempted):
    instance, plan = preempted
    drawn = chart(instance, plan)
    area = {
        series.name: sum(
            value * (after - at)
            for at, after, value in zip(
                series.times_s, series.times_s[1:], series.values, strict=False
            )
        )
        for series in drawn.queue
    }
    entries = {entry.id: entry for entry in plan.jobs}
    assert area[BLOCKED] == pytest.approx(entries["short"].completion_s - instance.now_s)
    waited = sum(
        max(0.0, part.start_s - free_s)
        for entry in plan.jobs
        for part, free_s in zip(
            entry.segments,
            [instance.release_s(instance.job[entry.id]), *(part.end_s for part in entry.segments)],
            strict=False,
        )
    )
    assert sum(area.values()) == pytest.approx(waited)
    assert all(series.values[-1] == 0 for series in drawn.queue)


def test_shared_gpus_are_in_use_once():
    instance = shared_gpus()
    drawn = chart(instance, list_schedule(instance))
    assert max(drawn.use[0].values) == 2


def test_facts_of_a_preempted_job(preempted):
    instance, plan = preempted
    facts = job_facts(instance, plan.jobs[0])
    assert (facts.decision, facts.preempted, facts.nodes, facts.gpu_type) == (
        "preempt",
        1,
        ("a", "b"),
        "x",
    )
    assert facts.start_s == plan.jobs[0].segments[1].start_s - instance.now_s
    assert facts.waiting_s == facts.start_s - 60
    assert facts.jct_s == plan.jobs[0].completion_s - (instance.now_s - 600)
    late = job_facts(instance, plan.jobs[2])
    assert late.late_s == plan.jobs[2].completion_s - instance.jobs[2].deadline_s


def test_labels_of_rows():
    instance = busy_morning()
    drawn = chart(instance, list_schedule(instance))
    groups = node_groups(instance, drawn.rows)
    assert [(group.name, group.what, group.rows) for group in groups] == [
        ("a", "4 x x", 4),
        ("a CPU", "", 1),
        ("b", "2 x x", 2),
        ("no node", "cluster-wide", 1),
    ]
    assert all(group.labelled(26) for group in groups)


@pytest.mark.parametrize("row_px", [0.1, 0.36, 1, 1.5, 2, 7])
def test_labels_of_thin_rows_do_not_overlap(row_px):
    instance = Instance(cluster=Cluster(nodes=equal_nodes(300, gpus=8)))
    groups = node_groups(instance, chart(instance, Plan()).rows)
    labelled = [group.first * row_px for group in groups if group.labelled(row_px)]
    assert len(labelled) >= 2 and min(b - a for a, b in pairwise(labelled)) >= 12


@pytest.mark.parametrize(
    ("horizon_s", "name"), [(100, "seconds"), (3600, "minutes"), (86400, "hours"), (1e6, "days")]
)
def test_time_unit(horizon_s, name):
    assert time_unit(horizon_s).name == name


def test_colours_are_light_enough_for_dark_text_and_neighbours_differ():
    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    colours = [job_colour(i) for i in range(200)]
    assert all(
        (luminance(colour) + 0.05) / (luminance("#1f2430") + 0.05) >= 4.5 for colour in colours
    )
    assert all(a != b for a, b in pairwise(colours))
    assert (
        luminance(shade(colours[0], 0.7))
        < luminance(colours[0])
        < luminance(shade(colours[0], 1.7))
    )


def test_numbers_as_people_read_them():
    assert [percent(share) for share in (None, 0, 1e-8, 1e-5, 0.0123, 0.5)] == [
        "unknown",
        "0 %",
        "0 %",
        "below 0.01 %",
        "1.23 %",
        "50 %",
    ]
    assert quantity(1234567.8, "s") == "1,234,568 s"
    assert quantity(-0.125, "") == "-0.125"
    assert quantity(None, "s") == "none"
