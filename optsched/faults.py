"""What is wrong with an instance beyond the shape of its fields: cross references, cycles, jobs that never fit."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import networkx as nx

from .instance import Instance
from .job import Elastic, Job
from .modes import base_modes, options, room


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong: its path in the file, what is wrong, and what would be right."""

    path: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}; {self.remedy}"


def find_faults(instance: Instance) -> list[Fault]:
    """Every fault of an instance whose fields are all in range; empty when it is sound."""
    found = list(_duplicates(instance))
    if found:
        return found
    found.extend(_references(instance))
    for i, job in enumerate(instance.jobs):
        found.extend(_job(instance, i, job))
    found.extend(_held(instance))
    if not found:
        found.extend(_cycles(instance))
        found.extend(_never_run(instance))
    if not found:
        found.extend(_overfull_now(instance))
    return found


def _duplicates(instance: Instance) -> Iterator[Fault]:
    for path, names in (
        ("cluster.nodes", [node.name for node in instance.cluster.nodes]),
        ("tenants", [tenant.name for tenant in instance.tenants]),
        ("jobs", [job.id for job in instance.jobs]),
        ("running", [entry.job for entry in (*instance.running, *instance.suspended)]),
    ):
        for name, count in Counter(names).items():
            if count > 1:
                yield Fault(path, f"{name!r} appears {count} times", "make each unique")


def _references(instance: Instance) -> Iterator[Fault]:
    for i, job in enumerate(instance.jobs):
        path = f"jobs[{i}]"
        if job.tenant is not None and job.tenant not in instance.tenant:
            yield Fault(f"{path}.tenant", f"job {job.id}: tenant {job.tenant!r} is not in tenants",
                        "add it to tenants or leave the field out")
        for k, before in enumerate(job.after):
            if before not in instance.job:
                yield Fault(f"{path}.after[{k}]", f"job {job.id}: predecessor {before!r} is not in jobs",
                            "name a job of this file")
        for field, known in (("resources", instance.cluster.resources), ("budgets", instance.cluster.budgets)):
            for where, amounts in ((path, getattr(job, field)),
                                   *((f"{path}.modes[{m}]", getattr(mode, field)) for m, mode in enumerate(job.modes))):
                for name in amounts:
                    if name not in known:
                        yield Fault(f"{where}.{field}.{name}", f"job {job.id}: the cluster has no {name!r}",
                                    f"declare it in cluster.{field}")


def _job(instance: Instance, i: int, job: Job) -> Iterator[Fault]:
    path = f"jobs[{i}]"
    if not job.id:
        yield Fault(f"{path}.id", "is empty", "give the job a name")
    if job.modes:
        if job.duration_s is not None:
            yield Fault(f"{path}.duration_s", f"job {job.id} lists modes and has a duration of its own",
                        "keep one of the two")
        for m, mode in enumerate(job.modes):
            where = f"{path}.modes[{m}]"
            if mode.duration_s is None:
                yield Fault(f"{where}.duration_s", f"job {job.id}: a listed mode needs a duration", "add it, in seconds")
            if mode.share_with is not None:
                yield Fault(f"{where}.share_with", f"job {job.id}: a listed mode cannot name a partner", "leave it out")
            if mode.gpus and mode.cpus:
                yield Fault(f"{where}.cpus", f"job {job.id}: cpus is for CPU-only modes", "use cpus_per_gpu")
            if not mode.gpus and mode.cpus_per_gpu:
                yield Fault(f"{where}.cpus_per_gpu", f"job {job.id}: the mode has no GPU", "use cpus")
    elif job.duration_s is None:
        yield Fault(f"{path}.duration_s", f"job {job.id} has neither duration_s nor modes",
                    "add duration_s, its reference work in seconds")
    if isinstance(job.gpus, Elastic) and job.gpus.min > job.gpus.max:
        yield Fault(f"{path}.gpus", f"job {job.id}: min {job.gpus.min} is above max {job.gpus.max}", "swap them")
    if not job.modes and job.gpus != 0 and job.cpus:
        yield Fault(f"{path}.cpus", f"job {job.id}: cpus is for CPU-only jobs", "use profile.cpus_per_gpu")
    if not job.modes and job.gpus != 0 and job.memory_gib:
        yield Fault(f"{path}.memory_gib", f"job {job.id}: memory_gib is for CPU-only jobs",
                    "use profile.memory_gib_per_gpu")


def _held(instance: Instance) -> Iterator[Fault]:
    for field, entries in (("running", instance.running), ("suspended", instance.suspended)):
        for i, entry in enumerate(entries):
            path = f"{field}[{i}]"
            if entry.job not in instance.job:
                yield Fault(f"{path}.job", f"{entry.job!r} is not in jobs", "add the job or drop the entry")
                continue
            job = instance.job[entry.job]
            if not 0 < entry.remaining_s:
                yield Fault(f"{path}.remaining_s", f"job {job.id} has no work left", "drop the finished job")
            elif (job.duration_s is not None or job.modes) and entry.remaining_s > (job.duration_s or 0) and (
                not job.modes or (job.modes[0].duration_s or 0) < entry.remaining_s
            ):
                yield Fault(f"{path}.remaining_s", f"job {job.id} has more work left than its whole work",
                            "give the remaining reference work in seconds")
    for i, run in enumerate(instance.running):
        path = f"running[{i}]"
        if run.started_s > instance.now_s:
            yield Fault(f"{path}.started_s", f"job {run.job} started after now_s", "it must not lie in the future")
        if run.last_checkpoint_s is not None and run.last_checkpoint_s > instance.now_s:
            yield Fault(f"{path}.last_checkpoint_s", f"job {run.job} saved after now_s", "it must not lie in the future")
        for k, slot in enumerate(run.placement):
            if slot.node not in instance.cluster.node:
                yield Fault(f"{path}.placement[{k}].node", f"job {run.job}: node {slot.node!r} is not in the cluster",
                            "name a node of cluster.nodes")


def _cycles(instance: Instance) -> Iterator[Fault]:
    edges = [(before, job.id) for job in instance.jobs for before in job.after]
    if not edges:
        return
    graph = nx.DiGraph(edges)
    if not nx.is_directed_acyclic_graph(graph):
        cycle = [edge[0] for edge in nx.find_cycle(graph)]
        yield Fault("jobs[*].after", f"the jobs {' -> '.join([*cycle, cycle[0]])} wait for each other",
                    "break the cycle")


def _never_run(instance: Instance) -> Iterator[Fault]:
    known: dict[tuple[int, str | None], str | None] = {}
    for i, job in enumerate(instance.jobs):
        if job.id in instance.running_job:
            continue
        key = (id(options(instance.cluster, job)), job.tenant)
        if key not in known:
            known[key] = why_never_runs(instance, job)
        reason = known[key]
        if reason is not None:
            yield Fault(f"jobs[{i}]", f"job {job.id} can never run: {reason}",
                        "ask for less, or add what is missing to the cluster")


def why_never_runs(instance: Instance, job: Job) -> str | None:
    """Why no empty cluster of this kind could ever run `job`, or None where it could."""
    cluster = instance.cluster
    fitting = options(cluster, job)
    if not fitting:
        return _why_nothing_fits(instance, job)
    quota = None if job.tenant is None else instance.tenant[job.tenant].gpu_quota
    if quota is not None and all(option.mode.gpus > quota for option in fitting):
        return f"it needs {min(option.mode.gpus for option in fitting)} GPUs, the quota of {job.tenant} is {quota}"
    for field, have in (("resources", cluster.resources), ("budgets", cluster.budgets)):
        for name, capacity in have.items():
            need = min(getattr(option.mode, field).get(name, 0.0) for option in fitting)
            if need > capacity:
                return f"it needs {need:g} of {name}, there is {capacity:g}"
    if not any(
        (quota is None or option.mode.gpus <= quota)
        and all(amount <= cluster.resources[name] for name, amount in option.mode.resources.items())
        and all(amount <= cluster.budgets[name] for name, amount in option.mode.budgets.items())
        for option in fitting
    ):
        return "each of its modes needs more of some resource, budget or quota than there is"
    return None


def _why_nothing_fits(instance: Instance, job: Job) -> str:
    cluster = instance.cluster
    modes = base_modes(cluster, job)
    if not modes:
        return "it asks for GPUs, no node has any"
    if all(mode.gpus == 0 for mode in modes):
        return "no node has the cores and memory it asks for"
    sizes = sorted(mode.gpus for mode in modes)
    types = {mode.gpu_type for mode in modes}
    most = max(sum(node.gpus for node in cluster.nodes if node.gpu_type == gpu_type) for gpu_type in types)
    if sizes[0] > most:
        return f"it needs {sizes[0]} GPUs of one type, the cluster has at most {most}"
    memories = [node.gpu_memory_gib for node in cluster.nodes if node.gpus and node.gpu_memory_gib is not None]
    if memories and job.profile.gpu_memory_gib > max(memories):
        return f"it needs {job.profile.gpu_memory_gib:g} GiB of GPU memory, the largest GPU has {max(memories):g}"
    if job.profile.rate and not any(job.profile.rate.get(name or "", 0.0) > 0 for name in types):
        return (f"its profile has rates for {', '.join(job.profile.rate)}, "
                f"the cluster has {', '.join(str(name) for name in cluster.gpu_types)}")
    roomy = max((sum(room(cluster, job, mode).values()) for mode in modes), default=0)
    if roomy < sizes[0]:
        return f"only {roomy} of the {sizes[0]} GPUs it needs have enough cores, memory and GPU memory beside them"
    return "its gang of {} does not fit where its profile lets it make progress".format(sizes[0])


def _overfull_now(instance: Instance) -> Iterator[Fault]:
    """Running jobs hold what exists, in a mode they have."""
    if not instance.running:
        return
    from .verify import running_faults

    for i, entry in enumerate(instance.running):
        for message in running_faults(instance, entry):
            yield Fault(f"running[{i}]", message, "correct its mode and placement")
    yield from _held_too_much(instance)


def _held_too_much(instance: Instance) -> Iterator[Fault]:
    gpus: Counter[str] = Counter()
    cores: Counter[str] = Counter()
    for entry in instance.running:
        share = entry.mode.share_with
        first_of_pair = share is None or entry.job < share
        for slot in entry.placement:
            gpus[slot.node] += slot.gpus if first_of_pair else 0
            cores[slot.node] += slot.cpus
    for node in instance.cluster.nodes:
        if gpus[node.name] > node.gpus:
            yield Fault("running", f"running jobs hold {gpus[node.name]} GPUs of node {node.name}, it has {node.gpus}",
                        "correct the placements")
        if node.cpus is not None and cores[node.name] > node.cpus:
            yield Fault("running", f"running jobs hold {cores[node.name]} cores of node {node.name}, it has {node.cpus}",
                        "correct the placements")
