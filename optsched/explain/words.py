"""Explanations in one sentence."""

from collections.abc import Sequence

from ..duration import human
from ..model.instance import Instance
from ..model.job import Mode
from .facts import Explanation, Leaver, OptionNumbers, Swap

MOST_NAMES = 3
"""Names spelt out before the rest is counted."""
EQUAL = 1e-6
"""Values this close relative to each other are the same."""


def sentence(instance: Instance, found: Explanation) -> str:
    """Return what an explanation says, for people."""
    says = {
        "never": _never,
        "later": _later,
        "wait": _wait,
        "preempt": _preempt,
        "continue": _continue,
        "migrate": _move,
        "resize": _move,
        "start": _start,
        "resume": _start,
    }[found.state]
    return f"{found.id} {says(instance, found)}."


def _never(instance: Instance, found: Explanation) -> str:
    return f"can never run: {found.reason}"


def _later(instance: Instance, found: Explanation) -> str:
    if not found.waits_for:
        return (
            f"is not released for another {human(instance.job[found.id].submit_s - instance.now_s)}"
        )
    end = "" if found.reason is None else f", and {found.reason}"
    return f"waits for {_names(found.waits_for)} to complete{end}"


def _start(instance: Instance, found: Explanation) -> str:
    verb = "starts" if found.state == "start" else "is resumed"
    for_it = f"; {_names(found.takes_from)} made way for it" if found.takes_from else ""
    return f"{verb}{_where(found)}{_worth(found.chosen, 'what it takes')}{for_it}"


def _continue(instance: Instance, found: Explanation) -> str:
    means = f"continues{_where(found)}"
    if found.must_stay is not None:
        return f"{means} because {found.must_stay}"
    worth = f"{means}{_worth(found.chosen, 'what it holds')}"
    if found.margin is None:
        return worth
    if found.margin > 0:
        return f"{worth}; it would leave if it were worth {_number(found.margin)} less or that were so much dearer"  # noqa: E501
    return f"{worth}; nobody could use that better on these nodes"


def _preempt(instance: Instance, found: Explanation) -> str:
    way = f" and makes way for {_names(found.makes_way_for)}" if found.makes_way_for else ""
    costs = "" if found.leaver is None else f"; this costs it {_overhead(found.leaver)}"
    return f"is preempted{way}{_worth(found.keep, 'what it held', 'to keep it was')}{costs}"


def _move(instance: Instance, found: Explanation) -> str:
    verb = "migrates" if found.state == "migrate" else "is resized and goes on"
    parts = [f"{verb}{_where(found)}{_worth(found.chosen, 'what it takes')}"]
    if found.keep is not None:
        parts.append(
            f"where it was it was worth {_number(found.keep.value)} at a price of "
            f"{_number(found.keep.price)}"
        )
    if found.makes_way_for:
        parts.append(f"its place goes to {_names(found.makes_way_for)}")
    if found.leaver is not None:
        parts.append(f"the move costs it {_overhead(found.leaver)}")
    return "; ".join(parts)


def _wait(instance: Instance, found: Explanation) -> str:
    best = found.best
    if best is None:
        return "waits"
    if not found.waits_for:
        return (
            "waits: running it now is worth nothing under this objective"
            if best.value <= 0
            else (
                "waits although there is room for "
                f"it{_worth(best, 'what it would take', 'it would be')}"
            )
        )
    where = f" with {_mode(best.mode)}" if _mode(best.mode) else ""
    costs = f"that costs {_number(best.price)}" + ("" if found.blocked else _shares(best))
    if found.blocked:
        costs = f"more than the {_number(best.price)} that costs, but it does not fit"
    worth = f"it would be worth {_number(best.value)}, {costs}"
    return f"waits for {_names(found.waits_for)}:{where} {worth}{_swap(found, found.swap)}"


def _swap(found: Explanation, swap: Swap | None) -> str:
    if swap is None:
        return "; those who may leave hold too little for it"
    if not swap.leavers:
        where = f" on {_names(swap.nodes)}" if swap.nodes else ""
        when = f"once {_names(found.takes_from)} made way" if found.takes_from else "now"
        return f"; there is room for it{where} {when}"
    preempted = [one for one in swap.leavers if one.preempted]
    others = [one.id for one in swap.leavers if not one.preempted]
    who = (
        [f"{_names([one.id for one in preempted])} would have to be preempted"] if preempted else []
    )
    if others:
        who.append(f"{_names(others)} would have to wait")
    pauses = sum(one.overhead_s for one in preempted)
    lost = f", which loses {_number(swap.value_lost)} of value" + (
        f" and {human(pauses)} of pauses" if pauses else ""
    )
    if swap.value_gained > swap.value_lost * (1 + EQUAL):
        lost += f" and would gain {_number(swap.value_gained)}: this is not the best round"
    return f"; {' and '.join(who)} for it{lost}"


def _overhead(leaver: Leaver) -> str:
    """Return a text as `1 min (20 s to save, 10 s to start up, 30 s to restore)`."""
    parts = [
        f"{human(seconds)} {what}"
        for seconds, what in (
            (leaver.save_s, "to save"),
            (leaver.startup_s, "to start up"),
            (leaver.restore_s, "to restore"),
            (leaver.lost_s, "of work done again"),
        )
        if seconds
    ]
    if not parts:
        return "nothing"
    return parts[0] if len(parts) == 1 else f"{human(leaver.overhead_s)} ({', '.join(parts)})"


def _where(found: Explanation) -> str:
    mode = "" if found.chosen is None else _mode(found.chosen.mode)
    return (f" with {mode}" if mode else "") + (f" on {_names(found.nodes)}" if found.nodes else "")


def _mode(mode: Mode) -> str:
    """Return a text as `4 a100 GPUs with 8 cores each`; nothing for a job that needs no node."""
    if not mode.gpus:
        return f"{mode.cpus} core{'s' if mode.cpus != 1 else ''}" if mode.cpus else ""
    kind = f"{mode.gpu_type} " if mode.gpu_type else ""
    clock = "" if mode.clock_mhz is None else f" at {mode.clock_mhz} MHz"
    each = mode.cpus_per_gpu
    cores = f" with {each} core{'s' if each != 1 else ''} each" if each else ""
    beside = "" if mode.share_with is None else f" shared with {mode.share_with}"
    return f"{mode.gpus} {kind}GPU{'s' if mode.gpus != 1 else ''}{clock}{cores}{beside}"


def _worth(numbers: OptionNumbers | None, what: str, it: str = "it is") -> str:
    """Return the value and price of an option."""
    if numbers is None:
        return ""
    price = (
        f"{what} costs {_number(numbers.price)}{_shares(numbers)}"
        if numbers.rows
        else f"{what} costs nothing"
    )
    return f": {it} worth {_number(numbers.value)}, {price}"


def _shares(numbers: OptionNumbers) -> str:
    """Return the rows behind a price, with their shares where there are several."""
    if len(numbers.rows) <= 1:
        return "".join(f" ({row.row})" for row in numbers.rows)
    shown = [f"{row.row} {100 * row.share:.0f} %" for row in numbers.rows[:MOST_NAMES]]
    more = len(numbers.rows) - MOST_NAMES
    return f" ({', '.join(shown)}{f' and {more} more' if more > 0 else ''})"


def _names(names: Sequence[str]) -> str:
    """Return a text as `a`, `a and b`, `a, b, c and 4 more`."""
    if len(names) > MOST_NAMES:
        return f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
