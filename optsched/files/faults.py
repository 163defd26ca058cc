"""What is wrong with an instance beyond the shape of its fields: references, cycles, jobs that
never fit."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from ..frozen import record
from ..model import (
    MOST_LEVELS,
    Cluster,
    Elastic,
    Instance,
    Job,
    Locality,
    Mode,
    Placement,
    Running,
    Suspended,
    Tenant,
    not_lowered,
)
from ..physics.catalogue import catalogue_of
from ..physics.unschedulable import why_never

MAX_PRIORITY = 10**9
REMAINING_TOLERANCE = 1e-9
"""Relative excess of remaining work over the whole that counts as rounding."""


@record
class Fault:
    """One thing wrong: its path in the file, what is wrong, and what would be right."""

    path: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}; {self.remedy}"


Held = tuple[Job, Mode, Placement]


class Sound:
    """What was sound in the instance before: most of it comes again in the next one."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None
        self._tenants: tuple[Tenant, ...] = ()
        self.jobs: set[Job] = set()
        self.held: set[Held] = set()

    def unknown(self, instance: Instance) -> Instance:
        """Return the instance without the jobs and the cluster that are sound."""
        if (instance.cluster, instance.tenants) != (self._cluster, self._tenants):
            self.jobs, self.held = set(), set()
            return instance
        jobs = tuple(job for job in instance.jobs if job not in self.jobs)
        return replace(instance, cluster=Cluster(), jobs=jobs)

    def remember(self, instance: Instance) -> None:
        """Remember what is in an instance that proved to be sound."""
        self._cluster, self._tenants = instance.cluster, instance.tenants
        self.jobs = {job for job in instance.jobs if not job.after}
        self.held = {held(instance, entry) for entry in instance.running}


def held(instance: Instance, entry: Running) -> Held:
    """Return what a running job holds."""
    return instance.job[entry.job], entry.mode, entry.placement


def find_faults(
    instance: Instance, *, now_only: bool = False, sound: Sound | None = None
) -> list[Fault]:
    """Return every fault of an instance whose fields are all in range; empty when it is sound.

    With `now_only` it is none that no whole plan exists, as a job can never run or running jobs
    hold more together than there is: for whoever decides what happens now, and says so himself.
    What is known to be `sound` is not looked at again.
    """
    sound = sound or Sound()
    all_faults = [*_duplicates(instance), *_cluster(instance)]
    unsound: set[int] = set()
    for i, job in enumerate(instance.jobs):
        if job in sound.jobs:
            continue
        path = f"jobs[{i}]"
        faults = [*_references(instance, path, job), *_job(path, job)]
        if faults:
            unsound.add(i)
            all_faults.extend(faults)
    for look in (_held, _past, _failures, _outages, _cycles):
        all_faults.extend(look(instance))
    if not now_only:
        all_faults.extend(_never_run(instance, unsound))
    if not all_faults:
        all_faults.extend(_overfull_now(instance, sound))
    if not all_faults and not now_only:
        all_faults.extend(_beyond_limits(instance))
    return all_faults


def _duplicates(instance: Instance) -> Iterator[Fault]:
    held: tuple[Running | Suspended, ...] = (*instance.running, *instance.suspended)
    for path, names, what in (
        ("cluster.nodes", [node.name for node in instance.cluster.nodes], "node"),
        ("tenants", [tenant.name for tenant in instance.tenants], "tenant"),
        ("cluster.tiers", [tier.name for tier in instance.cluster.tiers], "tier"),
        ("jobs", [job.id for job in instance.jobs], "job"),
        ("running", [entry.job for entry in held], "running or suspended job"),
    ):
        for name, count in Counter(names).items():
            if not name:
                yield Fault(
                    f"{path}[{names.index(name)}]",
                    f"the {what} has an empty name",
                    "give it a name",
                )
            elif count > 1:
                yield Fault(
                    path, f"{what} {name!r} appears {count} times", "keep or rename all but one"
                )


def _cluster(instance: Instance) -> Iterator[Fault]:
    racks = {node.rack for node in instance.cluster.nodes}
    for rack in instance.cluster.rack_uplink_gbps:
        if rack not in racks:
            yield Fault(
                f"cluster.rack_uplink_gbps.{rack}",
                f"no node is in rack {rack!r}",
                "name the rack of a node or leave it out",
            )
        elif instance.cluster.uplinks == "shared" and not instance.cluster.rack_uplink_gbps[rack]:
            yield Fault(
                f"cluster.rack_uplink_gbps.{rack}",
                "a shared uplink of 0 lets nobody make progress",
                "give it more than 0, or reserve uplinks",
            )
    for name in ("carbon_g_per_kwh", "energy_price_per_kwh"):
        steps = getattr(instance.cluster, name)
        if isinstance(steps, tuple) and not (
            steps and all(earlier[0] < later[0] for earlier, later in pairwise(steps))
        ):
            yield Fault(
                f"cluster.{name}",
                "steps must be in order of time, and at least one",
                "write [[0, 350], [3600, 120]], or one number",
            )
    for i, node in enumerate(instance.cluster.nodes):
        if node.memory_gbps == 0:
            yield Fault(
                f"cluster.nodes[{i}].memory_gbps",
                f"memory of node {node.name} without any bandwidth",
                "give it more than 0 or leave it out",
            )
    named: dict[int, str] = {}
    for i, tier in enumerate(instance.cluster.tiers):
        path = f"cluster.tiers[{i}].priority"
        if abs(tier.priority) > MAX_PRIORITY:
            yield Fault(path, f"is beyond {MAX_PRIORITY}", "use smaller numbers")
        elif named.setdefault(tier.priority, tier.name) != tier.name:
            says = f"tiers {named[tier.priority]} and {tier.name} have the same priority"
            yield Fault(path, says, "give each its own")
    yield from _windows(instance)
    yield from _models(instance)
    yield from _tree(instance)
    for i, tenant in enumerate(instance.tenants):
        if tenant.borrow_gpus and tenant.gpu_quota is None:
            yield Fault(
                f"tenants[{i}].borrow_gpus",
                f"tenant {tenant.name} has no quota to go beyond",
                "give it a gpu_quota or leave the field out",
            )


def _tree(instance: Instance) -> Iterator[Fault]:
    """Yield tenants below what is no tenant, below themselves, or too far down, and use of none."""
    for i, tenant in enumerate(instance.tenants):
        path, above = f"tenants[{i}].parent", [tenant]
        while (name := above[-1].parent) is not None and len(above) <= MOST_LEVELS:
            if name not in instance.tenant:
                if above == [tenant]:
                    yield Fault(
                        path,
                        f"tenant {tenant.name}: its parent {name!r} is not in tenants",
                        "add it to tenants or leave the field out",
                    )
                break
            above.append(instance.tenant[name])
            if above[-1] is tenant:
                yield Fault(path, f"tenant {tenant.name} is below itself", "break the circle")
                break
        else:
            if above[-1].parent is not None:
                problem = f"tenant {tenant.name} is more than {MOST_LEVELS} levels down"
                yield Fault(path, problem, "make the tree flatter")
    if instance.shares is not None:
        for i, use in enumerate(instance.shares.used):
            if use.tenant is not None and use.tenant not in instance.tenant:
                yield Fault(
                    f"shares.used[{i}].tenant",
                    f"tenant {use.tenant!r} is not in tenants",
                    "add it to tenants or leave the field out",
                )


def _windows(instance: Instance) -> Iterator[Fault]:
    for i, window in enumerate(instance.cluster.windows):
        path = f"cluster.windows[{i}]"
        if not (window.nodes or window.lowers):
            yield Fault(f"{path}.nodes", "a window of no nodes", "name the nodes it is about")
        for name, problem, remedy in not_lowered(window.quotas, instance.tenants):
            yield Fault(f"{path}.quotas.{name}", problem, remedy)
        for name in window.resources:
            if name not in instance.cluster.resources:
                problem, remedy = f"the cluster has no {name!r}", "declare it in cluster.resources"
                yield Fault(f"{path}.resources.{name}", problem, remedy)
        for name in window.nodes:
            if name not in instance.cluster.node:
                problem = f"node {name!r} is not in cluster.nodes"
                yield Fault(f"{path}.nodes", problem, "name nodes of this file")
        if window.to_s <= window.from_s:
            yield Fault(f"{path}.to_s", "the window is over before it begins", "after from_s")
        for name in window.tenants:
            if name not in instance.tenant:
                problem = f"tenant {name!r} is not in tenants"
                yield Fault(f"{path}.tenants", problem, "add it to tenants or leave it out")


def _models(instance: Instance) -> Iterator[Fault]:
    """Yield models with several sizes: each has one, or it would not be known what fits a cache
    beside it."""
    size: dict[str, float] = {}
    for i, job in enumerate(instance.jobs):
        profile = job.profile
        if profile.fetch_s and profile.name is not None:
            first = size.setdefault(profile.name, profile.model_gib)
            if first != profile.model_gib:
                yield Fault(
                    f"jobs[{i}].profile.model_gib",
                    f"job {job.id}: model {profile.name} has {profile.model_gib:g} GiB, "
                    f"elsewhere {first:g}",
                    "give it one size, or two names",
                )


def _references(instance: Instance, path: str, job: Job) -> Iterator[Fault]:
    if job.tenant is not None and job.tenant not in instance.tenant:
        yield Fault(
            f"{path}.tenant",
            f"job {job.id}: tenant {job.tenant!r} is not in tenants",
            "add it to tenants or leave the field out",
        )
    for k, before in enumerate(job.after):
        if before not in instance.job:
            yield Fault(
                f"{path}.after[{k}]",
                f"job {job.id}: predecessor {before!r} is not in jobs",
                "name a job of this file",
            )
        elif before in job.after[:k]:
            yield Fault(
                f"{path}.after[{k}]",
                f"job {job.id}: predecessor {before!r} is named twice",
                "name it once",
            )
    if job.resources or job.budgets:
        yield from _uses(instance, path, job, job)
    for m, mode in enumerate(job.modes):
        yield from _uses(instance, f"{path}.modes[{m}]", job, mode)


def _length_s(job: Job) -> float | None:
    """Return the reference work of a job, None where its file leaves that out."""
    return (job.modes[0] if job.modes else job).duration_s


def _past(instance: Instance) -> Iterator[Fault]:
    """Yield what cannot be of jobs that were done before now."""
    seen: set[str] = set()
    for i, done in enumerate(instance.past):
        path, job = f"past[{i}]", done.job
        if job.id in seen or job.id in instance.job:
            yield Fault(
                f"{path}.job.id",
                f"job {job.id!r} is in {'past' if job.id in seen else 'jobs'} already",
                "keep or rename all but one",
            )
        seen.add(job.id)
        if _length_s(job) is None:
            yield Fault(f"{path}.job.duration_s", f"job {job.id} has no length", "give seconds")
        if done.completed_s < job.submit_s:
            yield Fault(
                f"{path}.completed_s",
                f"job {job.id} is done before it is submitted",
                f"not before {job.submit_s:g}",
            )
        elif done.completed_s > instance.now_s:
            yield Fault(
                f"{path}.completed_s", f"job {job.id} is done after now_s", "not after now_s"
            )


def _failures(instance: Instance) -> Iterator[Fault]:
    kept_s: Counter[str] = Counter()
    for i, failure in enumerate(instance.failures):
        path, job = f"failures[{i}]", instance.job.get(failure.job)
        if job is None:
            yield Fault(
                f"{path}.job", f"job {failure.job!r} is not in jobs", "name a job of this file"
            )
            continue
        if failure.job in instance.running_job or failure.job in instance.suspended_job:
            yield Fault(
                f"{path}.job", f"job {failure.job} has begun already", "leave its failures out"
            )
        kept_s[failure.job] += failure.kept_s  # type: ignore[assignment]
        if failure.kept_s > failure.work_s:
            yield Fault(
                f"{path}.kept_s",
                f"job {failure.job}: an attempt keeps more than the work it does",
                f"at most {failure.work_s:g}",
            )
        elif (work_s := _length_s(job)) is not None and kept_s[failure.job] >= work_s:
            yield Fault(
                f"{path}.kept_s",
                f"job {failure.job}: its failing attempts do all of its work",
                f"keep less than {work_s:g} s in all",
            )


def _outages(instance: Instance) -> Iterator[Fault]:
    last_s: dict[str, float] = {}
    order = sorted(range(len(instance.outages)), key=lambda i: instance.outages[i].start_s)
    for i in order:
        outage, path = instance.outages[i], f"outages[{i}]"
        if outage.node not in instance.cluster.node:
            yield Fault(
                f"{path}.node",
                f"node {outage.node!r} is not in cluster.nodes",
                "name a node of this file",
            )
        if outage.start_s < instance.now_s:
            yield Fault(
                f"{path}.start_s", f"node {outage.node} is lost before now_s", "not before now_s"
            )
        if outage.end_s <= outage.start_s:
            yield Fault(
                f"{path}.end_s", f"node {outage.node} is back before it is lost", "after start_s"
            )
        elif outage.start_s <= last_s.get(outage.node, outage.start_s - 1):
            yield Fault(
                f"{path}.start_s",
                f"node {outage.node} is lost while it is lost",
                "merge the two outages",
            )
        last_s[outage.node] = max(outage.end_s, last_s.get(outage.node, outage.end_s))


def _uses(instance: Instance, path: str, job: Job, user: Job | Mode) -> Iterator[Fault]:
    for field, amounts, known in (
        ("resources", user.resources, instance.cluster.resources),
        ("budgets", user.budgets, instance.cluster.budgets),
    ):
        for name in amounts:
            if name not in known:
                yield Fault(
                    f"{path}.{field}.{name}",
                    f"job {job.id}: the cluster has no {name!r}",
                    f"declare it in cluster.{field}",
                )


def _job(path: str, job: Job) -> Iterator[Fault]:
    if abs(job.priority) > MAX_PRIORITY:
        yield Fault(
            f"{path}.priority",
            f"job {job.id}: its priority is beyond {MAX_PRIORITY}",
            "use smaller numbers",
        )
    if job.modes and job.duration_s is not None:
        yield Fault(
            f"{path}.duration_s",
            f"job {job.id} lists modes and has a duration of its own",
            "keep one of the two",
        )
    for m, mode in enumerate(job.modes):
        for field, is_wrong, problem, remedy in _mode_rules(mode):
            if is_wrong:
                yield Fault(f"{path}.modes[{m}].{field}", f"job {job.id}: {problem}", remedy)
    if not job.modes and job.duration_s is None:
        yield Fault(
            f"{path}.duration_s",
            f"job {job.id} has neither duration_s nor modes",
            "add duration_s, its reference work in seconds",
        )
    if isinstance(job.gpus, Elastic) and job.gpus.min > job.gpus.max:
        yield Fault(
            f"{path}.gpus",
            f"job {job.id}: min {job.gpus.min} is above max {job.gpus.max}",
            "swap them",
        )
    if job.max_nodes is not None and job.min_nodes > job.max_nodes:
        yield Fault(
            f"{path}.max_nodes",
            f"job {job.id}: max_nodes {job.max_nodes} is below min_nodes {job.min_nodes}",
            "swap them",
        )
    if job.min_nodes > 1 and job.max_nodes is None:
        yield Fault(
            f"{path}.min_nodes",
            f"job {job.id}: min_nodes {job.min_nodes} without max_nodes",
            "give max_nodes too",
        )
    for field in ("cpus", "memory_gib"):
        if not job.modes and job.gpus != 0 and getattr(job, field):
            yield Fault(
                f"{path}.{field}",
                f"job {job.id}: {field} is for CPU-only jobs",
                f"use profile.{field}_per_gpu",
            )
    for field, rates in (
        ("memory_gib_per_gpu", job.profile.memory_rates),
        ("gpu_memory_gib", job.profile.gpu_memory_rates),
    ):
        most_gib = getattr(job.profile, field)
        if most := [gib for gib in rates if gib >= most_gib]:
            table = field.replace("gib_per_gpu", "rates").replace("gib", "rates")
            yield Fault(
                f"{path}.profile.{table}",
                f"job {job.id}: {most[0]:.12g} GiB is no less than its {field}, {most_gib:.12g}",
                f"list smaller amounts, and the largest in {field}",
            )
    if not _falls(job.profile.locality):
        yield Fault(
            f"{path}.profile.locality",
            f"job {job.id}: a wider spread has a higher rate",
            "let rates fall, or stay equal, from node to rack to cluster",
        )


def _mode_rules(mode: Mode) -> tuple[tuple[str, object, str, str], ...]:
    """Return rules for a listed mode: a field, whether it is wrong, what is wrong, a remedy."""
    return (
        (
            "duration_s",
            mode.duration_s is None,
            "a listed mode needs a duration",
            "add it, in seconds",
        ),
        (
            "share_with",
            mode.share_with is not None,
            "a listed mode cannot name a partner",
            "leave it out",
        ),
        (
            "shared_gpus",
            bool(mode.shared_gpus),
            "a listed mode cannot name partners",
            "leave it out",
        ),
        (
            "clock_mhz",
            mode.clock_mhz is not None,
            "a listed mode cannot set a clock",
            "leave it out, its duration says how fast it is",
        ),
        *(
            (
                field,
                getattr(mode, field) is not None,
                "a listed mode cannot choose an amount of memory",
                "leave it out, the profile says how much it takes",
            )
            for field in ("memory_gib_per_gpu", "gpu_memory_gib")
        ),
        ("cpus", mode.gpus and mode.cpus, "cpus is for CPU-only modes", "use cpus_per_gpu"),
        ("cpus_per_gpu", not mode.gpus and mode.cpus_per_gpu, "the mode has no GPU", "use cpus"),
    )


def _falls(locality: Locality | None) -> bool:
    """Return whether no wider spread has a higher rate."""
    if locality is None:
        return True
    rates = [rate for rate in (locality.node, locality.rack, locality.cluster) if rate is not None]
    return rates == sorted(rates, reverse=True)


def _held(instance: Instance) -> Iterator[Fault]:
    held: tuple[tuple[str, tuple[Running | Suspended, ...]], ...] = (
        ("running", instance.running),
        ("suspended", instance.suspended),
    )
    for field, entries in held:
        for i, entry in enumerate(entries):
            path = f"{field}[{i}]"
            if entry.job in instance.job:
                yield from _before_now(instance, path, entry, instance.job[entry.job])
            else:
                yield Fault(
                    f"{path}.job", f"{entry.job!r} is not in jobs", "add the job or drop the entry"
                )
    for i, run in enumerate(instance.running):
        yield from _running(instance, f"running[{i}]", run)


def _before_now(
    instance: Instance, path: str, entry: Running | Suspended, job: Job
) -> Iterator[Fault]:
    """Yield what cannot be of a job that has run."""
    work_s = _length_s(job)
    if not entry.remaining_s > 0:
        yield Fault(
            f"{path}.remaining_s", f"job {job.id} has no work left", "drop the finished job"
        )
    elif work_s is not None and entry.remaining_s > work_s * (1 + REMAINING_TOLERANCE):
        yield Fault(
            f"{path}.remaining_s",
            f"job {job.id} has {entry.remaining_s:.12g} s of work left, "
            f"its whole work is {work_s:.12g} s",
            "give the remaining reference work in seconds",
        )
    if job.submit_s > instance.now_s:
        yield Fault(
            f"{path}.job",
            f"job {job.id} has run before its submission at {job.submit_s:.12g} s",
            "correct submit_s or now_s",
        )
    if job.after:
        yield Fault(
            f"{path}.job",
            f"job {job.id} has run although it waits for {', '.join(job.after)}",
            "drop predecessors that have completed from after and from jobs",
        )


def _running(instance: Instance, path: str, run: Running) -> Iterator[Fault]:
    for field, at_s, did in (
        ("started_s", run.started_s, "started"),
        ("last_checkpoint_s", run.last_checkpoint_s, "saved"),
    ):
        if at_s is not None and at_s > instance.now_s:
            yield Fault(
                f"{path}.{field}",
                f"job {run.job} {did} after now_s",
                "it must not lie in the future",
            )
    partner = run.mode.share_with
    if partner is not None and (partner == run.job or partner not in instance.running_job):
        yield Fault(
            f"{path}.mode.share_with",
            f"job {run.job}: {partner!r} does not run beside it",
            "name the running job on the same GPUs, or leave it out",
        )
    if run.mode.shared_gpus:
        yield Fault(
            f"{path}.mode.shared_gpus",
            f"job {run.job} shares some of its GPUs, which only plans of the simulator know",
            "leave it out",
        )
    for k, slot in enumerate(run.placement):
        if slot.node not in instance.cluster.node:
            yield Fault(
                f"{path}.placement[{k}].node",
                f"job {run.job}: node {slot.node!r} is not in the cluster",
                "name a node of cluster.nodes",
            )


def _cycles(instance: Instance) -> Iterator[Fault]:
    try:
        TopologicalSorter({job.id: job.after for job in instance.jobs if job.after}).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        first = next(i for i, job in enumerate(instance.jobs) if job.id == cycle[0])
        problem = (
            f"job {cycle[0]} waits for itself"
            if len(cycle) == 2
            else f"the jobs {' -> '.join(cycle)} wait for each other in a circle"
        )
        yield Fault(f"jobs[{first}].after", problem, "break the circle")


def _never_run(instance: Instance, unsound: set[int]) -> Iterator[Fault]:
    for i, job in enumerate(instance.jobs):
        if i in unsound or job.id in instance.running_job:
            continue
        reason = why_never(catalogue_of(instance), job)
        if reason is not None:
            yield Fault(
                f"jobs[{i}]",
                f"job {job.id} can never run: {reason}",
                "ask for less, or add what is missing to the cluster",
            )


def _overfull_now(instance: Instance, known: Sound) -> Iterator[Fault]:
    """Yield running jobs that hold what does not exist, or run in a mode that they have not."""
    if not instance.running:
        return
    from ..verify import held_faults, running_faults

    sound = True
    for i, entry in enumerate(instance.running):
        if held(instance, entry) in known.held:
            continue
        for message in running_faults(instance, entry):
            sound = False
            yield Fault(f"running[{i}]", message, "correct its mode and placement")
    for message in held_faults(instance) if sound else ():
        yield Fault("running", message, "correct modes and placements")


def _beyond_limits(instance: Instance) -> Iterator[Fault]:
    """Yield the limits that running jobs exceed, with which no plan can begin."""
    if instance.running:
        from ..verify import limit_faults

        for message in limit_faults(instance):
            yield Fault(
                "running",
                message,
                "no plan can begin beyond a limit: raise it, or list under `suspended` what "
                "`optsched round` preempts",
            )
