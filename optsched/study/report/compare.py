"""The runs of a study side by side: methods over problems, and which methods are best."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..design import Scalar, Study, placeholders
from ..results import Result
from ..table import H, at, level
from .statistics import Floats, ratios

COMPARED = ("simulate", "solve")
"""Commands whose answers are values of whole plans."""
MEAN_JCT, P99_JCT = at("jct_s", "mean", over=H), at("jct_s", "p99", over=H)
VALUE, BOUND, GAP = level("value"), level("bound"), level("gap")


@dataclass(frozen=True, slots=True)
class Entry:
    """A run in its place: `method` and `case` are the names of method and instance with the values
    of their parameters, the seed aside; `group` is that of the instance, or its name."""

    method: str
    case: str
    group: str
    seed: Scalar | None
    result: Result

    @property
    def ok(self) -> bool:
        return self.result.answer is not None


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Methods, the best first, over problems: a problem is a case with a seed. `measure` says for
    each case what is compared, `values` has it, less being better: NaN where a method was not run,
    infinity where it failed."""

    entries: tuple[Entry, ...]
    methods: tuple[str, ...]
    cases: tuple[str, ...]
    problems: tuple[tuple[str, Scalar | None], ...]
    measure: dict[str, str]
    values: Floats

    @property
    def ratios(self) -> Floats:
        return ratios(self.values)

    def of(self, case: str, method: str) -> list[Entry]:
        """Return the runs of a method over a case, in the order of the seeds, those that failed
        left out."""
        return [
            entry
            for entry in self.entries
            if entry.case == case and entry.method == method and entry.ok
        ]


def compare(study: Study, results: Sequence[Result]) -> Comparison:
    """Put everything in its place; methods are ranked by how many problems they solve, then by
    the geometric mean of their ratios to the best values."""
    entries = _placed(study, results)
    cases = tuple(dict.fromkeys(entry.case for entry in entries))
    compared = [entry for entry in entries if _command(entry) in COMPARED]
    with_jct = _cases_with_jct(entries)
    jct = {case: case in with_jct for case in cases}
    seeds: dict[str, dict[Scalar | None, None]] = {case: {} for case in cases}
    for entry in compared:
        seeds[entry.case][entry.seed] = None
    # A method without a seed beside methods with seeds has the same value for each of them.
    problems = tuple(
        (case, seed)
        for case in cases
        for seed in seeds[case]
        if seed is not None or len(seeds[case]) == 1
    )
    methods = list(dict.fromkeys(entry.method for entry in entries))
    row, column = (
        {name: i for i, name in enumerate(methods)},
        {problem: k for k, problem in enumerate(problems)},
    )
    values = np.full((len(methods), len(problems)), np.nan)
    for entry in compared:
        found = (MEAN_JCT if jct[entry.case] else VALUE)(entry.result) if entry.ok else None
        value = math.inf if found is None else found
        for seed in [entry.seed] if (entry.case, entry.seed) in column else seeds[entry.case]:
            if (entry.case, seed) in column:
                values[row[entry.method], column[entry.case, seed]] = value
    order = _ranked(ratios(values))
    return Comparison(
        entries=tuple(entries),
        methods=tuple(methods[i] for i in order),
        cases=cases,
        problems=problems,
        measure={case: "mean JCT" if jct[case] else "objective" for case in cases},
        values=values[order],
    )


def _placed(study: Study, results: Sequence[Result]) -> list[Entry]:
    sources = {
        spec.name: set(placeholders(spec.command or spec.file or "")) for spec in study.instances
    }
    found: list[Entry] = []
    for result in results:
        run = result.run
        given = [pair for pair in run.parameters if pair[0] != "seed"]
        mine = [pair for pair in given if pair[0] in sources.get(run.instance, ())]
        found.append(
            Entry(
                _named(run.method, [pair for pair in given if pair not in mine]),
                _named(run.instance, mine),
                run.group or run.instance,
                dict(run.parameters).get("seed"),
                result,
            )
        )
    goals: dict[str, set[str]] = defaultdict(set)
    jct = _cases_with_jct(found)
    for one in found:
        if _command(one) in COMPARED and one.ok and one.case not in jct:
            goals[one.case].add(_objective(one))
    # Values of different objectives are not comparable: each objective makes a case of its own.
    return [
        replace(one, case=f"{one.case}, {_objective(one)}") if len(goals[one.case]) > 1 else one
        for one in found
    ]


def _cases_with_jct(entries: Sequence[Entry]) -> set[str]:
    """Cases of which all that is compared tells its mean JCT."""
    without = {
        entry.case
        for entry in entries
        if entry.ok and _command(entry) in COMPARED and MEAN_JCT(entry.result) is None
    }
    return {entry.case for entry in entries} - without


def _named(name: str, parameters: list[tuple[str, Scalar]]) -> str:
    return " ".join([name, *(f"{key}={value}" for key, value in parameters)])


def _command(one: Entry) -> str:
    return one.result.run.command.split()[0]


def _objective(one: Entry) -> str:
    """Return what a run was asked to minimise; of one that failed, as its command says."""
    words = one.result.run.command.replace("=", " ").split()
    return words[words.index("--objective") + 1] if "--objective" in words[:-1] else "wct"


def _ranked(found: Floats) -> list[int]:
    def merit(i: int) -> tuple[float, float, int]:
        there = found[i][~np.isnan(found[i])]
        finite = there[np.isfinite(there)]
        if not len(finite):
            return 2.0, 0.0, i
        return 1 - len(finite) / len(there), float(np.log(finite).mean()), i

    return sorted(range(len(found)), key=merit)
