"""The independent checker of plans: plain loops over the nouns and the physics, nothing shared with any solver."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from .instance import Instance, Running
from .job import Elastic, Job, Mode
from .objectives import Objective, values
from .physics import (
    TIME_TOLERANCE_S,
    fits_type,
    hold_to_save_s,
    lost_s,
    may_preempt,
    memory_gib,
    placed_rate,
    remaining_after_preemption_s,
    setup_s,
    unsaved_s,
)
from .plan import Decision, JobPlan, Plan, Segment

AMOUNT_TOLERANCE = 1e-6
"""Relative excess of a fractional amount (GiB, budgets) that counts as rounding."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: `rule` names it; job, node and time say where; `message` is the whole sentence."""

    rule: str
    message: str
    job: str | None = None
    node: str | None = None
    time_s: float | None = None

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class Report:
    """What the verifier found. `values` (one for each level of the objective) is None for a rejected plan."""

    violations: tuple[Violation, ...]
    values: tuple[float, ...] | None

    @property
    def ok(self) -> bool:
        return not self.violations


def verify(instance: Instance, plan: Plan, objective: Objective) -> Report:
    """Check every rule of DESIGN 4 and 5 and recompute the objective from the plan alone.

    O(S log S) for S segment pieces. Rules: see `docs/concepts.md`; each violation names job, node and time.
    """
    found = list(_structure(instance, plan))
    if not found:
        for entry in plan.jobs:
            found.extend(_job(instance, entry))
        found.extend(_precedence(instance, plan))
        found.extend(_capacity(instance, plan))
        found.extend(_shared(instance, plan))
        found.extend(_sharing(instance, plan))
    if found:
        return Report(tuple(found), None)
    computed = values(objective, instance, plan)
    if not all(math.isfinite(value) for value in computed):
        return Report((Violation("objective", f"the objective {objective.name} is not finite in this plan"),), None)
    return Report((), computed)


def decision_now(instance: Instance, job: Job, segments: tuple[Segment, ...]) -> Decision:
    """What a plan's segments mean for `job` at `now_s`."""
    entry = instance.running_job.get(job.id)
    first = segments[0]
    starts_now = first.start_s <= instance.now_s + TIME_TOLERANCE_S
    if entry is None:
        if not starts_now:
            return "wait"
        return "resume" if job.id in instance.suspended_job else "start"
    if _keeps(entry, first) and starts_now:
        if not _is_save_only(instance, job, segments):
            return "continue"
        following = segments[1]
        at_once = following.start_s <= first.end_s + TIME_TOLERANCE_S
    else:
        following, at_once = first, starts_now
    if not at_once:
        return "preempt"
    return "migrate" if _same_size(entry.mode, following.mode) else "resize"


def _same_size(a: Mode, b: Mode) -> bool:
    return (a.gpus, a.cpus_per_gpu, a.cpus) == (b.gpus, b.cpus_per_gpu, b.cpus)


def _same_hold(a: Mode, b: Mode) -> bool:
    return _same_size(a, b) and (a.resources, a.budgets, a.duration_s) == (b.resources, b.budgets, b.duration_s)


def _keeps(entry: Running, segment: Segment) -> bool:
    return segment.placement == entry.placement and _same_size(entry.mode, segment.mode)


def _is_save_only(instance: Instance, job: Job, segments: tuple[Segment, ...]) -> bool:
    """Whether the first segment of a running job is nothing but the checkpoint before its preemption."""
    if len(segments) < 2 or _goes_on(segments[0], segments[1]):
        return False
    length_s = segments[0].end_s - segments[0].start_s
    return length_s <= hold_to_save_s(job) + TIME_TOLERANCE_S


def _goes_on(a: Segment, b: Segment) -> bool:
    """Whether `b` continues `a` without stopping."""
    return (
        abs(b.start_s - a.end_s) <= TIME_TOLERANCE_S and a.placement == b.placement and _same_hold(a.mode, b.mode)
    )


def running_faults(instance: Instance, entry: Running) -> list[str]:
    """What is wrong with the mode and placement a running job is said to have; empty when nothing is."""
    job = instance.job[entry.job]
    now = Segment(start_s=max(instance.now_s, job.submit_s), end_s=math.inf, mode=entry.mode, placement=entry.placement)
    found = [violation.message for violation in _segment(instance, job, now, -math.inf)]
    if not found and placed_rate(instance, job, entry.mode, entry.placement) <= 0:
        found.append(f"job {job.id} makes no progress where it runs")
    return found


def _structure(instance: Instance, plan: Plan) -> Iterator[Violation]:
    """Everything later checks rely on: known jobs and nodes, one entry a job, finite ordered times."""
    seen: set[str] = set()
    for entry in plan.jobs:
        if entry.id not in instance.job:
            yield Violation("unknown job", f"job {entry.id} is not in the instance", entry.id)
        elif entry.id in seen:
            yield Violation("duplicate job", f"job {entry.id} has two entries in the plan", entry.id)
        seen.add(entry.id)
        if not entry.segments:
            yield Violation("no segments", f"job {entry.id} has no segments, so it never runs", entry.id)
        for segment in entry.segments:
            if not (math.isfinite(segment.start_s) and math.isfinite(segment.end_s)):
                yield Violation("time", f"job {entry.id} has a segment whose times are not finite", entry.id)
            for slot in segment.placement:
                if slot.node not in instance.cluster.node:
                    yield Violation(
                        "unknown node",
                        f"job {entry.id} is placed on node {slot.node} at {segment.start_s:g} s, which does not exist",
                        entry.id, slot.node, segment.start_s,
                    )
            if segment.mode.share_with is not None and segment.mode.share_with not in instance.job:
                yield Violation(
                    "sharing",
                    f"job {entry.id} shares GPUs at {segment.start_s:g} s with {segment.mode.share_with}, "
                    "which is not in the instance",
                    entry.id, None, segment.start_s,
                )
    for job in instance.jobs:
        if job.id not in seen:
            yield Violation("no segments", f"job {job.id} is missing from the plan, so it never runs", job.id)


def _job(instance: Instance, entry: JobPlan) -> Iterator[Violation]:
    job = instance.job[entry.id]
    before_s = -math.inf
    ok = True
    for segment in entry.segments:
        problems = list(_segment(instance, job, segment, before_s))
        ok = ok and not problems
        yield from problems
        before_s = segment.end_s
    if ok:
        yield from _progress(instance, job, entry)
        expected = decision_now(instance, job, entry.segments)
        if entry.decision != expected:
            yield Violation(
                "decision",
                f"job {job.id} is said to {entry.decision} at {instance.now_s:g} s, its segments say {expected}",
                job.id, None, instance.now_s,
            )


def _segment(instance: Instance, job: Job, segment: Segment, before_s: float) -> Iterator[Violation]:
    """One segment by itself: times, a mode the job has, and a placement that fits the mode."""
    mode, start_s = segment.mode, segment.start_s
    at = f"at {start_s:g} s"
    if segment.end_s <= start_s:
        yield Violation("time", f"job {job.id} has a segment {at} that ends before it starts", job.id, None, start_s)
    if start_s < before_s - TIME_TOLERANCE_S:
        yield Violation(
            "overlap", f"job {job.id} starts a segment {at} before the last one ended at {before_s:g} s",
            job.id, None, start_s,
        )
    if start_s < instance.now_s - TIME_TOLERANCE_S:
        yield Violation(
            "past", f"job {job.id} runs {at}, before now ({instance.now_s:g} s)", job.id, None, start_s
        )
    if start_s < job.submit_s - TIME_TOLERANCE_S:
        yield Violation(
            "release date", f"job {job.id} runs {at}, before its submission at {job.submit_s:g} s",
            job.id, None, start_s,
        )
    wrong = _wrong_mode(instance, job, mode)
    if wrong is not None:
        yield Violation("mode", f"job {job.id} {at}: {wrong}", job.id, None, start_s)
        return
    yield from _placement(instance, job, segment)


def _wrong_mode(instance: Instance, job: Job, mode: Mode) -> str | None:
    """Why `mode` is none of the job's, or None."""
    if job.modes:
        if any(_is_listed(job, listed, mode) for listed in job.modes):
            return None
        return "its mode is none of those it lists"
    if mode.duration_s is not None:
        return "its mode has a duration of its own, but the job lists no modes"
    if isinstance(job.gpus, Elastic):
        if not job.gpus.min <= mode.gpus <= job.gpus.max:
            return f"runs on {mode.gpus} GPUs, its gang is {job.gpus.min} to {job.gpus.max}"
    elif mode.gpus != job.gpus:
        return f"runs on {mode.gpus} GPUs, its gang is {job.gpus}"
    if mode.gpus == 0 and mode.cpus != job.cpus:
        return f"holds {mode.cpus} cores, it asks for {job.cpus}"
    if mode.resources != job.resources:
        return f"holds resources {mode.resources}, it asks for {job.resources}"
    if mode.budgets != job.budgets:
        return f"uses budgets {mode.budgets}, it asks for {job.budgets}"
    return None


def _is_listed(job: Job, listed: Mode, mode: Mode) -> bool:
    """Whether `mode` is `listed` plus the job's own resources and budgets, on a type the listed mode allows."""
    def merged(own: dict[str, float], more: dict[str, float]) -> dict[str, float]:
        return {name: own.get(name, 0.0) + more.get(name, 0.0) for name in {**own, **more}}

    return (
        listed.gpu_type in (None, mode.gpu_type)
        and listed.duration_s == mode.duration_s
        and _same_size(listed, mode)
        and merged(job.resources, listed.resources) == mode.resources
        and merged(job.budgets, listed.budgets) == mode.budgets
    )


def _placement(instance: Instance, job: Job, segment: Segment) -> Iterator[Violation]:
    mode, start_s = segment.mode, segment.start_s
    cluster = instance.cluster
    at = f"at {start_s:g} s"
    names = [slot.node for slot in segment.placement]
    if len(set(names)) < len(names):
        yield Violation("placement", f"job {job.id} {at} names a node twice", job.id, names[0], start_s)
        return
    needs_node = mode.gpus > 0 or mode.cpus > 0 or job.memory_gib > 0
    if needs_node != bool(names) or (mode.gpus == 0 and len(names) > 1):
        what = "one node" if mode.gpus == 0 and needs_node else "nodes" if needs_node else "no node"
        yield Violation("placement", f"job {job.id} {at} is on {len(names)} nodes, it needs {what}", job.id,
                        names[0] if names else None, start_s)
        return
    placed = sum(slot.gpus for slot in segment.placement)
    if placed != mode.gpus:
        yield Violation(
            "gang", f"job {job.id} {at} holds {placed} GPUs on {', '.join(names)}, its gang is {mode.gpus}",
            job.id, names[0] if names else None, start_s,
        )
    types = {cluster.node[name].gpu_type for name in names} if mode.gpus else set()
    if len(types) > 1:
        yield Violation("gpu type", f"job {job.id} {at} mixes GPU types on {', '.join(names)}", job.id, names[0],
                        start_s)
        return
    for slot in segment.placement:
        node = cluster.node[slot.node]
        if mode.gpus and slot.gpus < 1:
            yield Violation("placement", f"job {job.id} {at} is on node {node.name} without a GPU there", job.id,
                            node.name, start_s)
        wanted = mode.cpus if mode.gpus == 0 else mode.cpus_per_gpu * slot.gpus
        if slot.cpus != wanted:
            yield Violation(
                "cores", f"job {job.id} {at} holds {slot.cpus} cores on node {node.name}, its mode takes {wanted}",
                job.id, node.name, start_s,
            )
        if not fits_type(job, mode, node):
            memory = node.gpu_memory_gib
            if memory is not None and job.profile.gpu_memory_gib > memory:
                yield Violation(
                    "GPU memory",
                    f"job {job.id} {at} needs {job.profile.gpu_memory_gib:g} GiB of each GPU, "
                    f"those of node {node.name} have {memory:g}",
                    job.id, node.name, start_s,
                )
            else:
                yield Violation(
                    "gpu type", f"job {job.id} {at} cannot run its mode on the GPUs of node {node.name}",
                    job.id, node.name, start_s,
                )


def _progress(instance: Instance, job: Job, entry: JobPlan) -> Iterator[Violation]:
    """Segments add up to the job's work, after start-up, restore, checkpoint and lost work."""
    running = instance.running_job.get(job.id)
    remaining = instance.remaining_s(job)
    ran_before = running is not None or job.id in instance.suspended_job
    segments = entry.segments
    preemptions = running.preemptions if running else 0
    if job.id in instance.suspended_job:
        preemptions = instance.suspended_job[job.id].preemptions
    unsaved = 0.0
    going_on = False
    run_started_s = segments[0].start_s
    if running is not None:
        stays = _keeps(running, segments[0]) and segments[0].start_s <= instance.now_s + TIME_TOLERANCE_S
        if stays and not _is_save_only(instance, job, segments):
            going_on = True
            unsaved = unsaved_s(running, instance.now_s)
            run_started_s = running.started_s
        else:
            yield from _preempted_now(instance, job, running, segments, stays)
            remaining = remaining_after_preemption_s(instance, running)
            preemptions += 1
            if stays:
                segments = segments[1:]
    for i, segment in enumerate(segments):
        speed = placed_rate(instance, job, segment.mode, segment.placement)
        if speed <= 0:
            yield Violation(
                "rate", f"job {job.id} at {segment.start_s:g} s makes no progress where it is placed "
                f"({', '.join(slot.node for slot in segment.placement)})",
                job.id, segment.placement[0].node if segment.placement else None, segment.start_s,
            )
            return
        overhead = 0.0
        if not going_on:
            overhead = setup_s(job, ran_before)
            unsaved, run_started_s = 0.0, segment.start_s
        elif i == 0 and running is not None:
            overhead = running.setup_s
        ran_before = True
        last = i == len(segments) - 1
        stops = not last and not _goes_on(segment, segments[i + 1])
        productive = segment.end_s - segment.start_s - overhead - (hold_to_save_s(job) if stops else 0.0)
        if productive < -TIME_TOLERANCE_S:
            yield Violation(
                "overhead",
                f"job {job.id} holds its resources from {segment.start_s:g} to {segment.end_s:g} s, "
                "which is shorter than its start-up, restore and checkpoint",
                job.id, segment.placement[0].node if segment.placement else None, segment.start_s,
            )
            return
        productive = max(0.0, productive)
        remaining -= productive * speed
        unsaved += productive
        if stops:
            preemptions += 1
            remaining += min(lost_s(job, unsaved) * speed, job.work_s - remaining)
            unsaved = 0.0
            yield from _may_stop(job, segment, run_started_s)
        going_on = not stops
        if last and abs(remaining) > (TIME_TOLERANCE_S + 1e-9 * segment.end_s) * speed + 1e-9 * job.work_s:
            what = "ends" if remaining > 0 else "still holds its resources"
            yield Violation(
                "work",
                f"job {job.id} {what} at {segment.end_s:g} s with {remaining:g} s of its "
                f"{job.work_s:g} s of reference work left",
                job.id, segment.placement[0].node if segment.placement else None, segment.end_s,
            )
        elif not last and remaining < -(TIME_TOLERANCE_S + 1e-9 * segment.end_s) * speed:
            yield Violation(
                "work", f"job {job.id} runs on after {segment.end_s:g} s although its work is done",
                job.id, segment.placement[0].node if segment.placement else None, segment.end_s,
            )
    if job.max_preemptions is not None and preemptions > job.max_preemptions:
        yield Violation(
            "preemptions", f"job {job.id} is preempted {preemptions} times by {entry.completion_s:g} s, "
            f"{job.max_preemptions} are allowed", job.id, None, entry.completion_s,
        )


def _preempted_now(
    instance: Instance, job: Job, running: Running, segments: tuple[Segment, ...], stays: bool
) -> Iterator[Violation]:
    """A running job that does not continue: allowed to stop, and saving on its GPUs first."""
    node = running.placement[0].node if running.placement else None
    now_s = instance.now_s
    if not job.preemptible:
        yield Violation("preemption", f"job {job.id} on node {node} is preempted at {now_s:g} s, it is not preemptible",
                        job.id, node, now_s)
    elif not may_preempt(instance, running) and now_s - running.started_s < job.min_run_s - TIME_TOLERANCE_S:
        yield Violation(
            "minimum run",
            f"job {job.id} on node {node} is preempted at {now_s:g} s after {now_s - running.started_s:g} s, "
            f"its minimum run is {job.min_run_s:g} s",
            job.id, node, now_s,
        )
    hold = hold_to_save_s(job)
    saved_for = segments[0].end_s - segments[0].start_s if stays else 0.0
    if hold - saved_for > TIME_TOLERANCE_S:
        yield Violation(
            "checkpoint",
            f"job {job.id} leaves node {node} at {now_s + saved_for:g} s, its checkpoint takes until {now_s + hold:g} s",
            job.id, node, now_s,
        )


def _may_stop(job: Job, segment: Segment, run_started_s: float) -> Iterator[Violation]:
    node = segment.placement[0].node if segment.placement else None
    stopped_s = segment.end_s - hold_to_save_s(job)
    if not job.preemptible:
        yield Violation("preemption", f"job {job.id} on node {node} is preempted at {stopped_s:g} s, it is not preemptible",
                        job.id, node, stopped_s)
    elif stopped_s - run_started_s < job.min_run_s - TIME_TOLERANCE_S:
        yield Violation(
            "minimum run",
            f"job {job.id} on node {node} is preempted at {stopped_s:g} s after {stopped_s - run_started_s:g} s, "
            f"its minimum run is {job.min_run_s:g} s",
            job.id, node, stopped_s,
        )


def _precedence(instance: Instance, plan: Plan) -> Iterator[Violation]:
    entries = {entry.id: entry for entry in plan.jobs}
    for job in instance.jobs:
        start_s = entries[job.id].segments[0].start_s
        for before in job.after:
            if start_s < entries[before].completion_s - TIME_TOLERANCE_S:
                yield Violation(
                    "precedence",
                    f"job {job.id} starts at {start_s:g} s, before {before} completes at "
                    f"{entries[before].completion_s:g} s",
                    job.id, None, start_s,
                )


Piece = tuple[float, float, str, float]
"""start_s, end_s, job id, amount held in between."""


def _capacity(instance: Instance, plan: Plan) -> Iterator[Violation]:
    """GPUs, cores and memory of each node at every instant; GPUs shared by a pair count once."""
    pieces: dict[str, list[tuple[Segment, JobPlan, int, int]]] = defaultdict(list)
    for entry in plan.jobs:
        for segment in entry.segments:
            for slot in segment.placement:
                pieces[slot.node].append((segment, entry, slot.gpus, slot.cpus))
    for node in instance.cluster.nodes:
        here = pieces.get(node.name)
        if not here:
            continue
        gpus = [_piece(segment, entry, count) for segment, entry, count, _ in here if count]
        shared = {entry.id: segment.mode.share_with for segment, entry, _, _ in here if segment.mode.share_with}
        yield from _overfull(gpus, float(node.gpus), "GPUs", "GPUs", node.name, _count_pairs_once(here) if shared else None)
        if node.cpus is not None:
            cores = [_piece(segment, entry, count) for segment, entry, _, count in here if count]
            yield from _overfull(cores, float(node.cpus), "cores", "cores", node.name)
        if node.memory_gib is not None:
            memory = [
                _piece(segment, entry, memory_gib(instance.job[entry.id], segment.mode, count))
                for segment, entry, count, _ in here
            ]
            yield from _overfull(memory, node.memory_gib, "memory", "GiB of memory", node.name)


def _piece(segment: Segment, entry: JobPlan, amount: float) -> Piece:
    return segment.start_s, segment.end_s, entry.id, amount


def _count_pairs_once(here: list[tuple[Segment, JobPlan, int, int]]) -> Callable[[dict[str, float]], float]:
    partner = {entry.id: segment.mode.share_with for segment, entry, _, _ in here if segment.mode.share_with}

    def total(held: dict[str, float]) -> float:
        used = 0.0
        for job, amount in held.items():
            other = partner.get(job)
            if other in held and partner.get(other) == job:
                amount = max(amount, held[other]) if job < other else 0.0
            used += amount
        return used

    return total


def _overfull(
    pieces: Iterable[Piece],
    capacity: float,
    rule: str,
    unit: str,
    where: str,
    total: Callable[[dict[str, float]], float] | None = None,
) -> Iterator[Violation]:
    """Sweep over time; report the first instant of each stretch above capacity."""
    events: list[tuple[float, int, str, float]] = []
    for start_s, end_s, job, amount in pieces:
        if end_s - start_s > TIME_TOLERANCE_S:
            events.append((start_s, 1, job, amount))
            events.append((end_s - TIME_TOLERANCE_S, 0, job, amount))
    held: dict[str, float] = defaultdict(float)
    limit = capacity + AMOUNT_TOLERANCE * max(1.0, capacity) if capacity != int(capacity) or unit != "GPUs" else capacity
    used = 0.0
    above = False
    for time_s, starts, job, amount in sorted(events):
        if starts:
            held[job] += amount
            used += amount
        else:
            held[job] -= amount
            used -= amount
            if abs(held[job]) < 1e-9:
                del held[job]
            if not held:
                used = 0.0
        now_used = total(held) if total is not None else used
        if now_used > limit and starts and not above:
            names = ", ".join(sorted(held))
            yield Violation(
                rule,
                f"job {job} at {time_s:g} s: {where} would hold {now_used:g} {unit} of {capacity:g} ({names})",
                job, where, time_s,
            )
        above = now_used > limit


def _shared(instance: Instance, plan: Plan) -> Iterator[Violation]:
    """Cluster resources at every instant, budgets over the whole plan, tenants' GPU quotas."""
    held: dict[str, list[Piece]] = defaultdict(list)
    quota: dict[str, list[Piece]] = defaultdict(list)
    used: dict[str, float] = defaultdict(float)
    heaviest: dict[str, tuple[float, str, float]] = {}
    for entry in plan.jobs:
        job = instance.job[entry.id]
        for segment in entry.segments:
            for name, amount in segment.mode.resources.items():
                if amount:
                    held[name].append(_piece(segment, entry, amount))
            if job.tenant is not None and segment.mode.gpus:
                quota[job.tenant].append(_piece(segment, entry, segment.mode.gpus))
        last = entry.segments[-1]
        for name, amount in last.mode.budgets.items():
            used[name] += amount
            heaviest[name] = max(heaviest.get(name, (-1.0, "", 0.0)), (amount, entry.id, last.start_s))
    for name, pieces in sorted(held.items()):
        capacity = instance.cluster.resources.get(name, 0.0)
        yield from _overfull(pieces, capacity, "resource", name, "the cluster")
    for name, pieces in sorted(quota.items()):
        limit = instance.tenant[name].gpu_quota
        if limit is not None:
            yield from _overfull(pieces, float(limit), "quota", "GPUs of its quota", f"tenant {name}")
    for name, amount in sorted(used.items()):
        budget = instance.cluster.budgets.get(name, 0.0)
        if amount > budget + AMOUNT_TOLERANCE * max(1.0, budget):
            _, job_id, time_s = heaviest[name]
            yield Violation(
                "budget",
                f"the plan uses {amount:g} of budget {name}, there is {budget:g}; job {job_id} at {time_s:g} s uses most",
                job_id, None, time_s,
            )


def _sharing(instance: Instance, plan: Plan) -> Iterator[Violation]:
    """Jobs that share GPUs name each other, sit on the same GPUs, and fit their memory together."""
    entries = {entry.id: entry for entry in plan.jobs}
    for entry in plan.jobs:
        for segment in entry.segments:
            name = segment.mode.share_with
            if name is None:
                continue
            job, partner = instance.job[entry.id], instance.job[name]
            for other in entries[name].segments:
                if min(segment.end_s, other.end_s) - max(segment.start_s, other.start_s) <= TIME_TOLERANCE_S:
                    continue
                node = segment.placement[0].node if segment.placement else None
                at_s = max(segment.start_s, other.start_s)
                if other.mode.share_with != entry.id or (
                    [(slot.node, slot.gpus) for slot in other.placement]
                    != [(slot.node, slot.gpus) for slot in segment.placement]
                ):
                    yield Violation(
                        "sharing",
                        f"job {entry.id} shares GPUs with {name} on node {node} at {at_s:g} s, "
                        "but they do not name each other on the same GPUs",
                        entry.id, node, at_s,
                    )
                for slot in segment.placement:
                    memory = instance.cluster.node[slot.node].gpu_memory_gib
                    both = job.profile.gpu_memory_gib + partner.profile.gpu_memory_gib
                    if memory is not None and both > memory * (1 + AMOUNT_TOLERANCE):
                        yield Violation(
                            "GPU memory",
                            f"job {entry.id} and {name} need {both:g} GiB together on each GPU of node {slot.node} "
                            f"at {at_s:g} s, there are {memory:g}",
                            entry.id, slot.node, at_s,
                        )
