"""Solve sets of PSPLIB through optsched's own format and report how many published optima are found
and proved, and how fast.

    python -m benchmarks.known_optima [--set SET]... [--every K] [--time-limit S] [--workers N]

SET is j30 or j60 (single mode), j10 or j20 (multi-mode): a folder psplib-SET or psplib-mm-SET of
the public data with its optima, as optimum/optimum.csv (problem, optimum) or optimum.csv (instance,
objective). j30 and j10 unless given. Prints a line for each instance that is not proved within the
limit, then one JSON object a set.
"""

import csv
import statistics
import time
from pathlib import Path

from benchmarks.command_line import parser_of, tell
from benchmarks.data import DATA
from optsched.engine import DEFAULT_WORKERS, solve
from optsched.traces.readers import psplib

SETS = DATA / "known-optima"


def published(name: str) -> list[tuple[Path, float]]:
    """Return (file, optimal makespan) of one set."""
    folder = SETS / name
    single = folder / "optimum" / "optimum.csv"
    if single.exists():
        rows = csv.DictReader(single.open())
        return [(folder / row["problem"], float(row["optimum"])) for row in rows]
    rows = csv.DictReader((folder / "optimum.csv").open())
    return [(folder / f"{row['instance']}.mm", float(row["objective"])) for row in rows]


def measure(
    cases: list[tuple[Path, float]], time_limit_s: float, workers: int
) -> dict[str, float | int]:
    """Solve each case; return how many optima were found and proved, and the times."""
    seconds, found, proved = [], 0, 0
    for path, optimum in cases:
        begun = time.perf_counter()
        solution = solve(
            psplib.read(path).instance,
            "makespan",
            solver="cpsat",
            time_limit_s=time_limit_s,
            workers=workers,
            isolate=False,
        )
        seconds.append(time.perf_counter() - begun)
        is_proved = solution.status == "optimal" and solution.value == optimum
        found += solution.value == optimum
        proved += is_proved
        if not is_proved:
            print(
                f"{path.name}: optimum {optimum:g}, found {solution.value}, bound {solution.bound}",
                flush=True,
            )
    return {
        "instances": len(cases),
        "found": found,
        "proved": proved,
        "median_s": round(statistics.median(seconds), 2),
        "worst_s": round(max(seconds), 2),
    }


def main() -> None:
    parser = parser_of(__doc__, every=1, time_limit=60.0, workers=DEFAULT_WORKERS)
    folders = {kind: f"psplib-{kind}" for kind in ("j30", "j60")}
    folders |= {kind: f"psplib-mm-{kind}" for kind in ("j10", "j20")}
    parser.add_argument("--set", action="append", choices=folders, dest="sets")
    options = parser.parse_args()
    for kind in options.sets or ("j30", "j10"):
        name = folders[kind]
        if not (SETS / name).is_dir():
            parser.error(f"the data has no folder {SETS / name}")
        cases = published(name)[:: options.every]
        result = measure(cases, options.time_limit, options.workers)
        tell({"set": name, **result})


if __name__ == "__main__":
    main()
