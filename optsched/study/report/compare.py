"""The runs of a study side by side: methods over problems, and which methods are best."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...frozen import entity, record
from ..design import Scalar, Study, placeholders
from ..results import Result
from ..table import H, at, level
from .statistics import Floats, ratios

COMPARED = ("simulate", "solve")
"""Commands whose answers are values of whole plans."""
MEAN_JCT, P99_JCT = at("jct_s", "mean", over=H), at("jct_s", "p99", over=H)
VALUE, BOUND, GAP = level("value"), level("bound"), level("gap")


@record
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

    @property
    def said(self) -> dict[str, Any]:
        """Return the answer of the run, empty where it failed."""
        return self.result.answer or {}


@entity
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

    def of_case(self, case: str) -> Floats:
        """Return the values of all methods over the problems of a case."""
        return self.values[:, [problem[0] == case for problem in self.problems]]

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
    methods = list(dict.fromkeys(entry.method for entry in entries))
    compared = [entry for entry in entries if _command(entry) in COMPARED]
    with_jct = _cases_with_jct(entries)
    problems = _problems(cases, compared)
    column = {problem: k for k, problem in enumerate(problems)}
    of_case: dict[str, list[int]] = {case: [] for case in cases}
    for (case, _), k in column.items():
        of_case[case].append(k)
    values = np.full((len(methods), len(problems)), np.nan)
    for entry in compared:
        value = (MEAN_JCT if entry.case in with_jct else VALUE)(entry.result)
        # A method without a seed beside methods with seeds has the same value for each of them.
        at = column.get((entry.case, entry.seed))
        own = of_case[entry.case] if at is None else [at]
        values[methods.index(entry.method), own] = math.inf if value is None else value
    order = _ranked(ratios(values))
    return Comparison(
        entries=tuple(entries),
        methods=tuple(methods[i] for i in order),
        cases=cases,
        problems=problems,
        measure={case: "mean JCT" if case in with_jct else "objective" for case in cases},
        values=values[order],
    )


def _problems(
    cases: Sequence[str], compared: Sequence[Entry]
) -> tuple[tuple[str, Scalar | None], ...]:
    """Return each case with each seed that it was run with, None only where there is no other."""
    seeds: dict[str, dict[Scalar | None, None]] = {case: {} for case in cases}
    for entry in compared:
        seeds[entry.case][entry.seed] = None
    return tuple(
        (case, seed)
        for case, own in seeds.items()
        for seed in own
        if seed is not None or len(own) == 1
    )


def _placed(study: Study, results: Sequence[Result]) -> list[Entry]:
    sources = {
        spec.name: set(placeholders(spec.command or spec.file or "")) for spec in study.instances
    }
    entries: list[Entry] = []
    for result in results:
        run = result.run
        of_instance, of_method = [run.instance], [run.method]
        for name, value in run.parameters:
            if name != "seed":
                mine = name in sources.get(run.instance, ())
                (of_instance if mine else of_method).append(f"{name}={value}")
        entries.append(
            Entry(
                " ".join(of_method),
                " ".join(of_instance),
                run.group or run.instance,
                dict(run.parameters).get("seed"),
                result,
            )
        )
    goals: dict[str, set[str]] = defaultdict(set)
    jct = _cases_with_jct(entries)
    for entry in entries:
        if _command(entry) in COMPARED and entry.ok and entry.case not in jct:
            goals[entry.case].add(_objective(entry))
    # Values of different objectives are not comparable: each objective makes a case of its own.
    return [
        replace(entry, case=f"{entry.case}, {_objective(entry)}")
        if len(goals[entry.case]) > 1
        else entry
        for entry in entries
    ]


def _cases_with_jct(entries: Sequence[Entry]) -> set[str]:
    """Return the cases of which all that is compared tells its mean JCT."""
    without = {
        entry.case
        for entry in entries
        if entry.ok and _command(entry) in COMPARED and MEAN_JCT(entry.result) is None
    }
    return {entry.case for entry in entries} - without


def _command(entry: Entry) -> str:
    return entry.result.run.command.split()[0]


def _objective(entry: Entry) -> str:
    """Return what a run was asked to minimise; of one that failed, as its command says."""
    words = entry.result.run.command.replace("=", " ").split()
    return words[words.index("--objective") + 1] if "--objective" in words[:-1] else "wct"


def _ranked(ratios: Floats) -> list[int]:
    """Return the rows in order: by the share of problems not solved, then by the geometric mean of
    the ratios; those that solve none come last."""

    def merit(row: Floats) -> tuple[float, float]:
        finite = row[np.isfinite(row)]
        if not len(finite):
            return 2.0, 0.0
        return 1 - len(finite) / (~np.isnan(row)).sum(), float(np.log(finite).mean())

    return sorted(range(len(ratios)), key=lambda i: merit(ratios[i]))
