"""The numbers of a summary in words: tiles, and a table with the meaning of each."""

import tomllib
from collections.abc import Callable, Iterator
from functools import reduce
from importlib.resources import files
from typing import Any

from ...duration import human
from ...picture.facts import level_unit, percent, quantity
from ...picture.text_simulation import REASON_WORDS, lost_gpu_h

Tile = tuple[str, str, str, str]
"""Name, value, what stands below it, and what it means."""
Line = tuple[str, str, str]
"""Name, value, and what it means."""


def _time(seconds: float | None) -> str:
    return "none" if seconds is None else human(seconds)


def _hours(amount: float) -> str:
    return f"{amount:,.1f}" if amount < 1000 else f"{amount:,.0f}"


FORMATS: dict[str, Callable[[Any], str]] = {
    "time": _time,
    "share": percent,
    "ratio": lambda value: "none" if value is None else f"{value:,.3g}",
    "count": "{:,}".format,
    "hours": _hours,
    "energy": lambda amount: quantity(amount, "kWh"),
    "price": lambda amount: quantity(amount, ""),
    "grams": lambda amount: quantity(amount, "g"),
}


def tiles(total: dict[str, Any]) -> Iterator[Tile]:
    """Yield what is told first."""
    for level in total["levels"]:
        unit = level_unit(level["name"])
        yield (
            f"gap of {level['name']}",
            percent(level["gap"]),
            f"{quantity(level['value'], unit)}, bound {quantity(level['bound'], unit)}",
            "(value - bound) / |value|; no schedule is below the bound, however often it preempts",
        )
    jct, split, waiting = total["jct_s"], total["waiting_mean_s"], ""
    yield "mean JCT", _time(jct["mean"]), f"p99 {_time(jct['p99'])}", "completion minus submission"
    if waited_s := sum(seconds or 0.0 for seconds in split.values()):
        most = max(split, key=split.__getitem__)
        waiting = f"{percent(split[most] / waited_s)} {REASON_WORDS[most]}"
    mean = _time(total["waiting_s"]["mean"])
    yield "mean waiting", mean, waiting, "without resources though ready to run"
    yield "makespan", _time(total["makespan_s"]), "", "from now to the last completion"
    arriving = total["use_until_last_submission"]
    gpus = (arriving or total["use"])["gpus"]
    if gpus is not None:
        until = "while jobs arrive" if arriving else "until the last completion"
        yield "GPU use", percent(gpus), until, "GPU-seconds held over those there are"
    hours = total["gpu_h"]
    if hours["held"]:
        lost = lost_gpu_h(total)
        yield (
            "GPU time lost",
            percent(lost / hours["held"]),
            f"{lost:,.1f} GPU-hours",
            "checkpoints, restarts and lost work of preemptions, failures, lost nodes and lack of "
            "GPU memory, over GPU time held",
        )
    counts = ((total["failures"], "failure", "s"), (total["node_losses"], "node loss", "es"))
    more = [f"{count:,} {word}{more * (count != 1)}" for count, word, more in counts if count]
    below = ", ".join(more) or f"of {total['preempted_jobs']:,} jobs"
    yield "preemptions", f"{total['preemptions']:,}", below, ""
    if total["deadlines"]:
        of = f"of {total['deadlines']:,}"
        yield "deadlines missed", f"{total['deadlines_missed']:,}", of, ""


def tables(total: dict[str, Any]) -> dict[str, list[Line]]:
    """Return all numbers of a summary, by subject."""
    objective: list[Line] = []
    for level in total["levels"]:
        unit, source = level_unit(level["name"]), level["bound_source"] or "none"
        objective += [
            (level["name"], quantity(level["value"], unit), "value of the plan, verified"),
            ("bound", quantity(level["bound"], unit), f"no schedule is below it: {source}"),
            ("gap", percent(level["gap"]), "(value - bound) / |value|"),
        ]
    subjects = tomllib.loads(files(__package__).joinpath("words.toml").read_text(encoding="utf-8"))
    by_subject = {"Objective": objective} | {
        subject: [
            _line(total, name, **line)
            for name, line in lines.items()
            if "if" not in line or total.get(line["if"])
        ]
        for subject, lines in subjects.items()
    }
    by_subject["Use"] += _uses(total)
    return {subject: lines for subject, lines in by_subject.items() if lines}


def _line(total: dict[str, Any], name: str, of: str, means: str = "", **how: str) -> Line:
    """Return a line; a number with parts is told as their sum, and what each is."""
    number = reduce(lambda part, key: part[key], of.split("."), total)
    written = FORMATS[how["as"]]
    if isinstance(number, dict):
        parts = (f"{part.replace('_', ' ')} {written(amount)}" for part, amount in number.items())
        return name, written(sum(number.values())), ", ".join(parts)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in total["failures_by_kind"].items())
    energy = ", ".join(
        f"{gpu_type} {quantity(amount, 'kWh')}"
        for gpu_type, amount in total["energy_kwh"]["by_type"].items()
    )
    return name, written(number), means.format_map({**total, "kinds": kinds, "energy": energy})


def _uses(total: dict[str, Any]) -> Iterator[Line]:
    """Yield the shares of GPUs, by type too, and of cores that are held, over both periods."""
    for when, name in (
        ("until the last completion", "use"),
        ("while jobs arrive", "use_until_last_submission"),
    ):
        if use := total[name]:
            parts = [("GPUs", use["gpus"]), *use["gpus_by_type"].items(), ("cores", use["cores"])]
            yield from ((part, percent(share), when) for part, share in parts if share is not None)
