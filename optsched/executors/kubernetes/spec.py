"""From an order to what is written down before any pod is made."""

import os
from collections.abc import Mapping
from typing import Any

from ..attempts.folder import AttemptFolder
from ..base import Order, RefusedError
from ..orders import account, check, recorded, recorded_node, told
from .nodes import KubernetesNode
from .site import Site


def specification(
    order: Order,
    nodes: Mapping[str, KubernetesNode],
    used: Mapping[str, int],
    folder: AttemptFolder,
    site: Site,
    grace_s: float,
) -> dict[str, Any]:
    """The record of an attempt to be started; `used` are the GPUs of our own attempts, by node.
    Raises RefusedError."""
    image = order.image or site.image
    _check(order, nodes, used, image)
    common = recorded(order)
    user = common["user"]
    uid = os.geteuid() if user is None else int(user["uid"])
    name, home, _ = account(uid)
    names = [slot.node for slot in order.placement]
    environment = {"USER": name, "LOGNAME": name}
    if site.mounted(home) is not None:  # else it is the image's
        environment["HOME"] = home
    environment |= {**order.environment, **told(order, folder.progress_path)}
    return {
        **common,
        "image": image,
        "ids": user or {"uid": uid, "gid": os.getegid(), "groups": []},
        "environment": environment,
        "grace_s": grace_s,
        "start_timeout_s": site.start_timeout_s,
        "nodes": [recorded_node(order, rank) for rank in range(len(names))],
    }


def _check(
    order: Order, nodes: Mapping[str, KubernetesNode], used: Mapping[str, int], image: str | None
) -> None:
    check(order, images=True)
    if order.beside is not None:
        raise RefusedError(
            "Kubernetes gives a GPU to one pod at a time, so that it cannot run beside another"
        )
    if image is None:
        raise RefusedError(
            "it names no image, and kubernetes.image in cluster.toml names none for all"
        )
    for slot in order.placement:
        node = nodes.get(slot.node)
        if node is None:
            raise RefusedError(f"node {slot.node} is not one of this executor")
        if node.status.reason is not None:
            raise RefusedError(f"node {slot.node} {node.status.reason}")
        there = node.status.node.gpus
        left = there - used.get(slot.node, 0)
        if slot.gpus > left:
            raise RefusedError(
                f"node {slot.node} has {max(0, left)} of its {there} GPUs free, not {slot.gpus}"
            )
