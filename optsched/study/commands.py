"""Commands of a study file: their words become the arguments of a call of the Python API."""

import json
from collections.abc import Callable
from dataclasses import make_dataclass, replace
from pathlib import Path
from typing import Any

from .. import api, files
from ..driver import PolicyError
from ..engine.trace import Trace
from ..errors import InputError
from ..objectives import level_name, parse
from ..plugins import registry
from ..plugins.options import PluginOptions, declared_by, read_words
from ..round.files import dump_round
from ..simulate.run import StalledError
from .design import arguments

TRACE, PLAN = "trace.csv", "plan.json.gz"
"""Files that are kept beside an answer."""
ONLY_PYTHON = ("instance", "on_progress", "log", "constrain", "track", "of_format")
"""Parameters of the API that are no options of a command."""
SHOWN = ("--json", "--quiet", "-q")
"""Options of the command line that say how an answer is shown."""

Call = Callable[..., Any]
Answer = dict[str, Any]
Options = dict[str, Any]


def make(command: str, target: Path) -> None:
    """Write the instance that a `generate` or `import` command makes. Raises InputError."""
    verb, *words = _words(command)
    if verb == "generate":
        instance = api.generate(**read_words(verb, _declared(api.generate), words))
    else:
        trace_format, source, *rest = words
        of_format = registry.importer(trace_format).Options
        own = declared_by(api.import_trace, "trace_format", "source", *ONLY_PYTHON)
        declared = make_dataclass("Options", [], bases=(own, of_format), frozen=True, kw_only=True)
        given = read_words(f"import {trace_format}", declared, rest)
        instance = api.import_trace(trace_format, source, **given).instance
    api.write_instance(instance, target)


def answer(command: str, instance: Path, folder: Path, *, plans: bool) -> Answer:
    """Return what the command line prints of an instance with `--json`, but for the plan. The trace
    of a solve, and with `plans` the plan, become files in the folder. Raises OptschedError."""
    verb, *words = _words(command)
    call, run = COMMANDS[verb]
    kept = folder / PLAN if plans else None
    return run(instance, read_words(verb, _declared(call), words), folder / TRACE, kept)


def _words(command: str) -> list[str]:
    return [word for word in arguments(command) if word not in SHOWN]


def _declared(call: Call) -> type[PluginOptions]:
    return declared_by(call, *ONLY_PYTHON)


def _simulate(instance: Path, options: Options, trace: Path, plan: Path | None) -> Answer:
    try:
        simulated = api.simulate(instance, **{"curves": True, **options})
    except (StalledError, PolicyError) as error:
        raise InputError(f"no plan: {error}") from None
    if plan is not None:
        files.write_text(plan, files.dump_plan(simulated.solution))
    return simulated.metrics


def _solve(instance: Path, options: Options, trace: Path, plan: Path | None) -> Answer:
    changes = Trace()
    solution = api.solve(instance, **{"workers": 1, **options}, on_progress=changes)
    if solution.plan is None:
        raise InputError(f"no plan: {solution.status}")
    files.write_text(trace, changes.as_csv())
    if plan is not None:
        files.write_text(plan, files.dump_plan(solution))
    said = files.plan_object(solution)
    del said["jobs"]  # the plan; thousands of them would fill the disk
    return said


def _decide(instance: Path, options: Options, trace: Path, plan: Path | None) -> Answer:
    decided = api.decide(instance, **options)
    stated = replace(decided, instance_hash=files.instance_hash(decided.instance))
    said: Answer = json.loads(dump_round(stated))
    return said


def _bound(instance: Path, options: Options, trace: Path, plan: Path | None) -> Answer:
    """Return the best bound of each level."""
    goal = parse(options.get("objective", "wct"))
    best: dict[int, float] = {}
    for bound in api.bound(instance, **options):
        best.setdefault(bound.level, bound.value)
    return {
        "levels": [
            {"name": level_name(goal.levels[level]), "value": None, "bound": value, "gap": None}
            for level, value in best.items()
        ]
    }


def _pack(instance: Path, options: Options, trace: Path, plan: Path | None) -> Answer:
    return api.pack(instance, **options).summary


COMMANDS: dict[str, tuple[Call, Callable[[Path, Options, Path, Path | None], Answer]]] = {
    "simulate": (api.simulate, _simulate),
    "solve": (api.solve, _solve),
    "round": (api.decide, _decide),
    "bound": (api.bound, _bound),
    "pack": (api.pack, _pack),
}
"""By verb: the function of the API whose options the command takes, and what calls it."""
