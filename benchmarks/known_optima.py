"""Solve sets of PSPLIB through optsched's own format and report how many published optima are found
and proved, and how fast.

    python -m benchmarks.known_optima [--set SET]... [--every K] [--time-limit S] [--workers N]

SET is j30 or j60 (single mode), j10 or j20 (multi-mode): a folder psplib-SET or psplib-mm-SET of
the public data with its optima, as optimum/optimum.csv (problem, optimum) or optimum.csv (instance,
objective), a range such as `82..87` where only bounds on it are published. j30 and j10 unless
given. Prints a line for each instance that is not proved within the limit, then one JSON object a
set.
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


def published(name: str) -> list[tuple[Path, float, float]]:
    """Return (file, least and largest value that the optimal makespan may have) of one set."""
    folder = SETS / name
    single = folder / "optimum" / "optimum.csv"
    if single.exists():
        rows = csv.DictReader(single.open())
        return [(folder / row["problem"], *_between(row["optimum"])) for row in rows]
    rows = csv.DictReader((folder / "optimum.csv").open())
    return [(folder / f"{row['instance']}.mm", *_between(row["objective"])) for row in rows]


def _between(text: str) -> tuple[float, float]:
    """Return the ends of `82..87` or `..87`; a single number is both."""
    least, is_open, largest = text.rpartition("..")
    return float(least or 0) if is_open else float(largest), float(largest)


def measure(
    cases: list[tuple[Path, float, float]], time_limit_s: float, workers: int
) -> dict[str, float | int]:
    """Solve each case; return how many of the best schedules that are known were found, and how
    many makespans were proved to be optimal, and the times."""
    seconds, found, proved = [], 0, 0
    for path, least, largest in cases:
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
        is_found = solution.value is not None and least <= solution.value <= largest
        is_proved = is_found and solution.status == "optimal"
        found += is_found
        proved += is_proved
        if not is_proved:
            known = f"{largest:g}" if least == largest else f"{least:g} to {largest:g}"
            print(
                f"{path.name}: optimum {known}, found {solution.value}, bound {solution.bound}",
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
