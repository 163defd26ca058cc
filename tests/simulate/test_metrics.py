"""The metrics of a simulation: known answers, and plain loops over every instant of random
simulations."""

import csv
import io
import json
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optsched import (
    Cluster,
    Elastic,
    Failure,
    Instance,
    Job,
    Locality,
    Node,
    Outage,
    Profile,
    Running,
    Sharing,
    Slot,
    Suspended,
    Tenant,
)
from optsched.driver.state import Ending
from optsched.files.columns import columns_csv, columns_parquet
from optsched.model.job import Mode
from optsched.objectives import isolated_s, parse, values
from optsched.physics.catalogue import catalogue_of
from optsched.picture.facts import job_facts
from optsched.plugins import registry
from optsched.simulate.metrics import Metrics, measure, summary
from optsched.simulate.metrics.table import TEXTS, columns
from optsched.simulate.metrics.waiting import REASONS
from optsched.simulate.record import Record
from optsched.simulate.run import Simulation, StalledError
from optsched.traces.generate.synth import generate
from tests.clusters import one_node
from tests.simulate.random_instances import instances
from tests.simulate.sharing_policy import StartsBeside

TWO = Cluster(nodes=(Node(name="m0", gpu_type="a", gpus=2), Node(name="m1", gpu_type="a", gpus=2)))
ONE = one_node("m0", gpu_type="a", gpus=1)
COSTLY = Profile(startup_s=3.0, restore_s=4.0, checkpoint_s=5.0, power_w={"a": 360.0})


def run(instance: Instance, policy: str = "fifo", **how: Any) -> Metrics:
    simulation = Simulation(instance, registry.policy(policy), **how)
    simulation.run()
    return measure(simulation.record())


def reasons(found: Metrics, job_id: str) -> dict[str, float]:
    """Seconds that a job waits for each reason, those without any left out."""
    [row] = [i for i, job in enumerate(found.instance.jobs) if job.id == job_id]
    return {
        name: pytest.approx(s)
        for name, s in zip(REASONS, found.waiting_by_reason_s[row], strict=True)
        if s
    }


# ------------------------------------------------------------------------------------------------
# waiting


def test_who_waits_because_others_hold_the_gpus_waits_for_the_price() -> None:
    jobs = (Job(id="a", duration_s=10.0), Job(id="b", duration_s=5.0, submit_s=4.0))
    found = run(Instance(cluster=ONE, jobs=jobs))
    assert (reasons(found, "a"), reasons(found, "b")) == ({}, {"price": 6.0})
    assert found.jct_s.tolist() == [10.0, 11.0]


def test_gpus_that_are_free_but_scattered_are_fragmentation() -> None:
    one_node = Profile(locality=Locality(node=1.0, rack=0.0, cluster=0.0))
    pinned = [
        Running(
            job=f"p{i}",
            mode=Mode(gpu_type="a", gpus=1),
            placement=(Slot(node=f"m{i}", gpus=1),),
            remaining_s=s,
        )
        for i, s in enumerate((10.0, 30.0))
    ]
    jobs = tuple(Job(id=entry.job, duration_s=100.0) for entry in pinned)
    jobs += (Job(id="gang", gpus=2, duration_s=5.0, submit_s=2.0, profile=one_node),)
    found = run(Instance(cluster=TWO, jobs=jobs, running=tuple(pinned)))
    assert reasons(found, "gang") == {"fragmentation": 8.0}
    assert reasons(found, "p0") == {}


def test_no_gang_is_mixed_of_types_so_free_gpus_of_two_types_do_not_add_up() -> None:
    cluster = Cluster(
        nodes=(Node(name="m0", gpu_type="a", gpus=2), Node(name="m1", gpu_type="b", gpus=2))
    )
    jobs = (
        Job(id="a", duration_s=10.0, profile=Profile(rate={"a": 1.0})),
        Job(id="b", duration_s=20.0, profile=Profile(rate={"b": 1.0})),
        Job(id="gang", gpus=2, duration_s=5.0),
    )
    found = run(Instance(cluster=cluster, jobs=jobs))
    assert reasons(found, "gang") == {"price": 10.0}


def test_an_elastic_gang_needs_only_its_smallest_size() -> None:
    jobs = (
        Job(id="a", gpus=3, duration_s=10.0),
        Job(
            id="e",
            gpus=Elastic(min=1, max=4),
            duration_s=5.0,
            profile=Profile(locality=Locality(cluster=0.0)),
        ),
    )
    rows = run(Instance(cluster=TWO, jobs=jobs)).rows
    later_s = np.array([0.0, 10.0])  # as if a policy had left it waiting beside a free GPU
    waited = replace(rows, start_s=rows.start_s + later_s, end_s=rows.end_s + later_s)
    assert reasons(measure(waited), "e") == {"fragmentation": 10.0}


def test_a_quota_that_is_used_up_is_fair_share() -> None:
    tenants = (Tenant(name="t", gpu_quota=2), Tenant(name="u"))
    jobs = (
        Job(id="a", gpus=1, duration_s=10.0, tenant="t"),
        Job(id="b", gpus=2, duration_s=5.0, tenant="t"),
        Job(id="c", gpus=1, duration_s=7.0, tenant="u"),
    )
    found = run(Instance(cluster=TWO, tenants=tenants, jobs=jobs), "backfill")
    assert reasons(found, "b") == {"fair_share": 10.0}
    assert reasons(found, "c") == {}


def test_quotas_that_are_lent_out_are_fair_share_too() -> None:
    tenants = (Tenant(name="t", gpu_quota=1, borrow_gpus=3), Tenant(name="u", gpu_quota=2))
    jobs = (
        Job(id="a", gpus=3, duration_s=10.0, tenant="t"),
        Job(id="b", gpus=1, duration_s=5.0, tenant="u"),
        Job(id="c", gpus=1, duration_s=5.0, submit_s=1.0),
    )
    found = run(Instance(cluster=TWO, tenants=tenants, jobs=jobs), "backfill")
    assert (reasons(found, "b"), reasons(found, "c")) == ({"fair_share": 10.0}, {})


def test_until_the_next_round_it_is_the_decision_that_is_waited_for() -> None:
    jobs = (Job(id="a", duration_s=100.0), Job(id="b", duration_s=5.0, submit_s=70.0))
    found = run(Instance(cluster=ONE, jobs=jobs), round_s=60.0)
    assert reasons(found, "b") == {"decision": 50.0}
    late = run(Instance(cluster=ONE, jobs=(Job(id="a", duration_s=130.0), jobs[1])), round_s=60.0)
    assert reasons(late, "b") == {"decision": 50.0, "price": 10.0, "fragmentation": 50.0}


def test_waiting_for_other_jobs_is_not_waiting() -> None:
    jobs = (Job(id="a", duration_s=10.0), Job(id="b", duration_s=5.0, after=("a",), submit_s=4.0))
    found = run(Instance(cluster=TWO, jobs=jobs))
    assert (
        reasons(found, "b") == {}
        and found.blocked_s.tolist() == [0.0, 6.0]
        and found.jct_s[1] == 11.0
    )


def test_jobs_without_gpus_wait_for_cores() -> None:
    cluster = Cluster(nodes=(Node(name="c0", cpus=4), Node(name="c1", cpus=4)))
    jobs = tuple(Job(id=f"j{i}", gpus=0, cpus=3, duration_s=10.0) for i in range(2))
    jobs += (
        Job(id="two", gpus=0, cpus=2, duration_s=10.0),
        Job(id="wide", gpus=0, cpus=4, duration_s=1.0),
    )
    found = run(Instance(cluster=cluster, jobs=jobs), "backfill")
    assert (reasons(found, "two"), reasons(found, "wide")) == (
        {"fragmentation": 10.0},
        {"price": 10.0},
    )


def test_gpus_of_lost_nodes_are_not_free() -> None:
    jobs = (Job(id="a", gpus=2, duration_s=20.0), Job(id="b", gpus=2, duration_s=5.0, submit_s=2.0))
    outage = Outage(node="m1", start_s=0.5, end_s=12.0)
    found = run(Instance(cluster=TWO, jobs=jobs, outages=(outage,)))
    assert reasons(found, "b") == {"price": 10.0}


# ------------------------------------------------------------------------------------------------
# losses


def preempted() -> Metrics:
    """`long` is preempted at 10 s by `short`, which lasts 5 s; both pay their overheads."""
    jobs = (
        Job(id="long", duration_s=100.0, profile=COSTLY),
        Job(id="short", duration_s=5.0, submit_s=10.0, profile=COSTLY),
    )
    return run(Instance(cluster=ONE, jobs=jobs), "srtf")


def test_a_preemption_costs_a_checkpoint_and_a_restart() -> None:
    found = preempted()
    total = summary(found)
    assert (total["preemptions"], total["preempted_jobs"], total["restarts"]) == (1, 1, 1)
    in_s = {
        name: {part: round(hours * 3600, 6) for part, hours in total["gpu_h"][name].items()}
        for name in ("preemptions", "failures", "node_losses")
    }
    assert in_s == {
        "preemptions": {"checkpoints": 5.0, "restarts": 7.0, "lost_work": 0.0},
        "failures": {"restarts": 0.0, "lost_work": 0.0},
        "node_losses": {"restarts": 0.0, "lost_work": 0.0},
    }
    assert total["gpu_h"]["first_starts"] * 3600 == pytest.approx(6.0)
    assert total["gpu_h"]["work"] * 3600 == pytest.approx(105.0)
    assert total["gpu_h"]["held"] * 3600 == pytest.approx(123.0)
    assert reasons(found, "short") == {"price": 5.0} and reasons(found, "long") == {"price": 8.0}
    assert total["makespan_s"] == 123.0 and total["use"]["gpus"] == pytest.approx(1.0)
    assert total["energy_kwh"]["total"] == pytest.approx(360 * 123 / 3.6e6)


def test_periodic_checkpoints_lose_work_in_a_preemption() -> None:
    periodic = Profile(checkpoint_every_s=4.0, restore_s=2.0)
    jobs = (
        Job(id="long", duration_s=100.0, profile=periodic),
        Job(id="short", duration_s=5.0, submit_s=10.0),
    )
    found = run(Instance(cluster=ONE, jobs=jobs), "srtf")
    lost = summary(found)["gpu_h"]["preemptions"]
    assert lost == {
        "checkpoints": 0.0,
        "restarts": pytest.approx(2 / 3600),
        "lost_work": pytest.approx(2 / 3600),
    }
    assert found.lost_gpu_s.tolist() == [pytest.approx(2.0), 0.0]


def test_failures_are_counted_by_kind_and_by_what_they_cost() -> None:
    failures = (
        Failure(job="j", work_s=10.0, kept_s=4.0, kind="out of memory"),
        Failure(job="k", work_s=3.0),
        Failure(job="j", work_s=2.0, kind="user error"),
        Failure(job="j", work_s=1.0, kind="out of memory"),
    )
    jobs = (
        Job(id="j", gpus=2, duration_s=50.0, profile=COSTLY),
        Job(id="k", duration_s=9.0, submit_s=1.0),
    )
    found = run(Instance(cluster=TWO, jobs=jobs, failures=failures))
    total = summary(found)
    assert (total["failures"], total["out_of_memory"], total["restarts"]) == (4, 2, 4)
    assert total["failures_by_kind"] == {"out of memory": 2, "unknown": 1, "user error": 1}
    assert found.out_of_memory.tolist() == [2, 0] and found.failures.tolist() == [3, 1]
    assert total["gpu_h"]["failures"] == {
        "restarts": pytest.approx(3 * 7 * 2 / 3600),
        "lost_work": pytest.approx((2 * (6 + 2 + 1) + 3) / 3600),
    }
    assert total["gpu_h"]["work"] == pytest.approx((2 * 50 + 9) / 3600)


def test_work_lost_by_an_attempt_is_taken_from_all_its_stays() -> None:
    """An attempt that is preempted and goes on before it fails loses what it did before the
    preemption, too."""
    jobs = (
        Job(id="long", gpus=1, duration_s=100.0),
        Job(id="short", duration_s=5.0, submit_s=10.0),
    )
    found = run(
        Instance(cluster=ONE, jobs=jobs, failures=(Failure(job="long", work_s=30.0, kept_s=1.0),)),
        "srtf",
    )
    assert summary(found)["gpu_h"]["failures"]["lost_work"] == pytest.approx(29 / 3600)
    assert found.held_gpu_s.tolist() == [pytest.approx(129.0), 5.0]


def test_a_lost_node_is_no_capacity_and_costs_what_was_not_saved() -> None:
    jobs = (Job(id="j", gpus=2, duration_s=20.0, profile=replace(COSTLY, checkpoint_every_s=5.0)),)
    outages = (Outage(node="m0", start_s=15.0, end_s=25.0),)
    found = run(Instance(cluster=TWO, jobs=jobs, outages=outages))
    total = summary(found)
    assert (total["node_losses"], total["preemptions"], total["restarts"]) == (1, 0, 1)
    # 3 s start-up and 12 s of work on m0, 2 s of it lost; then 7 s and 10 s on m1
    assert total["gpu_h"]["node_losses"] == {
        "restarts": pytest.approx(14 / 3600),
        "lost_work": pytest.approx(4 / 3600),
    }
    assert total["makespan_s"] == pytest.approx(32.0)
    assert total["gpu_h"]["nodes_away"] == pytest.approx(20 / 3600)
    assert total["use"]["gpus"] == pytest.approx(64 / (4 * 32 - 20))


def test_a_job_that_runs_or_is_suspended_at_the_start_has_started_before() -> None:
    running = Running(
        job="r",
        mode=Mode(gpu_type="a", gpus=1),
        placement=(Slot(node="m0", gpus=1),),
        started_s=-50.0,
        remaining_s=10.0,
        setup_s=2.0,
    )
    jobs = (
        Job(id="r", submit_s=-60.0, duration_s=100.0, profile=COSTLY),
        Job(id="s", submit_s=-30.0, duration_s=100.0, profile=COSTLY),
    )
    found = run(
        Instance(
            cluster=ONE,
            jobs=jobs,
            running=(running,),
            suspended=(Suspended(job="s", remaining_s=5.0),),
        )
    )
    assert found.restarts.tolist() == [0, 1] and found.preemptions.tolist() == [0, 0]
    assert found.first_start_s.tolist() == [-50.0, 12.0] and found.jct_s.tolist() == [72.0, 54.0]
    assert found.waiting_s.tolist() == [0.0, 12.0]
    assert summary(found)["gpu_h"]["preemptions"]["restarts"] == pytest.approx(7 / 3600)


# ------------------------------------------------------------------------------------------------
# totals


def test_use_is_by_type_and_until_the_last_submission_too() -> None:
    nodes = (
        Node(name="m0", gpu_type="a", gpus=2, cpus=4),
        Node(name="m1", gpu_type="b", gpus=1, cpus=8),
    )
    cluster = Cluster(nodes=nodes)
    measured = Profile(rate={"a": 1.0}, cpus_per_gpu={2: 1.0})
    jobs = (
        Job(id="j", gpus=2, duration_s=10.0, profile=measured),
        Job(id="k", submit_s=5.0, duration_s=30.0, profile=measured),
    )
    total = summary(run(Instance(cluster=cluster, jobs=jobs)))
    assert total["use"] == {
        "gpus": pytest.approx(50 / 120),
        "gpus_by_type": {"a": pytest.approx(50 / 80), "b": 0.0},
        "cores": pytest.approx(100 / 480),
    }
    assert total["use_until_last_submission"]["gpus_by_type"] == {"a": 1.0, "b": 0.0}
    assert total["use_until_last_submission"]["cores"] == pytest.approx(4 / 12)


def test_cores_that_are_not_modelled_do_not_count() -> None:
    cluster = Cluster(
        nodes=(Node(name="m0", gpu_type="a", gpus=2, cpus=4), Node(name="m1", gpu_type="b", gpus=2))
    )
    jobs = tuple(
        Job(
            id=name,
            gpus=2,
            duration_s=10.0,
            profile=Profile(rate={name: 1.0}, cpus_per_gpu={2: 1.0}),
        )
        for name in "ab"
    )
    assert summary(run(Instance(cluster=cluster, jobs=jobs)))["use"]["cores"] == 1.0


def test_gpu_utilisation_is_what_the_work_takes_at_its_best_over_what_was_held() -> None:
    cluster = one_node("m0", gpu_type="a", gpus=2, cpus=4)
    curve = {1: 0.5, 3: 1.0}
    hungry = Profile(rate={"a": 1.0}, cpus_per_gpu=curve, startup_s=5.0)
    jobs = (
        Job(id="full", duration_s=10.0, profile=hungry),
        Job(id="starved", duration_s=10.0, profile=hungry),
        Job(id="beside", gpus=0, cpus=1, duration_s=10.0, submit_s=1.0),
    )
    found = run(Instance(cluster=cluster, jobs=jobs))
    total = summary(found)
    # 3 cores for 15 s, of which 5 s start up; 1 core for 25 s
    assert found.completion_s.tolist()[:2] == [15.0, 25.0]
    assert total["gpu_utilisation"] == pytest.approx((10 + 10) / (15 + 25))
    assert total["waiting_cpu_jobs_s"]["mean"] == pytest.approx(14.0)
    alone = summary(run(Instance(cluster=cluster, jobs=jobs[:1])))
    assert alone["gpu_utilisation"] == pytest.approx(10 / 15)
    assert alone["waiting_cpu_jobs_s"]["mean"] is None
    nobody = summary(run(Instance(cluster=cluster, jobs=())))
    assert nobody["gpu_utilisation"] is None


def test_communication_is_what_a_gang_works_longer_than_on_one_node() -> None:
    nodes = (Node(name="m0", gpus=2), Node(name="m1", gpus=1), Node(name="m2", gpus=1))
    spread = Profile(locality=Locality(rack=0.5, cluster=0.5), startup_s=4.0)
    jobs = (
        Job(id="near", gpus=2, duration_s=20.0, profile=spread),
        Job(id="far", gpus=2, duration_s=20.0, profile=spread),
        Job(id="single", duration_s=10.0, submit_s=50.0),
    )
    total = summary(run(Instance(cluster=Cluster(nodes=nodes), jobs=jobs)))
    assert total["communication_overhead"] == pytest.approx((20 + 40) / (20 + 20) - 1)
    alone = summary(run(Instance(cluster=Cluster(nodes=nodes), jobs=jobs[2:])))
    assert alone["communication_overhead"] is None


def test_shared_gpus_are_held_once() -> None:
    profile = Profile(sharing=Sharing(duty=0.5), power_w={"a": 100.0})
    jobs = tuple(Job(id=name, duration_s=10.0, profile=profile) for name in "ab")
    simulation = Simulation(Instance(cluster=ONE, jobs=jobs), StartsBeside(preemptions=0))
    simulation.run()
    total = summary(measure(simulation.record()))
    assert total["makespan_s"] == pytest.approx(10.0)
    assert total["use"] == {"gpus": 1.0, "gpus_by_type": {"a": 1.0}, "cores": None}
    assert total["gpu_h"]["held"] == pytest.approx(10 / 3600)
    assert total["energy_kwh"]["total"] == pytest.approx(2 * 100 * 10 / 3.6e6)


def test_gangs_that_share_their_gpus_tell_nothing_of_the_network() -> None:
    profile = Profile(sharing=Sharing(duty=0.9))
    jobs = tuple(Job(id=name, gpus=2, duration_s=10.0, profile=profile) for name in "ab")
    cluster = Cluster(nodes=(Node(name="n", gpus=2),))
    simulation = Simulation(Instance(cluster=cluster, jobs=jobs), StartsBeside(preemptions=0))
    simulation.run()
    total = summary(measure(simulation.record()))
    assert total["makespan_s"] > 10.0
    assert total["communication_overhead"] is None


def test_quantiles_fairness_and_deadlines() -> None:
    jobs = tuple(
        Job(id=f"j{i}", duration_s=10.0, deadline_s=25.0 if i % 2 else None) for i in range(10)
    )
    found = run(Instance(cluster=ONE, jobs=jobs))
    total = summary(found)
    assert total["jct_s"] == {"mean": 55.0, "median": 50.0, "p90": 90.0, "p99": 100.0, "max": 100.0}
    assert total["waiting_s"]["max"] == 90.0 and total["waiting_mean_s"]["price"] == pytest.approx(
        45.0
    )
    assert (total["deadlines"], total["deadlines_missed"]) == (5, 4)
    assert found.late_s[3] == 15.0 and math.isnan(found.late_s[2])
    # ten jobs share one GPU: each would take 100 s on its own tenth
    assert total["finish_time_fairness"] == {
        "mean": pytest.approx(0.55),
        "max": 1.0,
        "share_above_1_1": 0.0,
    }
    # the first meets nine others on average in its life, the last 5.5 (itself included)
    assert found.contention_slowdown[[0, 9]].tolist() == [
        pytest.approx(0.1),
        pytest.approx(100 / 55),
    ]


def test_no_plan_is_made_where_no_model_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan takes several times as long as all metrics together."""
    instance = generate(jobs=30, gpus=8, seed=1)
    before = run(instance, "srsf")
    monkeypatch.setattr(Record, "plan", lambda record: pytest.fail("a plan was made"))
    assert run(instance, "srsf").gpu_time.checkpoint.tolist() == before.gpu_time.checkpoint.tolist()


def test_without_jobs_there_is_nothing_to_say() -> None:
    total = summary(run(Instance(cluster=ONE)))
    assert (
        total["jobs"],
        total["jct_s"]["mean"],
        total["use"]["gpus"],
        total["gpu_h"]["held"],
    ) == (0, None, None, 0.0)
    json.dumps(total, allow_nan=False)


def test_the_table_has_a_line_a_job() -> None:
    found = preempted()
    table = columns(found)
    lines = list(csv.DictReader(io.StringIO(columns_csv(table))))
    assert [line["id"] for line in lines] == ["long", "short"]
    known = {"jct_s": "123.0", "preemptions": "1", "late_s": "", "tenant": "", "gpu_type": "a"}
    assert {name: lines[0][name] for name in known} == known
    assert float(lines[0]["waiting_price_s"]) == found.waiting_s[0]


def test_the_table_as_parquet_says_the_same() -> None:
    found = columns(preempted())
    data = columns_parquet(found, TEXTS)
    if data is None:
        pytest.skip("neither polars nor pyarrow is installed")
    try:
        import polars

        assert polars.read_parquet(io.BytesIO(data)).to_dict(as_series=False) == found
    except ImportError:
        import pyarrow.parquet

        assert pyarrow.parquet.read_table(io.BytesIO(data)).to_pydict() == found


# ------------------------------------------------------------------------------------------------
# random


@st.composite
def simulations(draw: Any) -> tuple[Record, bool]:
    """What some policy made of a random instance, and whether attempts failed or nodes were lost in
    it."""
    instance = draw(instances())
    incidents = draw(st.booleans())
    if incidents:
        held = {*instance.running_job, *instance.suspended_job}
        fails = [job for job in instance.jobs if job.id not in held and draw(st.booleans())]
        failures = tuple(
            Failure(job=job.id, work_s=job.work_s * 0.7, kept_s=job.work_s * kept, kind=kind)
            for job in fails
            for kind in draw(st.sampled_from([("out of memory",), (None, "out of memory")]))
            for kept in (draw(st.sampled_from([0.0, 0.3])),)
        )
        node = draw(st.sampled_from(instance.cluster.nodes)).name
        since_s = instance.now_s + draw(st.sampled_from([0.5, 4.0, 11.0]))
        outage = Outage(
            node=node, start_s=since_s, end_s=since_s + draw(st.sampled_from([1.0, 20.0]))
        )
        instance = replace(instance, failures=failures, outages=(outage,))
    name = draw(st.sampled_from(["fifo", "backfill", "srtf", "las", "beside"]))
    policy = StartsBeside() if name == "beside" else registry.policy(name)
    simulation = Simulation(instance, policy, round_s=draw(st.sampled_from([None, None, 7.0])))
    try:
        simulation.run()
    except StalledError:
        assume(False)
    return simulation.record(), incidents


def quotas_over(instance: Instance, tenant: str | None) -> tuple[Tenant, ...]:
    """Return the tenants whose quotas limit the jobs of a tenant, the closest first."""
    if tenant is None:
        return ()
    own = instance.tenant[tenant]
    return ((own,) if own.gpu_quota is not None else ()) + quotas_over(instance, own.parent)


def reason_at(record: Record, job: Job, at_s: float) -> str:
    """What a job that waits and has been looked at waits for at an instant, by the definitions."""
    instance = record.instance
    holds = [i for i in range(record.rows) if record.start_s[i] <= at_s < record.end_s[i]]
    lost = {entry.node for entry in instance.outages if entry.start_s <= at_s < entry.end_s}
    smallest: dict[str | None, int] = {}
    for option in catalogue_of(instance).options(job):
        if option.mode.gpus:
            smallest[option.mode.gpu_type] = min(
                option.mode.gpus, smallest.get(option.mode.gpu_type, 10**9)
            )
    if smallest and (over := quotas_over(instance, job.tenant)):
        held = {
            tenant.name: sum(
                record.gpus[i]
                for i in holds
                if tenant in quotas_over(instance, instance.jobs[record.job[i]].tenant)
            )
            for tenant in instance.tenants
        }
        room = min((own.gpu_quota or 0) + own.borrow_gpus - held[own.name] for own in over)
        top = {quotas_over(instance, own.name)[-1:] for own in instance.tenants} - {()}
        if any(own.borrow_gpus for (own,) in top):
            room = min(room, sum((own.gpu_quota or 0) - held[own.name] for (own,) in top))
        if room < min(smallest.values()):
            return "fair_share"
    for gpu_type, gang in smallest.items():
        free = sum(
            node.gpus
            for node in instance.cluster.nodes
            if node.gpu_type == gpu_type and node.name not in lost
        )
        for i in holds:
            if record.gpus[i] and instance.cluster.gpu_types[record.gpu_type[i]] == gpu_type:
                free -= record.gpus[i] / (2 if record.partner[i] >= 0 else 1)
        if free >= gang:
            return "fragmentation"
    cores = [
        option.mode.cpus
        for option in catalogue_of(instance).options(job)
        if not option.mode.gpus and option.mode.cpus
    ]
    if cores and all(node.cpus is not None for node in instance.cluster.nodes):
        free = sum(node.cpus or 0 for node in instance.cluster.nodes if node.name not in lost)
        if free - sum(record.cpus[i] for i in holds) >= cores[-1]:
            return "fragmentation"
    return "price"


@settings(max_examples=40)
@given(simulations())
def test_waits_are_split_as_the_definitions_say(case: tuple[Record, bool]) -> None:
    record, _ = case
    found = measure(record)
    changes = {*record.start_s, *record.end_s}
    changes |= {at_s for entry in record.instance.outages for at_s in (entry.start_s, entry.end_s)}
    for j, job in enumerate(record.instance.jobs):
        rows = sorted(
            (record.start_s[i], record.end_s[i]) for i in range(record.rows) if record.job[i] == j
        )
        free_s = record.instance.release_s(job)
        if job.id not in {*record.instance.running_job, *record.instance.suspended_job}:
            ends = {
                i: record.end_s[record.job == i].max() for i in range(len(record.instance.jobs))
            }
            order = {one.id: i for i, one in enumerate(record.instance.jobs)}
            free_s = max(free_s, *(ends[order[name]] for name in job.after), free_s)
        expected = dict.fromkeys(REASONS, 0.0)
        for start_s, end_s in rows:
            looked_s = min([start_s, *(at_s for at_s in record.decision_s if at_s >= free_s)])
            expected["decision"] += max(0.0, looked_s - free_s)
            cuts = sorted(
                {looked_s, start_s, *(at_s for at_s in changes if looked_s < at_s < start_s)}
            )
            for at_s, next_s in pairwise(cuts):
                expected[reason_at(record, job, at_s)] += next_s - at_s
            free_s = end_s
        assert dict(zip(REASONS, found.waiting_by_reason_s[j], strict=True)) == pytest.approx(
            expected, abs=1e-5
        )


@settings(max_examples=60)
@given(simulations())
def test_what_is_measured_adds_up(case: tuple[Record, bool]) -> None:
    record, incidents = case
    instance, found = record.instance, measure(record)
    total = summary(found)
    assert total["carbon_g"] is total["energy_cost"] is None and np.isnan(found.carbon_g).all()
    before_s = found.release_s - found.submit_s
    parts_s = before_s + found.blocked_s + found.waiting_s + found.held_s
    assert found.jct_s == pytest.approx(parts_s, abs=1e-5)
    assert (found.waiting_by_reason_s >= 0).all() and (found.blocked_s >= 0).all()
    gpu_h = total["gpu_h"]
    spent = [gpu_h["work"], gpu_h["first_starts"]]
    spent += [
        hours
        for name in ("preemptions", "failures", "node_losses")
        for hours in gpu_h[name].values()
    ]
    assert gpu_h["held"] == pytest.approx(math.fsum(spent), abs=1e-8) and min(spent) >= -1e-9
    assert found.lost_gpu_s.sum() + found.overhead_gpu_s.sum() == pytest.approx(
        (math.fsum(spent) - gpu_h["work"]) * 3600, abs=1e-5
    )
    held_s = math.fsum(
        (record.end_s[i] - record.start_s[i])
        * record.gpus[i]
        / (2 if record.partner[i] >= 0 else 1)
        for i in range(record.rows)
    )
    assert (gpu_h["held"] * 3600, found.held_gpu_s.sum()) == (
        pytest.approx(held_s),
        pytest.approx(held_s),
    )
    plan = record.plan()
    goal = parse("ftf,energy,makespan,tail,tail:0.5")
    fair, energy, makespan, tail, median = values(goal, instance, plan)
    assert total["finish_time_fairness"]["max"] == pytest.approx(fair)
    assert (total["energy_kwh"]["total"], found.energy_kwh.sum()) == (
        pytest.approx(energy),
        pytest.approx(energy),
    )
    rates = ((instance.now_s + 2.0, 0.5), (instance.now_s + 9.0, 0.0), (instance.now_s + 20.0, 2.0))
    cluster = replace(instance.cluster, carbon_g_per_kwh=300.0, energy_price_per_kwh=rates)
    timed = replace(record, instance=replace(instance, cluster=cluster))
    grams, price = values(parse("carbon,energy_cost"), timed.instance, plan)
    assert summary(measure(timed))["carbon_g"] == pytest.approx(grams)
    assert measure(timed).energy_cost.sum() == pytest.approx(price)
    assert total["makespan_s"] == pytest.approx(makespan)
    assert (total["jct_s"]["p99"], total["jct_s"]["median"]) == (
        pytest.approx(tail),
        pytest.approx(median),
    )
    assert total["use"]["gpus"] is None or 0 <= total["use"]["gpus"] <= 1 + 1e-9
    assert (
        total["failures"]
        == sum(total["failures_by_kind"].values())
        == (record.ending == Ending.FAILED).sum()
    )
    if not incidents:
        for entry, preemptions in zip(plan.jobs, found.preemptions, strict=True):
            if (
                entry.id not in instance.running_job or entry.decision == "continue"
            ):  # others may leave before a row is
                assert preemptions == job_facts(instance, entry).preempted
        assert total["failures"] == total["node_losses"] == 0
    json.dumps(total, allow_nan=False)


@settings(max_examples=30)
@given(instances(held=False))
def test_finish_time_fairness_is_that_of_the_objective(instance: Instance) -> None:
    try:
        found = run(instance)
    except StalledError:
        assume(False)
    alone_s = [isolated_s(instance, job) for job in instance.jobs]
    assert found.jct_s / found.finish_time_fairness == pytest.approx(alone_s)
