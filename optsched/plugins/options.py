"""Options of plug-ins: declared once, read from the command line, TOML and Python, and explained.

A plug-in has an attribute `Options`, a frozen dataclass below `PluginOptions`. Each field is an
option: its type with its range in `Annotated`, what it means, and its default, as in

    class Themis:
        @dataclass(frozen=True, kw_only=True)
        class Options(PluginOptions):
            lease_s: Annotated[PositiveDuration, "How long a job keeps its GPUs."] = 1200.0
            order: Annotated[Literal["fifo", "las"], "Who comes first."] = "fifo"

which `--option lease=20m --option order=las` sets: what is written with a unit is named without it.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from inspect import signature
from pathlib import Path
from types import FunctionType, NoneType
from typing import (
    Annotated,
    Any,
    ClassVar,
    ForwardRef,
    Literal,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import Ge, Gt, Le

from ..duration import parse_duration
from ..errors import InputError, listed, perhaps
from ..files.faults import Fault
from ..frozen import frozen, record

SHORTEST_S = 1e-3


@dataclass(frozen=True, kw_only=True)
class PluginOptions:
    """Base of what a plug-in lets its user set, and the declaration of one that has no options."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "allow_inf_nan": False}


NO_OPTIONS = PluginOptions()
Class = TypeVar("Class")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def declared_options(table: type[Class]) -> type[Class]:
    """Make a class of annotated fields a declaration of options."""
    return dataclass(frozen=True, kw_only=True)(table)


Declared = TypeVar("Declared", bound=PluginOptions)
T = TypeVar("T")


@record
class Written:
    """The notation of the values of a type: `parse` makes one of what is given, `write` its text.

    `kind` is what is expected, `suffix` the unit that the name of a field has and that of its
    option has not, as values carry their own.
    """

    kind: str
    parse: Callable[[object], object]
    write: Callable[[Any], str] = str
    suffix: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Parse before the type is checked."""
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(self.parse, handler(source))


@record
class Flag:
    """The flag of an option on a command line of its own, where it is not `--name`; a bool whose
    default is True is switched off by it."""

    name: str


def _seconds(given: object) -> object:
    if isinstance(given, str):
        return parse_duration(given)
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < math.inf:
        raise ValueError("must be a number of seconds, or a text as 90s, 5m, 2h")
    return float(given)


def _positive_seconds(given: object) -> object:
    seconds = _seconds(given)
    if isinstance(seconds, float) and seconds < SHORTEST_S:
        raise ValueError("must be longer than 0 s; write a length as 90s, 5m or 2h")
    return seconds


def parse_share(given: object) -> float:
    """Return a share that is written as `1%`, `0.01` or a number. Raises ValueError otherwise."""
    text = str(given)
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < math.inf:
        raise ValueError(f"{text!r} is not a share; write 1% or 0.01")
    return share


def _duration_text(seconds: float) -> str:
    for unit, length_s in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length_s and seconds % length_s == 0:
            return f"{seconds / length_s:g}{unit}"
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


Duration = Annotated[float, Written("a length of time", _seconds, _duration_text, "_s")]
PositiveDuration = Annotated[
    float, Written("a length of time above 0 s", _positive_seconds, _duration_text, "_s")
]
PositiveNumber = Annotated[float, Gt(0)]
Share = Annotated[float, Ge(0), Le(1)]
Gap = Annotated[float, Written("a share, as 1% or 0.01", parse_share)]


@frozen
class DeclaredOption:
    """One option as users see it: what it is called, what it may be, what it is without them.

    An option that `switches` needs no value on a command line of its own: its flag says it all.
    """

    name: str
    field: str
    expected: str
    default: str
    meaning: str
    hint: Any
    flag: str
    switches: bool


def described(declared: type[PluginOptions]) -> tuple[DeclaredOption, ...]:
    """Return the options of a declaration in its order, those it inherits first."""
    hints = get_type_hints(declared, include_extras=True)
    return tuple(
        _described(
            field.name,
            hints[field.name],
            field.default if field.default_factory is MISSING else field.default_factory(),
        )
        for field in fields(declared)
    )


def _described(field: str, hint: Any, default: object) -> DeclaredOption:
    base, metadata, may_be_none = _taken_apart(hint)
    written, own_flag = _first(Written, metadata), _first(Flag, metadata)
    name = (field if written is None else field.removesuffix(written.suffix)).rstrip("_")
    expected = _expected(base, metadata, default)
    if may_be_none and default is not None and default is not MISSING:
        expected += ", or none"
    if default is MISSING:
        text = ""
    else:
        text = "none" if default is None else _written(default, base, written)
    return DeclaredOption(
        name=name,
        field=field,
        expected=expected,
        default=text,
        meaning=next((data for data in reversed(metadata) if isinstance(data, str)), ""),
        hint=hint,
        flag=own_flag.name if own_flag else f"--{name.replace('_', '-')}",
        switches=base is bool,
    )


def _first(kind: type[T], metadata: Sequence[Any]) -> T | None:
    return next((data for data in metadata if isinstance(data, kind)), None)


def _taken_apart(hint: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """Return the bare type, everything that annotates it, and whether it may be None."""
    if get_origin(hint) is Annotated:
        inner, *metadata = get_args(hint)
        base, own, may_be_none = _taken_apart(inner)
        return base, (*own, *metadata), may_be_none
    if NoneType in get_args(hint):
        [inner] = [part for part in get_args(hint) if part is not NoneType]
        base, own, _ = _taken_apart(inner)
        return base, own, True
    return hint, (), False


LIMITS = {"gt": "above", "ge": "of at least", "lt": "below", "le": "of at most"}
"""What the attributes of `annotated_types` that limit a number mean."""
KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a file",
    dict: "a table",
}


def _expected(base: Any, metadata: Sequence[Any], default: object = MISSING) -> str:
    """Return what a value of this type is, as in "a whole number of at least 1"."""
    if get_origin(base) is Literal:
        return listed(list(map(str, get_args(base))), "or")
    if base is bool:
        return "yes or no" if default is True else "no or yes"
    if get_origin(base) is tuple:
        inner, own, _ = _taken_apart(get_args(base)[0])
        return f"a list, each {_expected(inner, own)}"
    written = _first(Written, metadata)
    kind = written.kind if written else KINDS.get(get_origin(base) or base, "a table")
    write = written.write if written else "{:g}".format
    limits = {
        name: write(getattr(data, name))
        for data in metadata
        for name in LIMITS
        if hasattr(data, name)
    }
    if limits.keys() >= {"ge", "le"}:
        return f"{kind} from {limits['ge']} to {limits['le']}"
    return " ".join([kind, *(f"{LIMITS[name]} {limit}" for name, limit in limits.items())])


def _written(value: Any, base: Any, written: Written | None) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ""
    if isinstance(value, tuple):
        inner, own, _ = _taken_apart(get_args(base)[0])
        return ",".join(_written(part, inner, _first(Written, own)) for part in value)
    if written is not None:
        return written.write(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


# --------------------------------------------------------------------------------------------------
# reading


def declaration(plug_in: object) -> type[PluginOptions]:
    """Return what a plug-in declares as `Options`, or a function as the type of its `options`; one
    without has none."""
    declared: Any = getattr(plug_in, "Options", None)
    if declared is None and isinstance(plug_in, FunctionType):
        declared = plug_in.__annotations__.get("options")
    return declared or PluginOptions


def declared_by(function: Callable[..., Any], *own: str) -> type[PluginOptions]:
    """Return the options that a function declares by its parameters, `own` ones apart; a type in
    quotes stands for any."""
    declared = [
        (name, _unquoted(parameter.annotation), field(default=parameter.default))
        for name, parameter in signature(function).parameters.items()
        if name not in own
    ]
    return make_dataclass("Options", declared, bases=(PluginOptions,), frozen=True, kw_only=True)


def _unquoted(annotation: Any) -> Any:
    if isinstance(annotation, str):
        return Any
    if get_origin(annotation) is Annotated and isinstance(get_args(annotation)[0], ForwardRef):
        return Annotated[(Any, *get_args(annotation)[1:])]
    return annotation


def read_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """Return `--option key=value` pairs. Raises InputError for one without `=` or a key given
    twice."""
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not key:
            raise InputError(f"--option {pair!r} has no value; write key=value")
        if key in values:
            raise InputError(f"--option {key} is given twice; keep one")
        values[key] = value
    return values


def read_words(what: str, declared: type[PluginOptions], words: Sequence[str]) -> dict[str, Any]:
    """Return the values of the options that a command line gives, by field: `--flag VALUE`,
    `--flag=VALUE`, the flag alone for a bool, `--option KEY=VALUE` for a table. Raises InputError
    in one sentence."""
    by_flag = {option.flag: option for option in described(declared)}
    given: dict[str, object] = {}
    pairs: dict[str, list[str]] = defaultdict(list)
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        option = by_flag.get(flag)
        if option is None:
            raise InputError(f"{what} has no option {flag}{perhaps(flag, by_flag)}")
        if option.switches:
            given[option.name] = option.default != "yes"
            continue
        if not equals and (following := next(rest, None)) is None:
            raise InputError(f"{what}: {flag} needs a value")
        pairs[option.name].append(value if equals else str(following))
        given[option.name] = (
            read_pairs(pairs[option.name])
            if get_origin(_taken_apart(option.hint)[0]) is dict
            else pairs[option.name][-1]
        )
    values = read_options(what, declared, given)
    return {
        option.field: getattr(values, option.field)
        for option in by_flag.values()
        if option.name in given
    }


def read_options(
    what: str, declared: type[Declared], given: Mapping[str, object] | None
) -> Declared:
    """Return the options that were given to `what` ("policy tiresias"), texts or values, and the
    defaults of the others. Raises InputError in one sentence."""
    if not given:
        return declared()
    known = {option.name: option for option in described(declared)}
    unknown = [name for name in given if name not in known]
    if unknown and not known:
        raise InputError(f"{what} takes no options; leave out {', '.join(unknown)}")
    if unknown:
        raise InputError(
            f"{what} has no option {', '.join(unknown)}; it has {listed(list(known))}"
            f"{perhaps(unknown[0], known)}"
        )
    options, errors = _validated(declared, given)
    if options is not None:
        return options
    [error, *_] = errors
    message = str(error.get("ctx", {}).get("error", error["msg"]))
    field = error["loc"][0] if error["loc"] else None
    option = next((option for option in known.values() if option.field == field), None)
    if option is None:
        raise InputError(f"{what}: {message}")
    if error["type"] == "value_error":
        raise InputError(f"option {option.name} of {what}: {message}")
    raise InputError(
        f"option {option.name} of {what}: {given[option.name]!r}; expected {option.expected}"
    )


def read_table(
    table: str, declared: type[Declared], given: Mapping[str, object]
) -> tuple[Declared | None, list[Fault]]:
    """Return what a table of a TOML file sets, or None with every fault in it."""
    from ..files.shape_faults import shape_faults

    options, errors = _validated(declared, given)
    fields_by_name = {option.field: option.name for option in described(declared)}
    named = [
        {
            **error,
            "loc": (fields_by_name.get(str(error["loc"][0]), error["loc"][0]), *error["loc"][1:]),
        }
        if error["loc"]
        else error
        for error in errors
    ]
    known = {*fields_by_name.values(), *_inner_names(declared)}
    faults = [
        Fault(
            table if fault.path == "file" else f"{table}.{fault.path}", fault.problem, fault.remedy
        )
        for fault in shape_faults(named, json.dumps(given, default=str), known)
    ]
    return options, faults


def _inner_names(declared: type[PluginOptions]) -> Iterator[str]:
    """Yield names in the tables within a table."""
    for option in described(declared):
        base, _, _ = _taken_apart(option.hint)
        for part in get_args(base):
            if isinstance(part, type) and issubclass(part, PluginOptions):
                yield from (inner.name for inner in described(part))


def _validated(
    declared: type[Declared], given: Mapping[str, object]
) -> tuple[Declared | None, list[Any]]:
    """Return the options, or what a validator has against them."""
    from pydantic import TypeAdapter, ValidationError

    values = dict(given)
    for option in described(declared):
        if option.name in given:
            del values[option.name]
            values[option.field] = _parted(option.hint, given[option.name])
    try:
        return TypeAdapter(declared).validate_python(values), []
    except ValidationError as error:
        return None, list(error.errors(include_url=False))


def _parted(hint: Any, value: object) -> object:
    """Return what a text says where a list or nothing may be meant."""
    base, _, may_be_none = _taken_apart(hint)
    if not isinstance(value, str):
        return value
    if may_be_none and value == "none":
        return None
    return [part.strip() for part in value.split(",")] if get_origin(base) is tuple else value
