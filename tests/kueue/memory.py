"""Kueue in memory: its objects, and its scheduler where a test calls for it."""

from collections.abc import Iterable
from typing import Any

from optsched.control.settings import Settings
from optsched.kueue.handover import Handover, Pass
from optsched.kueue.objects import (
    BOOST,
    Flavor,
    Queue,
    Workload,
    read_flavor,
    read_queue,
    read_workload,
)

from .objects import NAMESPACE, NOW_S, Object, admission_cycle, cluster_queue, flavor, local_queue


def settings(**more: Any) -> Settings:
    return Settings.model_validate({"format": "optsched-cluster/1", "runs": 3600, **more})


class Memory:
    """A queue of 8 GPUs unless told otherwise; `written` are the boosts that were written."""

    def __init__(
        self,
        *workloads: Object,
        queues: Iterable[Object] | None = None,
        flavors: Iterable[Object] = (),
        **more: Any,
    ) -> None:
        self.queues = [*queues] if queues is not None else [cluster_queue("main", {"a100": 8})]
        self.flavors = [*flavors] or [flavor("a100"), flavor("v100")]
        self.local = [
            local_queue(one["metadata"]["name"], one["metadata"]["name"]) for one in self.queues
        ]
        self.workloads = {one["metadata"]["name"]: one for one in workloads}
        self.written: list[tuple[str, int]] = []
        self.now_s = NOW_S
        self.handover = Handover(settings(**more), self)

    def read(self) -> tuple[list[Queue], list[Flavor], list[Workload]]:
        local = {
            (NAMESPACE, one["metadata"]["name"]): one["spec"]["clusterQueue"] for one in self.local
        }
        found = [read_workload(one, local) for one in self.workloads.values()]
        return (
            [read_queue(one) for one in self.queues],
            [read_flavor(one) for one in self.flavors],
            [one for one in found if one is not None],
        )

    def boost(self, workload: Workload, boost: int) -> None:
        self.written.append((workload.name, boost))
        annotations = self.workloads[workload.name]["metadata"].setdefault("annotations", {})
        annotations.pop(BOOST, None)
        if boost:
            annotations[BOOST] = str(boost)

    # ------------------------------------------------------------------------------------------
    # what tests do

    def decide(self) -> Pass:
        return self.handover.decide(self.now_s)

    def hand_over(self) -> Pass:
        found = self.decide()
        self.handover.write(found)
        return found

    def kueue_schedules(self) -> list[str]:
        """One cycle of its scheduler; who holds quota then."""
        for queue in self.queues:
            mine = [
                one
                for one in self.workloads.values()
                if one["spec"]["queueName"] == queue["metadata"]["name"]
            ]
            for name, status in admission_cycle(queue, mine, self.now_s).items():
                preempted = {"reason": "Preempted", "underlyingCause": "InClusterQueue", "count": 1}
                self.workloads[name]["status"] = (
                    {"schedulingStats": {"evictions": [preempted]}} if status is None else status
                )
        return self.holders()

    def holders(self) -> list[str]:
        return sorted(
            name for name, one in self.workloads.items() if one["status"].get("admission")
        )

    def why(self, found: Pass) -> dict[str, str]:
        return {one.workload.name: one.why.partition(":")[0] for one in found.order}
