"""Weighted flow time of a batch of jobs of mixed sizes: value, proven bound and gap after a time
limit.

    python -m benchmarks.batch [--jobs 100,200,400] [--gpus 128] [--gpu-types 1] [--seeds 1,2,3]
    [--like mixed] [--running 0.3] [--time-limit 60]
    [--workers N]

All jobs are released at 0 (`optsched generate`); with `--running` so many of them run then. The
whole solve is timed, child process included; with one worker its search is counted work, so that
gaps do not depend on the machine. Prints one JSON object a run, then the median gap and the most
processor time for each number of jobs.
"""

import os
import statistics
import time

from benchmarks.command_line import parser_of, tell
from optsched.engine import DEFAULT_WORKERS, solve
from optsched.traces.generate.synth import generate


def processor_s() -> float:
    """Return the processor time of this process and of those that it waited for."""
    return sum(os.times()[:4])


def main() -> None:
    options = parser_of(
        __doc__,
        jobs=[100, 200, 400],
        gpus=128,
        gpu_types=1,
        like=("mixed", "llm"),
        running=0.0,
        seeds=[1, 2, 3],
        time_limit=60.0,
        workers=DEFAULT_WORKERS,
    ).parse_args()
    for jobs in options.jobs:
        gaps, cpu_s, proved = [], [], 0
        for seed in options.seeds:
            instance = generate(
                jobs=jobs,
                gpus=options.gpus,
                seed=seed,
                like=options.like,
                arrivals="batch",
                load=0.9,
                running=options.running,
                gpu_types=options.gpu_types,
                overheads=True,
            )
            begun, begun_cpu_s = time.perf_counter(), processor_s()
            solution = solve(
                instance,
                "wct",
                solver="cpsat",
                time_limit_s=options.time_limit,
                workers=options.workers,
            )
            wall_s = time.perf_counter() - begun
            proved += solution.status == "optimal"
            cpu_s.append(processor_s() - begun_cpu_s)
            gaps.append(solution.gap if solution.gap is not None else float("inf"))
            tell(
                {
                    "jobs": jobs,
                    "gpus": instance.cluster.total_gpus,
                    "running": len(instance.running),
                    "seed": seed,
                    "value": solution.value,
                    "bound": solution.bound,
                    "bound_source": solution.bound_source,
                    "gap": solution.gap,
                    "wall_s": round(wall_s, 1),
                    "fallback": solution.fallback,
                }
            )
        tell(
            {
                "jobs": jobs,
                "running": options.running,
                "solves": len(gaps),
                "proved": proved,
                "median_gap": statistics.median(gaps),
                "worst_gap": max(gaps),
                "most_cpu_s": round(max(cpu_s), 2),
            }
        )


if __name__ == "__main__":
    main()
