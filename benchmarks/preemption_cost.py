"""Compare `optsched` with the policies of the catalogue where saving and restoring cost time.

    python -m benchmarks.preemption_cost [--case NAME ...] [--seeds 8] [--beliefs noisy:0.5,history]

Each case draws a hundred and twenty jobs for GPUs of one type, in `idle` ones in batches a day
apart, and asks the same seconds of saving and of restoring of every job. Each line has the mean JCT
of each policy over the seeds and how far `optsched` is behind the best of the others, with half of
the 95 % interval of that difference.
"""

import math
import statistics
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.command_line import parser_of, tell
from optsched import simulate
from optsched.model.instance import Instance
from optsched.traces.generate import even
from optsched.traces.profiles.checkpoint_cost import with_checkpoint_cost

JOBS, APART_S = 120, 86400.0
RIVALS = ("backfill", "srtf", "srsf", "xion")
COSTS_S = (0, 60, 200, 400)
T_95 = {
    2: 12.71,
    3: 4.30,
    4: 3.18,
    5: 2.78,
    6: 2.57,
    7: 2.45,
    8: 2.36,
    10: 2.26,
    12: 2.20,
    24: 2.07,
}
"""The 97.5 % quantile of Student's t by the number of seeds."""


@dataclass(frozen=True)
class Case:
    """`gangs` are drawn evenly, run times evenly from `run_s`, evenly in the logarithm where
    `heavy`; `load` 0 submits all jobs at once. Of `batches`, each drawn by itself, each begins
    `APART_S` after the one before, which is done by then."""

    gpus: int
    gangs: tuple[int, ...]
    run_s: tuple[float, float]
    load: float = 1.0
    heavy: bool = False
    batches: int = 1

    def instance(self, seed: int, cost_s: float) -> Instance:
        """Return the instance of a seed, with so many seconds to save and to restore."""
        batches = [self._batch(seed * self.batches + k) for k in range(self.batches)]
        jobs = [
            replace(job, id=f"{job.id}-{k}", submit_s=k * APART_S + job.submit_s) if k else job
            for k, batch in enumerate(batches)
            for job in batch.jobs
        ]
        return with_checkpoint_cost(replace(batches[0], jobs=tuple(jobs)), cost_s)

    def _batch(self, seed: int) -> Instance:
        """Return the jobs of one batch, which begins at 0, and the GPUs."""
        return even.generate(
            jobs=JOBS // self.batches,
            gpus=self.gpus,
            seed=seed,
            gangs=self.gangs,
            run_s=self.run_s,
            heavy=self.heavy,
            load=self.load,
        )


SMALL, WIDE, NODE = (1, 1, 2, 4), (1, 2, 4, 8, 16), (1, 2, 4, 8)
CASES = {
    "small300": Case(16, SMALL, (300, 1800)),
    "small600": Case(16, SMALL, (600, 7200)),
    "gang300": Case(32, WIDE, (300, 1800)),
    "gang600": Case(32, WIDE, (600, 7200)),
    "heavy": Case(32, WIDE, (60, 36000), heavy=True),
    "load0.7": Case(16, SMALL, (300, 1800), 0.7),
    "load1.5": Case(16, SMALL, (300, 1800), 1.5),
    "long1.5": Case(16, SMALL, (600, 7200), 1.5),
    "at-once": Case(16, SMALL, (600, 7200), 0.0),
    "idle10": Case(8, NODE, (300, 1800), 1.2, batches=12),
    "idle30": Case(8, NODE, (180, 7200), heavy=True, batches=4),
}


def mean_jct_s(case: str, cost_s: float, seed: int, policy: str, beliefs: str) -> float:
    """Return the mean JCT of one run."""
    instance = CASES[case].instance(seed, cost_s)
    return float(simulate(instance, policy, estimates=beliefs).metrics["jct_s"]["mean"])


def rows(
    cases: list[str],
    costs_s: list[float],
    policies: list[str],
    seeds: range,
    beliefs: str,
    jobs: int,
) -> Iterator[tuple[str, float, dict[str, list[float]]]]:
    """Yield the mean JCT of each seed by policy, one case and cost after the other."""
    with ProcessPoolExecutor(jobs) as pool:
        for case in cases:
            for cost_s in costs_s:
                runs = [
                    pool.submit(mean_jct_s, case, cost_s, seed, policy, beliefs)
                    for policy in policies
                    for seed in seeds
                ]
                values = [run.result() for run in runs]
                n = len(seeds)
                yield (
                    case,
                    cost_s,
                    {policy: values[i * n : (i + 1) * n] for i, policy in enumerate(policies)},
                )


def row(case: str, cost_s: float, beliefs: str, jct_s: dict[str, list[float]]) -> dict[str, Any]:
    """Return the means of one case and how far `optsched` is from the best of the others."""
    means = {policy: statistics.fmean(values) for policy, values in jct_s.items()}
    best = min((policy for policy in jct_s if policy != "optsched"), key=means.__getitem__)
    behind = [own - other for own, other in zip(jct_s["optsched"], jct_s[best], strict=True)]
    half = math.nan
    if len(behind) > 1:
        half = T_95.get(len(behind), 2.0) * statistics.stdev(behind) / math.sqrt(len(behind))
    return {
        "case": case,
        "cost_s": cost_s,
        "beliefs": beliefs,
        **{f"{policy}_s": round(mean) for policy, mean in means.items()},
        "best": best,
        "behind": round(means["optsched"] / means[best] - 1.0, 4),
        "interval": round(half / means[best], 4),
    }


def main() -> None:
    """Print a JSON object for each case and cost."""
    parser = parser_of(__doc__, seeds=8, first_seed=0, beliefs="oracle", processes=2)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--cost", action="append", type=float, help="seconds of saving")
    parser.add_argument("--policy", action="append", help="a rival; four rules if left out")
    args = parser.parse_args()
    for beliefs in args.beliefs.split(","):
        for case, cost_s, jct_s in rows(
            args.case or list(CASES),
            args.cost or list(COSTS_S),
            [*(args.policy or RIVALS), "optsched"],
            range(args.first_seed, args.first_seed + args.seeds),
            beliefs,
            args.processes,
        ):
            tell(row(case, cost_s, beliefs, jct_s))


if __name__ == "__main__":
    main()
