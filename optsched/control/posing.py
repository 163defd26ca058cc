"""The present as an instance that can be decided: what is at fault in it is left out, with the
reason, and the rest goes on."""

import re
from collections.abc import Callable, Mapping, Sequence

from ..executors.base import NodeStatus
from ..files import check_instance
from ..files.faults import Fault, Sound
from ..files.shape_faults import FaultyFileError
from ..frozen import record
from ..hostlist import expand_hostlist
from ..model import Cluster, Instance, Mode, Node, Placement, Slot
from ..physics import may_preempt, memory_gib
from .present import Present

NAMED = re.compile(r"(jobs|running|suspended)\[(\d+)\]")
"""How the path of a fault begins that is about one job."""
Pose = Callable[[Mapping[str, str]], Present]
"""The present without the jobs that are named, each with the reason."""


@record
class Posed:
    """A checked instance, what is blocked in it, and why some jobs were left out."""

    instance: Instance
    blocked: tuple[Placement, ...]
    left_out: dict[str, str]


def pose(present: Pose, left_out: Mapping[str, str], sound: Sound | None = None) -> Posed:
    """Return the present without those jobs whose values, or whose places, are faulty. What is
    known to be sound is not checked again.

    Raises InputError where it is faulty without any job.
    """
    out = dict(left_out)
    while True:
        view = present(out)
        try:
            check_instance(view.instance, now_only=True, sound=sound)
            return Posed(view.instance, view.blocked, out)
        except FaultyFileError as error:
            named = (
                _named(view.instance, error.faults)
                or _overfull(view.instance)
                or _alone(view.instance)
            )
            if not named:
                named = {
                    entry.job: f"what runs does not go together: {error.faults[0].problem}"
                    for entry in view.instance.running
                }
            if not named:
                raise
            out |= named


def stubborn(instance: Instance, why: str) -> dict[str, str]:
    """Return the running jobs that no round may preempt, or all that run where there are none, each
    with `why`."""
    kept = [entry.job for entry in instance.running if not may_preempt(instance, entry)]
    return dict.fromkeys(kept or [entry.job for entry in instance.running], why)


def at_fault(instance: Instance, fails: Callable[[Instance], bool]) -> list[str]:
    """Return the jobs with which alone something `fails` that does so with all: one where one is to
    blame, and some that do not go together where none is."""
    names = [job.id for job in instance.jobs]
    while len(names) > 1:
        half = len(names) // 2
        wrong = [part for part in (names[:half], names[half:]) if fails(instance.only(set(part)))]
        if not wrong:
            break
        names = wrong[0]
    return names


def _named(instance: Instance, faults: list[Fault]) -> dict[str, str]:
    sentences: dict[str, str] = {}
    for fault in faults:
        at = NAMED.match(fault.path)
        if at is None:
            continue
        field, i = at[1], int(at[2])
        if field == "jobs":
            name = instance.jobs[i].id
        else:
            name = instance.running[i].job if field == "running" else instance.suspended[i].job
        said = fault.problem.removeprefix(f"job {name}: ").removeprefix(f"job {name} ")
        rest = fault.path[at.end() :].lstrip(".")
        sentences.setdefault(
            name, said if said != fault.problem or not rest else f"its {rest} {said}"
        )
    return sentences


def _overfull(instance: Instance) -> dict[str, str]:
    """Return what runs on nodes that have, or say that they have, less than is held of them."""
    held: dict[str, list[float]] = {}
    for entry in instance.running:
        for slot in entry.placement:
            there = held.setdefault(slot.node, [0, 0, 0.0])
            for i, amount in enumerate(_amounts(instance, entry.job, entry.mode, slot)):
                there[i] += amount
    why: dict[str, str] = {}
    for name, amounts in held.items():
        node = instance.cluster.node[name]
        for unit, used, there_is in zip(
            ("GPUs", "cores", "GiB of memory"),
            amounts,
            (node.gpus, node.cpus, node.memory_gib),
            strict=True,
        ):
            if there_is is not None and used > there_is:
                why[name] = f"{used:.12g} {unit} of {name} are held, which has {there_is:.12g}"
    return {
        entry.job: why[slot.node]
        for entry in instance.running
        for slot in entry.placement
        if slot.node in why
    }


def _amounts(instance: Instance, name: str, mode: Mode, slot: Slot) -> tuple[float, float, float]:
    return slot.gpus, slot.cpus, memory_gib(instance.job[name], mode, slot.gpus)


def _alone(instance: Instance) -> dict[str, str]:
    """Return the jobs that are faulty by themselves, for faults that do not say whose they are."""
    if _fault(instance.only(set())) is not None:
        return {}  # it is not a job's
    reasons: dict[str, str] = {}
    for job in instance.jobs:
        why = _fault(instance.only({job.id}))
        if why is not None:
            reasons[job.id] = why
    return reasons


def _fault(instance: Instance) -> str | None:
    try:
        check_instance(instance, now_only=True)
    except FaultyFileError as error:
        fault = error.faults[0]
        return f"{fault.path.rpartition('.')[2]} {fault.problem}"
    return None


def sound(statuses: Sequence[NodeStatus], known: dict[Node, str | None]) -> tuple[NodeStatus, ...]:
    """Return the nodes that executors tell of, in the same order: one whose numbers cannot be takes
    no jobs and has nothing, and of several of one name the first is it. `known` has what was found
    of them before, and is brought up to date."""
    faults = {
        status.node: known[status.node] if status.node in known else _node_fault(status.node)
        for status in statuses
    }
    known.clear()
    known.update(faults)
    nodes: dict[str, NodeStatus] = {}
    for status in statuses:
        name, fault = status.node.name, faults[status.node]
        if fault is not None:
            status = NodeStatus(
                node=Node(name=name), usable=False, reason=f"what is said of it cannot be: {fault}"
            )
        if fault != UNNAMED:
            nodes.setdefault(name, status)
    return tuple(nodes.values())


def _is_one(name: str) -> bool:
    """Return whether a name can be that of a node, and is none of several (`gpu-[0-3]`)."""
    try:
        return bool(name) and list(expand_hostlist(name)) == [name]
    except ValueError:
        return False


UNNAMED = "it has no name of its own"


def _node_fault(node: Node) -> str | None:
    if not _is_one(node.name):
        return UNNAMED
    return _fault(Instance(cluster=Cluster(nodes=(node,))))
