"""Who borrows: the jobs beyond the quotas of their tenants, which give way to all others (see
docs/mathematics.md, section 9, "Borrowed GPUs")."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from ..model import Instance, Job, Quotas, Tenant
from ..physics import gang_sizes

BELOW_ALL = 2 * 10**9 + 1
"""What borrowing takes off a priority: more than any two priorities differ by."""


def rank_of(priority: int, *, borrows: bool) -> int:
    """Return the rank of a job: its priority, or one below all others if it borrows."""
    return priority - BELOW_ALL if borrows else priority


def borrows(ranked: float) -> bool:
    """Return whether a rank is that of a job that borrows."""
    return ranked < -BELOW_ALL / 2


def priority_of(ranked: int) -> int:
    """Return the priority of the jobs of a rank."""
    return ranked + BELOW_ALL if borrows(ranked) else ranked


def may_borrow(tenants: Iterable[Tenant]) -> bool:
    """Return whether any tenant may."""
    return any(tenant.borrow_gpus for tenant in tenants)


def borrowers(instance: Instance) -> frozenset[str]:
    """Return the jobs that run or could start and do not fit in their quotas beside those before
    them: of a higher priority, then running ones, then those with less GPU time left for their
    weight, then those that came first. Nobody borrows where no tenant may.

    A running job that borrows counts against the quota closest to it: those who borrow take nothing
    back for themselves.
    """
    if not may_borrow(instance.tenants):
        return frozenset()
    quota = {tenant.name: tenant.gpu_quota or 0 for tenant in instance.tenants}
    over = Quotas.of(instance.tenants).over
    running, now_s = instance.running_job, instance.now_s
    entries = []
    for job in instance.jobs:
        path = [name for name in over.get(job.tenant or "", ()) if name is not None]
        entry = running.get(job.id)
        gpus = fewest_gpus(job) if entry is None else entry.mode.gpus
        if gpus and path and (entry is not None or (job.submit_s <= now_s and not job.after)):
            gpu_s = 0.0 if entry else gpus * instance.remaining_s(job) / max(job.weight, 1e-9)
            key = -job.priority, entry is None, gpu_s, job.submit_s, job.id
            entries.append((key, gpus, path))
    used: Counter[str] = Counter()
    borrowing = set()
    for (_, waits, _, _, name), gpus, path in sorted(entries):
        if all(used[own] + gpus <= quota[own] for own in path):
            used.update(dict.fromkeys(path, gpus))
            continue
        borrowing.add(name)
        if not waits:
            used[path[0]] += gpus
    return frozenset(borrowing)


def fewest_gpus(job: Job) -> int:
    """Return the fewest GPUs with which a job could start."""
    return min(mode.gpus for mode in job.modes) if job.modes else min(gang_sizes(job))


def with_promised(
    tenants: tuple[Tenant, ...], promised: Iterable[tuple[str | None, int]]
) -> tuple[Tenant, ...]:
    """Return the tenants with GPUs that are promised to jobs of theirs taken off their quotas, as
    if these were held. What each may hold in all stays."""
    taken: Counter[str | None] = Counter()
    over = Quotas.of(tenants).over
    for tenant, gpus in promised:
        taken.update(dict.fromkeys(over.get(tenant or "", ()), gpus))
    return tuple(
        tenant
        if tenant.gpu_quota is None or not (less := min(taken[tenant.name], tenant.gpu_quota))
        else replace(
            tenant, gpu_quota=tenant.gpu_quota - less, borrow_gpus=tenant.borrow_gpus + less
        )
        for tenant in tenants
    )
