"""`optsched kueue`: tell Kueue in which order to admit Workloads."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .parts.arguments import flag_option, path_option
from .parts.out import Out, Parts, answers
from .run import CONFIG

if TYPE_CHECKING:
    from ..kueue.handover import Pass
    from ..kueue.order import Ranked


@click.command("kueue")
@path_option(
    "--config FILE",
    "The file that names the cluster, the queues, and how to decide.",
    default=CONFIG,
    envvar="OPTSCHED_CONFIG",
)
@flag_option("--once", "Decide once, and print the decisions with reasons.")
@flag_option("--dry-run", "Write nothing.")
@answers
def command(config: Path, once: bool, dry_run: bool, out: Out) -> int:
    """Decide rounds on Kueue's Workloads, and make Kueue admit them in that order through their
    priority boosts.

    This is for sites that keep Kueue as their scheduler. The command reads queues and Workloads,
    decides who should run now as `optsched run` does, and writes the annotation
    kueue.x-k8s.io/priority-boost of the Workloads whose place must change, at the interval `every`
    in FILE, until interrupted. Kueue needs the feature gate PriorityBoost (0.17 or later). Exit
    status: 0, with --once 1 if the API server does not answer, 2 for bad input.

    \b
    optsched kueue --once --dry-run
    optsched kueue --config cluster.toml
    """
    import signal
    import threading
    import time

    from ..control.settings import read_settings
    from ..errors import InputError
    from ..executors.base import NoAnswerError
    from ..kueue.handover import Handover
    from ..kueue.server import KueueServer
    from ..kueue.starts import Starts

    settings = read_settings(config)
    given = settings.table("kubernetes")
    server = KueueServer(given.kubeconfig, given.context, given.namespace, given.timeout_s)
    handover = Handover(settings, server)
    starts = Starts(settings.objective, server.starts)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    decided = None
    while not stopped.is_set():
        try:
            decided = handover.decide(time.time())
            if not dry_run:
                handover.write(decided)
                starts.tell(decided)
            parts = partial(_parts, decided, dry_run) if once else partial(_changes, decided)
            out.answer(partial(_plain, decided, dry_run), parts)
        except (NoAnswerError, InputError) as error:
            if isinstance(error, InputError) and decided is None:
                raise
            click.echo(f"optsched: {error}", err=True)
            if once:
                return 1
        if once:
            return 0
        stopped.wait(settings.every)
    return 0


def _changes(decided: "Pass") -> Iterator[str]:
    from .journal import clock_text

    for ranked in decided.changed:
        at, name = clock_text(decided.at_s), ranked.workload.id
        yield f"{at}  {name}: boost {_boost(ranked)}; {ranked.why}"


def _parts(decided: "Pass", dry_run: bool) -> Parts:
    from ..picture.text import table

    rows = [
        (
            ranked.workload.id,
            ranked.workload.queue,
            str(ranked.gpus),
            "holds quota" if ranked.workload.held is not None else "waits",
            str(ranked.workload.priority),
            _boost(ranked),
            ranked.why,
        )
        for ranked in decided.order
    ]
    rows += [(name, "", "", "", "", "", why) for name, why in decided.left_out.items()]
    if rows:
        heads = ("workload", "queue", "GPUs", "state", "priority", "boost", "why")
        yield table(*heads, rows=rows, numeric=("GPUs", "priority"), folded=("why",))
    for name, faults in decided.faults.items():
        yield from (f"{name}: {fault}; it does not count" for fault in faults)
    yield _summary(decided, dry_run)


def _boost(ranked: "Ranked") -> str:
    before, now = ranked.workload.boost, ranked.boost
    return str(now) if now == before else f"{before} -> {now}"


def _summary(decided: "Pass", dry_run: bool) -> str:
    from ..picture.facts import percent

    if decided.round is None:
        return "nothing to decide: no Workload waits or runs in these queues"
    changed = len(decided.changed)
    what = f"boost{'s' * (changed != 1)} {'to be ' * dry_run}changed"
    solution = decided.round
    gap = f"; gap of the round {percent(solution.gap)}" if solution.gap < float("inf") else ""
    fallback = f"; {solution.fallback}" if solution.fallback else ""
    return f"{changed} {what} of {len(decided.order)}{gap}{fallback}"


def _plain(decided: "Pass", dry_run: bool) -> dict[str, Any]:
    names = ("value", "bound", "solver", "fallback", "wall_s")
    solution = decided.round
    return {
        "at_s": decided.at_s,
        "dry_run": dry_run,
        "round": None if solution is None else {name: getattr(solution, name) for name in names},
        "workloads": [
            {
                "namespace": ranked.workload.namespace,
                "name": ranked.workload.name,
                "queue": ranked.workload.queue,
                "gpus": ranked.gpus,
                "holds_quota": ranked.workload.held is not None,
                "priority": ranked.workload.priority,
                "boost_before": ranked.workload.boost,
                "boost": ranked.boost,
                "why": ranked.why,
            }
            for ranked in decided.order
        ],
        "left_out": dict(decided.left_out),
        "faults": {name: list(faults) for name, faults in decided.faults.items()},
    }
