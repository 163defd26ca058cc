"""Max-min fairness over job pairs: seconds, value and proven bound, beside the complete LP if asked
for.

    python -m benchmarks.max_min_pairs [--jobs 512] [--seed 0] [--repeats 5] [--gap 1e-6] [--peer
    highs|ipm|glop]
        [--multi-gpu] [--weights] [--distinct NOISE]

The inputs are those of Gavel's own `sweep_policy_runtimes.py` (same draws: its seed is 0): jobs
drawn from its throughput table, a quarter as many GPUs of each of three types as jobs.
`--multi-gpu` and `--weights` are its `--generate-multi-gpu-jobs` and
`--generate-multi-priority-jobs`. `--distinct 0.02` gives every job and every pair throughputs of
their own (log-normal noise), so that no two jobs are alike.

`--peer` solves the LP with every job pair as a column, built from arrays, in the same run: `highs`
with HiGHS's own choice of algorithm, `ipm` its interior-point method, `glop`. Everything runs on
one core. Importing the solver library (once a process) is left out and given as `import_s`.
`benchmarks/peers.md` says how to run Gavel itself.
"""

import datetime
import gzip
import json
import os
import random
import statistics
import sys
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.command_line import parser_of, tell
from benchmarks.data import DATA
from optsched_solvers.policies.gavel.max_min_pairs import (
    Shares,
    SharingProblem,
    equal_share_rate,
    solve,
)

TABLE = DATA / "gavel" / "simulation_throughputs.json.gz"
GPU_TYPES = ("v100", "p100", "k80")
HEAVY = 5.0
"""Gavel's weight for two jobs in five."""

Floats = npt.NDArray[np.float64]


def draw(
    table: dict[str, Any], jobs: int, seed: int, multi_gpu: bool = False, weights: bool = False
) -> SharingProblem:
    """The jobs that Gavel's microbenchmark draws, as kinds, and jobs / 4 GPUs of each type."""
    models = [name for name in table[GPU_TYPES[0]] if name.endswith(", 1)")]
    # Gavel's job table has A3C second to last; with that order one seed draws the same jobs.
    models.sort(key=lambda name: ("CycleGAN" in name) * 2 + ("A3C" in name))
    rng = random.Random(seed)
    kinds: dict[str, int] = {}
    kind, weight = [], []
    for _ in range(jobs):
        gpus = 1
        if multi_gpu:
            level = rng.uniform(0, 1)
            gpus = 1 if level < 0.7 else 2 if level <= 0.8 else 4 if level <= 0.95 else 8
        while (name := rng.choice(models).replace(", 1)", f", {gpus})")) not in table[GPU_TYPES[0]]:
            pass
        kind.append(kinds.setdefault(name, len(kinds)))
        weight.append(HEAVY if weights and rng.uniform(0, 1) <= 0.4 else 1.0)
    names = list(kinds)
    rate = np.array([[table[gpu_type][name]["null"] for gpu_type in GPU_TYPES] for name in names])
    pair_rate = np.array(
        [
            [
                [table[gpu_type][name].get(other, (0.0, 0.0))[0] for gpu_type in GPU_TYPES]
                for other in names
            ]
            for name in names
        ]
    )
    gpus_of = np.array([float(name.rsplit(", ", 1)[1].rstrip(")")) for name in names])
    return SharingProblem(
        rate,
        pair_rate,
        gpus_of,
        np.full(len(GPU_TYPES), jobs / 4),
        np.array(kind),
        np.array(weight),
    )


def made_distinct(problem: SharingProblem, noise: float, seed: int) -> SharingProblem:
    """The same jobs with throughputs of their own; sharing still slows every job down."""
    kind, rng = problem.kind, np.random.default_rng(seed)
    assert kind is not None
    rate = problem.rate[kind]
    rate = rate * np.exp(noise * rng.standard_normal(rate.shape))
    pair_rate = problem.pair_rate[np.ix_(kind, kind)]
    pair_rate = np.minimum(
        pair_rate * np.exp(noise * rng.standard_normal(pair_rate.shape)), rate[:, None, :]
    )
    return SharingProblem(
        rate, pair_rate, problem.gpus[kind], problem.workers, None, problem.weight
    )


def complete_lp(
    problem: SharingProblem, solver: str, time_limit_s: float = 3600.0
) -> dict[str, Any]:
    """The optimum of the LP with a column for every job, pair and GPU type."""
    from ortools.math_opt import model_pb2
    from ortools.math_opt.python import mathopt

    begun, cpu = time.perf_counter(), time.process_time()
    kind = np.arange(len(problem.gpus)) if problem.kind is None else problem.kind
    weight = np.ones(len(kind)) if problem.weight is None else problem.weight
    jobs, gpu_types, gpus = len(kind), len(problem.workers), problem.gpus[kind]
    unit = gpus / (weight * equal_share_rate(problem)[kind])
    one, two = np.triu_indices(jobs, 1)
    alike = gpus[one] == gpus[two]
    one, two = one[alike], two[alike]
    columns = (jobs + len(one)) * gpu_types
    rows, places, amounts = [], [], []

    def entries(row: npt.NDArray[Any], first_column: int, amount: npt.NDArray[Any]) -> None:
        rows.append(row)
        places.append(first_column + np.arange(len(row)))
        amounts.append(np.broadcast_to(amount, row.shape))

    for k in range(gpu_types):
        start = k * (jobs + len(one))
        entries(np.arange(jobs), start, unit * problem.rate[kind, k])
        entries(jobs + np.arange(jobs), start, np.ones(1))
        entries(np.full(jobs, 2 * jobs + k), start, gpus)
        for job, partner in ((one, two), (two, one)):
            entries(job, start + jobs, unit[job] * problem.pair_rate[kind[job], kind[partner], k])
            entries(jobs + job, start + jobs, np.ones(1))
        entries(np.full(len(one), 2 * jobs + k), start + jobs, gpus[one])
    rows.append(np.arange(jobs))
    places.append(np.full(jobs, columns))
    amounts.append(np.full(jobs, -1.0))
    row, column, amount = np.concatenate(rows), np.concatenate(places), np.concatenate(amounts)
    order = np.lexsort((column, row))
    proto = model_pb2.ModelProto()
    proto.variables.ids.extend(range(columns + 1))
    proto.variables.lower_bounds.extend(np.zeros(columns + 1))
    proto.variables.upper_bounds.extend(np.full(columns + 1, np.inf))
    proto.variables.integers.extend([False] * (columns + 1))
    proto.objective.maximize = True
    proto.objective.linear_coefficients.ids.append(columns)
    proto.objective.linear_coefficients.values.append(1.0)
    proto.linear_constraints.ids.extend(range(2 * jobs + gpu_types))
    proto.linear_constraints.lower_bounds.extend(
        np.repeat([0.0, -np.inf], [jobs, jobs + gpu_types])
    )
    proto.linear_constraints.upper_bounds.extend(
        np.concatenate([np.full(jobs, np.inf), np.ones(jobs), problem.workers])
    )
    proto.linear_constraint_matrix.row_ids.extend(row[order])
    proto.linear_constraint_matrix.column_ids.extend(column[order])
    proto.linear_constraint_matrix.coefficients.extend(amount[order])
    model = mathopt.Model.from_model_proto(proto)
    built = time.perf_counter()
    parameters = mathopt.SolveParameters(time_limit=datetime.timedelta(seconds=time_limit_s))
    if solver == "ipm":
        parameters.lp_algorithm = mathopt.LPAlgorithm.BARRIER
    library = mathopt.SolverType.GLOP if solver == "glop" else mathopt.SolverType.HIGHS
    result = mathopt.solve(model, library, params=parameters)
    optimal = result.termination.reason == mathopt.TerminationReason.OPTIMAL
    return {
        "peer": solver,
        "peer_value": result.objective_value() if optimal else None,
        "peer_columns": columns,
        "peer_build_s": built - begun,
        "peer_wall_s": time.perf_counter() - begun,
        "peer_cpu_s": time.process_time() - cpu,
    }


def timed(
    problem: SharingProblem, gap: float, repeats: int
) -> tuple[Shares, list[float], list[float]]:
    """The answer, and wall and CPU seconds of each repeat."""
    walls, cpus = [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        shares = solve(problem, gap)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return shares, walls, cpus


def main() -> None:
    parser = parser_of(
        __doc__,
        jobs=512,
        seed=0,
        repeats=5,
        gap=1e-6,
        peer_limit=3600.0,
        multi_gpu=False,
        weights=False,
        distinct=float,
    )
    parser.add_argument("--peer", choices=["highs", "ipm", "glop"])
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if not TABLE.exists():
        sys.exit(f"{TABLE} is absent; set OPTSCHED_DATA to the directory of the public data")
    with gzip.open(TABLE, "rt") as file:
        problem = draw(
            json.load(file), options.jobs, options.seed, options.multi_gpu, options.weights
        )
    if options.distinct is not None:
        problem = made_distinct(problem, options.distinct, options.seed)
    begun = time.perf_counter()
    import ortools.linear_solver.pywraplp  # noqa: F401

    import_s = time.perf_counter() - begun
    shares, walls, cpus = timed(problem, options.gap, options.repeats)
    report: dict[str, Any] = {
        "jobs": options.jobs,
        "gpus": int(problem.workers.sum()),
        "seed": options.seed,
        "groups": shares.groups,
        "value": shares.value,
        "bound": shares.bound,
        "gap": shares.gap,
        "wall_s": statistics.median(walls),
        "first_wall_s": walls[0],
        "cpu_s": statistics.median(cpus),
        "import_s": import_s,
        "columns": shares.columns,
        "rounds": shares.rounds,
        "fractions": len(shares.fraction),
    }
    if options.peer:
        report |= complete_lp(problem, options.peer, options.peer_limit)
        report["times_faster"] = report["peer_wall_s"] / report["wall_s"]
    tell(report)


if __name__ == "__main__":
    main()
