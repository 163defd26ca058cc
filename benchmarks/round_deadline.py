"""Whether rounds keep their deadline: the latest of many random rounds, all verified. Prints one
line of JSON.

    python benchmarks/round_deadline.py [--rounds 10000] [--budget 100ms] [--jobs 300] [--solver
    price]

Each round is a cluster of `optsched.traces.generate.synth.generate` with random size (10 to
`--jobs` jobs, 1/2 to 4 GPUs for each), mix, share of running jobs and objective, and no gap at
which to stop. `late` counts the rounds that took more than 1.1 times the budget, imports apart.
"""

import random
import statistics
import time
from dataclasses import replace

from benchmarks.command_line import parser_of, tell
from optsched.cli.parts.duration import duration
from optsched.objectives import TERMS
from optsched.round.decide import decide
from optsched.round.verify import verify_round
from optsched.traces.generate.synth import generate

TOLERANCE = 1.1
"""Times the budget from which on a round is late."""


def main() -> None:
    """Rounds one after the other, none kept."""
    arguments = parser_of(
        __doc__, rounds=10_000, budget="100ms", jobs=300, solver="price", seed=0
    ).parse_args()
    budget_s = duration(arguments.budget)
    for solver in ("highs", arguments.solver):  # what the first round would import
        decide(generate(jobs=20, gpus=64, seed=0, running=0.5), solver=solver, budget_s=10.0)
    walls: list[float] = []
    gaps: list[float] = []
    worst, unverified, fallbacks = "", 0, 0
    for seed in range(arguments.seed, arguments.seed + arguments.rounds):
        draw = random.Random(seed)
        jobs = round(10 * (arguments.jobs / 10) ** draw.random())
        instance = generate(
            jobs=jobs,
            gpus=max(8, round(jobs * draw.choice((0.5, 1.0, 2.0, 4.0)))),
            seed=seed,
            like=draw.choice(("mixed", "llm")),
            running=draw.choice((0.0, 0.3, 0.5, 0.8)),
        )
        rates = ((0.0, 300.0), (3600.0, 100.0))
        cluster = replace(instance.cluster, carbon_g_per_kwh=rates, energy_price_per_kwh=rates)
        instance = replace(instance, cluster=cluster)
        objective = draw.choice(("wct", *TERMS))
        started_s = time.monotonic()
        found = decide(
            instance,
            objective,
            solver=arguments.solver,
            budget_s=budget_s,
            gap=0.0,
            refill=draw.random() < 0.5,
        )
        wall_s = time.monotonic() - started_s
        unverified += bool(verify_round(instance, found.jobs))
        fallbacks += found.fallback is not None
        if wall_s > max(walls, default=0.0):
            worst = f"{instance.name} {objective}"
        walls.append(wall_s)
        gaps.append(found.gap)
    walls_sorted = sorted(walls)
    tell(
        {
            "benchmark": "round_deadline",
            "solver": arguments.solver,
            "rounds": len(walls),
            "budget_s": budget_s,
            "most_jobs": arguments.jobs,
            "largest_s": round(walls_sorted[-1], 4),
            "largest": worst,
            "p99_s": round(walls_sorted[int(0.99 * (len(walls) - 1))], 4),
            "median_s": round(statistics.median(walls), 4),
            "late": sum(wall_s > TOLERANCE * budget_s for wall_s in walls),
            "median_gap": statistics.median(gaps),
            "unverified": unverified,
            "fallbacks": fallbacks,
        }
    )


if __name__ == "__main__":
    main()
