"""The page of a simulation: what its curves mean, how large it may get, that nothing is left out or
unsafe."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from optsched import Cluster, Failure, Instance, Job, Node, Outage, Profile, Tenant
from optsched.plugins import registry
from optsched.simulate.metrics import Metrics, measure, summary
from optsched.simulate.record import Record
from optsched.simulate.report import series
from optsched.simulate.report.words import tables, tiles
from optsched.simulate.run import Simulation
from tests.clusters import one_node
from tests.simulate.test_metrics import simulations

pytest.importorskip("plotly", reason="the page needs the extra `report`")


def simulated(instance: Instance, policy: str = "fifo") -> Metrics:
    simulation = Simulation(instance, registry.policy(policy))
    simulation.run()
    return measure(simulation.record())


def whole(found: Metrics) -> dict[str, Any]:
    """A summary as the command line completes it."""
    level = {"name": "wct", "value": 2.0, "bound": 1.0, "gap": 0.5, "bound_source": "GPUs"}
    return {
        "format": "optsched-simulation/1",
        "instance": {"name": found.instance.name, "hash": "0" * 16},
        "policy": "fifo",
        "round_s": None,
        "options": {},
        "status": "feasible",
        "levels": [level],
        **summary(found),
        "rounds": {"count": 3, "gap_mean": 0.01, "gap_max": 0.02},
    }


def html(found: Metrics) -> str:
    from optsched.simulate.report import page

    return page(found, whole(found), found.rows.plan())


def busy(jobs: int = 60, gpus: int = 4) -> Instance:
    profile = Profile(startup_s=5.0, restore_s=5.0, checkpoint_s=5.0, power_w={"a": 300.0})
    return Instance(
        name="<busy> & co",
        tenants=(Tenant(name="t<1>", gpu_quota=gpus - 1),),
        cluster=Cluster(
            nodes=(
                Node(name="n<0>", gpu_type="a", gpus=gpus),
                Node(name="n1", gpu_type="b", gpus=gpus),
            )
        ),
        jobs=tuple(
            Job(
                id=f"j<{i}>",
                submit_s=7.0 * i,
                gpus=1 + i % 3,
                duration_s=40.0 + i % 7,
                profile=profile,
                tenant="t<1>" if i % 2 else None,
                after=(f"j<{i - 1}>",) if i % 20 == 19 else (),
            )
            for i in range(jobs)
        ),
        failures=(Failure(job="j<3>", work_s=5.0, kind="out of memory"),),
        outages=(Outage(node="n1", start_s=50.0, end_s=90.0),),
    )


def test_the_page_is_whole_and_safe() -> None:
    text = html(simulated(busy(), "srsf"))
    body = text.split("</script>")[-1]
    for words in (
        "&lt;busy&gt; &amp; co: fifo",
        "gap of wct",
        "50 %",
        "mean JCT",
        "GPU time lost",
        "Longest waits",
        "Who ran where",
        "out of memory",
        "fair share (quota)",
        "contention slowdown",
        "lost to failures",
        "t&lt;1&gt;",
        "kWh",
    ):
        assert words in text, words
    assert "<busy>" not in text and "<td>j<" not in body and text.endswith("</html>\n")
    assert text.count("plotly.js v") == 1


def test_a_large_simulation_gets_a_map_and_a_page_that_does_not_grow() -> None:
    sizes = []
    for jobs in (2000, 4000):
        instance = replace(busy(jobs), failures=(), outages=())
        text = html(simulated(instance))
        assert "How busy the nodes were" in text and "Who ran where" not in text
        sizes.append(len(text))
    assert sizes[1] < sizes[0] * 1.05


def test_no_jobs_no_figures() -> None:
    text = html(simulated(Instance(cluster=one_node(gpus=1))))
    assert "No jobs." in text and "Plotly.newPlot" not in text and len(text) < 20_000


def test_jobs_without_gpus_have_a_page_too() -> None:
    jobs = tuple(Job(id=f"j{i}", gpus=0, cpus=3, duration_s=5.0) for i in range(3))
    text = html(simulated(Instance(cluster=one_node(cpus=4), jobs=jobs)))
    assert "no GPUs" in text and "What the GPU-hours held went into" not in text and "cores" in text


def test_every_number_of_the_summary_is_in_the_tables() -> None:
    total = whole(simulated(busy()))
    names = {name for lines in tables(total).values() for name, _, _ in lines}
    for subject in ("GPU-hours", "Energy", "Rounds", "Fairness", "Interruptions", "Waiting", "Use"):
        assert subject in tables(total)
    assert {
        "mean",
        "median",
        "p90",
        "p99",
        "max",
        "a",
        "b",
        "GPUs",
        "makespan",
        "gap",
        "bound",
        "restarts",
    } <= names
    assert {name for name, _, _, _ in tiles(total)} >= {
        "gap of wct",
        "mean JCT",
        "mean waiting",
        "makespan",
        "GPU use",
    }


def test_steps_are_means_and_add_up_to_the_gpu_hours() -> None:
    found = simulated(busy())
    use, queue = series.gpus_in_use(found), series.jobs_waiting(found)
    length_s = np.diff(use.edges_s)
    assert sum(float(values @ length_s) for values in use.means.values()) == pytest.approx(
        found.held_gpu_s.sum()
    )
    waited_s = found.waiting_s.sum() + found.blocked_s.sum()
    assert sum(float(values @ length_s) for values in queue.means.values()) == pytest.approx(
        waited_s
    )
    assert use.there is not None and float(use.there @ length_s) == pytest.approx(
        8 * use.edges_s[-1] - 4 * 40
    )
    assert use.edges_s[-1] == found.completion_s.max() and len(use.edges_s) <= 2001
    assert series.BLOCKED in queue.means


def test_the_map_of_nodes_is_what_they_held() -> None:
    found = simulated(replace(busy(), failures=(), outages=()))
    busy_share = series.node_map(found)
    assert busy_share.names == ("n<0>", "n1")
    held_gpu_s = 4 * (busy_share.share @ np.diff(busy_share.edges_s))
    assert held_gpu_s.sum() == pytest.approx(found.held_gpu_s.sum())


def test_many_nodes_are_taken_together() -> None:
    nodes = tuple(Node(name=f"n{i}", gpu_type="a", gpus=1 + i % 2) for i in range(301))
    jobs = tuple(Job(id=f"j{i}", gpus=2, duration_s=10.0 + i, submit_s=float(i)) for i in range(50))
    found = simulated(Instance(cluster=Cluster(nodes=nodes), jobs=jobs))
    shown = series.node_map(found)
    assert (
        len(shown.names) <= series.NODE_ROWS
        and shown.names[0] == "n0 to n2"
        and shown.names[-1] == "n300"
    )
    assert shown.share.max() <= 1 + 1e-9


def test_a_long_tail_is_not_shown_at_first() -> None:
    jobs = tuple(Job(id=f"j{i}", duration_s=10.0, submit_s=float(i)) for i in range(100))
    instance = Instance(cluster=one_node(gpus=50), jobs=jobs)
    assert series.shown_s(simulated(instance)) == pytest.approx(109.0)
    tail = replace(instance, jobs=(*jobs, Job(id="long", duration_s=5000.0)))
    found = simulated(tail)
    assert series.shown_s(found) == pytest.approx(1.25 * 99)
    at_s = series.edges(found, series.STEPS)
    assert (at_s[0], at_s[-1], len(at_s)) == (0.0, 5000.0, series.STEPS + 1) and (
        np.diff(at_s) > 0
    ).all()
    assert (at_s <= 1.25 * 99).sum() > 0.75 * series.STEPS
    assert "the last job completes at 1 h 23 min: double-click" in html(found)


def test_distributions_are_exact_where_small_and_thinned_where_large() -> None:
    at, share = series.distribution(np.array([3.0, 1.0, 2.0, 2.0]))
    assert (at.tolist(), share.tolist()) == ([1.0, 2.0, 2.0, 3.0], [0.25, 0.5, 0.75, 1.0])
    values = np.random.default_rng(1).exponential(size=10_000)
    at, share = series.distribution(values)
    assert len(at) <= 1000 and share[-1] == 1.0 and at[-1] == values.max()
    assert share == pytest.approx(np.searchsorted(np.sort(values), at, side="right") / 10_000)


def test_sizes_of_gangs() -> None:
    names = [series.SIZES[k] for k in series.size_of(np.array([0, 1, 2, 3, 4, 7, 8, 512]))]
    assert names == [
        "no GPU",
        "1 GPU",
        "2-3 GPUs",
        "2-3 GPUs",
        "4-7 GPUs",
        "4-7 GPUs",
        "8 GPUs or more",
        "8 GPUs or more",
    ]


@settings(max_examples=4)
@given(simulations())
def test_every_simulation_has_a_page(case: tuple[Record, bool]) -> None:
    found = measure(case[0])
    text = html(found)
    assert all(name in text for name in ("Job completion time", "Longest waits", "Who ran where"))
