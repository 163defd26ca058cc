"""Queues and Workloads as an instance: quota, borrowing, flavors, what is left to do."""

from typing import Any

import pytest

from optsched.files import dump_instance, load_instance
from optsched.kueue.instance import Site, View, view
from optsched.model.instance import Instance

from .memory import Memory
from .objects import GPU, NOW_S, admitted, cluster_queue, flavor, workload


def seen(
    memory: Memory, steered: tuple[str, ...] = (), step: float = 4.0, preempt_unsaved: bool = False
) -> View:
    queues, flavors, workloads = memory.read()
    found = view(
        Site(
            queues={one.name: one for one in queues},
            flavors={one.name: one for one in flavors},
            workloads=workloads,
            steered=steered or [one.name for one in queues],
            gpu=GPU,
            step=step,
            runs_s=3600.0,
            preempt_unsaved=preempt_unsaved,
        ),
        NOW_S,
    )
    load_instance(
        dump_instance(found.instance), "it", now_only=True
    )  # raises for what is no instance
    return found


def instance(*workloads: Any, **more: Any) -> Instance:
    return seen(Memory(*workloads, **more)).instance


def test_quota_is_the_cluster() -> None:
    found = instance(workload("one", 1), queues=[cluster_queue("main", {"a100": 8, "v100": 4})])
    assert [(node.name, node.gpus) for node in found.cluster.nodes] == [
        ("queue:main/a100", 8),
        ("queue:main/v100", 4),
    ]
    assert found.cluster.resources == {}
    [job] = found.jobs
    assert [(mode.gpu_type, mode.gpus) for mode in job.modes] == [
        ("queue:main/a100", 1),
        ("queue:main/v100", 1),
    ]


def test_a_cohort_is_one_pool_and_limits_are_kept() -> None:
    """a may borrow 2 of what b lends (all of its 8), b may borrow what a lends: 1 of its 4. So of
    12 GPUs a can have 4 + 2 = 6 and b 8 + 1 = 9."""
    queues = [
        cluster_queue(
            "a",
            {"x": {"nominalQuota": "4", "borrowingLimit": "2", "lendingLimit": "1"}},
            cohortName="lab",
        ),
        cluster_queue("b", {"x": 8}, cohortName="lab"),
        cluster_queue("c", {"x": 3}),
    ]
    found = instance(
        workload("of-a", 5, queue="a"),
        workload("of-b", 9, queue="b"),
        workload("of-c", 3, queue="c"),
        queues=queues,
    )
    assert [(node.name, node.gpus) for node in found.cluster.nodes] == [
        ("cohort:lab/x", 12),
        ("queue:c/x", 3),
    ]
    assert found.cluster.resources == {
        f"{GPU} of queue:a/x limit": 6,
        f"{GPU} of queue:b/x limit": 9,
    }
    modes = {job.id: job.modes[0] for job in found.jobs}
    assert modes["team/of-a"].resources == {f"{GPU} of queue:a/x limit": 5}
    assert modes["team/of-b"].resources == {f"{GPU} of queue:b/x limit": 9}
    assert modes["team/of-c"].resources == {} and modes["team/of-c"].gpu_type == "queue:c/x"


def test_every_resource_counts() -> None:
    """Cores and memory of a flavor are resources of the cluster; those the queue has no quota of
    are not looked at."""
    group = {
        "coveredResources": [GPU, "cpu", "memory"],
        "flavors": [
            {
                "name": "x",
                "resources": [
                    {"name": GPU, "nominalQuota": "8"},
                    {"name": "cpu", "nominalQuota": "32"},
                    {"name": "memory", "nominalQuota": "64Gi"},
                ],
            }
        ],
    }
    queue = cluster_queue("main", {})
    queue["spec"]["resourceGroups"] = [group]
    asks = {"cpu": "4", "memory": "512Mi", GPU: "1", "ephemeral-storage": "1Ti"}
    pod = {"containers": [{"name": "main", "resources": {"requests": asks}}]}
    found = instance(workload("one", 1, count=2, pod=pod), queues=[queue])
    assert found.cluster.resources == {"cpu of queue:main/x": 32, "memory of queue:main/x": 64}
    [job] = found.jobs
    assert (
        job.modes[0].resources == {"cpu of queue:main/x": 8, "memory of queue:main/x": 1}
        and job.modes[0].gpus == 2
    )


def test_a_workload_without_gpus() -> None:
    queue = cluster_queue("main", {})
    queue["spec"]["resourceGroups"] = [
        {
            "coveredResources": ["cpu"],
            "flavors": [{"name": "x", "resources": [{"name": "cpu", "nominalQuota": "4"}]}],
        }
    ]
    pod = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "3"}}}]}
    gpu_job = workload("gpu", 1)
    found = seen(Memory(workload("one", 0, pod=pod), gpu_job, queues=[queue]))
    [job] = found.instance.jobs
    assert (job.modes[0].gpus, job.modes[0].gpu_type, job.modes[0].resources) == (
        0,
        None,
        {"cpu of queue:main/x": 3},
    )
    assert found.left_out == {"team/gpu": "no flavor of its queue has all that it asks for"}


def test_only_flavors_that_fit() -> None:
    flavors = [
        flavor("a100", nodeLabels={"gpu": "a100"}),
        flavor("v100", nodeLabels={"gpu": "v100"}),
    ]
    found = instance(
        workload(
            "one",
            1,
            pod={
                "nodeSelector": {"gpu": "v100"},
                "containers": [{"name": "main", "resources": {"requests": {GPU: "1"}}}],
            },
        ),
        queues=[cluster_queue("main", {"a100": 8, "v100": 4})],
        flavors=flavors,
    )
    assert [mode.gpu_type for mode in found.jobs[0].modes] == ["queue:main/v100"]


def test_what_runs() -> None:
    """Two hours long, runs for 90 minutes, saves every 40: 30 minutes to go, and 10 minutes that a
    preemption loses."""
    one = admitted(workload("one", 4, duration="2h", checkpoint_every="40m"), NOW_S - 5400)
    found = instance(one, workload("two", 8, created_s=NOW_S - 60))
    [entry] = found.running
    assert (entry.remaining_s, entry.started_s, entry.last_checkpoint_s) == (
        1800,
        NOW_S - 5400,
        NOW_S - 600,
    )
    assert (entry.placement[0].node, entry.placement[0].gpus, entry.mode) == (
        "queue:main/a100",
        4,
        found.jobs[0].modes[0],
    )
    assert found.jobs[0].preemptible and found.jobs[1].submit_s == NOW_S - 60


def test_one_that_does_not_say_that_it_saves_loses_all() -> None:
    found = instance(admitted(workload("one", 4), NOW_S - 600))
    assert found.running[0].last_checkpoint_s is None
    assert (found.jobs[0].profile.checkpoint_every_s or 0) > 1e8
    assert not found.jobs[0].preemptible
    memory = Memory(admitted(workload("one", 4), NOW_S - 600))
    assert seen(memory, preempt_unsaved=True).instance.jobs[0].preemptible


def test_one_that_runs_for_longer_than_it_said() -> None:
    """It is taken to need a fifth of what it has run once more."""
    found = instance(admitted(workload("one", 4, duration="10m"), NOW_S - 6000))
    assert found.running[0].remaining_s == pytest.approx(1200)


def test_one_that_was_preempted() -> None:
    """Of an hour it has run 30 minutes before, of which 10 at most are lost; without checkpoints
    all of it."""
    statuses = {
        "accumulatedPastExecutionTimeSeconds": 1800,
        "schedulingStats": {
            "evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]
        },
    }
    saves, forgets = (
        workload("saves", 1, duration="1h", checkpoint_every="10m"),
        workload("forgets", 1, duration="1h"),
    )
    saves["status"], forgets["status"] = statuses, statuses
    found = instance(saves, forgets)
    assert {one.job: (one.remaining_s, one.preemptions) for one in found.suspended} == {
        "team/saves": (3600 - 1800 + 600, 1),
        "team/forgets": (3600, 1),
    }


def test_who_is_not_decided_on_holds_what_it_holds() -> None:
    """One of a queue that is left alone in the same cohort, one on two flavors; one that is being
    evicted soon does no more."""
    queues = [
        cluster_queue("main", {"a100": 8, "v100": 8}, cohortName="lab"),
        cluster_queue("alone", {"a100": 8}, cohortName="lab"),
    ]
    leaving = admitted(workload("leaving", 3), NOW_S)
    leaving["status"]["conditions"].append({"type": "Evicted", "status": "True"})
    other = admitted(workload("other", 2, queue="alone"), NOW_S, queue="alone")
    both = admitted(workload("both", 1), NOW_S)
    both["status"]["admission"]["podSetAssignments"].append(
        {"name": "more", "flavors": {GPU: "v100"}, "resourceUsage": {GPU: "5"}}
    )
    found = seen(Memory(leaving, other, both, workload("one", 1), queues=queues), ("main",))
    assert [job.id for job in found.instance.jobs] == ["team/one"]
    assert [(node.name, node.gpus) for node in found.instance.cluster.nodes] == [
        ("cohort:lab/a100", 16 - 2 - 1),
        ("cohort:lab/v100", 8 - 5),
    ]
    assert found.left_out == {
        "team/leaving": "is being evicted",
        "team/both": "holds GPUs of several flavors",
    }


def test_quota_that_was_lowered_evicts_nobody() -> None:
    found = instance(
        admitted(workload("one", 8), NOW_S), queues=[cluster_queue("main", {"a100": 2})]
    )
    assert found.cluster.nodes[0].gpus == 8 and len(found.running) == 1


def test_those_that_kueue_does_not_try_now() -> None:
    later = workload("later", 1)
    later["status"] = {"requeueState": {"requeueAt": "2100-01-01T00:00:00Z"}}
    found = seen(
        Memory(
            later,
            workload("one", 1, queue="shut"),
            queues=[
                cluster_queue("main", {"a100": 8}),
                cluster_queue("shut", {"a100": 8}, stopPolicy="HoldAndDrain"),
            ],
        )
    )
    assert not found.instance.jobs
    assert found.left_out == {
        "team/later": "waits until Kueue tries it again",
        "team/one": "queue shut is stopped",
    }


def test_weights_follow_priorities() -> None:
    found = instance(
        *(
            workload(name, 1, priority=priority)
            for name, priority in (("first", 1000), ("last", -5), ("also", 1000), ("middle", 7))
        )
    )
    assert [job.weight for job in found.jobs] == [16, 1, 16, 4]


def test_nobody_waits_for_ever() -> None:
    """A day and twenty times its hour after it came it weighs what it says, two days later four
    times as much."""
    patience_s = 86400 + 20 * 3600
    found = instance(
        workload("new", 1, created_s=NOW_S - patience_s, duration="1h"),
        workload("old", 1, created_s=NOW_S - patience_s - 2 * 86400, duration="1h"),
    )
    assert [job.weight for job in found.jobs] == [pytest.approx(1.0), pytest.approx(4.0)]
