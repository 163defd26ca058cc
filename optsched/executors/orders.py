"""What every executor asks of an order before it starts anything."""

import os
import pwd
import re
import time
from collections.abc import Mapping
from pathlib import Path

from .base import JOB_NAME, NodeStatus, Order, Record, RefusedError

PASSED = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
"""Variables of our own that commands get."""
VARIABLE = re.compile(r"[^=\0]+")


def names_folder(node: str) -> bool:
    """Return whether the files of a node can be in a folder of its name, beside those of the
    attempt."""
    return JOB_NAME.fullmatch(node) is not None and not node.endswith(".json")


def check(order: Order, images: bool = False) -> None:
    """Raise RefusedError for what no executor can start, or none without `images`."""
    names = order.nodes
    paths = (order.directory, order.checkpoint_directory or "/")
    relative = next((path for path in paths if not os.path.isabs(path)), None)
    texts = (*order.argv, order.directory, order.checkpoint_directory, *order.environment.values())
    named = all(map(VARIABLE.fullmatch, order.environment))
    faults = {
        f"it is to run in image {order.image}, and nothing here runs images": (
            order.image is not None and not images
        ),
        "its job was given to a cluster manager, whose jobs this executor does not take": (
            order.origin is not None
        ),
        "its placement names no node": not names,
        "its placement names a node twice": len(set(names)) < len(names),
        "its command is empty": not any(order.argv[:1]),
        f"its memory is given for {len(order.memory_gib)} nodes, its placement has {len(names)}": (
            len(order.memory_gib) not in (0, len(names))
        ),
        f"{relative!r} is not an absolute path": relative is not None,
        "its command, environment or directories hold what no process can be given (NUL, = in a "
        "name)": "\0" in "".join(texts) or not named,
    }
    for why, is_so in faults.items():
        if is_so:
            raise RefusedError(why)


def check_places(
    order: Order,
    known: Mapping[str, NodeStatus],
    used: Mapping[str, int],
    closed: str | None = None,
) -> None:
    """Raise RefusedError where one of the order's nodes is not `known`, or has fewer GPUs than it
    wants besides those `used`; also where it takes no jobs, if `closed` says how that is put."""
    for slot in order.placement:
        status = known.get(slot.node)
        if status is None:
            raise RefusedError(f"node {slot.node} is not one of this executor")
        if closed is not None and status.reason is not None:
            raise RefusedError(f"node {slot.node} {closed.format(status.reason)}")
        there = status.node.gpus
        left = max(0, there - used.get(slot.node, 0))
        if slot.gpus > left:
            raise RefusedError(
                f"node {slot.node} has {left} of its {there} GPUs free, not {slot.gpus}"
            )


def recorded(order: Order) -> Record:
    """Return what the record of every attempt has. Raises RefusedError."""
    return {
        "key": str(order.key),
        "made_s": time.time(),
        "argv": list(order.argv),
        "directory": order.directory,
        "checkpoint_directory": order.checkpoint_directory,
        "output_bytes": order.output_bytes,
        "user": user_record(order.user),
    }


def recorded_node(order: Order, rank: int) -> Record:
    """Return what it has of each node."""
    slot = order.placement[rank]
    return {
        "name": slot.node,
        "gpus": slot.gpus,
        "cpus": slot.cpus,
        "cores": None,
        "memory_gib": order.memory_gib[rank] if order.memory_gib else 0,
        "environment": told_on_node(order, rank),
        "cgroups": {},
    }


def everybodys_environment(order: Order, progress: Path) -> dict[str, str]:
    """Return the variables of a command on every node, as after a login of its user."""
    name, home, shell = account(os.geteuid() if order.user is None else order.user)
    known = {variable: os.environ[variable] for variable in PASSED if variable in os.environ}
    own = {"HOME": home, "USER": name, "LOGNAME": name, "SHELL": shell}
    return known | own | dict(order.environment) | told(order, progress)


def told(order: Order, progress: Path) -> dict[str, str]:
    """Return variables that tell a command on every node which attempt it is, and where it reports
    (see `Order`)."""
    variables = {
        "OPTSCHED_JOB": order.key.job,
        "OPTSCHED_ATTEMPT": str(order.key.number),
        "OPTSCHED_KEY": str(order.key),
        "OPTSCHED_PROGRESS": str(progress),
        "OPTSCHED_NODES": ",".join(order.nodes),
        "OPTSCHED_NODE_COUNT": str(max(1, len(order.placement))),
    }
    if order.checkpoint_directory:
        variables["OPTSCHED_CHECKPOINT_DIR"] = order.checkpoint_directory
    return variables


def told_on_node(order: Order, rank: int) -> dict[str, str]:
    """Return those that tell the command of one node where it is."""
    slot = order.placement[rank]
    variables = {
        "OPTSCHED_NODE": slot.node,
        "OPTSCHED_NODE_RANK": str(rank),
        "OPTSCHED_GPUS_PER_NODE": str(slot.gpus),
    }
    if slot.cpus and "OMP_NUM_THREADS" not in order.environment:
        variables["OMP_NUM_THREADS"] = str(slot.cpus)
    return variables


def user_record(uid: int | None) -> Record | None:
    """Return ids of another user than our own, None for our own. Raises RefusedError."""
    if uid is None or uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise RefusedError(
            f"it is to run as user {uid}, which only a controller that runs as root can do"
        )
    try:
        account = pwd.getpwuid(uid)
    except KeyError:
        raise RefusedError(f"user {uid} does not exist on this host") from None
    return {
        "uid": uid,
        "gid": account.pw_gid,
        "groups": os.getgrouplist(account.pw_name, account.pw_gid),
    }


def account(uid: int) -> tuple[str, str, str]:
    """Return name, home and shell."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:  # as in containers
        return str(uid), "/", "/bin/sh"
    return entry.pw_name, entry.pw_dir, entry.pw_shell or "/bin/sh"
