"""What is read of Kueue's objects, as its API server has them."""

from typing import Any

import pytest

from optsched.kueue.objects import BOOST, Quota, read_flavor, read_queue, read_workload

from .objects import GPU, NAMESPACE, NOW_S, admitted, cluster_queue, flavor, stamp, workload

LOCAL = {(NAMESPACE, "main"): "all"}


def read(given: dict[str, Any]) -> Any:
    return read_workload(given, LOCAL)


def test_a_workload_that_waits() -> None:
    found = read(
        workload(
            "one", 4, count=2, created_s=NOW_S, priority=7, duration="2h", checkpoint_every="10m"
        )
    )
    assert (found.id, found.queue, found.priority, found.boost, found.boosted) == (
        "team/one",
        "all",
        7,
        0,
        False,
    )
    assert found.asks == {"pods": 2, GPU: 8} and found.held is None and found.admitted_s is None
    assert (found.created_s, found.duration_s, found.checkpoint_every_s) == (NOW_S, 7200, 600)


def test_a_workload_that_runs() -> None:
    found = read(admitted(workload("one", 4), NOW_S, "a100", "another"))
    assert (found.queue, found.held, found.admitted_s) == ("another", {("a100", GPU): 4}, NOW_S)


def test_requests_of_all_containers_and_units() -> None:
    """Containers together, what is limited only counts as asked for; cores, GiB."""
    containers = [
        {"name": "a", "resources": {"requests": {"cpu": "500m", "memory": "2Gi"}}},
        {"name": "b", "resources": {"limits": {"cpu": "2", "memory": str(1 << 30), GPU: "1"}}},
    ]
    found = read(workload("one", 0, count=3, pod={"containers": containers}))
    assert found.asks == {"pods": 3, "cpu": 7.5, "memory": 9, GPU: 3}


def test_what_kueue_has_worked_out_counts() -> None:
    given = workload("one", 4, count=2)
    given["status"] = {
        "resourceRequests": [{"name": "main", "resources": {GPU: "6", "memory": "8Gi"}}]
    }
    assert read(given).asks == {"pods": 2, GPU: 6, "memory": 8}


def test_who_is_left_out() -> None:
    finished = workload("one", 1)
    finished["status"]["conditions"] = [
        {"type": "Finished", "status": "True", "lastTransitionTime": stamp(0)}
    ]
    inactive = workload("one", 1)
    inactive["spec"]["active"] = False
    going = workload("one", 1, deletionTimestamp=stamp(0))
    assert [
        read(one) for one in (finished, inactive, going, workload("one", 1, queue="unknown"))
    ] == [None] * 4
    assert read(admitted(inactive, NOW_S)).evicted  # it holds quota until it is gone


def test_durations() -> None:
    """The Workload's own word, then its pods', then how long it may run at most."""
    given = workload("one", 1, duration="2h")
    given["spec"]["maximumExecutionTimeSeconds"] = 600
    assert read(given).duration_s == 7200
    given["metadata"]["annotations"] = {"optsched.io/duration": "1h"}
    assert read(given).duration_s == 3600
    limited = workload("two", 1)
    limited["spec"]["maximumExecutionTimeSeconds"] = 600
    assert read(limited).duration_s == 600
    assert read(workload("three", 1)).duration_s is None


def test_nonsense_does_not_count_and_is_told() -> None:
    found = read(
        workload(
            "one",
            1,
            duration="soon",
            annotations={BOOST: "much", "optsched.io/checkpoint-every": "0"},
        )
    )
    assert (found.boost, found.duration_s, found.checkpoint_every_s) == (0, None, None)
    assert [fault.partition(":")[0].partition(" is ")[0] for fault in found.faults] == [
        "its optsched.io/duration",
        f"its {BOOST} 'much'",
        "its optsched.io/checkpoint-every",
    ]


def test_history() -> None:
    given = workload("one", 1, annotations={BOOST: "-12"})
    given["status"] = {
        "accumulatedPastExecutionTimeSeconds": 90,
        "requeueState": {"requeueAt": stamp(NOW_S)},
        "schedulingStats": {
            "evictions": [
                {"reason": "Preempted", "underlyingCause": "InClusterQueue", "count": 2},
                {"reason": "Deactivated", "underlyingCause": "", "count": 5},
            ]
        },
    }
    found = read(given)
    assert (found.boost, found.boosted, found.past_s, found.evictions, found.again_s) == (
        -12,
        True,
        90,
        2,
        NOW_S,
    )


@pytest.mark.parametrize("cohort", ["cohort", "cohortName"])
def test_a_queue(cohort: str) -> None:
    """In v1beta1 the cohort is `cohort`, in v1beta2 `cohortName`."""
    quota = {"nominalQuota": "8", "borrowingLimit": "4", "lendingLimit": "2"}
    found = read_queue(
        cluster_queue("one", {"a100": quota, "v100": 16}, **{cohort: "lab"}, stopPolicy="Hold")
    )
    assert (found.name, found.cohort, found.pool, found.preempts, found.stopped) == (
        "one",
        "lab",
        "cohort:lab",
        True,
        True,
    )
    assert found.groups == (((GPU,), ("a100", "v100")),)
    assert found.quotas == {
        ("a100", GPU): Quota(nominal=8, borrowing=4, lending=2),
        ("v100", GPU): Quota(nominal=16),
    }
    assert not found.preempts_equal
    alone = read_queue(cluster_queue("one", {}, preempts=False))
    assert (alone.pool, alone.preempts, alone.stopped) == ("queue:one", False, False)
    equal = read_queue(
        cluster_queue("one", {}, preemption={"withinClusterQueue": "LowerOrNewerEqualPriority"})
    )
    assert equal.preempts and equal.preempts_equal


def test_flavors_that_do_not_fit() -> None:
    taint = {"key": "spot", "value": "true", "effect": "NoSchedule"}
    spot = read_flavor(flavor("spot", nodeLabels={"kind": "a100", "zone": "b"}, nodeTaints=[taint]))
    tolerant = {"tolerations": [{"key": "spot", "operator": "Exists"}]}

    def fits(given: Any, **pod: Any) -> bool:
        return bool(read(workload("one", 1, pod=pod)).fits(given))

    assert not fits(spot) and fits(spot, **tolerant)
    assert fits(spot, **tolerant, nodeSelector={"zone": "b", "other": "x"})
    assert not fits(spot, **tolerant, nodeSelector={"zone": "c"})
    assert fits(
        read_flavor(flavor("spot", nodeTaints=[taint], tolerations=tolerant["tolerations"]))
    )
    assert fits(read_flavor(flavor("spot", nodeTaints=[{**taint, "effect": "PreferNoSchedule"}])))
    assert fits(None)
