"""`optsched regret`: how far what happened was from a proven bound."""

import math
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..duration import human
from ..errors import InputError
from .journal import Journal, clock_text, reads_journal
from .parts.arguments import check_outputs, count_option, flag_option, option, path_option
from .parts.duration import past
from .parts.out import Json, Out, Parts, answers_aloud

if TYPE_CHECKING:
    from ..control.regret.regret import Regret

LARGE = ("slices", "instance", "costed")
MEANING = {
    "alone": "the work itself, alone and at its fastest",
    "slower": "slower there than at its fastest",
    "waiting": "waiting for GPUs",
    "switching": "starting, saving and restoring; work done again after a preemption",
    "failures": "pauses after failures, and work done again because of them",
    "held": "on hold",
    "after": "waiting for predecessors",
}


@click.command("regret")
@option(
    "--from TIME",
    "Start of the period: 2026-05-01, 2026-05-01T14:30, or 24h for 24 hours ago (default: the "
    "first entry).",
    "from_s",
    type=past,
)
@option("--to TIME", "End of the period (default: the last entry).", "to_s", type=past)
@count_option(
    "--steps N",
    "Number of steps of the search for the bound (default: 120); more take longer and may "
    "prove more.",
)
@path_option(
    "--picture FILE.svg", "Draw how the jobs of each hour spent their time, and the bound."
)
@flag_option(
    "--price-of-priorities",
    "Also simulate these jobs twice, by their priorities and as if all had one, and report what it "
    "costs that higher ones go first.",
    "priced",
)
@path_option("-o, --output INSTANCE", "Write the jobs and their actual work as an instance file.")
@answers_aloud
@reads_journal
def command(
    journal: Journal,
    from_s: float | None,
    to_s: float | None,
    steps: int | None,
    picture: Path | None,
    priced: bool,
    output: Path | None,
    out: Out,
) -> int:
    """Report how far a period was from the best possible, and how its jobs spent their time.

    The jobs that ran in the period, with the work they turned out to have (for those not completed
    by its end, what they had done), form an instance. Its bound on the mean completion time holds
    for every schedule, even one that knew all arrivals and lengths beforehand and never had a
    failure, a delay between nodes or a start-up to pay twice. So the gap is the most that could
    have been gained, usually much more than what was possible.

    \b
    optsched regret --from 24h
    optsched regret --from 2026-05-01 --to 2026-05-02 --picture day.svg
    """
    from ..api.priorities import in_words
    from ..control.regret.picture import svg
    from ..control.regret.regret import regret
    from ..files import dump_instance, write_bytes, write_text

    if from_s is not None and to_s is not None and not from_s < to_s:
        raise InputError("--from lies after --to; swap them")
    check_outputs({"-o": output, "--picture": picture}, "-")
    measured = regret(journal, from_s=from_s, to_s=to_s, steps=steps)
    if output is not None:
        write_text(output, dump_instance(measured.instance))
    if picture is not None:
        write_bytes(picture, svg(measured))

    price = _price(measured) if priced else None

    def parts() -> Parts:
        yield from _parts(measured)
        yield from () if price is None else ("", *in_words(price))
        yield from (f"written: {path}" for path in (output, picture) if path is not None)

    more = {} if price is None else {"price_of_priorities": price}
    out.answer(lambda: _plain(measured) | more, parts)
    return 0


def _price(measured: "Regret") -> Json:
    from ..api.outcome import Setting, Simulated
    from ..api.priorities import price_of_priorities

    setting = Setting.of("optsched", "wct")
    simulation = setting.simulation(measured.costed)
    simulation.run()
    return price_of_priorities(setting, Simulated(setting, simulation))


def _plain(measured: "Regret") -> Json:
    names = (field.name for field in fields(measured) if field.name not in LARGE)
    plain = {name: getattr(measured, name) for name in (*names, "gap")}
    return plain | {"hours": [asdict(part) for part in measured.slices]}


def _parts(measured: "Regret") -> Parts:
    from ..picture.facts import percent
    from ..picture.text import table

    left = ", ".join(f"{count:,} {what}" for what, count in measured.left_out.items() if count)
    begin, end = clock_text(measured.from_s), clock_text(measured.to_s)
    preempted, failed = measured.preemptions, measured.failures
    yield (
        f"{begin} to {end}: {measured.jobs:,} jobs ran, {measured.completed:,} completed, "
        f"{preempted:,} preemption{'s' * (preempted != 1)}, {failed:,} failure{'s' * (failed != 1)}"
        + (f" (left out: {left})" if left else "")
    )
    yield f"  mean completion time  {human(measured.mean_s)}"
    yield (
        f"  bound                 {human(measured.bound_s)} ({measured.source}): no schedule does "
        "better, even one that knew all beforehand"
    )
    gap = percent(measured.gap)
    yield f"  gap                   {gap}: at most so much of it could have been saved"
    weighted, bound = measured.weighted, measured.weighted_bound
    if weighted is not None and bound is not None and math.isfinite(weighted):
        gap = percent((weighted - bound) / weighted if weighted else 0.0)
        yield f"  by weight             {weighted:,.0f} s, bound {bound:,.0f} s, gap {gap}"
    if measured.kept_s is not None:
        kept = clock_text(measured.kept_s)
        yield f"  jobs and rounds before {kept} were dropped, and do not count"
    rows = (
        (
            MEANING[name],
            human(seconds),
            percent(seconds / measured.mean_s if measured.mean_s else 0.0),
        )
        for name, seconds in measured.parts_s.items()
        if abs(seconds) >= 0.0005
    )
    numeric = ("each job", "share")
    yield from ("", table("of the mean completion time", *numeric, rows=rows, numeric=numeric))
