"""Alibaba's openb cluster, 2023.

Sources: run times, sizes, requests and arrivals are fitted to the 8,152 pods of
`openb_pod_list_default` (7,255 of them were scheduled; github.com/alibaba/clusterdata,
cluster-trace-gpu-v2023, 7a6c496), arrivals to its last five weeks, where it is dense; the clock is
the trace's, whose zero is unknown. Nodes: its node list. Weng et al., Beware of fragmentation:
scheduling GPU-sharing workloads with fragmentation gradient descent, ATC'23.

As `optsched import openb` does, a pod that asks for a part of a GPU takes one, of which it keeps
that part busy. Not published: users (here 300), and why pods fail; chance and run time to failure
are those of the pods with GPUs in the phase Failed, the shares of the causes are Philly's.
"""

from ....model.profile import UNMEASURED, Locality, Profile, Sharing
from ...readers.alibaba import GPU_MEMORY_GIB
from .distribution import quantiles
from .model import Cause, Failing, Model, NodeKind, Rhythm, Row
from .philly import GAP_LEVELS, LEVELS
from .philly_failures import CAUSES, SOURCE

NO_GPU = quantiles(
    LEVELS,
    (
        33,
        59,
        76,
        102,
        141,
        145,
        146,
        148,
        151,
        175,
        184,
        273,
        379,
        492,
        633,
        804,
        1080,
        1450,
        1950,
        2600,
        4390,
        13200,
        19800,
        25100,
        28400,
        55500,
        1280000,
        10100000,
        10100000,
    ),
)
ONE = quantiles(
    LEVELS,
    (
        4,
        20,
        37,
        51,
        67,
        97,
        127,
        150,
        184,
        218,
        278,
        367,
        512,
        655,
        845,
        1040,
        1280,
        1690,
        2280,
        3260,
        4270,
        7240,
        16100,
        53900,
        136000,
        982000,
        4360000,
        10200000,
        12500000,
    ),
)
MORE = quantiles(
    LEVELS,
    (
        22,
        22,
        35,
        36,
        40,
        117,
        136,
        140,
        171,
        259,
        443,
        497,
        542,
        573,
        952,
        1710,
        2710,
        3600,
        6710,
        17800,
        27400,
        68500,
        210000,
        977000,
        1330000,
        1330000,
        1330000,
        1330000,
        1330000,
    ),
)
REQUESTS = (
    (810, 4, 5, 988),
    (1000, 12, 48, 805),
    (1000, 12, 47, 560),
    (1000, 4, 5, 463),
    (470, 12, 46, 255),
    (1000, 19, 63, 207),
    (650, 12, 46, 202),
    (470, 8, 30, 198),
    (1000, 10, 41, 159),
    (1000, 12, 24, 155),
    (1000, 16, 57, 136),
    (1000, 16, 32, 141),
    (1000, 4, 24, 104),
    (1000, 8, 16, 102),
    (1000, 12, 16, 145),
    (1000, 12, 76, 97),
    (320, 4, 22, 114),
    (1000, 25, 91, 83),
    (1000, 15, 57, 79),
    (550, 5, 10, 71),
    (320, 8, 30, 67),
    (320, 4, 15, 105),
    (590, 4, 5, 75),
    (230, 4, 30, 94),
    (1000, 8, 32, 53),
    (460, 6, 6, 80),
    (160, 4, 15, 74),
    (370, 5, 10, 47),
)
"""The commonest requests of pods with one GPU: thousandths of it, cores, GiB, pods (with rarer ones
near it)."""
WITHOUT_GPU = ((13, 56, 366), (32, 48, 290), (8, 30, 185), (15, 50, 120), (17, 50, 95))
"""Cores, GiB, pods."""
SEVERAL = (
    (2, 9, 32, 9),
    (2, 3, 32, 3),
    (2, 16, 78, 3),
    (4, 9, 32, 12),
    (4, 16, 78, 3),
    (8, 11, 40, 20),
    (8, 9, 32, 21),
    (8, 15, 90, 3),
)
"""GPUs, cores and GiB for each, pods."""
NODES = (
    ("g2", 549, 8, 96, 384),
    ("t4", 387, 2, 104, 512),
    ("p100", 107, 2, 16, 120),
    ("g3", 39, 8, 128, 768),
    ("v100m16", 28, 4, 32, 128),
    ("p100", 24, 2, 64, 256),
    ("v100m32", 21, 8, 96, 768),
    ("v100m16", 19, 1, 8, 32),
    ("t4", 17, 4, 96, 384),
    ("v100m32", 9, 4, 48, 368),
    ("v100m16", 8, 8, 64, 256),
    ("p100", 3, 1, 8, 60),
    ("a10", 2, 1, 128, 1024),
    (None, 129, 0, 32, 256),
    (None, 79, 0, 104, 512),
    (None, 33, 0, 32, 128),
    (None, 30, 0, 96, 384),
    (None, 22, 0, 64, 512),
    (None, 17, 0, 64, 256),
)
"""GPU type, nodes, GPUs, cores, GiB; kinds with one node count with the nearest."""

FAILED = quantiles(
    (0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1),
    (4, 28, 52, 115, 152, 194, 219, 289, 530, 959, 2260, 4860, 15000, 165000),
)
FAILING = Failing(
    source=SOURCE,
    edges=(),
    chance=(0.301,),
    causes=tuple(
        Cause(
            kind=cause.kind,
            trials=(sum(cause.trials),),
            attempts=1.0,
            after_s=FAILED,
            resumes=cause.resumes,
        )
        for cause in CAUSES
    ),
)


def _profile(cores: int, memory_gib: float, milli: int = 1000, several: bool = False) -> Profile:
    return Profile(
        cpus_per_gpu={cores: 1.0},
        memory_gib_per_gpu=memory_gib,
        sharing=Sharing(duty=milli / 1000) if milli < 1000 else None,
        locality=Locality(rack=0.0, cluster=0.0) if several else None,
    )


MODEL = Model(
    name="openb",
    title="Alibaba openb, 2023",
    sources=__doc__ or "",
    nodes=tuple(
        NodeKind(
            gpu_type=gpu_type,
            count=count,
            gpus=gpus,
            gpu_memory_gib=GPU_MEMORY_GIB.get(gpu_type or ""),
            cpus=cpus,
            memory_gib=memory_gib,
        )
        for gpu_type, count, gpus, cpus, memory_gib in NODES
    ),
    reference_gpu=None,
    rows=(
        *(
            Row(
                share=pods / 5659 * 6129,
                gpus=1,
                run_s=ONE,
                kind="pod",
                profile=_profile(cores, memory_gib, milli),
            )
            for milli, cores, memory_gib, pods in REQUESTS
        ),
        *(
            Row(
                share=pods / 1056 * 1052,
                gpus=0,
                run_s=NO_GPU,
                kind="cpu-pod",
                cpus=cores,
                memory_gib=memory_gib,
                profile=UNMEASURED,
            )
            for cores, memory_gib, pods in WITHOUT_GPU
        ),
        *(
            Row(
                share=pods,
                gpus=gpus,
                run_s=MORE,
                kind="pod",
                profile=_profile(cores, memory_gib, several=True),
            )
            for gpus, cores, memory_gib, pods in SEVERAL
        ),
    ),
    rhythm=Rhythm(
        per_day=8125 / 34.33,
        hours=(
            0.0629,
            0.0559,
            0.0446,
            0.0535,
            0.0523,
            0.0390,
            0.0357,
            0.0407,
            0.0298,
            0.0180,
            0.0273,
            0.0251,
            0.0187,
            0.0183,
            0.0167,
            0.0332,
            0.0368,
            0.0522,
            0.0676,
            0.0572,
            0.0430,
            0.0529,
            0.0524,
            0.0661,
        ),
        weekdays=(1, 1, 1, 1, 1, 1, 1),
        day_spread=0.39,
        day_memory=0.49,
        gaps=quantiles(
            GAP_LEVELS,
            (
                0.003,
                0.005,
                0.02,
                0.058,
                0.108,
                0.156,
                0.208,
                0.274,
                0.348,
                0.429,
                0.535,
                0.641,
                0.78,
                0.929,
                1.1,
                1.33,
                1.61,
                1.95,
                2.5,
                2.98,
                3.79,
                4.89,
                6.03,
                7.62,
                10.8,
                38,
            ),
        ),
        gap_burst=0.15,
        gap_memory=0.96,
        batch_gap=0.1,
        batch_chance=0.5,
    ),
    failing=FAILING,
    users=300,
    user_skew=0.9,
    published={
        "mean_gpus": 0.906,
        "mean_run_s": 28949,
        "median_run_s": 616,
        "gpu_s": 29580,
        "failing": 0.258,
    },
)
