"""Kueue's objects as the API server has them, and what Kueue does with them: small, but by its
rules."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from optsched.kueue.objects import BOOST

VERSION = "kueue.x-k8s.io/v1beta2"
GPU = "nvidia.com/gpu"
NAMESPACE = "team"
NOW_S = 1_700_000_000.0
Object = dict[str, Any]


def stamp(at_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))


def flavor(name: str, **spec: Any) -> Object:
    return {
        "apiVersion": VERSION,
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": spec,
    }


def cluster_queue(
    name: str, quotas: Mapping[str, float | Mapping[str, Any]], preempts: bool = True, **spec: Any
) -> Object:
    """`quotas`: GPUs of each flavor, or the fields of its quota."""
    flavors = [
        {
            "name": one,
            "resources": [
                {
                    "name": GPU,
                    **(dict(quota) if isinstance(quota, Mapping) else {"nominalQuota": str(quota)}),
                }
            ],
        }
        for one, quota in quotas.items()
    ]
    return {
        "apiVersion": VERSION,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            "resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}],
            "preemption": {"withinClusterQueue": "LowerPriority" if preempts else "Never"},
            **spec,
        },
    }


def local_queue(name: str, queue: str) -> Object:
    return {
        "apiVersion": VERSION,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"clusterQueue": queue},
    }


def workload(
    name: str,
    gpus: int,
    *,
    created_s: float = NOW_S,
    queue: str = "main",
    priority: int = 0,
    count: int = 1,
    duration: str | None = None,
    checkpoint_every: str | None = None,
    pod: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> Object:
    said = {"optsched.io/duration": duration, "optsched.io/checkpoint-every": checkpoint_every}
    template = {
        "metadata": {
            "annotations": {what: text for what, text in said.items() if text is not None}
        },
        "spec": {
            "containers": [
                {"name": "main", "image": "x", "resources": {"requests": {GPU: str(gpus)}}}
            ],
            **(pod or {}),
        },
    }
    return {
        "apiVersion": VERSION,
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "creationTimestamp": stamp(created_s),
            **metadata,
        },
        "spec": {
            "queueName": queue,
            "priority": priority,
            "active": True,
            "podSets": [{"name": "main", "count": count, "template": template}],
        },
        "status": {},
    }


def admitted(given: Object, at_s: float, flavor: str = "a100", queue: str = "main") -> Object:
    """Having been admitted to `flavor`."""
    gpus = gpus_of(given)
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": kind,
            "message": kind,
            "lastTransitionTime": stamp(at_s),
        }
        for kind in ("QuotaReserved", "Admitted")
    ]
    return {
        **given,
        "status": {
            "conditions": conditions,
            "admission": {
                "clusterQueue": queue,
                "podSetAssignments": [
                    {
                        "name": "main",
                        "flavors": {GPU: flavor},
                        "resourceUsage": {GPU: str(gpus)},
                        "count": given["spec"]["podSets"][0]["count"],
                    }
                ],
            },
        },
    }


def gpus_of(given: Object) -> int:
    [one] = given["spec"]["podSets"]
    return int(one["count"]) * int(
        one["template"]["spec"]["containers"][0]["resources"]["requests"][GPU]
    )


def effective(given: Object) -> int:
    return int(given["spec"].get("priority") or 0) + int(
        (given["metadata"].get("annotations") or {}).get(BOOST, 0)
    )


def is_true(given: Object, condition: str) -> bool:
    return any(
        one["type"] == condition and one["status"] == "True"
        for one in given["status"].get("conditions") or ()
    )


def admission_cycle(
    queue: Object, workloads: Iterable[Object], now_s: float
) -> dict[str, Object | None]:
    """What one cycle of Kueue's scheduler does in a queue without a cohort: new statuses by name,
    None for evicted.

    The pending Workload of the highest priority with boost is admitted to the first flavor with
    quota left; if there is none, running ones of strictly lower priority are preempted, the lowest
    and the newest first; if that is not enough, the next pending one is looked at (BestEffortFIFO).
    """
    found: dict[str, Object | None] = {}
    mine = [one for one in workloads if not is_true(one, "Finished")]
    quota = {
        one["name"]: int(one["resources"][0]["nominalQuota"])
        for one in queue["spec"]["resourceGroups"][0]["flavors"]
    }
    held = {one["metadata"]["name"]: one for one in mine if one["status"].get("admission")}
    pending = sorted(
        (one for one in mine if not one["status"].get("admission")),
        key=lambda one: (-effective(one), one["metadata"]["creationTimestamp"]),
    )

    def flavor_of(one: Object) -> str:
        return str(one["status"]["admission"]["podSetAssignments"][0]["flavors"][GPU])

    def free(name: str) -> int:
        return quota[name] - sum(gpus_of(one) for one in held.values() if flavor_of(one) == name)

    for one in pending:
        place = next((name for name in quota if free(name) >= gpus_of(one)), None)
        if place is None and queue["spec"]["preemption"]["withinClusterQueue"] == "LowerPriority":
            place, victims = _preempt(one, quota, held, flavor_of, free)
            for name in victims:
                found[name] = None
                del held[name]
        if place is not None:
            name = one["metadata"]["name"]
            held[name] = admitted(one, now_s, place, queue["metadata"]["name"])
            found[name] = held[name]["status"]
    return found


def _preempt(
    one: Object, quota: Mapping[str, int], held: Mapping[str, Object], flavor_of: Any, free: Any
) -> tuple[str | None, list[str]]:
    for name in quota:
        lower = sorted(
            (
                other
                for other in held.values()
                if flavor_of(other) == name and effective(other) < effective(one)
            ),
            key=lambda other: (effective(other), -float(other["metadata"].get("at", 0))),
        )
        room, victims = free(name), []
        for other in lower:
            if room >= gpus_of(one):
                break
            victims.append(other["metadata"]["name"])
            room += gpus_of(other)
        if room >= gpus_of(one):
            return name, victims
    return None, []
