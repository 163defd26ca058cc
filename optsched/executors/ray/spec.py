"""From an order to what is written down before anything is submitted, and to the job that Ray is
given."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..attempts.folder import AttemptFolder
from ..base import AttemptKey, Order, Record
from ..orders import check, check_places, recorded, recorded_node, told
from .nodes import RayNode

STOP_WAIT_S = 100_000_000
"""Ray kills a job so long after it was asked to stop (its own default: 3 s). Graces are kept by the
supervisor."""
NODE_ID = "ray.io/node-id"
"""The label that Ray gives to each node by itself."""


def submission_id(key: AttemptKey, rank: int, tag: str) -> str:
    """Return under which Ray knows one node's part of an attempt; `tag` tells one controller's from
    another's."""
    return f"{key}:{rank}:{tag}"


def attempt_of(text: str, tag: str) -> AttemptKey | None:
    """Return the attempt to which a submission id belongs, None if it is not one of this tag."""
    head, _, last = text.rpartition(":")
    return AttemptKey.parse(head.rpartition(":")[0]) if last == tag else None


def specification(
    order: Order,
    nodes: Mapping[str, RayNode],
    used: Mapping[str, int],
    folder: AttemptFolder,
    grace_s: float,
    start_timeout_s: float,
) -> Record:
    """Return the record of an attempt to be started; `used` are the GPUs that others hold, by node.
    Raises RefusedError."""
    check(order)
    known = {name: node.status for name, node in nodes.items()}
    check_places(order, known, used, closed="cannot be used: {}")
    names = order.nodes
    environment = {**order.environment, **told(order, folder.progress_path)}
    if len(names) > 1:
        environment["MASTER_ADDR"] = str(nodes[names[0]].address)
    return {
        **recorded(order),
        "job": order.key.job,
        "environment": environment,
        "grace_s": grace_s,
        "start_timeout_s": start_timeout_s,
        "nodes": [
            {**recorded_node(order, rank), "ray_id": nodes[name].ray_id}
            for rank, name in enumerate(names)
        ],
    }


def ray_job(
    spec: Mapping[str, Any], rank: int, python: str, entry: Path, folder: Path, tag: str
) -> Record:
    """Return the body with which one node's part is submitted."""
    node, key = spec["nodes"][rank], AttemptKey.parse(spec["key"])
    assert key is not None
    command = [python, "-S", "-E", str(entry), str(folder / node["name"])]
    return {
        "submission_id": submission_id(key, rank, tag),
        "entrypoint": f"exec {shlex.join(command)}",
        "entrypoint_num_gpus": node["gpus"],
        "entrypoint_num_cpus": node["cpus"],
        "entrypoint_label_selector": {NODE_ID: node["ray_id"]},
        "runtime_env": {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_S)}},
        "metadata": {"optsched": spec["key"], "node": node["name"]},
    }
