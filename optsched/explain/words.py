"""Explanations in one sentence."""

from collections.abc import Sequence
from typing import assert_never

from ..duration import human
from ..errors import listed
from ..model import Instance, Mode
from ..noun import number_of
from .facts import Explanation, OptionNumbers, Swap, Victim

MOST_NAMES = 3
"""Names spelt out before the rest is counted."""
EQUAL = 1e-6
"""Values this close relative to each other are the same."""


def sentence(instance: Instance, why: Explanation) -> str:
    """Return what an explanation says, for people."""
    match why.state:
        case "never":
            says = f"can never run: {why.reason}"
        case "later":
            says = _later(instance, why)
        case "wait":
            says = _wait(why, instance.job[why.id].tenant)
        case "preempt":
            way = f" and makes way for {_names(why.makes_way_for)}" if why.makes_way_for else ""
            costs = f"; this costs it {_overhead(why.leaver)}" if why.leaver else ""
            worth = _worth(why.keep, "what it held", "to keep it was") if why.priced else ""
            if why.higher:
                some = "" if why.higher == len(why.makes_way_for) else "some "
                worth = f", {some}of a higher priority"
                if why.borrows:
                    whose = instance.job[why.id].tenant
                    worth = f": what it held, tenant {whose} had borrowed, and it is taken back"
            says = f"is preempted{way}{worth}{costs}"
        case "continue":
            says = f"continues{_where(why)}{_staying(why)}"
        case "migrate":
            says = f"migrates{_moving(why)}"
        case "resize":
            says = f"is resized and goes on{_moving(why)}"
        case "start" | "resume":
            verb = "starts" if why.state == "start" else "is resumed"
            for_it = f"; {_names(why.takes_from)} made way for it" if why.takes_from else ""
            worth = _worth(why.chosen, "what it takes") if why.priced else ""
            says = f"{verb}{_where(why)}{worth}{for_it}"
        case _:
            assert_never(why.state)
    return f"{why.id} {says}."


def _later(instance: Instance, why: Explanation) -> str:
    if not why.waits_for and why.reason is not None:
        return f"waits: {why.reason}"
    if not why.waits_for:
        left_s = instance.job[why.id].submit_s - instance.now_s
        return f"is not released for another {human(left_s)}"
    end = "" if why.reason is None else f", and {why.reason}"
    return f"waits for {_names(why.waits_for)} to complete{end}"


def _staying(why: Explanation) -> str:
    if why.must_stay is not None:
        return f" because {why.must_stay}"
    if not why.priced:
        return ""
    worth = _worth(why.chosen, "what it holds")
    if why.margin is None:
        return worth
    if why.margin > 0:
        less = f"{_number(why.margin)} less, or what it holds cost so much more"
        return f"{worth}; it would leave if it were worth {less}"
    return f"{worth}; nobody could use that better on these nodes"


def _moving(why: Explanation) -> str:
    parts = [f"{_where(why)}{_worth(why.chosen, 'what it takes') if why.priced else ''}"]
    if why.keep is not None and why.priced:
        value, price = _number(why.keep.value), _number(why.keep.price)
        parts.append(f"where it was it was worth {value} at a price of {price}")
    if why.makes_way_for:
        parts.append(f"its place goes to {_names(why.makes_way_for)}")
    if why.leaver is not None:
        parts.append(f"the move costs it {_overhead(why.leaver)}")
    return "; ".join(parts)


def _wait(why: Explanation, tenant: str | None) -> str:
    """Return what a job waits for: its quota while a window lowers it, those of higher priorities,
    else what prices say."""
    if why.reason is not None:
        return f"waits: {why.reason}"
    if why.higher:
        jobs, have = ("job", "has") if why.higher == 1 else ("jobs", "have")
        if why.borrows:
            return (
                f"waits: tenant {tenant} would have to borrow GPUs for it, and {why.higher} {jobs} "
                f"that may go first {have} what it could use"
            )
        return f"waits: {why.higher} {jobs} of a higher priority {have} what it could use"
    return _wait_for(why) if why.priced else "waits: other jobs of its priority are worth more"


def _wait_for(why: Explanation) -> str:
    best = why.best
    if best is None:
        return "waits"
    if not why.waits_for:
        if best.value <= 0:
            return "waits: running it now is worth nothing under this objective"
        worth = _worth(best, "what it would take", "it would be")
        return f"waits although there is room for it{worth}"
    where = f" with {mode}" if (mode := _mode(best.mode)) else ""
    costs = f"that costs {_number(best.price)}{_shares(best)}"
    if why.blocked:
        costs = f"more than the {_number(best.price)} that costs, but it does not fit"
    worth = f"it would be worth {_number(best.value)}, {costs}"
    return f"waits for {_names(why.waits_for)}:{where} {worth}; {_swap(why, why.swap)}"


def _swap(why: Explanation, swap: Swap | None) -> str:
    if swap is None:
        return "the jobs that may be preempted hold too little for it"
    if not swap.leavers:
        where = f" on {_names(swap.nodes)}" if swap.nodes else ""
        when = f"once {_names(why.takes_from)} made way" if why.takes_from else "now"
        return f"there is room for it{where} {when}"
    who = []
    for preempted, must in ((True, "be preempted"), (False, "wait")):
        if names := [leaver.id for leaver in swap.leavers if leaver.preempted == preempted]:
            who.append(f"{_names(names)} would have to {must}")
    pauses_s = sum(leaver.overhead_s for leaver in swap.leavers if leaver.preempted)
    lost = f"which loses {_number(swap.value_lost)} of value"
    if pauses_s:
        lost += f" and {human(pauses_s)} of pauses"
    if swap.value_gained > swap.value_lost * (1 + EQUAL):
        lost += f" and would gain {_number(swap.value_gained)}: this is not the best round"
    return f"{' and '.join(who)} for it, {lost}"


def _overhead(leaver: Victim) -> str:
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


def _where(why: Explanation) -> str:
    mode = "" if why.chosen is None else _mode(why.chosen.mode)
    return (f" with {mode}" if mode else "") + (f" on {_names(why.nodes)}" if why.nodes else "")


def _mode(mode: Mode) -> str:
    """Return a text as `4 a100 GPUs with 8 cores each`; nothing for a job that needs no node."""
    if not mode.gpus:
        return number_of(mode.cpus, "core") if mode.cpus else ""
    kind = f"{mode.gpu_type} " if mode.gpu_type else ""
    clock = "" if mode.clock_mhz is None else f" at {mode.clock_mhz} MHz"
    cores = mode.cpus_per_gpu
    each = [number_of(cores, "core")] if cores else []
    each += [
        f"only {gib:.4g} GiB of {of}"
        for gib, of in ((mode.memory_gib_per_gpu, "memory"), (mode.gpu_memory_gib, "GPU memory"))
        if gib is not None
    ]
    takes = f" with {' and '.join(each)} each" if each else ""
    beside = "" if mode.share_with is None else f" shared with {mode.share_with}"
    if mode.shared_gpus:
        beside = f", some shared with {', '.join(mode.shared_gpus)}"
    return f"{number_of(mode.gpus, f'{kind}GPU')}{clock}{takes}{beside}"


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
    return listed(names)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
