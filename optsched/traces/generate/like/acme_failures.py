"""Why and when the jobs of Acme fail.

Q. Hu et al., NSDI'24, table 3: counts, mean gang, mean and median minutes to failure of 2,575
failures by cause. Run times are log-normal with that mean and median. The chance is that of the
final states (42.8 % of the GPU jobs failed, in `cluster_summary.csv`), the same for all gangs: it
is not published by size. A cause falls to gangs up to 8, up to 64 or larger ones as its mean gang
says; since few jobs are large, those of the large ones are rarer here than in the table, which
tells more of pretraining.
"""

from .distribution import lognormal, sigma_of
from .model import Cause, Failing

MINUTE_S = 60.0
EDGES = (8, 64)
LONGEST_S = 14 * 86400.0

_TABLE: tuple[tuple[str, int, float, float, float], ...] = (
    ("NVLink error", 54, 800, 868.1, 155.3),
    ("CUDA error", 21, 847, 923.2, 586.0),
    ("node failure", 16, 712, 1288.8, 535.8),
    ("ECC error", 12, 680, 1303.4, 1192.3),
    ("network error", 12, 758, 549.6, 310.1),
    ("connection error", 147, 29, 51.9, 0.5),
    ("S3 storage error", 10, 422, 2317.8, 202.2),
    ("NCCL timeout", 6, 596, 159.7, 48.1),
    ("NCCL remote error", 3, 1152, 50.5, 22.6),
    ("data loader killed", 6, 445, 1580.6, 961.4),
    ("attribute error", 67, 228, 67.8, 1.2),
    ("out of memory", 14, 572, 323.8, 14.5),
    ("runtime error", 65, 441, 66.4, 3.9),
    ("assertion error", 105, 413, 41.7, 3.0),
    ("value error", 33, 387, 9.9, 3.7),
    ("zero division", 5, 499, 14.6, 14.5),
    ("model loading error", 104, 8, 2.6, 2.59),
    ("dataset loading error", 5, 1, 1.6, 1.59),
    ("file not found", 568, 21, 14.2, 0.4),
    ("OS error", 266, 8, 9.6, 0.8),
    ("type error", 620, 18, 0.9, 0.3),
    ("name error", 18, 247, 3.2, 0.5),
    ("permission error", 7, 438, 4.3, 0.8),
    ("import error", 111, 93, 1.1, 0.4),
    ("key error", 260, 7, 3.0, 1.6),
    ("syntax error", 10, 391, 0.7, 0.6),
    ("argument error", 3, 344, 0.71, 0.7),
    ("called process error", 4, 256, 0.21, 0.2),
    ("index error", 23, 6, 1.6, 0.9),
)
"""Cause, how many, mean gang, mean and median minutes to failure."""
RESUME = (
    "NVLink error",
    "CUDA error",
    "node failure",
    "ECC error",
    "network error",
    "connection error",
    "S3 storage error",
    "NCCL timeout",
    "NCCL remote error",
)
"""The table's infrastructure errors: the next attempt goes on from the last checkpoint."""
MEAN_GANGS = (2.0, 25.0, 450.0)
"""About the mean gang of each bucket in the model."""


def _spread(count: float, gang: float) -> tuple[float, ...]:
    """The count over the two buckets around a mean gang, such that the mean comes out."""
    small, middle, large = MEAN_GANGS
    if gang >= middle:
        part = min(1.0, (gang - middle) / (large - middle))
        return 0.0, count * (1 - part), count * part
    part = max(0.0, (gang - small) / (middle - small))
    return count * (1 - part), count * part, 0.0


CAUSES = tuple(
    Cause(
        kind=kind,
        trials=_spread(count, gang),
        attempts=1.0,
        resumes=kind in RESUME,
        after_s=lognormal(MINUTE_S * median, sigma_of(median, mean), LONGEST_S),
    )
    for kind, count, gang, mean, median in _TABLE
)
FAILING = Failing(source="Acme", edges=EDGES, chance=(0.428, 0.428, 0.428), causes=CAUSES)
