"""The instance of `optsched demo`: a small cluster in the middle of a working day."""

from ..cluster import Cluster, Node, Tenant
from ..instance import Instance, Running, Slot
from ..job import Job, Mode
from ..profile import Locality, Profile

MIN, H = 60.0, 3600.0

LANGUAGE = Profile(
    name="language model",
    rate={"a100": 1.0, "v100": 0.4},
    locality=Locality(rack=0.85),
    gpu_memory_gib=24,
    checkpoint_s=40,
    restore_s=80,
    startup_s=30,
)
VISION = Profile(
    name="vision",
    rate={"a100": 1.0, "v100": 0.65},
    cpus_per_gpu={4: 1.0},
    gpu_memory_gib=11,
    checkpoint_s=10,
    restore_s=20,
    startup_s=15,
)
LARGE = Profile(
    name="large model",
    rate={"a100": 1.0},
    locality=Locality(rack=0.9),
    gpu_memory_gib=60,
    checkpoint_s=60,
    restore_s=120,
    startup_s=45,
)


def demo_instance() -> Instance:
    """Twelve GPUs of two types, eleven jobs: some run, some wait, some arrive within the hour."""
    nodes = (
        *(
            Node(
                name=f"a100-{i}",
                gpu_type="a100",
                gpus=4,
                gpu_memory_gib=80,
                cpus=32,
                memory_gib=512,
                rack="r0",
            )
            for i in range(2)
        ),
        *(
            Node(
                name=f"v100-{i}",
                gpu_type="v100",
                gpus=2,
                gpu_memory_gib=32,
                cpus=16,
                memory_gib=192,
                rack="r1",
            )
            for i in range(2)
        ),
    )
    now_s = 9 * H
    jobs = (
        Job(
            id="pretrain", tenant="language", gpus=4, duration_s=7 * H, submit_s=now_s - 3 * H, profile=LARGE
        ),
        Job(
            id="finetune-a",
            tenant="language",
            gpus=2,
            duration_s=50 * MIN,
            submit_s=now_s - 40 * MIN,
            profile=LANGUAGE,
        ),
        Job(
            id="segment",
            tenant="vision",
            gpus=1,
            duration_s=2 * H,
            submit_s=now_s - 90 * MIN,
            preemptible=False,
            profile=VISION,
        ),
        Job(
            id="eval-nightly",
            tenant="language",
            gpus=4,
            duration_s=12 * MIN,
            submit_s=now_s - 25 * MIN,
            weight=2,
            profile=LARGE,
        ),
        Job(
            id="sweep-1",
            tenant="vision",
            gpus=1,
            duration_s=20 * MIN,
            submit_s=now_s - 20 * MIN,
            profile=VISION,
        ),
        Job(
            id="sweep-2",
            tenant="vision",
            gpus=1,
            duration_s=25 * MIN,
            submit_s=now_s - 20 * MIN,
            profile=VISION,
        ),
        Job(
            id="gang-8",
            tenant="language",
            gpus=8,
            duration_s=45 * MIN,
            submit_s=now_s - 10 * MIN,
            profile=LARGE,
        ),
        Job(
            id="tokenise",
            tenant="language",
            gpus=0,
            cpus=8,
            memory_gib=64,
            duration_s=18 * MIN,
            submit_s=now_s - 10 * MIN,
        ),
        Job(
            id="finetune-b",
            tenant="language",
            gpus=2,
            duration_s=30 * MIN,
            submit_s=now_s - 5 * MIN,
            after=("tokenise",),
            profile=LANGUAGE,
        ),
        Job(
            id="detect",
            tenant="vision",
            gpus=2,
            duration_s=55 * MIN,
            submit_s=now_s + 10 * MIN,
            deadline_s=now_s + 3 * H,
            profile=VISION,
        ),
        Job(
            id="urgent-fix",
            tenant="vision",
            gpus=1,
            duration_s=8 * MIN,
            submit_s=now_s + 20 * MIN,
            weight=4,
            deadline_s=now_s + 35 * MIN,
            profile=VISION,
        ),
    )
    running = (
        _running("pretrain", "a100", 4, 0, "a100-0", now_s - 3 * H, 4.2 * H),
        _running("finetune-a", "a100", 2, 0, "a100-1", now_s - 30 * MIN, 20 * MIN),
        _running("segment", "v100", 1, 4, "v100-1", now_s - 80 * MIN, 68 * MIN),
    )
    tenants = (Tenant(name="language", gpu_quota=10), Tenant(name="vision"))
    return Instance(
        name="demo",
        now_s=now_s,
        cluster=Cluster(nodes=nodes, reference_gpu="a100"),
        tenants=tenants,
        jobs=jobs,
        running=running,
    )


def _running(
    job: str, gpu_type: str, gpus: int, cores: int, node: str, started_s: float, remaining_s: float
) -> Running:
    """A job that holds `gpus` GPUs of one node."""
    return Running(
        job=job,
        mode=Mode(gpu_type=gpu_type, gpus=gpus, cpus_per_gpu=cores),
        placement=(Slot(node=node, gpus=gpus, cpus=gpus * cores),),
        started_s=started_s,
        remaining_s=remaining_s,
    )
