"""A round by a per-round ILP of Sia's kind, beside `price` on the same jobs: seconds and value.

    python -m benchmarks.sia_style [--jobs 1024] [--gpus 2048] [--mix mixed] [--seed 1] [--budget
    1s]

Sia (Jayaram Subramanya et al., SOSP 2023) chooses one configuration (GPU type, nodes, GPUs) for
each job in an integer program with one capacity row for each GPU type, solved with CBC; places come
afterwards. This is a reconstruction of that program: same binaries, same rows, same solver on one
thread, through PuLP instead of cvxpy, with the values of our round as goodness, so that both
maximise the same thing; cores are those of each configuration's best level. What it chooses is put
on real nodes by our packing, as Sia's own placement does not look at what it loses. `value` is what
can be run after that. benchmarks/peers.md says how to run Sia itself.
"""

import time
from typing import Any, Literal

import numpy as np
import pulp

from benchmarks.command_line import parser_of, tell
from benchmarks.round import ROUND_S, load_solvers, solve
from optsched.cli.parts.duration import duration
from optsched.objectives import parse
from optsched.round.build import build
from optsched.round.model import Kind, RoundModel
from optsched.round.place import Packing
from optsched.traces.generate.synth import generate


def configurations(model: RoundModel) -> list[int]:
    """Of each job the option of largest value for each GPU type, count and spread, and to stay as
    it is."""
    best: dict[object, int] = {}
    for o in np.argsort(-model.options.value, kind="stable").tolist():
        j, p = int(model.options.job[o]), int(model.options.pattern[o])
        if model.options.kind[o] == Kind.KEEP:
            best[j, "keep"] = o
        elif p < len(model.patterns.fresh):
            option = model.patterns.fresh[p].option
            best.setdefault((j, option.mode.gpu_type, option.mode.gpus, option.spread), o)
    return sorted(best.values())


def solve_ilp(model: RoundModel, limit_s: float) -> tuple[np.ndarray, float]:
    """The option of each job by the ILP, and its value before anything is placed."""
    program = pulp.LpProblem("sia_style", pulp.LpMaximize)
    options = configurations(model)
    x = {o: pulp.LpVariable(f"x{o}", cat="Binary") for o in options}
    program += pulp.lpSum(float(model.options.value[o]) * x[o] for o in options)
    by_job: dict[int, list[int]] = {}
    for o in options:
        by_job.setdefault(int(model.options.job[o]), []).append(o)
    for j, own in by_job.items():
        total = pulp.lpSum(x[o] for o in own)
        program += (total == 1) if model.must[j] else (total <= 1)
    takes: dict[int, dict[int, float]] = {}
    for r, p, amount in zip(model.rows.row, model.rows.pattern, model.rows.amount, strict=True):
        takes.setdefault(int(p), {})[int(r)] = float(amount)
    for r, row in enumerate(model.rows.limits):
        if row.what == "GPUs":
            program += pulp.lpSum(
                takes.get(int(model.options.pattern[o]), {}).get(r, 0.0) * x[o] for o in options
            ) <= float(model.rows.capacity[r])
    program.solve(pulp.PULP_CBC_CMD(msg=False, threads=1, timeLimit=limit_s))
    wish = np.where(model.must, model.options.first[:-1], -1)
    for o in options:
        if (x[o].value() or 0.0) > 0.5:
            wish[int(model.options.job[o])] = o
    return wish, model.worth(wish)


def measure(
    jobs: int, gpus: int, mix: Literal["mixed", "llm"], seed: int, budget_s: float
) -> dict[str, Any]:
    """Both on instances made anew; each time includes the options and their values."""
    instance = generate(jobs=jobs, gpus=gpus, seed=seed, like=mix, running=0.5)
    started_s = time.perf_counter()
    model = build(instance, parse("wct"), ROUND_S, refill=False)
    wish, planned = solve_ilp(model, 600.0)
    packing = Packing(model)
    packing.place_all(wish, model.options.value)
    ilp_s = time.perf_counter() - started_s
    ours = solve(
        generate(jobs=jobs, gpus=gpus, seed=seed, like=mix, running=0.5),
        budget_s,
        1e-3,
        None,
        "price",
    )
    return {
        "jobs": jobs,
        "gpus": gpus,
        "mix": mix,
        "seed": seed,
        "ilp_s": round(ilp_s, 3),
        "ilp_planned": planned,
        "ilp_value": packing.worth(),
        "price_s": round(ours.wall_s or 0.0, 3),
        "price_value": ours.value,
        "price_gap": ours.gap,
        "times_faster": round(ilp_s / (ours.wall_s or 1.0), 1),
        "value_ratio": ours.value / packing.worth(),
    }


def main() -> None:
    arguments = parser_of(
        __doc__, jobs=1024, gpus=2048, mix=("mixed", "llm"), seed=1, budget="1s"
    ).parse_args()
    load_solvers()
    tell(
        measure(
            arguments.jobs,
            arguments.gpus,
            arguments.mix,
            arguments.seed,
            duration(arguments.budget),
        )
    )


if __name__ == "__main__":
    main()
