"""Large rounds with what makes them hard: hundreds of quotas, jobs that may share GPUs, hundreds of
kinds of nodes."""

import random
from dataclasses import replace

from optsched import Instance, Sharing, Tenant
from optsched.model.profile import Profile
from optsched.traces.generate.synth import generate


def with_quotas(jobs: int, gpus: int, tenants: int) -> Instance:
    """Each job belongs to one of so many tenants, each of which may hold a little more than its
    part of the GPUs."""
    instance = generate(jobs=jobs, gpus=gpus, seed=1, like="mixed", running=0.5)
    draw = random.Random(1)
    owner = {job.id: f"t{draw.randrange(tenants)}" for job in instance.jobs}
    held = dict.fromkeys((f"t{k}" for k in range(tenants)), 0)
    for entry in instance.running:
        held[owner[entry.job]] += entry.mode.gpus
    return replace(
        instance,
        jobs=tuple(replace(job, tenant=owner[job.id]) for job in instance.jobs),
        tenants=tuple(
            Tenant(name=name, gpu_quota=max(32, used, gpus // tenants))
            for name, used in held.items()
        ),
    )


def with_sharing(jobs: int, gpus: int) -> Instance:
    """Each job may share its GPUs, at one of three duties."""
    instance = generate(jobs=jobs, gpus=gpus, seed=1, like="mixed", running=0.5)
    draw = random.Random(1)
    made: dict[tuple[int, float], Profile] = {}
    found = []
    for job in instance.jobs:
        key = id(job.profile), draw.choice((0.2, 0.4, 0.6))
        if key not in made:
            made[key] = replace(job.profile, sharing=Sharing(duty=key[1]), gpu_memory_gib=12.0)
        found.append(replace(job, profile=made[key]))
    return replace(instance, jobs=tuple(found))


def with_kinds(jobs: int, gpus: int, kinds: int) -> Instance:
    """Each node has one of so many numbers of cores."""
    instance = generate(jobs=jobs, gpus=gpus, seed=1, like="mixed", running=0.5)
    draw = random.Random(1)
    nodes = tuple(
        replace(node, cpus=64 + draw.randrange(kinds), memory_gib=512.0)
        for node in instance.cluster.nodes
    )
    return replace(instance, cluster=replace(instance.cluster, nodes=nodes))
