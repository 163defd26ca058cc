"""What is derived once for jobs that are alike: they are alike only where no field that counts
differs."""

import copy
import json
import pickle
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from optsched import (
    Clock,
    Cluster,
    Elastic,
    Instance,
    Job,
    Locality,
    Mode,
    Node,
    Phase,
    Profile,
    Sharing,
    Tenant,
)
from optsched.bounds import lower_bounds
from optsched.bounds.mode_table import ModeTable, tabulate
from optsched.model.cluster import Tier, Window
from optsched.model.value import Table
from optsched.objectives import parse
from optsched.physics import catalogue as catalogue_module
from optsched.physics.catalogue import Catalogue
from optsched.physics.modes import base_modes
from optsched.physics.unschedulable import why_never
from optsched.round.patterns import alternatives_of, node_classes

CLUSTER = Cluster(
    nodes=(
        Node(name="a0", gpu_type="a", gpus=2, cpus=8, memory_gib=64, gpu_memory_gib=40, rack="r0"),
        Node(name="a1", gpu_type="a", gpus=2, cpus=8, memory_gib=64, gpu_memory_gib=40, rack="r1"),
        Node(name="b0", gpu_type="b", gpus=4, cpus=16, memory_gib=64, gpu_memory_gib=16, rack="r0"),
    ),
    resources={"power_w": 1500.0, "licence": 2.0},
    budgets={"money": 10.0},
    rack_uplink_gbps={"r0": 10.0, "r1": 10.0},
)
PROFILE = Profile(
    rate={"a": 1.0, "b": 0.25},
    locality=Locality(node=1.0, rack=0.9, cluster=0.8),
    power_w={"a": 300.0, "b": 100.0},
)
JOB = Job(id="p", gpus=4, duration_s=1000.0, profile=PROFILE)
OTHER_PROFILE: dict[str, object] = {
    "name": "resnet",
    "rate": {"a": 1.0, "b": 0.5},
    "gpus": {1: 0.3, 4: 0.9},
    "cpus_per_gpu": {1: 0.5, 2: 1.0},
    "locality": Locality(node=1.0, rack=0.9, cluster=0.7),
    "sharing": Sharing(partners={"resnet": 1.5}),
    "gpu_memory_gib": 20.0,
    "memory_gib_per_gpu": 20.0,
    "memory_rates": {2.0: 0.5},
    "gpu_memory_rates": {4.0: 0.5},
    "mixing": "sum",
    "network_gbps": 20.0,
    "network_duty": 0.5,
    "memory_gbps": 5.0,
    "memory_duty": 0.5,
    "checkpoint_s": 5.0,
    "restore_s": 5.0,
    "startup_s": 5.0,
    "model_gib": 5.0,
    "fetch_s": 5.0,
    "checkpoint_every_s": 60.0,
    "power_w": {"a": 300.0, "b": 400.0},
    "clocks": {900: Clock(rate=1.2, power=1.1)},
    "phases": (Phase(batch_size=32, epochs=10.0, epoch_s=5.0),),
}
OTHER_JOB: dict[str, object] = {
    "id": "other",
    "submit_s": 5.0,
    "tenant": "t",
    "user": "u",
    "command": "c",
    "weight": 2.0,
    "priority": 3,
    "deadline_s": 50.0,
    "after": ("before",),
    "gpus": Elastic(min=1, max=4),
    "cpus": 2,
    "memory_gib": 4.0,
    "duration_s": 500.0,
    "modes": (Mode(gpus=2, duration_s=300.0),),
    "resources": {"licence": 1.0},
    "budgets": {"money": 1.0},
    "preemptible": False,
    "min_run_s": 5.0,
    "max_preemptions": 1,
    "cores_in_place": True,
    "min_nodes": 2,
    "max_nodes": 2,
    "labels": ("x",),
    "node_labels": {"ssd": "forbidden"},
    "affinity": {"x": "rack"},
    "anti_affinity": {"x": "node"},
    "profile": replace(PROFILE, mixing="sum"),
}


def changed_jobs() -> list[tuple[str, Job]]:
    """`JOB` with one field of it, or of its profile, changed: all of them, as a new one has no
    entry above."""
    return [
        *(
            (f"job.{one.name}", replace(JOB, **{"id": "q", one.name: OTHER_JOB[one.name]}))
            for one in fields(Job)
        ),
        *(
            (
                f"profile.{one.name}",
                replace(JOB, id="q", profile=replace(PROFILE, **{one.name: value})),
            )
            for one in fields(Profile)
            for value in [OTHER_PROFILE[one.name]]
        ),
    ]


def own_modes(modes: ModeTable, job: int) -> dict[str, object]:
    """The columns of one job."""
    mine = modes.job == job
    columns = {one.name: getattr(modes, one.name) for one in fields(modes)}
    found: dict[str, object] = {
        name: column[mine].tolist()
        for name, column in columns.items()
        if isinstance(column, np.ndarray)
        and len(column) == len(modes.job)
        and name not in ("job", "first")
    }
    return found | {
        "resources": {
            name: own[mine].tolist() for name, own in modes.resources.items() if own[mine].any()
        }
    }


@pytest.mark.parametrize(
    ("name", "other"), changed_jobs(), ids=lambda one: one if isinstance(one, str) else ""
)
@pytest.mark.parametrize("preemptive", [True, False])
def test_jobs_side_by_side_have_the_modes_they_have_alone(
    name: str, other: Job, preemptive: bool
) -> None:
    both = tabulate(Instance(cluster=CLUSTER, jobs=(JOB, other)), preemptive)
    for k, job in enumerate((JOB, other)):
        assert own_modes(both, k) == own_modes(
            tabulate(Instance(cluster=CLUSTER, jobs=(job,)), preemptive), 0
        ), name


OTHER_NODE: dict[str, object] = {
    "name": "c0",
    "gpu_type": "b",
    "gpus": 8,
    "gpu_memory_gib": 4.0,
    "cpus": 3,
    "memory_gib": 8.0,
    "memory_gbps": 5.0,
    "model_cache_gib": 1.0,
    "rack": "r1",
    "labels": ("ssd",),
    "gpu_price_per_h": 2.0,
}
OTHER_CLUSTER: dict[str, object] = {
    "nodes": CLUSTER.nodes[:2],
    "resources": {"licence": 1.0},
    "budgets": {"money": 0.5},
    "rack_uplink_gbps": {"r0": 1.0},
    "uplinks": "shared",
    "carbon_g_per_kwh": 300.0,
    "energy_price_per_kwh": ((0.0, 0.25), (9.0, 0.125)),
    "reference_gpu": "a",
    "tiers": (Tier(name="urgent", priority=5),),
    "windows": (Window(nodes=("a0",), from_s=5.0, to_s=9.0),),
}
TENANT = Tenant(name="own", gpu_quota=3)
OTHER_TENANT: dict[str, object] = {
    "name": "u",
    "gpu_quota": 8,
    "borrow_gpus": 1,
    "weight": 2.0,
    "parent": "all",
}
ASKS = replace(
    JOB,
    tenant="own",
    gpus=Elastic(min=2, max=4),
    budgets={"money": 2.0},
    profile=replace(
        PROFILE, gpu_memory_gib=8.0, memory_gib_per_gpu=4.0, network_gbps=5.0, cpus_per_gpu={2: 1.0}
    ),
)
Question = tuple[Cluster, tuple[Tenant, ...], Job]


def perturbed() -> list[tuple[str, Question]]:
    """`ASKS` on `CLUSTER` with one field changed, of any noun that a catalogue reads."""

    def changed(noun: Any, others: dict[str, object]) -> Iterator[tuple[str, Any]]:
        for field in fields(noun):
            name = f"{type(noun).__name__}.{field.name}"
            yield name, replace(noun, **{field.name: others[field.name]})

    tenants = (TENANT,)
    nodes = CLUSTER.nodes
    profiles = changed(ASKS.profile, OTHER_PROFILE)
    return [
        *((name, (cluster, tenants, ASKS)) for name, cluster in changed(CLUSTER, OTHER_CLUSTER)),
        *((name, (CLUSTER, (one,), ASKS)) for name, one in changed(TENANT, OTHER_TENANT)),
        *(
            (name, (replace(CLUSTER, nodes=(node, *nodes[1:])), tenants, ASKS))
            for name, node in changed(nodes[0], OTHER_NODE)
        ),
        *((name, (CLUSTER, tenants, job)) for name, job in changed(ASKS, OTHER_JOB)),
        *((name, (CLUSTER, tenants, replace(ASKS, profile=profile))) for name, profile in profiles),
    ]


def answers(question: Question) -> object:
    """All that is kept for a job on a cluster."""
    cluster, tenants, job = question
    catalogue = Catalogue.of(cluster, tenants)
    modes = base_modes(cluster, job)
    return (
        catalogue.options(job),
        catalogue.fits_somewhere(job),
        why_never(catalogue, job),
        catalogue.shapes,
        catalogue.capacity.rows,
        [(catalogue.room(job, mode), catalogue.most_gpus(job, mode)) for mode in modes],
        [
            (one.option, one.classes, one.together, one.cpus, one.memory_gib, one.shared)
            for one in alternatives_of(catalogue, job).patterns
        ],
        [(one.name, one.node, one.nodes) for one in node_classes(catalogue)[0]],
    )


def forget() -> None:
    for known in (catalogue_module._catalogue, catalogue_module._fitting):
        known.cache_clear()


@pytest.mark.parametrize(
    ("name", "other"), perturbed(), ids=lambda at: at if type(at) is str else ""
)
def test_what_is_kept_is_kept_for_equal_questions_alone(name: str, other: Question) -> None:
    base: Question = (CLUSTER, (TENANT,), ASKS)
    forget()
    before = [answers(question) for question in (base, other)]
    forget()
    assert before == [answers(question) for question in (other, base)][::-1], name
    assert other != base and copy.deepcopy(other) == other
    assert hash(copy.deepcopy(other)) == hash(other) != hash(base)


def test_a_catalogue_is_that_of_equal_clusters_and_tenants() -> None:
    forget()
    first = Catalogue.of(CLUSTER, (TENANT,))
    assert Catalogue.of(copy.deepcopy(CLUSTER), (replace(TENANT),)) is first
    left = Catalogue.of(replace(CLUSTER, budgets={"money": 1.5}), (TENANT,))
    assert left is not first and left.options(ASKS) is first.options(ASKS)


@pytest.mark.parametrize("name", [field.name for field in fields(Profile)])
def test_profiles_are_equal_where_every_field_is(name: str) -> None:
    other = replace(PROFILE, **{name: OTHER_PROFILE[name]})
    assert other != PROFILE
    assert other == replace(other)
    assert hash(other) == hash(replace(other))
    assert len({PROFILE, other, replace(other), replace(PROFILE)}) == 2


def test_tables_are_values() -> None:
    table = Profile(rate={"a": 1.0, "b": 0.5}).rate
    assert table == {"b": 0.5, "a": 1.0} and json.dumps(table) == '{"a": 1.0, "b": 0.5}'
    assert hash(table) == hash(Profile(rate={"b": 0.5, "a": 1.0}).rate)
    assert isinstance(table, Table) and copy.deepcopy(table) is table
    other = pickle.loads(pickle.dumps(JOB))
    assert other == JOB and hash(other) == hash(JOB) and isinstance(other.profile.rate, Table)
    for change in (
        lambda: table.__setitem__("a", 2.0),
        lambda: table.pop("a"),
        lambda: table.update(a=2.0),
        lambda: table.setdefault("c", 2.0),
        table.clear,
    ):
        with pytest.raises(TypeError, match="never changes"):
            change()
    assert table == {"a": 1.0, "b": 0.5}


def test_gangs_that_mix_otherwise_do_not_share_their_bound() -> None:
    """A plan of 7,200 s exists: q first, on all but one GPU less than it needs alone on either
    type."""
    nodes = (Node(name="a", gpu_type="a", gpus=2), Node(name="b", gpu_type="b", gpus=4))
    p, q = (
        Job(
            id=name,
            gpus=4,
            duration_s=1000,
            profile=Profile(rate={"a": 1.0, "b": 0.25}, mixing=mixing),
        )
        for name, mixing in (("p", "bottleneck"), ("q", "sum"))
    )
    for jobs in ((p, q), (q, p)):
        [bound] = lower_bounds(Instance(cluster=Cluster(nodes=nodes), jobs=jobs), parse("wct"))
        assert bound.value <= 7200
