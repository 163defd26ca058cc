"""Shanghai AI Laboratory's Acme: the GPU jobs of Seren and Kalos, March to August 2023, mostly for
language models.

Sources: Hu et al., Characterization of large language model development in the datacenter, NSDI'24
(nodes; pretraining is 0.9 % of the jobs and 69.5 % of the GPU time of Seren, 3.2 % and 94.0 % in
Kalos; evaluation takes 0.8 % of the GPU time of Kalos; failures: `acme_failures`); the totals of
683,720 GPU jobs in `cluster_summary.csv` (github.com/InternLM/AcmeTrace, 6d6ac9c): mean and median
run time, mean gang, GPU time, final states. Run times are log-normal by kind of job; medians,
growth with the gang and the share of 8-GPU jobs are solved for those totals.

Approximate: gang sizes by kind (a figure only: evaluation mostly on one GPU, pretraining on
hundreds) and the share of evaluation in Seren. Not published: users, hours (here Helios', a cluster
of the same people), the spread of days and intervals (Philly's).
"""

import math
from dataclasses import replace

from .acme_failures import FAILING
from .distribution import lognormal
from .helios import RHYTHM as HELIOS
from .model import Model, NodeKind, Row

LONGEST_S = 1209604.0
EVALUATION, PRETRAINING = 0.60, 0.0097
EVALUATION_GANGS = {1: 0.88, 2: 0.05, 4: 0.04, 8: 0.03}
PRETRAINING_GANGS = {64: 0.10, 128: 0.20, 256: 0.27, 512: 0.25, 1024: 0.18}
OTHER_GANGS = {1: 0.610898, 2: 0.06, 4: 0.06, 8: 0.232992, 16: 0.0233, 32: 0.00932, 64: 0.00349}
OTHER_MEDIAN_S, OTHER_GROWTH = 120.17, 0.49381901
"""Fine-tuning, multimodal models, debugging: on one GPU; growth of the logarithm with each
doubling."""

MODEL = Model(
    name="acme",
    title="Acme (Seren and Kalos), March to August 2023",
    sources=__doc__ or "",
    nodes=(
        NodeKind(gpu_type="a100", count=286, gpus=8, gpu_memory_gib=80, cpus=128, memory_gib=1024),
        NodeKind(gpu_type="a100", count=302, gpus=8, gpu_memory_gib=80, cpus=128, memory_gib=2048),
    ),
    reference_gpu="a100",
    rows=(
        *(
            Row(
                share=EVALUATION * share,
                gpus=gpus,
                kind="evaluation",
                run_s=lognormal(96.23, 1.6, LONGEST_S),
            )
            for gpus, share in EVALUATION_GANGS.items()
        ),
        *(
            Row(
                share=(1 - EVALUATION - PRETRAINING) * share,
                gpus=gpus,
                kind="other",
                run_s=lognormal(
                    OTHER_MEDIAN_S * math.exp(OTHER_GROWTH * math.log2(gpus)), 2.2, LONGEST_S
                ),
            )
            for gpus, share in OTHER_GANGS.items()
        ),
        *(
            Row(
                share=PRETRAINING * share,
                gpus=gpus,
                kind="pretraining",
                run_s=lognormal(689.6, 2.2, LONGEST_S),
            )
            for gpus, share in PRETRAINING_GANGS.items()
        ),
    ),
    rhythm=replace(HELIOS, per_day=683_720 / 184),
    failing=FAILING,
    users=300,
    user_skew=0.9,
    published={
        "mean_gpus": 6.294,
        "mean_run_s": 1409.8,
        "median_run_s": 122,
        "gpu_s": 39260,
        "failing": 0.428,
    },
)
