"""Instance and plan files: JSON in and out, JSON Schema, every fault with its path and remedy."""

import gzip
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from .cluster import Cluster, Node, Tenant
from .errors import InputError
from .faults import Fault, find_faults
from .instance import Instance, Running, Slot, Suspended
from .job import Elastic, Job, Mode
from .plan import JobPlan, Level, Plan, Segment, Solution, Status
from .profile import UNMEASURED, Locality, Profile, Sharing

INSTANCE_FORMAT = "optsched/1"
PLAN_FORMAT = "optsched-plan/1"
ALIASES = {(Sharing, "partners"): "with"}
"""Fields whose name in files is a keyword of Python."""

MAX_FAULTS_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class InstanceFile(Instance):
    """An instance as it stands in a file."""

    format: Literal["optsched/1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRef:
    """Which instance a plan belongs to."""

    name: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveValue:
    """Value, proven bound and gap of a plan; `levels` only where there is more than one objective."""

    name: str
    value: float | None = None
    bound: float | None = None
    gap: float | None = None
    status: Status = "unknown"
    bound_source: str | None = None
    levels: tuple[Level, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
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
    jobs: tuple[JobPlan, ...] | None = None


class FaultyFile(InputError):
    """An input file with faults; the message shows the first ones, `faults` holds all."""

    def __init__(self, name: str, faults: list[Fault]) -> None:
        self.faults = faults
        shown = "\n".join(f"  {fault}" for fault in faults[:MAX_FAULTS_SHOWN])
        more = f"\n  and {len(faults) - MAX_FAULTS_SHOWN} more" if len(faults) > MAX_FAULTS_SHOWN else ""
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        super().__init__(f"{name}: {count}\n{shown}{more}")


# ------------------------------------------------------------------------------------------------ reading


def read_instance(path: str | Path) -> Instance:
    """Read and check an instance file (.json or .json.gz). Raises InputError naming every fault."""
    return load_instance(_read_bytes(path), str(path))


def load_instance(data: bytes | str, name: str = "instance") -> Instance:
    """Parse and check an instance; `name` is what messages call it. Raises InputError."""
    parsed: InstanceFile = _parse(InstanceFile, data, name)
    cluster = _with_single_nodes(parsed.cluster, name)
    instance = Instance(
        name=parsed.name,
        now_s=parsed.now_s,
        cluster=cluster,
        tenants=parsed.tenants,
        jobs=_share_equal_profiles(parsed.jobs),
        running=tuple(_in_node_order(cluster, entry) for entry in parsed.running),
        suspended=parsed.suspended,
    )
    faults = find_faults(instance)
    if faults:
        raise FaultyFile(name, faults)
    return instance


def check_instance(instance: Instance) -> None:
    """Check an instance built in Python as a file would be. Raises InputError naming every fault."""
    load_instance(dump_instance(instance), instance.name)


def read_plan(path: str | Path) -> tuple[PlanFile, Plan | None]:
    """Read a plan file; the plan is None where the solver found none. Raises InputError."""
    parsed: PlanFile = _parse(PlanFile, _read_bytes(path), str(path))
    return parsed, None if parsed.jobs is None else Plan(jobs=parsed.jobs)


def _read_bytes(path: str | Path) -> bytes:
    try:
        data = Path(path).read_bytes()
        if str(path).endswith(".gz") or data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"{path}: cannot be read: {reason}") from None
    except Exception as error:  # zlib.error on a damaged stream
        raise InputError(f"{path}: is not a sound gzip file: {error}") from None
    if not data.strip():
        raise InputError(f'{path}: is empty; an instance file starts with {{"format": "{INSTANCE_FORMAT}", ...')
    return data


@cache
def _adapter(kind: type) -> Any:
    """The validator of one kind of file; pydantic is told the file's rules once, the nouns stay free of it."""
    from pydantic import TypeAdapter

    for noun in (Node, Cluster, Tenant, Locality, Sharing, Profile, Mode, Elastic, Job, Slot, Running, Suspended,
                 InstanceFile, Segment, JobPlan, Level, InstanceRef, ObjectiveValue, PlanFile):
        names = {field: alias for (owner, field), alias in ALIASES.items() if owner is noun}
        noun.__pydantic_config__ = {  # type: ignore[attr-defined]
            "extra": "forbid",
            "allow_inf_nan": False,
            "alias_generator": (lambda field, names=names: names.get(field, field)),
        }
    return TypeAdapter(kind)


def _parse(kind: type, data: bytes | str, name: str) -> Any:
    from pydantic import ValidationError

    try:
        return _adapter(kind).validate_json(data)
    except ValidationError as error:
        faults = list(_shape_faults(error.errors(include_url=False, include_context=True), data))
        raise FaultyFile(name, faults) from None


REMEDIES = {
    "missing": "add it",
    "unexpected_keyword_argument": "remove it or correct its name",
    "float_type": "write a number",
    "float_parsing": "write a number",
    "int_type": "write a whole number",
    "int_parsing": "write a whole number",
    "int_from_float": "write a whole number",
    "finite_number": "write a finite number",
    "string_type": "write a text in quotes",
    "bool_type": "write true or false",
    "bool_parsing": "write true or false",
    "tuple_type": "write a list in [ ]",
    "dict_type": "write an object in { }",
    "dataclass_type": "write an object in { }",
    "dataclass_exact_type": "write an object in { }",
    "literal_error": "use one of the values named",
    "json_invalid": "correct the JSON there",
    "greater_than_equal": "write a number in range",
    "less_than_equal": "write a number in range",
    "greater_than": "write a number in range",
}


def _shape_faults(errors: list[dict[str, Any]], data: bytes | str) -> Iterator[Fault]:
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        raw = None
    seen = set()
    for error in errors:
        path, job = _path(error["loc"], raw)
        problem = re.sub(r"^Input should be", "should be", str(error["msg"]))
        problem = re.sub(r"^Unexpected keyword argument", "is not a known field", problem)
        problem = re.sub(r"^Missing required .*|^Field required", "is missing", problem)
        given = error.get("input")
        if isinstance(given, int | float | str | bool) and error["type"] not in ("json_invalid", "missing"):
            shown = repr(given)
            problem += f", not {shown if len(shown) <= 40 else shown[:37] + '...'}"
        if error["type"] == "json_invalid":
            path, problem = "file", problem.replace("Invalid JSON: ", "is not JSON: ")
        if (path, problem) not in seen:
            seen.add((path, problem))
            prefix = f"job {job}: " if job else ""
            yield Fault(path or "file", prefix + problem, REMEDIES.get(error["type"], "see `optsched schema`"))


def _path(loc: tuple[int | str, ...], raw: Any) -> tuple[str, str | None]:
    """`jobs[3].profile.rate.v100` from pydantic's location, and the id of the job it lies in."""
    text, job = "", None
    at = raw
    for step in loc:
        if isinstance(at, dict) and step not in at and step in ("Elastic", "int", "constrained-int", "[key]",
                                                                "function-after[...]"):
            continue
        if not isinstance(at, dict | list) and at is not None:
            continue
        if isinstance(step, int):
            text += f"[{step}]"
            inside = at[step] if isinstance(at, list) and step < len(at) else None
            if text.startswith("jobs[") and text.count("[") == 1 and isinstance(inside, dict):
                job = inside.get("id") if isinstance(inside.get("id"), str) else None
            at = inside
        else:
            text += f".{step}" if text else step
            at = at.get(step) if isinstance(at, dict) else None
    return text, job


def _with_single_nodes(cluster: Cluster, name: str) -> Cluster:
    nodes: list[Node] = []
    for i, node in enumerate(cluster.nodes):
        try:
            names = expand_hostlist(node.name)
        except ValueError as error:
            raise FaultyFile(name, [Fault(f"cluster.nodes[{i}].name", str(error), "write names as gpu-[0-3,7]")]) from None
        if len(nodes) + len(names) > MAX_NODES:
            raise FaultyFile(
                name, [Fault(f"cluster.nodes[{i}].name", f"more than {MAX_NODES} nodes", "correct the range")]
            )
        nodes.extend(node if one == node.name else replace(node, name=one) for one in names)
    return replace(cluster, nodes=tuple(nodes))


MAX_NODES = 200_000


def expand_hostlist(expression: str) -> list[str]:
    """Names of a hostlist expression: `a-[0-2,7]` is a-0 a-1 a-2 a-7, `n[01-03]` keeps the zeros.

    Raises ValueError where it is malformed.
    """
    match = re.search(r"\[([^\[\]]*)\]", expression)
    if match is None:
        if not expression or "[" in expression or "]" in expression:
            raise ValueError(f"{expression!r} is no node name")
        return [expression]
    head, tail = expression[: match.start()], expression[match.end() :]
    names = []
    for part in match[1].split(","):
        bounds = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part.strip())
        if bounds is None or int(bounds[2] or bounds[1]) < int(bounds[1]):
            raise ValueError(f"range {part!r} in {expression!r} is malformed")
        first, last, width = int(bounds[1]), int(bounds[2] or bounds[1]), len(bounds[1])
        if last - first >= MAX_NODES:
            raise ValueError(f"range {part!r} in {expression!r} is larger than {MAX_NODES} nodes")
        names.extend(f"{head}{i:0{width}d}" for i in range(first, last + 1))
    return [name for one in names for name in expand_hostlist(one + tail)]


def _share_equal_profiles(jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """One object for equal profiles, so that what is derived from a profile is derived once."""
    known: dict[object, Profile] = {}
    for job in jobs:
        profile = job.profile
        if profile is UNMEASURED:
            continue
        sharing = profile.sharing
        key = (
            profile.name, tuple(profile.rate.items()), tuple(profile.gpus.items()),
            tuple(profile.cpus_per_gpu.items()), profile.locality,
            sharing and (sharing.duty, tuple(sharing.partners.items())),
            profile.gpu_memory_gib, profile.memory_gib_per_gpu, profile.network_gbps, profile.checkpoint_s,
            profile.restore_s, profile.startup_s, profile.checkpoint_every_s, tuple(profile.power_w.items()),
        )
        first = known.setdefault(key, profile)
        if first is not profile:
            object.__setattr__(job, "profile", first)  # the job was made here and nobody else has seen it yet
    return jobs


def _in_node_order(cluster: Cluster, entry: Running) -> Running:
    order = cluster.node_order
    placement = sorted(entry.placement, key=lambda slot: order.get(slot.node, 0))
    return replace(entry, placement=tuple(placement))


# ------------------------------------------------------------------------------------------------ writing


def dump_instance(instance: Instance) -> str:
    """The instance as file text: canonical, one node range or job a line, defaults left out."""
    parts: dict[str, Any] = {"format": INSTANCE_FORMAT, "name": instance.name}
    if instance.now_s:
        parts["now_s"] = instance.now_s
    cluster = plain(instance.cluster)
    cluster["nodes"] = [plain(node) for node in _fold_nodes(instance.cluster.nodes)]
    parts["cluster"] = cluster
    for field in ("tenants", "jobs", "running", "suspended"):
        if items := getattr(instance, field):
            parts[field] = [plain(item) for item in items]
    return _lines(parts)


def dump_plan(solution: Solution) -> str:
    """The solution as plan file text, one job a line."""
    return _lines(plan_object(solution))


def plan_object(solution: Solution) -> dict[str, Any]:
    """The solution as the plan file's object."""
    objective = {
        "name": solution.objective,
        "value": _number(solution.value),
        "bound": _number(solution.bound),
        "gap": _number(solution.gap),
        "status": solution.status,
        "bound_source": solution.bound_source,
    }
    if len(solution.levels) > 1:
        objective["levels"] = [
            {"name": level.name, "value": _number(level.value), "bound": _number(level.bound)}
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
        "jobs": None if solution.plan is None else [plain(entry) for entry in solution.plan.jobs],
    }


def write_text(path: str | Path, text: str) -> None:
    """Write a file whole or not at all (gzip where the name says so). Raises InputError where it cannot be."""
    data = text.encode()
    write_bytes(path, gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file whole or not at all; a device or pipe is written to, not replaced. Raises InputError."""
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
    """Content hash of an instance: the first 16 hex digits of the SHA-256 of its canonical text."""
    return hashlib.sha256(dump_instance(instance).encode()).hexdigest()[:16]


def schema(kind: Literal["instance", "plan"]) -> dict[str, Any]:
    """JSON Schema of instance or plan files."""
    found: dict[str, Any] = _adapter(InstanceFile if kind == "instance" else PlanFile).json_schema(by_alias=True)
    found["title"] = f"optsched {kind} file"
    return found


@cache
def _layout(kind: type) -> tuple[tuple[str, str, Field[Any]], ...]:
    return tuple((field.name, ALIASES.get((kind, field.name), field.name), field) for field in fields(kind))


def plain(value: Any) -> Any:
    """Nouns as JSON values: defaults left out, whole floats as integers."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [plain(inner) for inner in value]
    assert is_dataclass(value)
    out = {}
    for name, alias, field in _layout(type(value)):
        inner = getattr(value, name)
        if field.default is not MISSING and inner == field.default:
            continue
        if field.default_factory is not MISSING and not inner:
            continue
        out[alias] = plain(inner)
    return out


def _number(value: float | None) -> float | int | None:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def _lines(parts: dict[str, Any]) -> str:
    """JSON with each element of a top-level list, and the nodes, on a line of its own."""
    rows = []
    for key, value in parts.items():
        if key == "cluster":
            inner = []
            for name, part in value.items():
                inner.append(f"    {json.dumps(name)}: {_rows(part, '      ') if name == 'nodes' else json.dumps(part)}")
            rows.append(f"  {json.dumps(key)}: {{\n" + ",\n".join(inner) + "\n  }")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            rows.append(f"  {json.dumps(key)}: {_rows(value, '    ')}")
        else:
            rows.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _rows(items: list[Any], indent: str) -> str:
    if not items:
        return "[]"
    return "[\n" + ",\n".join(indent + json.dumps(item) for item in items) + f"\n{indent[:-2]}]"


def _fold_nodes(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """Runs of equal nodes numbered one after the other, as one node with a hostlist name."""
    i = 0
    while i < len(nodes):
        match = re.fullmatch(r"(.*?)(\d{1,9})", nodes[i].name)
        last = i
        if match is not None:
            head, digits = match[1], match[2]
            template = replace(nodes[i], name="")
            while last + 1 < len(nodes):
                expected = f"{head}{int(digits) + last + 1 - i:0{len(digits)}d}"
                if nodes[last + 1].name != expected or replace(nodes[last + 1], name="") != template:
                    break
                last += 1
        if last > i and match is not None:
            end = nodes[last].name[len(match[1]) :]
            yield replace(nodes[i], name=f"{match[1]}[{match[2]}-{end}]")
        else:
            yield nodes[i]
        i = last + 1
