"""What reproduces a figure: study, versions, machine, commands."""

from collections.abc import Sequence
from pathlib import Path

from ..design import Study, placeholders
from ..results import Result

MACHINE = "machine"
MOST_MADE = 40
"""Most instances whose commands are told."""


def foot(study: Study, path: Path, again: str, results: Sequence[Result]) -> tuple[str, ...]:
    """Two lines, from what was written down with the runs: they do not depend on who draws the figure. `again` is the
    command line of the study."""
    versions: dict[str, dict[str, None]] = {}
    for one in results:
        for name, value in one.made_on.items():
            versions.setdefault(name, {})[value] = None
    said = [f"{name} {' and '.join(values)}" for name, values in versions.items() if name != MACHINE]
    machines = list(versions.get(MACHINE, {}))
    more_machines = f" and {len(machines) - 3} more machines" if len(machines) > 3 else ""
    where = f" Run on {'; '.join(machines[:3])}{more_machines}."
    first = study.all_methods[0].command
    more = len(study.all_methods) - 1
    return (
        f"Study {path.name}: {study.title}. {', '.join(said) or 'Versions were not written down'}."
        + (where if machines else ""),
        f"Again: {again}. One run: optsched {with_instance(first, 'INSTANCE')} --json"
        + (f"; {more} more methods are in {path.name}." if more else "."),
    )


def with_instance(command: str, instance: str) -> str:
    """The command with its instance put in, as a person would write it."""
    name, _, rest = command.partition(" ")
    return f"{name} {instance} {rest}".rstrip()


def commands(study: Study) -> list[str]:
    """The commands of all runs, those that make instances first, parameters in braces; then what these are. Of many
    instances only the first ones."""
    made = [
        f"optsched {spec.command} -o INSTANCE" if spec.command else f"INSTANCE={spec.file}" for spec in study.instances
    ]
    if len(made) > MOST_MADE:
        made[MOST_MADE:] = [f"# and {len(made) - MOST_MADE:,} more"]
    run = [f"optsched {with_instance(method.command, 'INSTANCE')} --json" for method in study.all_methods]
    used = {name for line in (*made, *run) for name in placeholders(line)}
    values = {**study.parameters, "seed": study.seeds}
    return [*made, *run, *(f"{{{name}}} = {', '.join(map(str, values[name]))}" for name in values if name in used)]
