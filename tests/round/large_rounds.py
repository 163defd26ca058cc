"""Large rounds with what makes them hard: hundreds of quotas, jobs that may share GPUs."""

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
