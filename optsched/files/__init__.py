"""Instance and plan files: JSON in and out, JSON Schema, every fault with its path and remedy."""

import codecs
import csv
import gzip
import hashlib
import io
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from ..errors import InputError
from ..frozen import frozen
from ..hostlist import MAX_NODES, expand_hostlist, fold_nodes
from ..model import (
    UNMEASURED,
    Cluster,
    Instance,
    Job,
    JobPlan,
    Level,
    Mode,
    Node,
    Plan,
    Profile,
    Running,
    Sharing,
    Slot,
    Solution,
    Status,
)
from .faults import Fault, Sound, find_faults
from .power import with_power, without_power
from .shape_faults import FaultyFileError, duplicate_keys, other_kind, shape_faults

INSTANCE_FORMAT = "optsched/1"
PLAN_FORMAT = "optsched-plan/1"
GZIP_MAGIC = b"\x1f\x8b"
ALIASES: dict[tuple[type, str], str] = {(Sharing, "partners"): "with"}
"""Fields whose name in files is a keyword of Python."""


@dataclass(frozen=True, kw_only=True)
class InstanceFile(Instance):
    """An instance as it stands in a file."""

    format: Literal["optsched/1"]


@frozen
class InstanceRef:
    """Which instance a plan belongs to."""

    name: str
    hash: str


@frozen
class ObjectiveValue:
    """Value, proven bound and gap of a plan; `levels` only where there is more than one
    objective."""

    name: str
    value: float | None = None
    bound: float | None = None
    gap: float | None = None
    status: Status = "unknown"
    bound_source: str | None = None
    levels: tuple[Level, ...] = ()


@frozen
class PlanFile:
    """A plan as it stands in a file."""

    format: Literal["optsched-plan/1"]
    instance: InstanceRef
    solver: str
    seed: int = 0
    objective: ObjectiveValue
    wall_s: float | None = None
    fallback: str | None = None
    notes: tuple[str, ...] = ()
    replay: bool = False
    jobs: tuple[JobPlan, ...] | None = None


# ------------------------------------------------------------------------------------------------
# reading


def read_instance(path: str | Path, *, now_only: bool = False) -> Instance:
    """Read and check an instance file (.json or .json.gz). Raises InputError naming every fault;
    with `now_only` it is none that no whole plan exists: see `find_faults`."""
    return load_instance(read_bytes(path), str(path), now_only=now_only)


def load_instance(data: bytes | str, name: str = "instance", *, now_only: bool = False) -> Instance:
    """Parse and check an instance; `name` is what messages call it, `now_only` as in
    `read_instance`. Raises InputError."""
    parsed: InstanceFile = parse_file(InstanceFile, data, name, INSTANCE_FORMAT)
    cluster = _with_single_nodes(parsed.cluster, name)
    running = tuple(_in_node_order(cluster, entry) for entry in parsed.running)
    parts = {field.name: getattr(parsed, field.name) for field in fields(Instance)}
    instance = Instance(
        **parts
        | {
            "cluster": cluster,
            "jobs": _share_equal_profiles(parsed.jobs),
            "running": with_power(cluster, parsed.jobs, running),
        }
    )
    faults = find_faults(instance, now_only=now_only)
    if faults:
        raise FaultyFileError(name, faults)
    return instance


def check_instance(
    instance: Instance, *, now_only: bool = False, sound: Sound | None = None
) -> None:
    """Check an instance made in Python as a file would be: the same faults, told in the same words.
    What a file may leave out, it must state. What is known to be `sound` is not looked at again,
    and what proves to be is added. Raises InputError naming every fault."""
    from pydantic import ValidationError

    validate = adapter(Instance).validate_python
    try:
        if sound is None:
            validate(instance)
        else:
            try:
                validate(sound.unknown(instance))
            except ValidationError:
                validate(instance)  # for the places of faults in the whole
    except ValidationError as error:
        faults = list(shape_faults(error.errors(include_url=False), instance, ()))
    else:
        faults = [
            *_ranges_of_names(instance),
            *find_faults(instance, now_only=now_only, sound=sound),
        ]
    if faults:
        raise FaultyFileError(instance.name, faults)
    if sound is not None:
        sound.remember(instance)


def _ranges_of_names(instance: Instance) -> Iterator[Fault]:
    for i, node in enumerate(instance.cluster.nodes):
        if "[" in node.name or "]" in node.name:
            path, problem = f"cluster.nodes[{i}].name", f"{node.name!r} is not the name of one node"
            yield Fault(path, problem, "make a node for each name")


def read_plan(path: str | Path) -> tuple[PlanFile, Plan | None]:
    """Read a plan file; the plan is None where the solver found none. Raises InputError."""
    parsed: PlanFile = parse_file(PlanFile, read_bytes(path), str(path), PLAN_FORMAT)
    return parsed, None if parsed.jobs is None else Plan(jobs=parsed.jobs)


def read_bytes(path: str | Path) -> bytes:
    """Return the content of a file, unpacked where it is gzip. Raises InputError if it cannot be
    read."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a null character in the name
        raise InputError(f"{str(path)!r}: cannot be read: {error}") from None
    if str(path).endswith(".gz") or data[:2] == GZIP_MAGIC:
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{path}: is not a sound gzip file: {error}") from None
    return data


@cache
def nouns_of(kind: Any) -> tuple[type, ...]:
    """Return the dataclasses that values of a type are made of."""
    nouns: dict[type, None] = {}

    def look(hint: Any) -> None:
        if isinstance(hint, type) and is_dataclass(hint) and hint not in nouns:
            nouns[hint] = None
            for inner in get_type_hints(hint).values():
                look(inner)
        for part in get_args(hint):
            look(part)

    look(kind)
    return tuple(nouns)


@cache
def adapter(kind: Any) -> Any:
    """Return the validator of one kind of file; pydantic is told the rules here, the nouns in it
    stay free of it."""
    from pydantic import TypeAdapter

    for noun in nouns_of(kind):
        names = {field: alias for (owner, field), alias in ALIASES.items() if owner is noun}
        if kind is Instance:
            names = {}  # made in Python, where fields have their own names
        noun.__pydantic_config__ = {  # type: ignore[attr-defined]
            "strict": True,
            "extra": "forbid",
            "allow_inf_nan": False,
            "revalidate_instances": "always",
            "alias_generator": (lambda field, names=names: names.get(field, field)),
        }
    return TypeAdapter(kind)


def parse_file(
    kind: type,
    data: bytes | str,
    name: str,
    file_format: str,
    faults_of: Callable[[Any], Iterable[Fault]] = lambda parsed: (),
) -> Any:
    """Return what a kind of file holds, a dataclass, checked field by field and then as a whole
    by `faults_of`. Raises InputError naming every fault."""
    from pydantic import ValidationError

    data = _text(data, name)
    if not data.strip():
        raise InputError(
            f'{name}: is empty; such a file starts with {{"format": "{file_format}", ...'
        )
    faults = duplicate_keys(data)
    try:
        parsed = adapter(kind).validate_json(data)
    except ValidationError as error:
        other = other_kind(error.errors(include_url=False), file_format)
        if other is not None:
            raise InputError(f"{name}: {other}") from None
        known = [alias for noun in nouns_of(kind) for _, alias, _ in _layout(noun)]
        faults.extend(shape_faults(error.errors(include_url=False), data, known))
    if not faults:
        faults.extend(faults_of(parsed))
    if faults:
        raise FaultyFileError(name, faults)
    return parsed


def _text(data: bytes | str, name: str) -> bytes:
    """Return the bytes of a JSON text without byte order mark. Raises InputError for anything that
    is not UTF-8."""
    if isinstance(data, bytes) and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{name}: is UTF-16 text; save it as UTF-8")
    try:
        if isinstance(data, str):
            return data.encode()
        data.decode()
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise InputError(
            f"{name}: is not UTF-8 text: {error.reason} at byte {error.start}"
        ) from None
    return data.removeprefix(codecs.BOM_UTF8)


def _with_single_nodes(cluster: Cluster, name: str) -> Cluster:
    nodes: list[Node] = []
    faults: list[Fault] = []
    for i, node in enumerate(cluster.nodes):
        path = f"cluster.nodes[{i}].name"
        try:
            names = expand_hostlist(node.name)
        except ValueError as error:
            faults.append(Fault(path, str(error), "write names as gpu-[0-3,7]"))
            continue
        if len(nodes) + len(names) > MAX_NODES:
            faults.append(
                Fault(path, f"the cluster has more than {MAX_NODES} nodes", "correct the range")
            )
            break
        nodes.extend(node if own == node.name else replace(node, name=own) for own in names)
    windows = []
    for i, window in enumerate(cluster.windows):
        try:
            names = [node for text in window.nodes for node in expand_hostlist(text)]
        except ValueError as error:
            path = f"cluster.windows[{i}].nodes"
            faults.append(Fault(path, str(error), "write names as gpu-[0-3,7]"))
            continue
        windows.append(replace(window, nodes=tuple(names)))
    if faults:
        raise FaultyFileError(name, faults)
    return replace(cluster, nodes=tuple(nodes), windows=tuple(windows))


def _share_equal_profiles(jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """Make one object of equal profiles, so that what is derived from a profile is derived once."""
    known: dict[Profile, Profile] = {}
    for job in jobs:
        profile = job.profile
        if profile is UNMEASURED:
            continue
        first = known.setdefault(profile, profile)
        if first is not profile:
            object.__setattr__(
                job, "profile", first
            )  # the job was made here and nobody else has seen it yet
    return jobs


def _in_node_order(cluster: Cluster, entry: Running) -> Running:
    order = cluster.node_order
    placement = sorted(entry.placement, key=lambda slot: order.get(slot.node, 0))
    return replace(entry, placement=tuple(placement))


# ------------------------------------------------------------------------------------------------
# writing


class Line(str):
    """An element of a list as it stands in a file."""


class Texts:
    """Lines of nouns in files. Where it is kept from one file to the next, those that come again
    are made only once; what a file did not have is forgotten after the next but one."""

    def __init__(self) -> None:
        self._lines: dict[object, Line] = {}
        self._before: dict[object, Line] = {}
        self._parts: dict[object, Any] = {}

    def next_file(self) -> None:
        """Forget what the last file did not have."""
        self._before, self._lines = self._lines, {}
        if len(self._parts) > 2 * len(self._before):
            self._parts.clear()

    def line(self, noun: Any, *, comes_again: bool = True) -> Line:
        """Return the line of a noun."""
        if not comes_again:
            return Line(json.dumps(plain(noun, self._parts)))
        line = self._lines.get(noun)
        if line is None:
            line = self._before.get(noun) or Line(json.dumps(plain(noun, self._parts)))
            self._lines[noun] = line
        return line


def dump_instance(instance: Instance, texts: Texts | None = None) -> str:
    """Return the instance as file text: canonical, one node range or job a line, defaults left
    out."""
    texts = Texts() if texts is None else texts
    texts.next_file()
    parts: dict[str, Any] = {"format": INSTANCE_FORMAT, "name": instance.name}
    if instance.now_s:
        parts["now_s"] = number(instance.now_s)
    cluster = plain(instance.cluster)
    nodes = [texts.line(node) for node in fold_nodes(instance.cluster.nodes)]
    parts["cluster"] = cluster | {"nodes": nodes}
    if instance.shares is not None:
        parts["shares"] = plain(instance.shares)
    for field in ("tenants", "jobs", "running", "suspended", "past", "failures", "outages"):
        items = without_power(instance) if field == "running" else getattr(instance, field)
        if items:
            again = field in ("tenants", "jobs")
            parts[field] = [texts.line(item, comes_again=again) for item in items]
    return lines(parts)


def dump_plan(solution: Solution) -> str:
    """Return the solution as plan file text, one job a line."""
    return lines(plan_object(solution))


def plan_object(solution: Solution) -> dict[str, Any]:
    """Return the solution as the plan file's object."""
    objective: dict[str, Any] = {
        "name": solution.objective,
        "value": number(solution.value),
        "bound": number(solution.bound),
        "gap": number(solution.gap),
        "status": solution.status,
        "bound_source": solution.bound_source,
    }
    if len(solution.levels) > 1:
        objective["levels"] = [
            {"name": level.name, "value": number(level.value), "bound": number(level.bound)}
            for level in solution.levels
        ]
    return {
        "format": PLAN_FORMAT,
        "instance": {"name": solution.instance_name, "hash": solution.instance_hash},
        "solver": solution.solver,
        "seed": solution.seed,
        "objective": objective,
        "wall_s": solution.wall_s,
        "fallback": solution.fallback,
        **({"notes": list(solution.notes)} if solution.notes else {}),
        **({"replay": True} if solution.replay else {}),
        "jobs": None if solution.plan is None else [plain(entry) for entry in solution.plan.jobs],
    }


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as comma-separated text, all digits of every number."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def write_text(path: str | Path, text: str) -> None:
    """Write a file whole or not at all (gzip where the name says so). Raises InputError if it
    cannot be."""
    data = text.encode()
    write_bytes(path, gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file whole or not at all; a device or pipe is written to, not replaced. Raises
    InputError."""
    temporary = None
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "wb") as out:
                out.write(data)
            return
        target = Path(os.path.realpath(path))  # a link stays a link, its target is replaced
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def instance_hash(instance: Instance) -> str:
    """Return the content hash of an instance: that of its canonical text."""
    return text_hash(dump_instance(instance))


def text_hash(text: str) -> str:
    """Return the first 16 hex digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def schema(kind: Literal["instance", "plan"]) -> dict[str, Any]:
    """Return the JSON Schema of instance or plan files."""
    return schema_of(InstanceFile if kind == "instance" else PlanFile, f"optsched {kind} file")


def schema_of(kind: type, title: str) -> dict[str, Any]:
    """Return the JSON Schema of one kind of file."""
    return {**adapter(kind).json_schema(by_alias=True), "title": title}


@cache
def _layout(kind: type) -> tuple[tuple[str, str, Field[Any]], ...]:
    return tuple(
        (field.name, ALIASES.get((kind, field.name), field.name), field) for field in fields(kind)
    )


def plain(value: Any, known: dict[object, Any] | None = None) -> Any:
    """Return nouns as JSON values: defaults left out, whole floats as integers.

    `known` holds what was made of profiles, modes and slots that may come again.
    """
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return number(value)
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(inner, known) for inner in value]
    assert is_dataclass(value)
    if known is None or not isinstance(value, (Profile, Mode, Slot)):
        return _plain_fields(value, known)
    if value not in known:
        known[value] = _plain_fields(value, None)
    return known[value]


def _plain_fields(value: Any, known: dict[object, Any] | None) -> dict[str, Any]:
    out = {}
    kind: type = type(value)
    for name, alias, field in _layout(kind):
        inner = getattr(value, name)
        if inner is field.default or inner == field.default:
            continue
        if field.default_factory is not MISSING and not inner:
            continue
        out[alias] = plain(inner, known)
    return out


def number(value: float | None) -> float | int | None:
    """Return a float as JSON shows it best: whole ones without a decimal point."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def lines(parts: dict[str, Any]) -> str:
    """Return JSON with each element of a top-level list, and the nodes, on a line of its own."""
    rows = []
    for key, value in parts.items():
        if key == "cluster":
            inner = []
            for name, part in value.items():
                text = listed_rows(part, "      ") if name == "nodes" else json.dumps(part)
                inner.append(f"    {json.dumps(name)}: {text}")
            rows.append(f"  {json.dumps(key)}: {{\n" + ",\n".join(inner) + "\n  }")
        elif isinstance(value, list) and value and isinstance(value[0], (dict, Line)):
            rows.append(f"  {json.dumps(key)}: {listed_rows(value, '    ')}")
        else:
            rows.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(rows) + "\n}\n"


def listed_rows(items: list[Any], indent: str) -> str:
    """Return a list as JSON, with each element on a line of its own."""
    if not items:
        return "[]"
    texts = (item if isinstance(item, Line) else json.dumps(item) for item in items)
    return "[\n" + ",\n".join(indent + text for text in texts) + f"\n{indent[:-2]}]"
