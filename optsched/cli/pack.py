"""`optsched pack`: how much of the GPUs can be allocated when jobs come one by one and stay."""

import json
from pathlib import Path
from typing import Any

import click

from ..errors import InputError
from .parts.arguments import (
    flag_option,
    instance_argument,
    load,
    make_folder,
    option,
    path_option,
    seed_option,
)
from .parts.out import Out, Parts, answers


@click.command("pack")
@instance_argument
@option(
    "--rule NAME",
    "optsched, fgd, best-fit, packing, clustering, dot-product or random.",
    "rule_name",
    default="optsched",
)
@option(
    "--load X",
    "Let jobs arrive until they have asked for X times the GPUs of the cluster.",
    "demand",
    type=float,
    default=1.3,
)
@seed_option(help="Random seed of the order of arrival.")
@flag_option(
    "--bound", "Also prove, at each load shown, a limit that no rule can exceed.", "bounds"
)
@path_option(
    "-o, --output DIR",
    "Write packing.json, summary.json, allocation.svg and allocation.png to this directory.",
)
@answers
def command(
    instance: str,
    rule_name: str,
    demand: float,
    seed: int,
    bounds: bool,
    output: Path | None,
    out: Out,
) -> int:
    """Let the jobs of INSTANCE (a file, or - for stdin) arrive one by one and stay; times are
    ignored.

    Each job is placed at once on one node that has the cores, the memory and the GPUs (or the part
    of one GPU, profile.sharing.duty) that it asks for, or it fails. Jobs arrive in random order;
    more are drawn from the same jobs until --load is reached. The packing is checked independently
    before it is shown. Exit status: 0, 1 if that check fails, 2 for bad input.

    \b
    optsched import openb openb_pod_list_default.csv.gz --all-pods --millicores -o openb.json.gz
    optsched pack openb.json.gz
    optsched pack openb.json.gz --rule fgd --seed 42 --bound -o fgd
    """
    from ..api import pack
    from ..driver import PolicyError
    from ..files import write_text
    from ..packing.picture import draw
    from ..packing.rules import rule

    rule(rule_name)
    if output is not None and output.exists() and not output.is_dir():
        raise InputError(f"-o {output} is a file; name a directory")
    try:
        packed = pack(
            load(instance, now_only=True), rule_name, load=demand, seed=seed, bound=bounds
        )
    except PolicyError as error:
        click.echo(f"optsched: {error}", err=True)
        return 1
    total = packed.summary
    if output is not None:
        make_folder(output)
        write_text(output / "summary.json", json.dumps(total, indent=1) + "\n")
        out.write(
            "packing", output / "packing.json", lambda path: write_text(path, packed.as_file())
        )
        if total["arrived"]:
            drawn = (packed.problem, packed.packing, packed.points, rule_name, output)
            out.attempt(lambda: [f"picture: {path}" for path in draw(*drawn)])
    out.answer(lambda: json.dumps(total, allow_nan=False), lambda: _parts(total, bounds))
    out.finish()
    return 0


def _parts(total: dict[str, Any], bounds: bool) -> Parts:
    from ..packing.rules import RULES
    from ..picture.text import table

    names = {"0": "no GPU", "part": "a part of a GPU", "1": "1 GPU"}
    kinds = ", ".join(
        f"{count:,} of {names.get(name, name + ' GPUs')}"
        for name, count in total["failed_by_gpus"].items()
    )
    failed = f"{total['failed']:,} failed" + (f": {kinds}" if kinds else "")
    times = total["decision_wall_s"]
    yield (
        f"instance {total['instance']['name']}: {total['gpus']:,} GPUs, {total['arrived']:,} "
        f"arrivals (seed {total['seed']}), {failed}"
    )
    yield f"rule {total['rule']}: {RULES[total['rule']][1]}"
    if times is not None:
        yield f"decisions: median {times['p50'] * 1e3:.2f} ms, p99 {times['p99'] * 1e3:.2f} ms"
    columns = {"allocated": "allocated_percent"}
    if bounds:
        columns |= {"no rule exceeds": "bound_percent", "short of it": "gap_percent"}
    rows = (
        (f"{level['load']} %", *(f"{level[key]:.2f} %" for key in columns.values()))
        for level in total["at_load"]
    )
    heads = ("asked for", *columns)
    yield from ("", table(*heads, rows=rows, numeric=heads))
