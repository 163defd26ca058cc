"""From an order to what is written down before any pod is made."""

import os
from collections.abc import Mapping
from typing import Any

from ..attempts.folder import AttemptFolder
from ..base import Order, RefusedError
from ..orders import account, check, check_places, recorded, recorded_node, told
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
    """Return the record of an attempt to be started; `used` are the GPUs of our own attempts, by
    node. Raises RefusedError."""
    check(order, images=True)
    image = order.image or site.image
    if image is None:
        raise RefusedError(
            "it names no image, and kubernetes.image in cluster.toml names none for all"
        )
    check_places(order, {name: node.status for name, node in nodes.items()}, used, closed="{}")
    common = recorded(order)
    user = common["user"]
    uid = os.geteuid() if user is None else int(user["uid"])
    name, home, _ = account(uid)
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
        "nodes": [recorded_node(order, rank) for rank in range(len(order.placement))],
    }
