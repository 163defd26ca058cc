"""Shares: use that decays, and how it raises or lowers the weight of jobs (docs/mathematics.md,
section 9)."""

import math
from collections.abc import Iterable
from dataclasses import replace

from ..model import Account, Instance, Job, Shares, Tenant, Use
from .fair_tree import Branch, tree

GAIN, USER_GAIN = 16.0, 2.0
"""The weight of jobs goes with these powers of what their tenant, and their user within it, is
entitled to over what it used."""
LARGEST = 4.0
"""At no level of the tree are weights raised or lowered by more than this factor."""
PRIOR = 0.05
"""Everybody is taken to have used what he is entitled to for this part of the mean life of use, so
that the first GPU-seconds do not decide alone."""
STEPS = 32
"""So many factors lie between one and the double: jobs change no more often than that."""
MOST_WEIGHT = 1e9
LEAST_USE_GPU_S = 1e-6
"""Use that has decayed to less is forgotten."""


class DecayedUse:
    """GPU-seconds held by account, of which half counts after each half-life.

    A job that holds g GPUs from a to b counts at t, with the mean life L = half-life / ln 2, as
    g L (exp((b - t) / L) - exp((a - t) / L)). What is kept does not grow with the jobs that ended.
    """

    def __init__(self, half_life_s: float, used: Iterable[Use] = (), at_s: float = 0.0) -> None:
        self.half_life_s, self.mean_life_s = half_life_s, half_life_s / math.log(2)
        self._used: dict[Account, tuple[float, float]] = {}
        for use in used:
            account = use.tenant, use.user
            self._used[account] = self._at(account, at_s) + use.gpu_s, at_s

    def hold(self, account: Account, gpus: int, begin_s: float, end_s: float) -> None:
        """Charge for GPUs that were held. Charges come in the order of their ends; where a clock
        was put back, use goes on to decay from there."""
        if gpus and end_s > begin_s:
            held = self._held(gpus, begin_s, end_s)
            self._used[account] = self._at(account, end_s) + held, end_s

    def _at(self, account: Account, at_s: float) -> float:
        if account not in self._used:
            return 0.0
        gpu_s, since_s = self._used[account]
        return gpu_s * math.exp(min(0.0, (since_s - at_s) / self.mean_life_s))

    def _held(self, gpus: int, begin_s: float, end_s: float) -> float:
        return -gpus * self.mean_life_s * math.expm1((begin_s - end_s) / self.mean_life_s)

    def at(
        self, at_s: float, holding: Iterable[tuple[Account, int, float]] = ()
    ) -> tuple[Use, ...]:
        """Return the use at an instant, with what is held still: (account, GPUs, since when)."""
        gpu_s = {account: self._at(account, at_s) for account in self._used}
        for account, gpus, begin_s in holding:
            if gpus and at_s > begin_s:
                gpu_s[account] = gpu_s.get(account, 0.0) + self._held(gpus, begin_s, at_s)
        return tuple(
            Use(tenant=tenant, user=user, gpu_s=amount)
            for (tenant, user), amount in gpu_s.items()
            if amount > LEAST_USE_GPU_S
        )


def account_of(job: Job) -> Account:
    """Return who is charged for a job."""
    return job.tenant, job.user


def factors(
    tenants: tuple[Tenant, ...], shares: Shares, gpus: int, accounts: Iterable[Account]
) -> dict[Account, float]:
    """Return the factor by which the weight of the jobs of each account is multiplied, where these
    are the accounts with jobs that wait or run on `gpus` GPUs."""
    wanted = dict.fromkeys(accounts)
    root = tree(tenants, shares.used, wanted)
    prior_gpu_s = PRIOR * shares.half_life_s / math.log(2) * gpus
    result: dict[Account, float] = {}

    def visit(branch: Branch, entitled: float, log_factor: float) -> None:
        if branch.is_user:
            result[branch.tenant, branch.user] = _rounded(log_factor)
            return
        children = [
            child
            for child in branch.children
            if any((leaf.tenant, leaf.user) in wanted for leaf in child.leaves())
        ]
        weights = math.fsum(child.weight for child in children)
        parts = [child.weight / weights if weights else 1 / len(children) for child in children]
        used = [
            child.gpu_s + prior_gpu_s * entitled * part + LEAST_USE_GPU_S
            for child, part in zip(children, parts, strict=True)
        ]
        total = math.fsum(used)
        most = math.log(LARGEST)
        for child, part, own in zip(children, parts, used, strict=True):
            gain = USER_GAIN if child.is_user else GAIN
            ratio = gain * (math.log(part) + math.log(total / own)) if part else -most
            visit(child, entitled * part, log_factor + min(most, max(-most, ratio)))

    visit(root, 1.0, 0.0)
    return result


def _rounded(log_factor: float) -> float:
    return float(2.0 ** (round(log_factor / math.log(2) * STEPS) / STEPS))


def weighed(instance: Instance) -> Instance:
    """Return the instance with the weights of jobs as the use of their tenants and users says, and
    without `shares`."""
    shares = instance.shares
    if shares is None:
        return instance
    accounts = [account_of(job) for job in instance.jobs]
    factor = factors(instance.tenants, shares, instance.cluster.total_gpus, accounts)
    jobs = tuple(
        replace(job, weight=min(MOST_WEIGHT, job.weight * factor[account]))
        if factor[account] != 1
        else job
        for job, account in zip(instance.jobs, accounts, strict=True)
    )
    return replace(instance, jobs=jobs, shares=None)
