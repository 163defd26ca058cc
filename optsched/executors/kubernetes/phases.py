"""What a pod says of itself, in plain words (Kubernetes documentation, "Pod Lifecycle")."""

import time
from datetime import datetime

from ..base import Entry, because, inner
from .nodes import FINAL
from .pods import CONTAINER

AT_ONCE = ("InvalidImageName", "ErrImageNeverPull")
"""Why a container waits that it always will."""
HOPELESS = (
    *AT_ONCE,
    "ErrImagePull",
    "ImagePullBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ImageInspectError",
    "RegistryUnavailable",
)
"""Why a container waits that nobody need wait for if it stays so."""
RAN_OUT = "OutOf"
"""So begin the words of a kubelet that has not what a pod asks for."""
OOM_KILLED = "OOMKilled"


def final(pod: Entry | None) -> bool:
    """Return whether nothing of it runs any more, and its node has its GPUs back."""
    return pod is None or inner(pod, "status").get("phase") in FINAL


def stopped(pod: Entry) -> bool:
    """Return whether its container has ended, though others that a site adds to each pod may run
    on."""
    return final(pod) or "terminated" in _state(pod)


def node_of(pod: Entry) -> str | None:
    """Return to which node it is bound."""
    return pod["spec"].get("nodeName") or None


def leaving(pod: Entry) -> bool:
    """Return whether it has been deleted, and is given time to end."""
    return pod["metadata"].get("deletionTimestamp") is not None


def overdue_s(pod: Entry) -> float:
    """Return for how long it should have ended; negative before, by the clock of this host."""
    until = pod["metadata"].get("deletionTimestamp")
    return (
        -float("inf") if until is None else time.time() - datetime.fromisoformat(until).timestamp()
    )


def hopeless(pod: Entry, for_good: bool = False) -> str | None:
    """Return why its container will hardly begin, or, with `for_good`, never will; None where it
    may."""
    waits = inner(_state(pod), "waiting")
    if waits.get("reason") not in (AT_ONCE if for_good else HOPELESS):
        return None
    return f"its container cannot begin: {waits['reason']}{because(waits.get('message'))}"


def waits_for(pod: Entry | None) -> str:
    """Return what is known of why it has not begun."""
    if pod is None:
        return "Kubernetes does not have its pod"
    if node_of(pod) is None:
        return "its pod is not bound to its node"
    waits = inner(_state(pod), "waiting")
    if waits.get("reason"):
        return f"its container waits: {waits['reason']}{because(waits.get('message'))}"
    return "its node has not begun with its pod"


def ran(pod: Entry) -> bool:
    """Return whether its container ever ran."""
    return any(name in _state(pod) for name in ("running", "terminated"))


def out_of_memory(pod: Entry | None) -> bool:
    """Return whether the kernel ended its container for want of memory."""
    return pod is not None and inner(_state(pod), "terminated").get("reason") == OOM_KILLED


def removed_by(pod: Entry) -> str | None:
    """Return who has it end although it was not asked to from here; None if nobody says."""
    status = inner(pod, "status")
    if status.get("reason") == "Evicted":
        return f"its node evicted it{because(status.get('message'))}"
    for condition in inner(status, "conditions"):
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return f"Kubernetes removed its pod: {condition.get('reason') or 'without a word'}{because(condition.get('message'))}"  # noqa: E501
    return None


def how_it_ended(pod: Entry) -> str:
    """Return how one in a final phase ended whose supervisor has not said anything."""
    status, ended = inner(pod, "status"), inner(_state(pod), "terminated")
    by = removed_by(pod)
    if by is not None:
        return by
    reason = str(status.get("reason") or "")
    if reason.startswith(RAN_OUT):
        return f"its node has too little left ({reason}){because(status.get('message'))}"
    if reason:
        return f"its node would not have it: {reason}{because(status.get('message'))}"
    if leaving(pod):
        return "its pod was deleted by somebody else"
    if ended:
        return (
            f"its container ended with status {ended.get('exitCode')} "
            f"({ended.get('reason') or 'no reason'}), and "
            f"its supervisor said nothing{because(ended.get('message'))}"
        )
    return "its pod failed without a word"


def _state(pod: Entry) -> Entry:
    listed = inner(pod, "status", "containerStatuses")
    states = (inner(each, "state") for each in listed if each.get("name") == CONTAINER)
    return next(states, {})
