"""SenseTime's Helios: the GPU jobs of Venus, Earth, Saturn and Uranus, April to September 2020.

Sources: Hu et al., Characterization and prediction of deep learning workloads in large-scale GPU
datacenters, SC'21 (nodes: table 1; top 5 % of users take 45 to 60 % of the GPU time); the totals of
1,580,464 GPU jobs in `cluster_summary.csv` (github.com/InternLM/AcmeTrace, 6d6ac9c): mean and
median run time, mean gang, GPU time by final state. Run times are log-normal with a median that
grows with the gang: the three free numbers are solved for the published mean, median and GPU time
of a job. Hours and weekdays: the minutes in which the number of jobs grew in three virtual clusters
of Earth in May 2020; sizes of virtual clusters: those of Earth on 2020-09-01
(github.com/S-Lab-System-Group/HeliosArtifact and HeliosData).

Approximate: the paper gives gang sizes as a figure only (over half on one GPU, nine tenths in
Earth, a tenth or so on 8 and more); the shares here are such, with a geometric tail solved for the
published mean of 3.716 GPUs. Pascal nodes are taken to be P100. Not published, and taken from
Philly: the spread of intervals, and why and when jobs fail; their chance is that of the final
states, run times to failure are shortened such that failed attempts take about the published 9.3 %
of the GPU time. The spread of single days is an assumption.
"""

import math

from .distribution import lognormal
from .model import Group, Model, NodeKind, Rhythm, Row
from .philly import RHYTHM as PHILLY
from .philly_failures import scaled_to

LONGEST_S = 4320009.0
MEDIAN_S, GROWTH, SIGMA = math.exp(5.15994787), 0.21745132, 2.6505734
"""Of one GPU; growth of the logarithm with each doubling of the gang; standard deviation of the
logarithm."""
SHORTER = 0.18
"""Run times to failure relative to Philly's."""
GANGS = {
    1: 0.70,
    2: 0.065,
    4: 0.065,
    8: 0.125,
    16: 0.028098,
    32: 0.010561,
    64: 0.003969,
    128: 0.001492,
    256: 0.000561,
    512: 0.000211,
    1024: 0.000079,
    2048: 0.00003,
}
VENUS_EARTH, SATURN_URANUS = 133 + 143, 262 + 264
EARTH_GPUS = {
    "vchbv": 64,
    "vc4om": 96,
    "vcVP5": 176,
    "vc6YE": 216,
    "vchA3": 40,
    "vccaA": 40,
    "vcTJs": 48,
    "vcvlY": 96,
    "vcSoL": 32,
    "vcMod": 64,
    "vcpDC": 56,
    "vc3sl": 64,
    "vcJLV": 32,
    "vcLJZ": 64,
    "vcJkd": 16,
    "vcdI0": 16,
    "vcira": 16,
    "vcgkz": 8,
}
"""GPUs by virtual cluster; their shares of the jobs are not published and taken to be as large."""
RHYTHM = Rhythm(
    per_day=1_580_464 / 183,
    hours=(
        0.0422,
        0.0362,
        0.0216,
        0.0121,
        0.0086,
        0.0058,
        0.0063,
        0.0066,
        0.0068,
        0.0176,
        0.0366,
        0.0454,
        0.0431,
        0.0388,
        0.0408,
        0.0694,
        0.0973,
        0.0837,
        0.0660,
        0.0673,
        0.0705,
        0.0688,
        0.0601,
        0.0482,
    ),
    weekdays=(1.22, 1.10, 0.97, 1.21, 1.37, 0.584, 0.548),
    day_spread=0.4,
    day_memory=PHILLY.day_memory,
    gaps=PHILLY.gaps,
    gap_burst=PHILLY.gap_burst,
    gap_memory=PHILLY.gap_memory,
    batch_gap=PHILLY.batch_gap,
    batch_chance=PHILLY.batch_chance,
)
ROWS = tuple(
    Row(
        share=share,
        gpus=gpus,
        run_s=lognormal(MEDIAN_S * math.exp(GROWTH * math.log2(gpus)), SIGMA, LONGEST_S),
    )
    for gpus, share in GANGS.items()
)

MODEL = Model(
    name="helios",
    title="SenseTime Helios, April to September 2020",
    sources=__doc__ or "",
    nodes=(
        NodeKind(
            gpu_type="v100", count=VENUS_EARTH, gpus=8, gpu_memory_gib=32, cpus=48, memory_gib=376
        ),
        NodeKind(
            gpu_type="p100", count=SATURN_URANUS, gpus=8, gpu_memory_gib=16, cpus=64, memory_gib=256
        ),
    ),
    reference_gpu="v100",
    rows=ROWS,
    rhythm=RHYTHM,
    failing=scaled_to(0.155, ROWS, SHORTER),
    users=1200,
    user_skew=0.9,
    groups=tuple(Group(name=name, share=gpus, gpus=gpus) for name, gpus in EARTH_GPUS.items()),
    published={
        "mean_gpus": 3.716,
        "mean_run_s": 6651.7,
        "median_run_s": 206,
        "gpu_s": 49350,
        "failing": 0.155,
        "top_users": 0.525,
    },
)
