"""`optsched top`: the cluster as it is, refreshed."""

import shutil
import sys
import time
from typing import TYPE_CHECKING

import click

from ..duration import human
from ..noun import number_of
from ..picture.text import table
from .parts.arguments import flag_option, time_option
from .parts.controller import Client, all_jobs, asks_controller
from .parts.out import Json, Out, Parts, answers_aloud
from .queue import jobs_table, usual_columns

if TYPE_CHECKING:
    from rich.table import Table


MOST_NODES = 16
MOST_JOBS = 200
BAR = 40
STATUSES = ("running", "starting", "stopping", "waiting", "held", "lost")


@click.command("top")
@time_option("--every TIME", "Time between refreshes.", "every_s", default="2s")
@flag_option("--once", "Print once and exit.")
@answers_aloud
@asks_controller
def command(client: Client, every_s: float, once: bool, out: Out) -> int:
    """Show nodes, jobs and the last round; only administrators see the jobs of others. Ctrl-C ends
    it.

    \b
    optsched top
    optsched top --once
    """
    seen = look(client)
    if out.as_json or once or not sys.stdout.isatty():
        out.answer(lambda: seen, lambda: parts(seen, MOST_JOBS))
        return 0
    from rich.console import Console, Group
    from rich.live import Live

    from ..control.api.client import NoControllerError

    console = Console(highlight=False, markup=False, emoji=False)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                room = shutil.get_terminal_size().lines - min(MOST_NODES, len(seen["nodes"])) - 12
                live.update(Group(*parts(seen, max(3, room))), refresh=True)
                time.sleep(every_s)
                try:
                    seen = look(client)
                except NoControllerError as error:
                    live.update(Group(f"{error}", "waiting for it"), refresh=True)
                    time.sleep(every_s)
        except KeyboardInterrupt:
            return 0


def look(client: Client) -> Json:
    """Return state, nodes and jobs, of all users for those who may see them."""
    from ..control.api.client import ApiError

    for everybody in (True, False):
        try:
            jobs, total = all_jobs(client, all=everybody, most=MOST_JOBS)
            break
        except ApiError as error:
            if error.status != 403 or not everybody:
                raise
    return {
        "state": client.get("/v1/state"),
        "nodes": client.get("/v1/nodes")["nodes"],
        "jobs": jobs,
        "total": total,
        "everybody": everybody,
    }


def parts(seen: Json, most_jobs: int) -> Parts:
    """Return what is drawn, from the top down."""
    state, jobs = seen["state"], seen["jobs"]
    counts = [f"{state['jobs'][name]:,} {name}" for name in STATUSES if name in state["jobs"]]
    use = state["gpus_in_use"] / state["gpus"] if state["gpus"] else 0.0
    nodes = f"{state['nodes_usable']} of {state['nodes']} nodes usable"
    lines: list[str | Table] = [
        f"{state['cluster']}   {nodes}   "
        f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(state['now_s']))}",
        f"GPUs   {bar(use)} {state['gpus_in_use']:,} of {state['gpus']:,} in use",
        f"jobs   {', '.join(counts) or 'none'}; {state['finished']:,} finished",
        f"round  {round_line(state)}",
        "",
        nodes_table(seen["nodes"]),
    ]
    if len(seen["nodes"]) > MOST_NODES:
        lines.append(f"and {len(seen['nodes']) - MOST_NODES} more")
    if jobs:
        ahead = sorted(
            jobs, key=lambda job: (job["status"] in ("waiting", "held"), job["submit_s"])
        )
        lines += ["", jobs_table(ahead[:most_jobs], usual_columns(users=seen["everybody"]))]
        if seen["total"] > most_jobs:
            lines.append(f"and {seen['total'] - most_jobs:,} more")
    return lines


def bar(share: float) -> str:
    """Return a bar of which so much is full."""
    full = min(BAR, round(share * BAR))
    return "█" * full + "░" * (BAR - full)


def round_line(state: Json) -> str:
    """Return the last round in short, and what is scarce."""
    last = state["round"]
    if last is None:
        return "none yet"
    gap = "gap unknown" if last["gap"] is None else f"gap {last['gap']:.2%}"
    scarce = ", ".join(row["name"] for row in state["prices"][:3])
    return (
        f"{last['number']:,}, {human(max(0.0, state['now_s'] - last['at_s']))} ago, "
        f"{number_of(last['jobs'], 'job')} in "
        f"{human(last['wall_s'])}, {gap}" + (f"; scarce: {scarce}" if scarce else "")
    )


def nodes_table(nodes: list[Json]) -> "Table":
    """Return the first nodes: those that cannot be used, then those with jobs, before the
    others."""
    ahead = sorted(nodes, key=lambda node: (node["usable"], not node["holders"]))[:MOST_NODES]
    heads = ("node", "type", "GPUs in use", "jobs")
    return table(*heads, rows=map(_cells, ahead), numeric=heads[2:3], folded=heads[3:])


def _cells(node: Json) -> tuple[str, ...]:
    said = []
    if not node["usable"]:
        said.append(f"takes no jobs: {node['reason'] or 'drained'}")
    elif node["out"]:
        said.append(node["reason"] or f"without {', '.join(node['out'])}")
    said += [f"{held['job'] or 'another user'} ({held['gpus']})" for held in node["holders"]]
    in_use = f"{node['gpus_in_use']} of {node['gpus']}"
    return node["name"], node["gpu_type"] or "-", in_use, ", ".join(said) or "-"
