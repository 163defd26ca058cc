"""Solve PSPLIB j30 and multi-mode j10 through optsched's own format and report how many are proved,
and how fast.

    python benchmarks/known_optima.py [--every K] [--time-limit S]

Prints a line for each instance that is not proved within the limit, then one JSON object a set.
"""

import argparse
import csv
import json
import os
import statistics
import time
from pathlib import Path

from optsched.engine import solve
from optsched.traces.readers import psplib

DATA = Path(os.environ.get("OPTSCHED_DATA", "../shared/data")) / "known-optima"


def published(name: str) -> list[tuple[Path, float]]:
    """(file, optimal makespan) of one set."""
    if name == "psplib-j30":
        rows = csv.DictReader((DATA / name / "optimum" / "optimum.csv").open())
        return [(DATA / name / row["problem"], float(row["optimum"])) for row in rows]
    rows = csv.DictReader((DATA / name / "optimum.csv").open())
    return [(DATA / name / f"{row['instance']}.mm", float(row["objective"])) for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="take every K-th instance")
    parser.add_argument("--time-limit", type=float, default=60.0)
    options = parser.parse_args()
    for name in ("psplib-j30", "psplib-mm-j10"):
        seconds, proved = [], 0
        cases = published(name)[:: options.every]
        for path, optimum in cases:
            begun = time.perf_counter()
            solution = solve(
                psplib.read(path).instance,
                "makespan",
                solver="cpsat",
                time_limit_s=options.time_limit,
                isolate=False,
            )
            seconds.append(time.perf_counter() - begun)
            if solution.status == "optimal" and solution.value == optimum:
                proved += 1
            else:
                print(
                    path.name,
                    "optimum",
                    optimum,
                    "found",
                    solution.value,
                    "bound",
                    solution.bound,
                    flush=True,
                )
        print(
            json.dumps(
                {
                    "set": name,
                    "instances": len(cases),
                    "proved": proved,
                    "median_s": round(statistics.median(seconds), 2),
                    "worst_s": round(max(seconds), 2),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
