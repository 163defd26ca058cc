"""Instances whose plans have every feature that a picture shows."""

from optsched import Cluster, Instance, Job, Mode, Node, Profile, Running, Sharing, Slot, Suspended

COSTLY = Profile(checkpoint_s=60, restore_s=120, startup_s=30)


def busy_morning(now_s: float = 1000.0) -> Instance:
    """Two GPU nodes and a CPU-only one; a running job to preempt, a late job, a chain, CPU jobs."""
    nodes = (
        Node(name="a", gpu_type="x", gpus=4, cpus=16),
        Node(name="b", gpu_type="x", gpus=2, cpus=16),
        Node(name="c", cpus=8),
    )
    jobs = (
        Job(id="long", gpus=4, duration_s=7200, profile=COSTLY, submit_s=now_s - 600),
        Job(id="short", gpus=2, duration_s=300, profile=COSTLY, submit_s=now_s - 300),
        Job(id="late", gpus=2, duration_s=600, deadline_s=now_s + 100, submit_s=now_s),
        Job(id="chained", gpus=1, duration_s=200, after=("short",), submit_s=now_s),
        Job(id="cpu", gpus=0, cpus=4, duration_s=400, submit_s=now_s),
        Job(id="paper", gpus=0, duration_s=100, submit_s=now_s + 50),
        Job(id="back", gpus=1, duration_s=1000, profile=COSTLY, submit_s=now_s - 900),
    )
    running = (
        Running(
            job="long",
            mode=Mode(gpu_type="x", gpus=4),
            placement=(Slot(node="a", gpus=4),),
            started_s=now_s - 500,
            remaining_s=6700,
        ),
    )
    return Instance(
        name="busy <morning>",
        now_s=now_s,
        cluster=Cluster(nodes=nodes),
        jobs=jobs,
        running=running,
        suspended=(Suspended(job="back", remaining_s=500),),
    )


def shared_gpus() -> Instance:
    """Two jobs that run on the same GPUs now."""
    profile = Profile(sharing=Sharing(duty=0.4))
    nodes = (Node(name="a", gpu_type="x", gpus=2),)
    jobs = tuple(
        Job(id=name, gpus=2, duration_s=100, profile=profile) for name in ("left", "right")
    )
    running = tuple(
        Running(
            job=name,
            mode=Mode(gpu_type="x", gpus=2, share_with=other),
            placement=(Slot(node="a", gpus=2),),
            remaining_s=80,
        )
        for name, other in (("left", "right"), ("right", "left"))
    )
    return Instance(name="shared", cluster=Cluster(nodes=nodes), jobs=jobs, running=running)
