"""Checks the certificate of a bound from the instance and the certificate alone.

Shares nothing with what makes certificates (`optsched.bounds`), nor with the physics and modes that
it uses: the way from the instance to each job's alternatives, and from prices to a bound, is gone
here a second time.
"""

from collections import Counter
from graphlib import TopologicalSorter
from math import isfinite

import numpy as np

from ..files import instance_hash
from ..files.certificate import Certificate
from ..model import Instance
from .gangs import bound as bound_of_gangs
from .jobs import FitsNowhereError, Task, isolated_s, tasks
from .prices import Tariff, bound, refutes
from .quotas import limits
from .site import Site

TOLERANCE = 1e-9
"""A stated bound may lie above the recomputed one by this much relative to it: the rounding of
numbers in files."""


def recomputed(instance: Instance, certificate: Certificate) -> tuple[float | None, list[str]]:
    """Return the bound that the prices of a certificate prove for a sound instance, None if they do
    not prove any, and what is wrong with the certificate."""
    wrong = []
    own_hash = instance_hash(instance)
    if certificate.instance.hash != own_hash:
        wrong.append(
            f"the bound was made for instance {certificate.instance.name} with content "
            f"{certificate.instance.hash}, "
            f"this is {instance.name} with content {own_hash}"
        )
    if unknown := _unknown(instance, certificate):
        return None, [*wrong, unknown]
    with np.errstate(all="ignore"):  # what is no number proves nothing
        try:
            value = _proved(instance, certificate) if instance.jobs else 0.0
        except FitsNowhereError as error:
            return None, [*wrong, f"{error}: there is no plan to bound"]
    if value is None:
        wrong.append(f"its prices do not refute {certificate.objective} {certificate.value:.12g}")
    elif not isfinite(value):
        value = None
        wrong.append("its prices are beyond what can be added up, and prove nothing")
    elif not certificate.value <= value + TOLERANCE * max(1.0, abs(value)):
        wrong.append(f"its prices prove {value:.12g}, the file says {certificate.value:.12g}")
    return value, wrong


def _unknown(instance: Instance, certificate: Certificate) -> str | None:
    """Return of what it has prices that the instance does not have, or lacks prices, in one clause,
    or None."""
    types = instance.cluster.gpu_types
    if certificate.gangs:
        for row in certificate.gangs:
            if row.job not in instance.job or row.gpu_type not in types:
                where = f"job {row.job} on GPU type {_names([row.gpu_type])}"
                return f"it has prices of {where}, which the instance does not have"
        for entry in instance.running:
            if entry.mode.share_with or entry.mode.shared_gpus:
                return f"prices of gangs prove nothing where GPUs are shared, as by {entry.job}"
        return None
    stated = [own.gpu_type for own in certificate.prices]
    if instance.jobs and Counter(stated) != Counter(types):
        return f"it has prices of GPU types {_names(stated)}, the cluster has {_names(types)}"
    unlimited = {row.tenant for row in certificate.quotas} - limits(instance).keys()
    if unlimited:
        names = ", ".join("all together" if name is None else name for name in unlimited)
        return f"it has prices of quotas that the instance does not limit: {names}"
    return None


def _proved(instance: Instance, certificate: Certificate) -> float | None:
    """Return the value that the prices prove, which of a largest cost is the one stated or none."""
    site = Site(instance.cluster)
    offset = sum(job.weight * (instance.now_s - job.submit_s) for job in instance.jobs)
    if certificate.gangs:
        return bound_of_gangs(instance, site, certificate, offset)
    todo = tasks(instance, site, certificate.replay)
    own = {row.gpu_type: row.per_gpu_s for row in certificate.prices}
    grid = np.array(certificate.grid_s, dtype=np.float64)
    prices = np.array([own[name] for name in site.types], dtype=np.float64).reshape(
        len(site.types), len(grid) - 1
    )
    most = limits(instance)
    quotas = {
        row.tenant: (most[row.tenant], np.array(row.per_gpu_s, dtype=np.float64))
        for row in certificate.quotas
    }
    tariff = Tariff(np.array(site.gpus, dtype=np.float64), grid, prices, quotas)
    if certificate.objective == "wct":
        return bound(tariff, todo, offset)
    value = certificate.value
    if value <= 0 or refutes(
        tariff, todo, _due_s(instance, site, todo, certificate.objective, value)
    ):
        return value
    return None


def _due_s(
    instance: Instance, site: Site, todo: list[Task], objective: str, value: float
) -> list[float]:
    """Return when each job must be done, in seconds after now, for no cost to exceed `value` and
    for those after it to be in time."""
    due = {
        job.id: value
        if objective == "makespan"
        else job.submit_s - instance.now_s + value * isolated_s(instance, site, job)
        for job in instance.jobs
    }
    alone_s = {job.id: task.alone_s for job, task in zip(instance.jobs, todo, strict=True)}
    order = TopologicalSorter({job.id: job.after for job in instance.jobs}).static_order()
    for name in reversed(list(order)):
        for before in instance.job[name].after:
            due[before] = min(due[before], due[name] - alone_s[name])
    return list(due.values())


def _names(types: "list[str | None] | tuple[str | None, ...]") -> str:
    return ", ".join("without a name" if name is None else str(name) for name in types) or "none"
