"""Kueue's objects as far as a round needs them: ClusterQueues, flavors and Workloads.

Fields are those of kueue.x-k8s.io/v1beta2 (Kueue, apis/kueue/v1beta2), and of v1beta1 where they
were named otherwise. Resources are in units, memory and storage in GiB.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime

from ..duration import parse_duration
from ..executors.base import Entry, inner
from ..executors.kubernetes.nodes import quantity, requests, tolerated
from ..frozen import frozen

BOOST = "kueue.x-k8s.io/priority-boost"
"""What is added to a Workload's priority (KEP-7990; Kueue 0.17, feature gate PriorityBoost)."""
STARTS = "optsched.io/starts"
"""When a Workload that waits is expected to start: the median and, after a slash, a time by which
it does in nine of ten cases."""
DURATION, CHECKPOINT_EVERY = "optsched.io/duration", "optsched.io/checkpoint-every"
"""Annotations of a Workload or of its pods' template: how long it runs, and how often it saves by
itself."""
GIB = float(1 << 30)
BYTES = ("memory", "storage", "ephemeral-storage")
PODS = "pods"
Share = tuple[str, str]
"""A flavor, and a resource of it."""


@frozen
class Quota:
    """What a ClusterQueue has of a resource of a flavor, may borrow of others in its cohort, and
    lends to them; None is no limit."""

    nominal: float
    borrowing: float | None = None
    lending: float | None = None


@frozen
class Queue:
    """A ClusterQueue. `groups` are its resource groups: resources, and the flavors each of which
    has them all. `preempts`: it makes room for a Workload by evicting others of its own of lower
    priority, with `preempts_equal` also newer ones of the same."""

    name: str
    cohort: str | None = None
    preempts: bool = False
    preempts_equal: bool = False
    stopped: bool = False
    groups: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    quotas: Mapping[Share, Quota] = field(default_factory=dict)

    @property
    def pool(self) -> str:
        """Return the pool: those with which it shares quota."""
        return f"queue:{self.name}" if self.cohort is None else f"cohort:{self.cohort}"


@frozen
class Flavor:
    """A ResourceFlavor: labels and taints of its nodes, and what it adds to pods that are put
    there."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Entry] = ()
    tolerations: Sequence[Entry] = ()


@frozen
class Workload:
    """A Workload that has not finished.

    `asks` is what all its pods take together. `held` is what quota it holds, None where it holds
    none, `admitted_s` since when it runs (Unix time). `evicted` while it still holds quota although
    it is being stopped. `past_s` is how long it ran before, `evictions` how often it was preempted.
    `pods` are the specifications of its pods.
    """

    namespace: str
    name: str
    queue: str
    priority: int = 0
    boost: int = 0
    boosted: bool = False
    starts: str | None = None
    created_s: float = 0.0
    asks: Mapping[str, float] = field(default_factory=dict)
    held: Mapping[Share, float] | None = None
    admitted_s: float | None = None
    evicted: bool = False
    past_s: float = 0.0
    evictions: int = 0
    again_s: float | None = None
    duration_s: float | None = None
    checkpoint_every_s: float | None = None
    pods: Sequence[Entry] = ()
    faults: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"

    def fits(self, flavor: Flavor | None) -> bool:
        """Return whether all its pods may be put on nodes of a flavor; None is one that nothing
        is known of."""
        if flavor is None:
            return True
        for pod in self.pods:
            selector = inner(pod, "nodeSelector")
            if any(selector.get(label, value) != value for label, value in flavor.labels.items()):
                return False
            tolerations = [*inner(pod, "tolerations"), *flavor.tolerations]
            hard = (taint for taint in flavor.taints if taint.get("effect") != "PreferNoSchedule")
            if not all(tolerated(taint, tolerations) for taint in hard):
                return False
        return True


def amount(resource: str, text: str | float) -> float:
    """Return a quantity in the units used here. Raises ValueError."""
    number = quantity(str(text))
    return number / GIB if resource in BYTES or resource.startswith("hugepages-") else number


def read_queue(given: Entry) -> Queue:
    """Read a ClusterQueue."""
    spec = given["spec"]
    preemption = inner(spec, "preemption").get("withinClusterQueue", "Never")
    quotas: dict[Share, Quota] = {}
    groups = []
    for group in inner(spec, "resourceGroups"):
        groups.append(
            (tuple(group["coveredResources"]), tuple(flavor["name"] for flavor in group["flavors"]))
        )
        for flavor in group["flavors"]:
            for resource in flavor["resources"]:
                name = resource["name"]
                limits = {
                    "borrowing": resource.get("borrowingLimit"),
                    "lending": resource.get("lendingLimit"),
                }
                quotas[flavor["name"], name] = Quota(
                    nominal=amount(name, resource["nominalQuota"]),
                    **{
                        what: None if text is None else amount(name, text)
                        for what, text in limits.items()
                    },
                )
    return Queue(
        name=given["metadata"]["name"],
        cohort=spec.get("cohortName") or spec.get("cohort") or None,
        preempts=preemption != "Never",
        preempts_equal=preemption == "LowerOrNewerEqualPriority",
        stopped=(spec.get("stopPolicy") or "None") != "None",
        groups=tuple(groups),
        quotas=quotas,
    )


def read_flavor(given: Entry) -> Flavor:
    """Read a ResourceFlavor."""
    spec = inner(given, "spec")
    return Flavor(
        name=given["metadata"]["name"],
        labels=inner(spec, "nodeLabels"),
        taints=spec.get("nodeTaints") or (),
        tolerations=spec.get("tolerations") or (),
    )


def read_workload(given: Entry, local_queues: Mapping[tuple[str, str], str]) -> Workload | None:
    """Read a Workload; return None where it has finished, is not active, or is in no queue.
    `local_queues` tells the ClusterQueue of each LocalQueue (namespace, name)."""
    metadata, spec, status = given["metadata"], given["spec"], inner(given, "status")
    conditions = {
        entry["type"]: entry for entry in inner(status, "conditions") if entry["status"] == "True"
    }
    admission = status.get("admission")
    if "Finished" in conditions or (admission is None and _never(spec, metadata)):
        return None
    local = metadata["namespace"], str(spec.get("queueName") or "")
    queue = local_queues.get(local) if admission is None else str(admission["clusterQueue"])
    if queue is None:
        return None
    faults: list[str] = []
    annotations = inner(metadata, "annotations")
    sets = inner(spec, "podSets")
    pods = [inner(entry, "template", "spec") for entry in sets]
    said = [inner(entry, "template", "metadata", "annotations") for entry in sets]
    evictions = inner(status, "schedulingStats", "evictions")
    again = inner(status, "requeueState").get("requeueAt")
    limit = spec.get("maximumExecutionTimeSeconds")
    duration_s = _time(DURATION, (annotations, *said), faults)
    return Workload(
        namespace=metadata["namespace"],
        name=metadata["name"],
        queue=queue,
        priority=int(spec.get("priority") or 0),
        boost=_boost(annotations.get(BOOST), faults),
        boosted=BOOST in annotations,
        starts=annotations.get(STARTS),
        created_s=_instant(metadata["creationTimestamp"]),
        asks=_asks(sets, status),
        held=_held(admission),
        admitted_s=_instant(conditions["Admitted"]["lastTransitionTime"])
        if "Admitted" in conditions
        else None,
        evicted="Evicted" in conditions or _never(spec, metadata),
        past_s=float(
            status.get("accumulatedPastExecutionTimeSeconds")
            or status.get("accumulatedPastExexcutionTimeSeconds")
            or 0
        ),  # as v1beta1 spells it
        evictions=sum(int(entry["count"]) for entry in evictions if entry["reason"] == "Preempted"),
        again_s=None if again is None else _instant(again),
        duration_s=float(limit) if duration_s is None and limit is not None else duration_s,
        checkpoint_every_s=_time(CHECKPOINT_EVERY, (annotations, *said), faults),
        pods=pods,
        faults=tuple(faults),
    )


def _never(spec: Entry, metadata: Entry) -> bool:
    return spec.get("active") is False or metadata.get("deletionTimestamp") is not None


def _asks(sets: Sequence[Entry], status: Entry) -> dict[str, float]:
    """Return what it asks for as Kueue worked it out, where it has looked at the Workload
    already."""
    considered = {
        entry["name"]: inner(entry, "resources") for entry in inner(status, "resourceRequests")
    }
    total: dict[str, float] = defaultdict(float)
    for entry in sets:
        count = int(entry.get("count", 1))
        name = entry.get("name", "main")
        if name in considered:
            each = {what: amount(what, text) for what, text in considered[name].items()}
        else:
            asked = requests(inner(entry, "template", "spec"))
            each = {what: amount(what, number) * count for what, number in asked.items()}
        for what, number in {PODS: float(count), **each}.items():
            total[what] += number
    return total


def _held(admission: Entry | None) -> dict[Share, float] | None:
    if admission is None:
        return None
    total: dict[Share, float] = defaultdict(float)
    for assignment in inner(admission, "podSetAssignments"):
        flavors = inner(assignment, "flavors")
        for what, text in inner(assignment, "resourceUsage").items():
            if what in flavors:
                total[flavors[what], what] += amount(what, text)
    return total


def _boost(text: str | None, faults: list[str]) -> int:
    try:
        return 0 if not text else int(text)
    except ValueError:  # Kueue takes it for 0, too
        faults.append(f"its {BOOST} {text!r} is not a whole number")
        return 0


def _time(name: str, places: Sequence[Mapping[str, str]], faults: list[str]) -> float | None:
    for place in places:
        if name in place:
            try:
                seconds = parse_duration(str(place[name]))
            except ValueError as error:
                faults.append(f"its {name}: {error}")
                return None
            if seconds > 0:
                return seconds
            faults.append(f"its {name} is {place[name]!r}; it must be longer than 0 s")
    return None


def _instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
