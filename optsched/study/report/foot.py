"""What reproduces a figure: study, versions, machine, commands."""

import math
from collections.abc import Sequence
from pathlib import Path

from ..design import InstanceSpec, Study, placeholders
from ..results import Result

MACHINE = "machine"
IDLE = 0.8
"""Runs that had at least this share of a core had one to themselves; the rest is waiting for
files."""
MOST_MADE = 4
"""Most instances of a group whose commands are told one by one."""


def foot(study: Study, path: Path, again: str, results: Sequence[Result]) -> tuple[str, ...]:
    """Return two lines, from what was written down with the runs: they do not depend on who draws
    the figure. `again` is the command line of the study."""
    versions: dict[str, dict[str, None]] = {}
    for result in results:
        for name, value in result.made_on.items():
            versions.setdefault(name, {})[value] = None
    said = [
        f"{name} {' and '.join(values)}" for name, values in versions.items() if name != MACHINE
    ]
    machines = list(versions.get(MACHINE, {}))
    more_machines = f" and {len(machines) - 3} more machines" if len(machines) > 3 else ""
    where = f" Run on {'; '.join(machines[:3])}{more_machines}."
    where += busy(results)
    first = study.all_methods[0].command
    more = len(study.all_methods) - 1
    told = (
        "."
        if not more
        else f"; 1 more method is in {path.name}."
        if more == 1
        else (f"; {more} more methods are in {path.name}.")
    )
    return (
        f"Study {path.name}: {study.title}. {', '.join(said) or 'Versions were not written down'}."
        + (where if machines else ""),
        f"Again: {again}. One run: optsched {with_instance(first)} --json{told}",
    )


def busy(results: Sequence[Result]) -> str:
    """Return the sentence that there was no core for each run, where there was none: then what
    depends on wall clock is worse than it would be."""
    solved = [result for result in results if result.answer is not None and result.wall_s > 1]
    wall_s = math.fsum(result.wall_s for result in solved)
    share = math.fsum(result.cpu_s for result in solved) / wall_s if wall_s else 1.0
    return (
        ""
        if share >= IDLE
        else (
            f" The machine was busy: on average runs had {share:.0%} of a core, and less came of "
            "their time than could."
        )
    )


def with_instance(command: str) -> str:
    """Return the command with its instance put in, as a person would write it."""
    name, _, rest = command.partition(" ")
    return f"{name} INSTANCE {rest}".rstrip()


def commands(study: Study) -> list[str]:
    """Return the commands of all runs, those that make instances first, parameters in braces; then
    what these are. Many instances of a group are told by what their commands have in common, and
    their number."""
    members: dict[str, list[InstanceSpec]] = {}
    for spec in study.instances:
        members.setdefault(spec.group or spec.name, []).append(spec)
    made = []
    for group, specs in members.items():
        lines = [
            f"optsched {spec.command} -o INSTANCE" if spec.command else f"INSTANCE={spec.file}"
            for spec in specs
        ]
        if len(specs) > MOST_MADE:
            lines = [f"# {group}: {len(specs):,} instances, of files like these", in_common(lines)]
        made += lines
    run = [f"optsched {with_instance(method.command)} --json" for method in study.all_methods]
    used = {name for line in (*made, *run) for name in placeholders(line)}
    values = {**study.parameters, "seed": study.seeds}
    return [
        *made,
        *run,
        *(f"{{{name}}} = {', '.join(map(str, values[name]))}" for name in values if name in used),
    ]


def in_common(lines: Sequence[str]) -> str:
    """Return what all lines begin and end with, a star for what is different."""
    first = _prefix(lines)
    last = _prefix([line[len(first) :][::-1] for line in lines])[::-1]
    return f"{first}*{last}"


def _prefix(lines: Sequence[str]) -> str:
    low, high = min(lines), max(lines)
    same = next(
        (i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b),
        min(len(low), len(high)),
    )
    return low[:same]
