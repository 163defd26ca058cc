"""`optsched kueue`: tell Kueue in which order to admit Workloads."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .parts.arguments import flag_option, json_option, path_option, quiet_option
from .parts.outputs import print_json
from .run import CONFIG

if TYPE_CHECKING:
    from rich.table import Table

    from ..kueue.handover import Pass
    from ..kueue.order import Ranked


@click.command("kueue")
@path_option(
    "--config",
    default=CONFIG,
    envvar="OPTSCHED_CONFIG",
    metavar="FILE",
    help="The file that names the cluster, the queues, and how to decide.",
)
@flag_option("--once", help="Decide once, and print the decisions with reasons.")
@flag_option("--dry-run", help="Write nothing.")
@json_option
@quiet_option
def command(config: Path, once: bool, dry_run: bool, as_json: bool, quiet: bool) -> int:
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

    settings = read_settings(config)
    given = settings.table("kubernetes")
    server = KueueServer(given.kubeconfig, given.context, given.namespace, given.timeout_s)
    handover = Handover(settings, server)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    decided = None
    while not stopped.is_set():
        try:
            decided = handover.decide(time.time())
            if not dry_run:
                handover.write(decided)
            if not quiet:
                _show(decided, as_json=as_json, whole=once, dry_run=dry_run)
        except (NoAnswerError, InputError) as error:
            if isinstance(error, InputError) and decided is None:
                raise
            click.echo(f"optsched: {error}", err=True)
            if once:
                return 1
        if once:
            return 0
        stopped.wait(float(settings.every))
    return 0


def _show(decided: "Pass", *, as_json: bool, whole: bool, dry_run: bool) -> None:

    from .journal import clock_text

    if as_json:
        print_json(_plain(decided, dry_run))
        return
    if whole:
        _show_all(decided, dry_run)
        return
    at = clock_text(decided.at_s)
    for ranked in decided.changed:
        workload = ranked.workload
        click.echo(f"{at}  {workload.id}: boost {workload.boost} -> {ranked.boost}; {ranked.why}")


def _show_all(decided: "Pass", dry_run: bool) -> None:
    from .parts.table import show, table

    found = table(
        "workload",
        "queue",
        "GPUs",
        "state",
        "priority",
        "boost",
        "why",
        numeric=("GPUs", "priority"),
        folded=("why",),
    )
    for ranked in decided.order:
        _add(found, ranked)
    for name, why in decided.left_out.items():
        found.add_row(name, "", "", "", "", "", why)
    if decided.order or decided.left_out:
        show(found)
    for name, faults in decided.faults.items():
        for fault in faults:
            show(f"{name}: {fault}; it does not count")
    show(_summary(decided, dry_run))


def _add(found: "Table", one: "Ranked") -> None:
    boost = (
        str(one.boost)
        if one.boost == one.workload.boost
        else f"{one.workload.boost} -> {one.boost}"
    )
    state = "holds quota" if one.workload.held is not None else "waits"
    found.add_row(
        one.workload.id,
        one.workload.queue,
        str(one.gpus),
        state,
        str(one.workload.priority),
        boost,
        one.why,
    )


def _summary(decided: "Pass", dry_run: bool) -> str:
    from ..picture.facts import percent

    if decided.round is None:
        return "nothing to decide: no Workload waits or runs in these queues"
    changed = len(decided.changed)
    what = (
        f"{changed} boost{'' if changed == 1 else 's'} {'to be changed' if dry_run else 'changed'}"
    )
    gap = (
        f"; gap of the round {percent(decided.round.gap)}"
        if decided.round.gap < float("inf")
        else ""
    )
    fallback = f"; {decided.round.fallback}" if decided.round.fallback else ""
    return f"{what} of {len(decided.order)}{gap}{fallback}"


def _plain(decided: "Pass", dry_run: bool) -> dict[str, Any]:
    found = decided.round
    return {
        "at_s": decided.at_s,
        "dry_run": dry_run,
        "round": None
        if found is None
        else {
            "value": found.value,
            "bound": found.bound,
            "solver": found.solver,
            "fallback": found.fallback,
            "wall_s": found.wall_s,
        },
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
