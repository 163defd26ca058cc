"""The numbers of a summary in words: tiles, and a table with the meaning of each."""

from typing import Any

from ...duration import human
from ...picture.facts import level_unit, percent, quantity
from ..metrics.waiting import REASONS
from .figures import REASON_WORDS

LOST_TO = {
    "preemptions": "preemptions",
    "failures": "failures",
    "node_losses": "lost nodes",
    "out_of_memory": "lack of GPU memory",
}

Tile = tuple[str, str, str, str]
"""Name, value, what stands below it, and what it means."""


def tiles(total: dict[str, Any]) -> list[Tile]:
    """What is told first."""
    jct, wait, use = (
        total["jct_s"],
        total["waiting_s"],
        total["use_until_last_submission"] or total["use"],
    )
    found: list[Tile] = []
    for level in total["levels"]:
        unit = level_unit(level["name"])
        found.append(
            (
                f"gap of {level['name']}",
                percent(level["gap"]),
                f"{quantity(level['value'], unit)}, bound {quantity(level['bound'], unit)}",
                "(value - bound) / |value|; no schedule is below the bound, however often it "
                "preempts",
            )
        )
    found.append(
        ("mean JCT", _time(jct["mean"]), f"p99 {_time(jct['p99'])}", "completion minus submission")
    )
    split = {name: total["waiting_mean_s"][name] or 0.0 for name in REASONS}
    main = max(split, key=lambda name: split[name])
    part = (
        f"{percent(split[main] / sum(split.values()))} {REASON_WORDS[main]}"
        if sum(split.values())
        else ""
    )
    found.append(
        ("mean waiting", _time(wait["mean"]), part, "without resources though ready to run")
    )
    found.append(("makespan", _time(total["makespan_s"]), "", "from now to the last completion"))
    until = (
        "while jobs arrive" if total["use_until_last_submission"] else "until the last completion"
    )
    if use["gpus"] is not None:
        found.append(
            ("GPU use", percent(use["gpus"]), until, "GPU-seconds held over those there are")
        )
    hours = total["gpu_h"]
    lost = {name: sum(hours[name].values()) for name in LOST_TO}
    if hours["held"]:
        found.append(
            (
                "GPU time lost",
                percent(sum(lost.values()) / hours["held"]),
                f"{sum(lost.values()):,.1f} GPU-hours",
                "checkpoints, restarts and lost work of preemptions, failures, lost nodes and "
                "lack of GPU memory, "
                "over GPU time held",
            )
        )
    counts = [(total["failures"], "failure"), (total["node_losses"], "node loss")]
    more = ", ".join(
        f"{count:,} {word}{'' if count == 1 else 'es' if word.endswith('s') else 's'}"
        for count, word in counts
        if count
    )
    found.append(
        (
            "preemptions",
            f"{total['preemptions']:,}",
            more or f"of {total['preempted_jobs']:,} jobs",
            "",
        )
    )
    if total["deadlines"]:
        found.append(
            ("deadlines missed", f"{total['deadlines_missed']:,}", f"of {total['deadlines']:,}", "")
        )
    return found


Line = tuple[str, str, str]
"""Name, value, and what it means."""


def tables(total: dict[str, Any]) -> dict[str, list[Line]]:
    """All numbers of a summary, by subject."""
    found: dict[str, list[Line]] = {"Objective": []}
    for level in total["levels"]:
        unit = level_unit(level["name"])
        found["Objective"] += [
            (level["name"], quantity(level["value"], unit), "value of the plan, verified"),
            (
                "bound",
                quantity(level["bound"], unit),
                f"no schedule is below it: {level['bound_source'] or 'none'}",
            ),
            ("gap", percent(level["gap"]), "(value - bound) / |value|"),
        ]
    found["Job completion time"] = [(name, _time(s), "") for name, s in total["jct_s"].items()]
    found["Waiting"] = [
        *((name, _time(s), "") for name, s in total["waiting_s"].items()),
        *(
            (
                f"mean for {REASON_WORDS[name]}",
                _time(total["waiting_mean_s"][name]),
                REASON_MEANINGS[name],
            )
            for name in REASONS
        ),
        (
            "mean blocked",
            _time(total["blocked_mean_s"]),
            "waiting for other jobs to complete; not part of waiting",
        ),
    ]
    found["Use"] = [("makespan", _time(total["makespan_s"]), "from now to the last completion")]
    for when, name in (
        ("until the last completion", "use"),
        ("while jobs arrive", "use_until_last_submission"),
    ):
        use = total[name]
        if use is not None:
            parts = [("GPUs", use["gpus"]), *use["gpus_by_type"].items(), ("cores", use["cores"])]
            found["Use"] += [
                (part, percent(share), when) for part, share in parts if share is not None
            ]
    fair, contended = total["finish_time_fairness"], total["contention_slowdown"]
    found["Fairness"] = [
        (
            "finish-time fairness, max",
            _ratio(fair["max"]),
            "JCT over the run time with 1/n of the GPUs, n all jobs",
        ),
        ("above 1.1", percent(fair["share_above_1_1"]), "share of jobs"),
        (
            "contention slowdown, mean",
            _ratio(contended["mean"]),
            "with n the average of jobs there during its life",
        ),
        ("max", _ratio(contended["max"]), ""),
        ("above 1.1", percent(contended["share_above_1_1"]), "share of jobs"),
    ]
    found["Interruptions"] = [
        ("preemptions", f"{total['preemptions']:,}", f"of {total['preempted_jobs']:,} jobs"),
        ("restarts", f"{total['restarts']:,}", "starts of a job that ran before"),
        ("failures", f"{total['failures']:,}", _kinds(total["failures_by_kind"])),
        (
            "out of memory",
            f"{total['out_of_memory']:,}",
            "failures of that kind, and starts beside another job",
        ),
        ("node losses", f"{total['node_losses']:,}", "stays that ended with their node"),
    ]
    if total["deadlines"]:
        found["Interruptions"].append(
            ("deadlines missed", f"{total['deadlines_missed']:,}", f"of {total['deadlines']:,}")
        )
    hours = total["gpu_h"]
    found["GPU-hours"] = [
        (
            "there",
            _hours(hours["there"]),
            "GPUs of nodes that are not lost, until the last completion",
        ),
        ("nodes away", _hours(hours["nodes_away"]), "GPUs of lost nodes"),
        ("held", _hours(hours["held"]), "by jobs; the sum of what follows"),
        ("work", _hours(hours["work"]), "that counts"),
        ("first starts", _hours(hours["first_starts"]), "start-up"),
    ]
    for name, words in LOST_TO.items():
        causes = ", ".join(
            f"{part.replace('_', ' ')} {_hours(amount)}" for part, amount in hours[name].items()
        )
        found["GPU-hours"].append((f"lost to {words}", _hours(sum(hours[name].values())), causes))
    energy = total["energy_kwh"]
    by_type = ", ".join(
        f"{name} {quantity(amount, 'kWh')}" for name, amount in energy["by_type"].items()
    )
    found["Energy"] = [("GPUs held", quantity(energy["total"], "kWh"), by_type)]
    if total.get("rounds"):
        rounds = total["rounds"]
        found["Rounds"] = [
            ("solved", f"{rounds['count']:,}", "rounds.csv has each"),
            ("gap, mean", percent(rounds["gap_mean"]), "(bound - value) / |value| of a round"),
            ("gap, max", percent(rounds["gap_max"]), ""),
        ]
    return found


REASON_MEANINGS = {
    "decision": "until the policy next decides",
    "fair_share": "the tenant's quota leaves fewer GPUs than the smallest gang",
    "fragmentation": "enough GPUs are free, but scattered, kept for others, or without what else "
    "is needed",
    "price": "others hold the GPUs",
}


def _time(seconds: float | None) -> str:
    return "none" if seconds is None else human(seconds)


def _ratio(value: float | None) -> str:
    return "none" if value is None else f"{value:,.3g}"


def _hours(amount: float) -> str:
    return f"{amount:,.1f}" if amount < 1000 else f"{amount:,.0f}"


def _kinds(kinds: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
