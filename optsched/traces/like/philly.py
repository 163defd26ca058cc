"""Microsoft's Philly, 2017.

Sources: run times, gang sizes, virtual clusters and arrivals are fitted to the public trace as cleaned by the authors
of Pollux (82,247 jobs; github.com/petuum/adaptdl, branch osdi21-artifact, c793c70; original
github.com/msr-fiddle/philly-traces, CC-BY-4.0): quantiles of the run times by gang size, and of the intervals between
2017-10-03 and 2017-12-13, where the trace is dense. Nodes: the published machine list. Sizes of virtual clusters:
those with which the authors of Helios simulate it (github.com/S-Lab-System-Group/HeliosArtifact, 6345d9f). Failures:
`philly_failures`. Jeon et al., Analysis of large-scale multi-tenant GPU clusters for DNN training workloads, ATC'19.

Not published: users of the cleaned jobs (the paper says hundreds; their skew is that of Helios), cores, host memory.
"""

from ..philly_machines import LARGE, LARGE_GIB, LISTED_LARGE, LISTED_SMALL, SMALL, SMALL_GIB
from .distribution import quantiles
from .model import Group, Model, NodeKind, Rhythm, Row
from .philly_failures import FAILING

LEVELS = (0, .01, .03, .06, .1, .15, .18, .21, .25, .3, .35, .4, .45, .5, .55, .6, .65, .7, .75, .8, .85, .9, .95, .98,
          .99, .995, .998, .9995, 1)
ONE = quantiles(LEVELS, (
    1, 30, 46, 55, 62, 69, 72, 79, 122, 215, 385, 600, 855, 1120, 1450, 1730, 2050, 2460, 2720, 3750, 5340, 8510,
    19100, 68300, 135000, 267000, 503000, 1450000, 3260000,
))
TWO = quantiles(LEVELS, (
    2, 5, 8, 10, 11, 13, 14, 15, 16, 17, 18, 19, 20, 21, 23, 25, 28, 33, 76, 150, 22400, 73600, 197000, 344000, 526000,
    810000, 1400000, 2580000, 2580000,
))
FOUR = quantiles(LEVELS, (
    3, 35, 56, 85, 136, 179, 291, 472, 772, 1700, 4460, 7460, 13100, 17400, 26300, 36300, 56900, 78600, 89400, 106000,
    152000, 184000, 274000, 536000, 909000, 1210000, 2060000, 2750000, 2750000,
))
EIGHT = quantiles(LEVELS, (
    1, 33, 75, 148, 216, 463, 581, 904, 1870, 3940, 7270, 12400, 16700, 23700, 36600, 64800, 106000, 141000, 173000,
    203000, 242000, 352000, 526000, 807000, 1070000, 2010000, 2240000, 4630000, 4630000,
))
MORE = quantiles(LEVELS, (
    1, 2, 20, 41, 69, 210, 296, 362, 566, 880, 1570, 3160, 8850, 21100, 45000, 53900, 58700, 73700, 104000, 160000,
    182000, 253000, 446000, 622000, 1150000, 1370000, 1710000, 1710000, 1710000,
))
GANGS = {1: (76627, ONE), 2: (1818, TWO), 4: (1870, FOUR), 8: (1643, EIGHT), 12: (7, MORE), 16: (199, MORE),
         24: (7, MORE), 32: (67, MORE), 64: (6, MORE), 128: (3, MORE)}
"""Jobs by GPUs, and their run times."""

GAP_LEVELS = (0, .05, .1, .15, .2, .25, .3, .35, .4, .45, .5, .55, .6, .65, .7, .75, .8, .85, .9, .93, .96, .98, .99,
              .995, .999, 1)
RHYTHM = Rhythm(
    per_day=1035,
    hours=(.0544, .0417, .0496, .0489, .0283, .0488, .0698, .0880, .0463, .0422, .0372, .0330, .0272, .0283, .0215,
           .0240, .0388, .0285, .0340, .0304, .0455, .0388, .0505, .0445),
    weekdays=(.766, .989, 1.158, 1.369, 1.500, .660, .557),
    day_spread=.75,
    day_memory=.52,
    gaps=quantiles(GAP_LEVELS, (
        .003, .006, .0095, .024, .034, .047, .062, .081, .105, .133, .168, .215, .272, .356, .478, .664, .973, 1.52,
        2.49, 3.62, 6.02, 9.6, 13.2, 16.8, 24.9, 60,
    )),
    gap_burst=.57,
    gap_memory=.983,
    batch_gap=.36,
    batch_chance=.89,
)

MODEL = Model(
    name="philly",
    title="Microsoft Philly, August to December 2017",
    sources=__doc__ or "",
    nodes=(
        NodeKind(gpu_type=LARGE, count=LISTED_LARGE, gpus=8, gpu_memory_gib=LARGE_GIB),
        NodeKind(gpu_type=SMALL, count=LISTED_SMALL, gpus=2, gpu_memory_gib=SMALL_GIB),
    ),
    reference_gpu=LARGE,
    rows=tuple(Row(share=count, gpus=gpus, run_s=run_s) for gpus, (count, run_s) in GANGS.items()),
    rhythm=RHYTHM,
    failing=FAILING,
    users=319,
    user_skew=.9,
    groups=(
        Group(name="6214e9", share=41226, gpus=64), Group(name="11cb48", share=16091, gpus=16),
        Group(name="6c71a0", share=9953, gpus=32), Group(name="b436b2", share=7423, gpus=64),
        Group(name="103959", share=1934, gpus=8), Group(name="ee9e8c", share=1511, gpus=64),
        Group(name="0e4a51", share=1435, gpus=32), Group(name="ed69ec", share=1137, gpus=8),
        Group(name="7f04ca", share=723, gpus=32), Group(name="2869ce", share=422, gpus=16),
        Group(name="e13805", share=374, gpus=16),
    ),
    published={"mean_gpus": 1.304, "mean_run_s": 13136, "median_run_s": 1144, "gpu_s": 42811},
)
