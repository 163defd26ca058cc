"""Which instances and values of a study file are run: files found, values put in place of the
file's, a small part."""

import glob
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError
from .design import DATA, InstanceSpec, Scalar, Study, arguments
from .optima import OptimumSpec, optima_in, without_ending


def chosen(
    study: Study, *, settings: Sequence[tuple[str, str]] = (), limit: int | None = None
) -> Study:
    """Return the study with one instance for each of its `files`, at most `limit` of a pattern,
    evenly taken, and with values in place of the file's: pairs of a parameter (or `seed`) and
    values between commas.

    Raises InputError for a pattern that no file matches, an unknown parameter and a bad seed.
    """
    parameters, seeds = dict(study.parameters), study.seeds
    for name, text in settings:
        values = tuple(map(str.strip, text.split(",")))
        if name == "seed":
            try:
                seeds = tuple(int(value) for value in values)
            except ValueError:
                raise InputError(
                    f"--set seed={text}: seeds are whole numbers with commas between them"
                ) from None
        elif name in parameters:
            parameters[name] = tuple(_like(parameters[name], value) for value in values)
        else:
            known = ", ".join(sorted((*parameters, "seed")))
            raise InputError(f"--set {name}: the study has no such parameter; known are {known}")
    instances = [expanded for spec in study.instances for expanded in _expanded(spec, limit)]
    names = [instance.name for instance in instances]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise InputError(
            f"instance {twice} is there twice; files of a pattern need different names without "
            "endings"
        )
    return study.model_copy(
        update={"parameters": parameters, "seeds": seeds, "instances": tuple(instances)}
    )


def _like(values: Sequence[Scalar], text: str) -> Scalar:
    """Return the text as a value of the kind that the file has, so that it is written in commands
    in the same way."""
    for value in values:
        if str(value) == text:
            return value
    return text


def _expanded(spec: InstanceSpec, limit: int | None) -> list[InstanceSpec]:
    if spec.files is None:
        return [spec]
    data = os.environ.get("OPTSCHED_DATA", "../shared/data")
    paths = sorted(glob.glob(spec.files.replace("{" + DATA + "}", data)), key=_natural)
    if not paths:
        raise InputError(
            f"instance {spec.name}: no file matches {arguments(shlex.quote(spec.files))[0]}"
        )
    if limit is not None and len(paths) > limit:
        paths = [paths[i * len(paths) // limit] for i in range(limit)]
    group = spec.group or spec.name
    optima = _optima(spec.optimum, paths, data)
    made = []
    for path in paths:
        optimum = optima.get(without_ending(path))
        name = re.sub(r"[^A-Za-z0-9 ._+:-]", "-", f"{spec.name} {Path(path).name.split('.')[0]}")[
            :80
        ]
        if spec.command is None:
            made.append(InstanceSpec(name=name, file=path, group=group, optimum=optimum))
        else:
            command = _with_file(spec.command, path)
            made.append(InstanceSpec(name=name, command=command, group=group, optimum=optimum))
    return made


def _optima(spec: OptimumSpec | None, paths: Sequence[str], data: str) -> dict[str, OptimumSpec]:
    """Return the optimum of each file that has one, by its name without ending."""
    if spec is None or spec.file is None:
        return {} if spec is None else {without_ending(path): spec for path in paths}
    table = Path(spec.file.replace("{" + DATA + "}", data))
    known = optima_in(spec, table)
    optima = {name: known[name] for path in paths if (name := without_ending(path)) in known}
    if not optima:
        raise InputError(
            f"optima {table}: none is of any of the {len(paths)} instances; "
            f"column {spec.instance} needs their file names"
        )
    return {
        name: OptimumSpec(objective=optimum.objective, value=optimum.value)
        for name, optimum in optima.items()
    }


def _with_file(command: str, path: str) -> str:
    """Return `import FORMAT` with the file where the command line has it."""
    verb, trace_format, *rest = command.split(maxsplit=2)
    return " ".join([verb, trace_format, shlex.quote(path), *rest])


def _natural(path: str) -> list[tuple[int, int | str]]:
    """Return a key by which numbers in names are ordered as numbers."""
    return [
        (0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", path) if part
    ]
