"""Re-certify `instances/preempt-or-continue/` by exhaustive search and by `cpsat`, or see how a
rule does on it.

    python -m benchmarks.preempt_or_continue [NAME ...] [--write]
    python -m benchmarks.preempt_or_continue [NAME ...] --policy srtf [--time-limit 10]
    python -m benchmarks.preempt_or_continue --set large ...

Run it in the root of the repository. Without `--policy` every instance is solved by both methods,
compared with `optima.json` (or written there and to the README's table) and printed as it is done.
`cpsat` also proves, for each running job, the best value that can be had if that job is not
preempted. `--policy` takes any registered policy, which is simulated, or solver.

The set `large`, of 15 to 50 jobs, is proved by a time-indexed program that HiGHS and SCIP solve
(`certified_large.py`).
"""

import json
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.command_line import parser_of, tell
from optsched.errors import InputError
from optsched.files import instance_hash, read_instance
from optsched.model.instance import Instance
from optsched.model.plan import Plan
from optsched.objectives import parse
from optsched.physics import may_preempt
from optsched.plugins import registry
from optsched.plugins.solver import Report, Request, ignore
from optsched.verify import verify
from tests.oracles.first_decisions import Answer, first_decisions

SET = Path(__file__).parents[1] / "instances" / "preempt-or-continue"
OPTIMA = "optima.json"
WCT = parse("wct")
LEAVES = ("preempt", "migrate", "resize")
"""Decisions by which a running job gives up what it holds."""


def names(wanted: Iterable[str] = (), folder: Path = SET) -> list[str]:
    """The instances of the set, or those of `wanted`, which may be the start of names."""
    every = sorted(path.stem for path in folder.glob("*.json") if path.name != OPTIMA)
    starts = tuple(wanted)
    return [name for name in every if name.startswith(starts)] if starts else every


def load(name: str, folder: Path = SET) -> Instance:
    """One instance of the set."""
    return read_instance(folder / f"{name}.json")


def stored(folder: Path = SET) -> dict[str, dict[str, Any]]:
    """What `optima.json` says of each instance."""
    path = folder / OPTIMA
    entries: dict[str, dict[str, Any]] = (
        json.loads(path.read_text())["instances"] if path.exists() else {}
    )
    return entries


def number(value: float) -> float | int:
    """Twelve digits, whole where it is whole: what is stored."""
    rounded = float(f"{value:.12g}")
    return int(rounded) if rounded.is_integer() else rounded


def by_search(instance: Instance) -> dict[str, Any]:
    """The entry of `optima.json` as exhaustive search finds it; raises where its plan breaks a
    rule."""
    answer = first_decisions(instance)
    for outcome in answer.best:
        check_plan(instance, outcome.plan, answer.value)
    jobs = [job.id for job in instance.jobs]
    return {
        "hash": instance_hash(instance),
        "value": number(answer.value),
        "decisions": [dict(zip(jobs, vector, strict=True)) for vector in answer.decisions],
        "second": None if answer.second is None else number(answer.second),
        "preempting": {label(instance, stopped): number(best) for stopped, best in _values(answer)},
    }


def _values(answer: Answer) -> list[tuple[frozenset[str], float]]:
    return [
        (stopped, outcome.value)
        for stopped, outcome in answer.by_preempted.items()
        if outcome.plan is not None
    ]


def label(instance: Instance, stopped: Iterable[str]) -> str:
    """A set of preempted jobs in the order of the instance, as in `a+b`."""
    chosen = set(stopped)
    return "+".join(job.id for job in instance.jobs if job.id in chosen)


def check_plan(instance: Instance, plan: Plan | None, value: float) -> None:
    """Raise unless the verifier accepts the plan with that value."""
    assert plan is not None
    report = verify(instance, plan, WCT)
    if report.values is None or not math.isclose(report.values[0], value, rel_tol=1e-9):
        raise AssertionError(
            f"{instance.name}: {[str(v) for v in report.violations]}, {report.values} for {value}"
        )


def by_cpsat(instance: Instance, time_limit_s: float = 120.0) -> tuple[float, float, Plan | None]:
    """Value, proven bound and plan of `cpsat` alone, with nothing to start from."""
    value, bound, best = math.inf, -math.inf, None

    def plan(found: Plan) -> None:
        nonlocal value, best
        report = verify(instance, found, WCT)
        if report.values is None:
            raise AssertionError(
                f"{instance.name}: cpsat's plan breaks a rule: {report.violations[0]}"
            )
        if report.values[0] < value:
            value, best = report.values[0], found

    def prove(level: int, proved: float, source: str) -> None:
        nonlocal bound
        bound = max(bound, proved)

    request = Request(instance=instance, objective=WCT, time_limit_s=time_limit_s, workers=8)
    registry.solver("cpsat").solve(
        request, Report(plan=plan, bound=prove, infeasible=ignore, note=ignore)
    )
    return value, bound, best


def disagreements(instance: Instance, entry: dict[str, Any], keeping: bool = True) -> list[str]:
    """Where `cpsat` does not confirm an entry; with `keeping` also what each running job's
    continuing costs."""
    found = []
    value, bound, plan = by_cpsat(instance)
    if not (_same(value, entry["value"]) and _same(bound, entry["value"])):
        found.append(
            f"cpsat proves {bound:.10g} and reaches {value:.10g}, search {entry['value']:.10g}"
        )
    if plan is not None and {job.id: job.decision for job in plan.jobs} not in entry["decisions"]:
        found.append(f"cpsat decides {decided({job.id: job.decision for job in plan.jobs})}")
    for run in instance.running if keeping else ():
        if not may_preempt(instance, run):
            continue
        kept = tuple(
            replace(job, preemptible=job.preemptible and job.id != run.job) for job in instance.jobs
        )
        best = min(
            best
            for stopped, best in entry["preempting"].items()
            if run.job not in stopped.split("+")
        )
        value, bound, _ = by_cpsat(replace(instance, jobs=kept))
        if not (_same(value, best) and _same(bound, best)):
            found.append(
                f"with {run.job} kept cpsat proves {bound:.10g} and reaches {value:.10g}, search "
                f"{best:.10g}"
            )
    return found


def _same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-6)


def decided(decisions: dict[str, str]) -> str:
    """A decision vector in words; whoever is not named continues or waits."""
    words: dict[str, list[str]] = {}
    for job, decision in decisions.items():
        if decision not in ("continue", "wait"):
            words.setdefault(decision, []).append(job)
    return (
        "; ".join(f"{decision} {', '.join(jobs)}" for decision, jobs in words.items()) or "keep all"
    )


def row(name: str, idea: str, instance: Instance, entry: dict[str, Any]) -> str:
    """One line of the README's table."""
    decisions = " *or* ".join(decided(vector) for vector in entry["decisions"])
    second = (
        "-"
        if entry["second"] is None
        else f"{entry['second']:.10g} (+{loss(entry['second'], entry):.2%})"
    )
    return (
        f"| {name} | {len(instance.jobs)} | {instance.cluster.total_gpus} | {idea} | "
        f"{entry['value']:.10g} "
        f"| {decisions} | {second} |"
    )


def loss(value: float, entry: dict[str, Any]) -> float:
    """How much worse than the optimum a value is, relative to it."""
    return float(value / entry["value"] - 1)


def certify(wanted: list[str], write: bool) -> int:
    """Solve by both methods and compare; returns how many instances fail."""
    known, failed = stored(), 0
    chosen = names(wanted)
    for k, name in enumerate(chosen, 1):
        instance, begun = load(name), time.perf_counter()
        entry = by_search(instance)
        searched_s = time.perf_counter() - begun
        faults = disagreements(instance, entry)
        entry["certified_by"] = ["exhaustive search", *([] if faults else ["cpsat"])]
        if write:
            known[name] = entry
        elif known.get(name) != entry:
            faults.append("optima.json says otherwise")
        failed += bool(faults)
        solved_s = time.perf_counter() - begun - searched_s
        print(
            f"{k:3}/{len(chosen)} {name:13} {len(instance.jobs):2} jobs {entry['value']:10.10g} "
            f"second {entry['second'] or '-':>8} {searched_s:6.2f} + {solved_s:5.2f} s  "
            + " or ".join(map(decided, entry["decisions"]))
            + "".join(f"  !! {fault}" for fault in faults),
            flush=True,
        )
    if write:
        _write({name: known[name] for name in names()})
    print(f"{len(chosen) - failed} of {len(chosen)} certified by exhaustive search and by cpsat")
    return failed


def _write(known: dict[str, dict[str, Any]]) -> None:
    write_optima(SET, known)
    sys.path.insert(0, str(SET))
    from generate import families  # type: ignore[import-not-found]

    ideas = {name: idea for name, idea, _ in families()}
    write_table(SET, [row(name, ideas[name], load(name), entry) for name, entry in known.items()])


def write_optima(folder: Path, known: dict[str, dict[str, Any]]) -> None:
    """Write a set's optima, one line an instance."""
    lines = ",\n".join(
        f"    {json.dumps(name)}: {json.dumps(entry)}" for name, entry in known.items()
    )
    text = '{\n  "objective": "wct",\n  "instances": {\n' + lines + "\n  }\n}\n"
    (folder / OPTIMA).write_text(text)


def write_table(folder: Path, rows: list[str]) -> None:
    """Write the table of a set's README."""
    readme, table = folder / "README.md", "\n".join(rows)
    readme.write_text(
        re.sub(
            r"(\n\|---[^\n]*---\|\n)(\| [a-z-]+-\d\d [^\n]*\n)*(?=\n*<!-- table -->)",
            lambda found: found[1] + table + "\n",
            readme.read_text(),
        )
    )


NEAR = 1e-3
"""First decisions of a smaller loss are nearly optimal."""
Regret = Callable[[str, dict[str, Any], dict[str, str], float], tuple[bool, float]]
"""Whether first decisions are optimal, and the least loss of a plan that has them."""


def regret(
    name: str, entry: dict[str, Any], decisions: dict[str, str], value: float
) -> tuple[bool, float]:
    """Look first decisions up; the loss is that of what they preempt."""
    left = label(load(name), (job for job, decision in decisions.items() if decision in LEAVES))
    return decisions in entry["decisions"], loss(entry["preempting"][left], entry)


def best_plan(instance: Instance, name: str, time_limit_s: float) -> tuple[float, Plan | None]:
    """The best plan of a policy or solver that the verifier accepts, and its value."""
    plans: list[Plan] = []
    request = Request(instance=instance, objective=WCT, time_limit_s=time_limit_s)
    registry.solver(name).solve(
        request, Report(plan=plans.append, bound=ignore, infeasible=ignore, note=ignore)
    )
    checked = (((verify(instance, plan, WCT).values or (math.inf,))[0], plan) for plan in plans)
    sound = [pair for pair in checked if math.isfinite(pair[0])]
    return min(sound, key=lambda pair: pair[0], default=(math.inf, None))


def judge(
    policy: str, wanted: list[str], time_limit_s: float, folder: Path = SET, regret: Regret = regret
) -> None:
    """How often a policy's or solver's first decisions are optimal, and what they cost."""
    known, right, regrets, losses = stored(folder), 0, [], []
    chosen = names(wanted, folder)
    for name in chosen:
        instance, entry = load(name, folder), known[name]
        value, plan = best_plan(instance, policy, time_limit_s)
        if plan is None:
            print(f"{name:13} no plan")
            continue
        decisions: dict[str, str] = {job.id: job.decision for job in plan.jobs}
        optimal, least = regret(name, entry, decisions, value)
        right += optimal
        regrets.append(least)
        losses.append(loss(value, entry))
        print(
            f"{name:13} {'optimal' if optimal else 'WRONG  '} {decided(decisions):40} preempting "
            "these costs "
            f"{regrets[-1]:7.2%}, the plan {losses[-1]:7.2%}",
            flush=True,
        )
    tell(
        {
            "policy": policy,
            "instances": len(chosen),
            "planned": len(losses),
            "optimal_first_decisions": right,
            "share": round(right / len(chosen), 4),
            "share_near": round(sum(least < NEAR for least in regrets) / len(chosen), 4),
            "mean_loss_of_preemptions": _rounded(statistics.fmean(regrets)),
            "mean_loss_of_plans": _rounded(statistics.fmean(losses)),
            "worst_loss_of_plans": _rounded(max(losses)),
        }
    )


def _rounded(loss: float) -> float:
    """Return a loss in five digits; it is below 0 where a policy preempts once more, later."""
    return round(loss, 5) + 0.0  # no -0.0


def main() -> None:
    parser = parser_of(__doc__, write=False, set=("small", "large"), policy=str, time_limit=10.0)
    parser.add_argument(
        "names", nargs="*", help="instances, or how their names start; all by default"
    )
    options = parser.parse_args()
    from benchmarks import certified_large as large

    is_large = options.set == "large"
    of_set = (large.SET, large.regret) if is_large else (SET, regret)
    policies = options.policy.split(",") if options.policy else ()
    if not names(options.names, of_set[0]):
        parser.error(
            f"no instance of the set {options.set} starts with {' or '.join(options.names)}"
        )
    try:
        for policy in policies:
            registry.solver(policy)
    except InputError as error:
        parser.error(str(error))
    for policy in policies:
        judge(policy, options.names, options.time_limit, *of_set)
    if not options.policy:
        prove = large.certify if is_large else certify
        sys.exit(1 if prove(options.names, options.write) else 0)


if __name__ == "__main__":
    main()
