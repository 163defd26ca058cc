"""Why, how often and when attempts fail: Philly's table of failures, the only one published by
cause and gang size.

M. Jeon et al., ATC'19, table 7: 39,776 failed attempts (trials) of 96,260 jobs by cause and gang
size, the jobs they hit, and the 50th, 90th and 95th percentile of their run time to failure. The
longest run times are not published: each is such that the cause takes about its published share of
all failing time.
"""

from bisect import bisect_left
from dataclasses import replace

from .distribution import quantiles
from .model import Cause, Failing, Row

SOURCE = "Philly"
MINUTE_S = 60.0
EDGES = (1, 4)
"""Gang sizes of the table: 1, 2 to 4, more."""
JOBS = (76190, 13170, 6900)
"""Jobs of each: of 96,260, such that the mean gang is the published one (1.93 GPUs), with gangs of
several GPUs spread as in the public trace."""

_TABLE: tuple[tuple[str, tuple[int, int, int], int, float, float, float, float], ...] = (
    ("CPU out of memory", (11465, 235, 376), 2803, 13.45, 17.73, 33.97, 4700),
    ("incorrect inputs", (5844, 2638, 1208), 4936, 1.87, 404.83, 2095.73, 10690),
    ("semantic error", (1603, 494, 846), 2049, 2.72, 376.00, 1436.88, 13870),
    ("core dump", (1936, 496, 480), 1784, 0.85, 72.75, 431.65, 6330),
    ("invalid memory access", (712, 774, 1116), 1235, 1.03, 403.50, 1357.38, 2570),
    ("model checkpoint error", (743, 384, 868), 948, 181.67, 3728.93, 8196.02, 8200),
    ("CUDA failure", (133, 1153, 198), 571, 1.32, 19.87, 82.17, 3020),
    ("syntax error", (780, 184, 168), 883, 0.58, 5.02, 12.00, 1710),
    ("traceback from crash", (356, 277, 144), 271, 1.02, 894.33, 1394.07, 10260),
    ("MPI error", (456, 54, 124), 166, 1.62, 3015.27, 5143.98, 6180),
    ("out of memory", (237, 70, 180), 261, 18.53, 353.62, 2740.28, 2741),
    ("MPI runtime failure", (240, 141, 97), 420, 1389.48, 13778.60, 18090.88, 18091),
    ("permission error", (56, 202, 41), 151, 1.00, 8.15, 15.85, 2380),
    ("import error", (108, 30, 10), 148, 0.67, 4.58, 10.73, 5390),
    ("job preempted", (25, 95, 27), 95, 559.08, 2682.85, 5892.23, 8480),
    ("CUDA init failed", (16, 66, 59), 69, 1.08, 2.18, 4.63, 2860),
    ("model diverged", (78, 5, 1), 30, 1.48, 44.37, 76.53, 119),
    ("CUDA version mismatch", (1, 1, 47), 49, 0.83, 1.65, 1.67, 1.7),
    ("GPU ECC error", (1, 5, 4), 10, 26.82, 671.92, 2035.02, 5990),
    ("output node error", (3, 0, 0), 3, 0.85, 0.95, 0.951, 0.952),
    ("cannot load libraries", (1, 0, 0), 1, 0.12, 0.121, 0.122, 0.123),
    ("no signature", (1235, 294, 155), 698, 1.87, 28.00, 95.17, 1095),
)
"""Cause, trials by gang size, jobs, minutes to failure (percentiles 50, 90, 95, 100). `out of
memory` is the GPU's."""
RESUME = (
    "model checkpoint error",
    "MPI error",
    "MPI runtime failure",
    "job preempted",
    "GPU ECC error",
)
"""Causes that lie with the machines: the next attempt goes on from the last checkpoint."""


def _cause(
    kind: str,
    trials: tuple[int, int, int],
    jobs: int,
    p50: float,
    p90: float,
    p95: float,
    longest: float,
) -> Cause:
    shortest = max(p50 / max(1.5, min(p90 / p50, 10.0)), 0.05)
    after_s = quantiles(
        (0, 0.5, 0.9, 0.95, 1),
        [MINUTE_S * minutes for minutes in (shortest, p50, p90, p95, longest)],
    )
    return Cause(
        kind=kind,
        trials=trials,
        attempts=sum(trials) / jobs,
        after_s=after_s,
        resumes=kind in RESUME,
    )


CAUSES = tuple(_cause(*row) for row in _TABLE)
CHANCE = tuple(
    sum(cause.trials[b] / cause.attempts for cause in CAUSES) / jobs for b, jobs in enumerate(JOBS)
)
FAILING = Failing(source=SOURCE, edges=EDGES, chance=CHANCE, causes=CAUSES)


def scaled_to(share: float, rows: tuple[Row, ...], shorter: float) -> Failing:
    """The same causes where only the share of jobs that fail is published, not why or when: chances
    by gang size in proportion, such that they come to `share` for these rows, and run times to
    failure `shorter` times as long."""
    overall = sum(row.share * CHANCE[bisect_left(EDGES, row.gpus)] for row in rows) / sum(
        row.share for row in rows
    )
    causes = tuple(
        replace(
            cause,
            after_s=quantiles(
                cause.after_s.levels, [value * shorter for value in cause.after_s.values]
            ),
        )
        for cause in CAUSES
    )
    chances = tuple(chance * share / overall for chance in CHANCE)
    return Failing(source=SOURCE, edges=EDGES, chance=chances, causes=causes)
