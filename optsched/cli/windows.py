"""`optsched maintain`, `reserve`, `drain`, `undrain`, `windows`: times in which nodes are not there
for all."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

from ..errors import InputError
from .parts.arguments import amounts, many_option, option
from .parts.controller import Client, asks_controller
from .parts.duration import instant_s
from .parts.out import Json, Out, Parts, answers

INSTANTS = "18:00 (the next), '2026-08-03 18:00', or a time from {} as 2h"


def _instant_s(text: str, since_s: float, what: str, since: str) -> float:
    try:
        return instant_s(text, since_s)
    except ValueError:
        raise InputError(f"{what} {text!r}: write {INSTANTS.format(since)}") from None


def _setting(command: Callable[..., Any]) -> Callable[..., Any]:
    for named in (
        option("--name NAME", "Its name (default: maintenance-1, reservation-1, ...)."),
        option("--to TIME", f"End: {INSTANTS.format('--from')}.", required=True),
        option("--from TIME", f"Start: {INSTANTS.format('now')} (default: now).", "begin"),
    ):
        command = named(command)
    return command


def _set(client: Client, out: Out, begin: str | None, to: str, **body: Any) -> int:
    now_s = time.time()
    from_s = now_s if begin is None else _instant_s(begin, now_s, "--from", "now")
    asked = body | {"from_s": from_s, "to_s": _instant_s(to, from_s, "--to", "--from")}
    return _told(out, client.post("/v1/windows", _stated(asked)))


def _stated(body: Json) -> Json:
    return {name: value for name, value in body.items() if value}


def _told(out: Out, answer: Json) -> int:
    def parts() -> Parts:
        for window in answer["windows"]:
            yield line(window)
        if not answer["windows"]:
            yield "no windows"

    out.answer(lambda: answer, parts)
    return 0


def line(window: Json) -> str:
    """Return a window in one line."""
    begin, end = (
        "until it is lifted"
        if at_s is None
        else datetime.fromtimestamp(at_s).strftime("%Y-%m-%d %H:%M")
        for at_s in (window["from_s"], window["to_s"])
    )
    whose = ", ".join((*window["tenants"], *window["users"]))
    kept = f", for {whose}" if whose else ""
    there = window["jobs_there"]
    names = f": {', '.join(window['jobs'])}" if window["jobs"] else ""
    late = f"; {there} {'job is' if there == 1 else 'jobs are'} still there{names}" if there else ""
    when = f"{begin} {end}" if window["to_s"] is None else f"{begin} to {end}"
    less = [f"{name} {amount:g}" for name, amount in window["resources"].items()]
    less += [f"quota of {name} {gpus}" for name, gpus in window["quotas"].items()]
    return f"{window['name']}: {', '.join([*window['nodes'], *less])}, {when}{kept}{late}"


@click.command("maintain")
@click.argument("nodes", nargs=-1, metavar="[NODES...]")
@many_option("--quota TENANT=GPUS", "Lower a tenant's quota to so many; repeatable.")
@many_option("--resource NAME=AMOUNT", "Lower a resource to this amount; repeatable.")
@_setting
@answers
@asks_controller
def maintain(
    client: Client,
    nodes: tuple[str, ...],
    resource: tuple[str, ...],
    quota: tuple[str, ...],
    out: Out,
    **when: Any,
) -> int:
    """Announce maintenance: keep NODES (such as gpu-[0-3]) free of jobs for a while, or lower a
    resource, such as the power cap power_w, or the GPUs that a tenant may hold.

    Jobs that can save use the nodes until then, are asked to save in time, and resume later; others
    start there only if they are expected to be done by then. No job is killed: if one that cannot
    save runs longer than expected, its node becomes free when it is done.
    Administrators only.

    \b
    optsched maintain 'gpu-[0-3]' --from 18:00 --to 4h
    optsched maintain --resource power_w=7500 --from 17:00 --to 3h
    optsched maintain --quota vision=8 --from 18:00 --to 14h
    """
    resources, quotas = amounts("--resource", resource), amounts("--quota", quota, whole=True)
    if not (nodes or resources or quotas):
        raise InputError("name nodes, a --resource or a --quota")
    return _set(client, out, **when, nodes=nodes, resources=resources, quotas=quotas)


@click.command("reserve")
@click.argument("nodes", nargs=-1, metavar="[NODES...]")
@option("--gpus N", "Choose nodes with so many GPUs, in place of NODES.", type=int)
@many_option("--user NAME", "Whose jobs may run there; repeatable.", "users")
@many_option("--tenant NAME", "Whose jobs may run there; repeatable.", "tenants")
@_setting
@answers
@asks_controller
def reserve(client: Client, out: Out, **asked: Any) -> int:
    """Reserve NODES, or nodes with so many GPUs, for the jobs of some users or tenants.

    Other jobs make way as for `optsched maintain`. Administrators only.

    \b
    optsched reserve --gpus 16 --tenant vision --from '2026-08-03 08:00' --to 2d
    """
    if not (asked["users"] or asked["tenants"]):
        raise InputError("say for whom: give --user or --tenant")
    if bool(asked["nodes"]) == bool(asked["gpus"]):
        raise InputError("name nodes, or say how many with --gpus")
    return _set(client, out, kind="reservation", **asked)


@click.command("drain")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@answers
@asks_controller
def drain(client: Client, nodes: tuple[str, ...], out: Out) -> int:
    """Let each NODE run empty, and keep it so until `optsched undrain`.

    Jobs that can save do so now and resume elsewhere; others run to their end. Administrators only.
    """
    bodies = ({"kind": "drain", "name": f"drain-{node}", "nodes": [node]} for node in nodes)
    return _told(out, [client.post("/v1/windows", body) for body in bodies][-1])


@click.command("undrain")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@answers
@asks_controller
def undrain(client: Client, nodes: tuple[str, ...], out: Out) -> int:
    """Let each drained NODE take jobs again. Administrators only."""
    lifts = ({"name": f"drain-{node}"} for node in nodes)
    return _told(out, [client.post("/v1/windows/lift", body) for body in lifts][-1])


@click.command("windows")
@many_option("--lift NAME", "Lift this one (administrators only); repeatable.")
@answers
@asks_controller
def command(client: Client, lift: tuple[str, ...], out: Out) -> int:
    """List maintenance, reservations and drained nodes, those of cluster.toml and Slurm too."""
    for name in lift:
        client.post("/v1/windows/lift", {"name": name})
    return _told(out, client.get("/v1/windows"))
