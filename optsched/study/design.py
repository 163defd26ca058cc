"""What a study file says: instances, methods, seeds and limits; read from TOML, every fault in one
sentence."""

import itertools
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..duration import parse_duration
from ..files.shape_faults import FaultyFileError, shape_faults
from ..files.toml import read_toml
from ..frozen import record
from .optima import Optimum, OptimumSpec

MAKES = ("generate", "import")
"""Commands that make an instance."""
ANSWERS = ("simulate", "solve", "bound", "round", "pack")
"""Commands that a study runs over an instance; each prints one JSON object with --json."""
DATA = "data"
"""The parameter that stands for the folder of public data: OPTSCHED_DATA, else ../shared/data."""

MOST_GIB = 1e6
"""No machine has as much memory."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+:-]*$", max_length=80)]
Scalar = str | int | float | bool
Settings = tuple[tuple[str, Scalar], ...]
"""Names and values of parameters."""


def _duration(text: str) -> str:
    parse_duration(text)
    return text


class Part(BaseModel):
    """A table of the file; unknown keys are faults."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class InstanceSpec(Part):
    """An instance: a `file`, or the `command` that makes it (`generate ...` or `import ...`).

    With `files`, a pattern as of the shell, it stands for one instance a file: the file itself, or
    what `command`, an `import FORMAT` to which the file is added, makes of it. Instances of one
    `group` are summarised together; those of `files` are a group with the name of the pattern.
    `optimum` states the known optimal value.
    """

    name: Name
    file: str | None = None
    files: str | None = None
    command: str | None = None
    group: Name | None = None
    optimum: OptimumSpec | None = None

    @model_validator(mode="after")
    def _one_of(self) -> "InstanceSpec":
        if self.files is not None:
            words = (self.command or "import FORMAT").split()
            if self.file is not None or words[0] != "import" or len(words) < 2:
                raise ValueError("with files give no file, and no command but import FORMAT")
            if set(placeholders(self.files)) - {DATA}:
                raise ValueError("files takes no parameter but {data}")
        elif (self.file is None) == (self.command is None):
            raise ValueError("give either file or command")
        if self.optimum is not None and self.optimum.file is not None and self.files is None:
            raise ValueError("optimum: a file of optima goes with files; give value, a number")
        _check_command(self.command, MAKES)
        return self


class Method(Part):
    """What is run over each instance: a `command` (`simulate ...`, `solve ...`), `{name}` standing
    for parameters. `note` is a sentence for the reader of the tables; `against` another method to
    which it is compared there; `only` names the instances it is meant for."""

    name: Name
    command: str
    note: str | None = None
    against: Name | None = None
    only: tuple[Name, ...] | None = None

    @model_validator(mode="after")
    def _known(self) -> "Method":
        _check_command(self.command, ANSWERS)
        return self


class Across(Part):
    """A table in which the values of a `parameter` are the columns, for a `column` of the
    tables."""

    parameter: str
    column: Literal["mean JCT", "p99 JCT", "makespan", "value", "bound", "gap", "run"] = "mean JCT"


class Claim(Part):
    """A published result: the relative change of a `column` of the tables under `method` against
    another method, on all instances or `only` some; "more" or "less" where no number was published.
    `source` says where."""

    method: Name
    against: Name
    published: Annotated[float, Field(allow_inf_nan=False, gt=-1.0)] | Literal["more", "less"]
    column: str = "mean JCT"
    source: str | None = None
    only: tuple[Name, ...] | None = None

    @property
    def is_of_less(self) -> bool:
        """Return whether the number was published to be smaller."""
        return self.published == "less" if isinstance(self.published, str) else self.published < 0.0

    @model_validator(mode="after")
    def _known(self) -> "Claim":
        from .table import COLUMNS

        if not self.published:
            raise ValueError("published: 0 is not a change; give -0.19 for 19 % less")
        names = [column.name for column in COLUMNS]
        if self.column not in names:
            raise ValueError(f"column {self.column!r} is none of {', '.join(names)}")
        return self


class Study(Part):
    """A study file, checked.

    `about` says what is run and why, `reading` what its tables show.
    `parameters` are lists of values by name: every command that names one in braces is run once for
    each of its values. `seeds` is the parameter `seed`. `time_limit` and `memory_gib` bound one
    run. `policies` is short for methods that simulate one each. `across` asks for tables over the
    values of a parameter. `claims` are published results that are held against the runs. Speed-ups
    are over the method `baseline`, the first one unless given. With `plans` the plan of every run
    is kept, and the report links to its picture.
    """

    format: Literal["optsched-study/1"]
    name: Name
    title: Annotated[str, Field(max_length=256)]
    about: str | None = None
    reading: str | None = None
    seeds: tuple[int, ...] = (0,)
    time_limit: Annotated[str, AfterValidator(_duration)] = "10m"
    memory_gib: Annotated[float, Field(gt=0, le=MOST_GIB)] = 4.0
    plans: bool = False
    parameters: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], tuple[Scalar, ...]] = {}
    across: tuple[Across, ...] = ()
    policies: tuple[Name, ...] = ()
    instances: Annotated[tuple[InstanceSpec, ...], Field(min_length=1)]
    methods: tuple[Method, ...] = ()
    claims: tuple[Claim, ...] = ()
    baseline: Name | None = None

    @model_validator(mode="after")
    def _consistent(self) -> "Study":
        methods = self.all_methods
        if not methods:
            raise ValueError("name at least one method or policy")
        for what, own in (
            ("instance", [spec.name for spec in self.instances]),
            ("method", [method.name for method in methods]),
        ):
            for name, times in Counter(own).items():
                if times > 1:
                    raise ValueError(f"{what} {name} is named twice")
        for across in self.across:
            if across.parameter not in self.parameters:
                raise ValueError(f"across names {across.parameter}, which is not a parameter here")
        known = {DATA, "seed", *self.parameters}
        texts = [
            (spec.name, f"{spec.command or ''} {spec.file or spec.files or ''}")
            for spec in self.instances
        ]
        for owner, text in (*texts, *((method.name, method.command) for method in self.methods)):
            for name in placeholders(text):
                if name not in known:
                    raise ValueError(
                        f"{owner}: {{{name}}} is no parameter; known are {', '.join(sorted(known))}"
                    )
        return self

    @model_validator(mode="after")
    def _named(self) -> "Study":
        """Check that whatever names a method or an instance names one of this study."""
        instances = {name for spec in self.instances for name in (spec.name, spec.group)}
        names = {method.name for method in self.all_methods}
        named = [("study", "baseline", self.baseline)]
        named += [(f"method {method.name}", "against", method.against) for method in self.methods]
        for claim in self.claims:
            named += [("claim", "method", claim.method), ("claim", "against", claim.against)]
        for owner, key, name in named:
            if name is not None and name not in names:
                raise ValueError(f"{owner}: {key} names {name}, which is not a method here")
        limited = [(f"method {method.name}", method.only) for method in self.methods]
        limited += [(f"claim of {claim.method}", claim.only) for claim in self.claims]
        for owner, only in limited:
            for name in only or ():
                if name not in instances:
                    raise ValueError(
                        f"{owner}: only names {name}, which is not an instance of this study"
                    )
        return self

    @property
    def introduction(self) -> str:
        """Return what a reader should know before the tables: `about`, then `reading`."""
        return "\n\n".join(part.strip() for part in (self.about, self.reading) if part)

    @property
    def all_methods(self) -> tuple[Method, ...]:
        """Return the methods, those of `policies` first."""
        simulated = (
            Method(name=name, command=f"simulate --policy {name} --timing")
            for name in self.policies
        )
        return (*simulated, *self.methods)


@record
class Run:
    """One command line of a study: `method` over `instance`, with the values of the parameters that
    either names.

    `make` is the command that makes the instance, or None with `file`; `optimum` is its known
    optimal value.
    """

    instance: str
    method: str
    parameters: Settings
    make: str | None
    file: str | None
    command: str
    group: str | None = None
    optimum: Optimum | None = None

    @property
    def settings(self) -> Settings:
        """Return the parameters but for the seed."""
        return tuple(pair for pair in self.parameters if pair[0] != "seed")


def placeholders(text: str) -> list[str]:
    """Return the names in braces, in order of appearance."""
    return list(dict.fromkeys(re.findall(r"\{([a-z][a-z0-9_]*)\}", text)))


def read_study(path: Path) -> Study:
    """Return the study in a file. Raises InputError naming the file and every fault in it."""
    table = read_toml(path)
    try:
        return Study.model_validate(table)
    except ValidationError as error:
        known = {name for part in Part.__subclasses__() for name in part.model_fields}
        faults = shape_faults(error.errors(include_url=False), table, known)
        raise FaultyFileError(str(path), list(faults)) from None


def runs(study: Study) -> list[Run]:
    """Return every run of a study, in the order of the file: by instance, then method, then
    parameters."""
    return [
        run
        for spec in study.instances
        for method in study.all_methods
        if method.only is None or {spec.name, spec.group} & set(method.only)
        for run in _runs(study, spec, method)
    ]


def _runs(study: Study, spec: InstanceSpec, method: Method) -> Iterator[Run]:
    """Yield a run for each combination of values of the parameters that instance or method name."""
    values: dict[str, tuple[Scalar, ...]] = {**study.parameters, "seed": study.seeds}
    source = spec.command or spec.file or ""
    names = [name for name in placeholders(source + " " + method.command) if name != DATA]
    for chosen in itertools.product(*(values[name] for name in names)):
        given = dict(zip(names, chosen, strict=True))
        made = fill(source, given)
        yield Run(
            instance=spec.name,
            method=method.name,
            parameters=tuple(given.items()),
            make=made if spec.command else None,
            file=None if spec.command else made,
            command=fill(method.command, given),
            group=spec.group,
            optimum=spec.optimum.stated() if spec.optimum is not None else None,
        )


def fill(text: str, given: dict[str, Scalar]) -> str:
    """Return `text` with the parameters in braces put in; the folder of data stays as it is
    written."""
    return re.sub(
        r"\{([a-z][a-z0-9_]*)\}", lambda m: m[0] if m[1] == DATA else str(given[m[1]]), text
    )


def arguments(command: str) -> list[str]:
    """Return a command line as the words that the shell would make of it, the folder of data put
    in."""
    data = os.environ.get("OPTSCHED_DATA", "../shared/data")
    return [word.replace("{" + DATA + "}", data) for word in shlex.split(command)]


def _check_command(command: str | None, known: tuple[str, ...]) -> None:
    if command is None:
        return
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"command {command!r}: {error}") from None
    if not words or words[0] not in known:
        raise ValueError(f"command {command!r}: begins with none of {', '.join(known)}")
