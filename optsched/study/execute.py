"""One run of a study in a process of its own: limited in time and memory, on one thread."""

import gzip
import json
import signal
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..duration import human
from .design import arguments
from .machine import made_on
from .process import Warm

TRACE, PLAN = "trace.csv", "plan.json.gz"
"""Files that are kept beside an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run left: `answer` is what the command printed, or None where it failed; `reason` then
    says why. `wall_s` and `cpu_s` are the run's own, start of Python not included; `memory_gib` is
    the most it held. `made_on` says with which versions and machine; `kept` holds files that are
    kept beside the answer, by the ending of their name."""

    answer: dict[str, Any] | None
    reason: str | None
    wall_s: float
    cpu_s: float
    memory_gib: float
    made_on: dict[str, str] = field(default_factory=dict)
    kept: dict[str, bytes] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return all but the files."""
        return {name: value for name, value in asdict(self).items() if name != "kept"}


def run_command(
    command: str,
    instance: Path | None,
    *,
    warm: Warm,
    time_limit_s: float,
    memory_gib: float,
    output: Path | None = None,
    plans: bool = False,
) -> Outcome:
    """Run `optsched COMMAND [INSTANCE]` as a fork of a warm process; with `output` it writes an
    instance there, else its JSON is the answer, without the plan that it may hold. With `plans` the
    plan is kept as a file."""
    words = arguments(command)
    line = [words[0]]
    if instance is not None:
        line.append(str(instance))
    line += words[1:]
    if output is not None:
        line += ["-o", str(output), "--quiet"]
    else:
        line.append("--json")
        if words[0] == "solve" and "--workers" not in words:
            line += ["--workers", "1"]
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        tempfile.TemporaryDirectory() as beside,
    ):
        line += extras(words, Path(beside), plans)
        ended = warm.run(line, out, err, time_limit_s=time_limit_s, memory_gib=memory_gib)
        status = ended.status
        spent: dict[str, Any] = {
            "wall_s": ended.wall_s,
            "cpu_s": ended.cpu_s,
            "memory_gib": ended.memory_gib,
            "made_on": made_on(),
        }
        for file in (out, err):
            file.seek(0)
        if status is None:
            return Outcome(answer=None, reason=f"stopped after {human(time_limit_s)}", **spent)
        if status != 0:
            return Outcome(answer=None, reason=_why(status, err.read(), memory_gib), **spent)
        if output is not None:
            return Outcome(answer={}, reason=None, **spent)
        try:
            answer = _as_object(json.loads(out.read()))
        except ValueError:
            return Outcome(answer=None, reason="printed no JSON", **spent)
        if words[0] == "solve":
            answer.pop("jobs", None)  # the plan; thousands of them would fill the disk
        return Outcome(answer=answer, reason=None, kept=files_of(Path(beside)), **spent)


def extras(words: list[str], beside: Path, plans: bool) -> list[str]:
    """Return what is asked of a command for figures: files go into the folder `beside`."""
    more = []
    if words[0] == "simulate" and "--curves" not in words:
        more.append("--curves")
    if words[0] == "solve" and "--trace" not in words:
        more += ["--trace", str(beside / TRACE)]
    if plans and words[0] in ("simulate", "solve") and not {"-o", "--output"} & set(words):
        more += ["-o", str(beside / ("simulation" if words[0] == "simulate" else PLAN))]
    return more


def files_of(beside: Path) -> dict[str, bytes]:
    """Trace and packed plan, where the run wrote them."""
    found = {}
    for name in (TRACE, PLAN):
        if (beside / name).exists():
            found[name] = (beside / name).read_bytes()
    for path in (beside / "simulation" / PLAN, beside / "simulation" / "plan.json"):
        if path.exists():
            data = path.read_bytes()
            found[PLAN] = data if path.name == PLAN else gzip.compress(data, mtime=0)
    return found


def _why(status: int, err: bytes, memory_gib: float) -> str:
    lines = [line.strip() for line in err.decode(errors="replace").splitlines() if line.strip()]
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    if any("MemoryError" in line or "bad_alloc" in line for line in lines):
        return f"needs more than {memory_gib:g} GiB of memory"
    return lines[0].removeprefix("optsched: ") if lines else f"exit status {status}"


def _as_object(answer: Any) -> dict[str, Any]:
    """Return what a command printed as one object: the list that `bound` prints becomes the best
    bound of each level."""
    if isinstance(answer, dict):
        return answer
    best = [one for one in answer if one.get("best")]
    return {
        "levels": [
            {"name": one["objective"], "value": None, "bound": one["value"], "gap": None}
            for one in best
        ]
    }
