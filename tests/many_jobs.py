"""A large made-up instance, to see how fast files are read and written: `python -m tests.many_jobs
[jobs]`."""

import json
import random
import sys
import time

from optsched import Cluster, Instance, Job, Locality, Node, Profile, Sharing, Tenant
from optsched.files import dump_instance, load_instance


def many_jobs(jobs: int, profiles: int = 40, seed: int = 1) -> Instance:
    """`jobs` jobs with full profiles, `profiles` of them different, on 550 nodes of two kinds."""
    rng = random.Random(seed)
    kinds = [_profile(i, profiles) for i in range(profiles)]
    nodes = [
        Node(
            name=f"{gpu_type}-{i:03d}",
            gpus=8,
            gpu_type=gpu_type,
            cpus=cpus,
            memory_gib=1024.0,
            gpu_memory_gib=80.0,
            rack=f"{gpu_type}-r{i // 16}",
        )
        for gpu_type, count, cpus in (("a100", 300, 96), ("v100", 250, 64))
        for i in range(count)
    ]
    return Instance(
        cluster=Cluster(nodes=tuple(nodes)),
        tenants=(Tenant(name="vision"),),
        jobs=tuple(
            Job(
                id=f"job-{i}",
                submit_s=10.5 * i,
                gpus=rng.choice((1, 2, 4, 8)),
                tenant="vision",
                duration_s=round(1 + rng.lognormvariate(7, 2), 3),
                profile=kinds[i % profiles],
                after=(f"job-{i - 1}",) if i % 10 == 9 else (),
            )
            for i in range(jobs)
        ),
    )


def _profile(i: int, of: int) -> Profile:
    return Profile(
        name=f"model-{i}",
        rate={"a100": 1.0, "v100": 0.4 + 0.1 * i / of},
        gpus={1: 0.2, 2: 0.35, 4: 0.6, 8: 1.0},
        cpus_per_gpu={1: 0.4, 2: 0.7, 4: 0.9, 8: 1.0},
        locality=Locality(node=1.0, rack=0.9, cluster=0.7),
        sharing=Sharing(duty=0.6, partners={"model-1": 0.8}),
        gpu_memory_gib=31.0,
        memory_gib_per_gpu=60.0,
        checkpoint_s=25.0,
        restore_s=60.0,
        startup_s=20.0,
        power_w={"a100": 350.0, "v100": 250.0},
    )


def main() -> None:
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    load_instance(dump_instance(many_jobs(10)))  # what is imported once is not measured
    for profiles in (40, jobs):
        instance = many_jobs(jobs, profiles)
        start = time.process_time()
        text = dump_instance(instance)
        dumped = time.process_time()
        json.loads(text)
        parsed = time.process_time()
        load_instance(text)
        loaded = time.process_time()
        print(
            f"{jobs} jobs, {profiles} profiles, {len(text) / 1e6:.1f} MB: dump "
            f"{dumped - start:.2f} s, "
            f"load {loaded - parsed:.2f} s (json.loads alone {parsed - dumped:.2f} s), CPU time"
        )


if __name__ == "__main__":
    main()
