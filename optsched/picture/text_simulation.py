"""What came of a simulation, as text."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..duration import human
from ..noun import number_of
from .facts import level_unit, percent
from .text import headline, table, with_length

if TYPE_CHECKING:
    from rich.table import Table

    from ..api.outcome import Simulated

REASON_WORDS = {
    "fair_share": "fair share (quota)",
    "fragmentation": "fragmentation",
    "price": "price",
    "decision": "next decision",
}

LOOSE = 0.3
"""From such a gap on the bound is probably most of it."""
WORTH_A_WORD_S = 1e-3
"""What jobs wait for less is the instant after which a failed attempt starts anew."""

LOST_TO = ("preemptions", "failures", "node_losses", "out_of_memory")
"""What GPU-hours are lost to, as a summary calls it."""


def lost_gpu_h(total: dict[str, Any]) -> float:
    """Return the GPU-hours of a summary that were held and lost."""
    return float(sum(sum(total["gpu_h"][name].values()) for name in LOST_TO))


def simulation_parts(simulated: "Simulated") -> "Iterator[str | Table]":
    """Yield what was simulated, the distance from the bounds, times, use and losses."""
    total = simulated.metrics
    yield headline(simulated.instance)
    yield "; ".join([simulated.title, *simulated.setting.words])
    yield ""
    setting = simulated.setting
    bound = f"bound (any {'rigid ' if setting.rigid else ''}schedule)"
    numeric = ("value", bound, "gap")
    levels = table("objective", "value", bound, "gap", "proved by", numeric=numeric)
    for level in total["levels"]:
        unit = level_unit(level["name"])
        levels.add_row(
            level["name"],
            with_length(level["value"], unit),
            with_length(level["bound"], unit),
            percent(level["gap"]),
            level["bound_source"] or "",
        )
    yield levels
    if not setting.prices and any((level["gap"] or 0.0) > LOOSE for level in total["levels"]):
        yield "--prices may prove a better bound, for wct, makespan or ftf alone"
    yield ""
    if total["jobs"]:
        times = table("", *total["jct_s"], numeric=tuple(total["jct_s"]))
        times.add_row("JCT", *(human(value) for value in total["jct_s"].values()))
        times.add_row("waiting", *(human(value) for value in total["waiting_s"].values()))
        yield times
        yield ""
        yield from _waiting(total)
    yield _counts(total)
    yield from _use(total)


def _waiting(total: dict[str, Any]) -> Iterator[str]:
    mean_s = total["waiting_s"]["mean"]
    if mean_s < WORTH_A_WORD_S:
        return
    split = {name: part for name, part in total["waiting_mean_s"].items() if part}
    parts = [f"{percent(split[name] / mean_s)} {REASON_WORDS[name]}" for name in split]
    yield f"waiting is {', '.join(parts)}"


def _counts(total: dict[str, Any]) -> str:
    of_jobs = number_of(total["preempted_jobs"], "job")
    parts = [f"{number_of(total['preemptions'], 'preemption')} of {of_jobs}"]
    if total["failures"]:
        of_memory = total["failures_by_kind"].get("out of memory", 0)
        failures = number_of(total["failures"], "failure")
        parts.append(f"{failures} ({of_memory:,} out of memory)")
    in_vain = total["out_of_memory"] - total["failures_by_kind"].get("out of memory", 0)
    if in_vain:
        parts.append(f"{in_vain:,} starts beside others out of memory")
    if total["node_losses"]:
        parts.append(f"{total['node_losses']:,} node loss{'es' * (total['node_losses'] > 1)}")
    if total["deadlines"]:
        parts.append(f"{total['deadlines_missed']:,} of {total['deadlines']:,} deadlines missed")
    if total["use"]["gpus"] is not None:
        parts.append(f"GPUs held {percent(total['use']['gpus'])} of the time")
    return ", ".join([*parts, f"last done in {human(total['makespan_s'])}"])


def _use(total: dict[str, Any]) -> Iterator[str]:
    hours = total["gpu_h"]
    arriving = total["use_until_last_submission"]
    if hours["held"]:
        lost = percent(lost_gpu_h(total) / hours["held"])
        parts = [f"of {hours['held']:,.1f} GPU-hours {lost} lost to preemptions and failures"]
        if arriving and arriving["gpus"] is not None:
            by_type = arriving["gpus_by_type"]
            detail = ", ".join(
                f"{name} {percent(share)}" for name, share in by_type.items() if share is not None
            )
            parts.append(
                f"while jobs arrive GPUs held {percent(arriving['gpus'])}"
                + (f" ({detail})" if len(by_type) > 1 else "")
            )
        if total["energy_kwh"]["total"]:
            parts.append(f"{total['energy_kwh']['total']:,.4g} kWh")
        if total["energy_cost"]:
            parts.append(f"price of energy {total['energy_cost']:,.4g}")
        if total["carbon_g"]:
            parts.append(f"{total['carbon_g']:,.4g} g CO2")
        yield ", ".join(parts)
