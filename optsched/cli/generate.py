"""`optsched generate`: a random instance with jobs like those of a published cluster."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click

from ..api.workloads import FITTED, KINDS, generate
from ..errors import InputError
from ..model.instance import Instance
from .import_ import write_checked
from .parts.arguments import (
    check_outputs,
    count_option,
    flag_option,
    json_option,
    path_option,
    quiet_option,
    seed_option,
)
from .parts.duration import cost


@click.command("generate")
@click.option(
    "--like",
    type=click.Choice(KINDS),
    default="philly",
    help="philly, helios, acme, openb: fitted to that cluster. mixed, llm: synthetic, with mostly "
    "single-GPU or mostly large gangs. planted: cut out of a full cluster, so that the "
    "minimum makespan is 36,000 s.",
)
@count_option("--jobs", most=1_000_000, required=True, help="Number of jobs.")
@count_option(
    "--gpus",
    most=200_000,
    metavar="G",
    help="Number of GPUs; where whole nodes do not add up to it, some nodes are smaller.",
)
@click.option(
    "--cluster",
    metavar="SPEC",
    help="Fitted only: use these nodes instead of the model's, such as v100=288,p100=96.",
)
@count_option(
    "--gpus-per-node", most=1000, help="GPUs per node, with --cluster and for planted (default: 8)."
)
@seed_option(metavar="S", help="Random seed; the same seed gives the same instance.")
@click.option(
    "--load",
    type=click.FloatRange(0, 100, min_open=True),
    metavar="F",
    help="Offered work over capacity. Fitted: by default jobs arrive as often as on the real "
    "cluster. mixed, llm: with --arrivals poisson (default: 0.9).",
)
@click.option(
    "--days",
    type=click.FloatRange(0, min_open=True),
    metavar="D",
    help="Fitted only: let all jobs arrive within D days, instead of --load.",
)
@click.option(
    "--arrivals",
    type=click.Choice(["batch", "poisson"]),
    help="mixed, llm: submit all jobs at 0 (the default) or one by one.",
)
@click.option(
    "--running",
    type=click.FloatRange(0, 1),
    metavar="F",
    help="mixed, llm: fraction of jobs already running, as far as they fit.",
)
@count_option(
    "--gpu-types",
    most=3,
    metavar="K",
    help="mixed, llm: 1 for A100 only, 2 adds V100, 3 (the default) adds P100.",
)
@click.option(
    "--quotas",
    is_flag=True,
    help="Fitted only: give virtual clusters GPU quotas in proportion to the published ones.",
)
@flag_option("--no-failures", help="Fitted only: let no attempt fail.")
@click.option(
    "--uplinks",
    type=click.FloatRange(0, min_open=True),
    metavar="GBPS",
    help="Give every rack an uplink of GBPS Gbit/s, shared by the gangs that cross it.",
)
@flag_option("--no-overheads", help="Make starting, saving and restoring free.")
@click.option(
    "--checkpoint",
    "checkpoint_s",
    type=cost,
    metavar="TIME",
    help="Let saving take TIME for every job, and restoring as long, such as 0, 30s or 5m.",
)
@click.option(
    "-o", "--output", metavar="INSTANCE", help="File to write (.json or .json.gz); - is stdout."
)
@path_option(
    "--fit",
    metavar="PAGE",
    help="Fitted only: also write an HTML page that compares the jobs with the real trace (if it "
    "is under OPTSCHED_DATA) and with published figures.",
)
@json_option
@quiet_option
def command(
    like: str,
    no_failures: bool,
    no_overheads: bool,
    output: str | None,
    fit: Path | None,
    as_json: bool,
    quiet: bool,
    **how: Any,
) -> None:
    """Generate a random instance of N jobs on G GPUs.

    philly, helios, acme and openb have the nodes, arrivals, gang sizes, run times, users, commands
    and failures of those clusters, as far as they are published. planted has a known minimum
    makespan. Without -o, the instance goes to stdout and the summary to stderr.
    """
    from ..traces.generate.like.fit_page import can_draw, write

    check_outputs({"-o": None if output in (None, "-") else Path(str(output)), "--fit": fit}, "-")
    if fit is not None:
        can_draw(fit)
        if like not in FITTED:
            raise InputError(
                f"--fit goes with --like {', '.join(FITTED)}, not with {like}; leave it out"
            )
    instance = generate(like, failures=not no_failures, overheads=not no_overheads, **how)
    write_checked(instance, output)
    if fit is not None:
        write(instance, like, fit)
    if not quiet:
        summary = _json(instance, output) if as_json else _sentences(instance, output, fit)
        click.echo(summary, err=output in (None, "-"))


def _json(instance: Instance, output: str | None) -> str:
    from ..traces.generate.like import offered_load

    load = offered_load(instance)
    return json.dumps(
        {
            "instance": instance.name,
            "jobs": len(instance.jobs),
            "running": len(instance.running),
            "failures": len(instance.failures),
            "nodes": len(instance.cluster.nodes),
            "gpus": instance.cluster.total_gpus,
            "offered_load": None if load is None else round(load, 4),
            "output": output or "-",
        }
    )


def _sentences(instance: Instance, output: str | None, fit: Path | None) -> str:
    nodes = Counter(node.gpu_type or "without GPUs" for node in instance.cluster.nodes)
    listed = ", ".join(f"{count} {gpu_type}" for gpu_type, count in nodes.items())
    lines = [
        f"{instance.name}: {len(instance.jobs)} jobs, {len(instance.running)} of them running, on "
        f"{instance.cluster.total_gpus} GPUs (nodes: {listed})"
    ]
    if instance.tenants or instance.failures or instance.jobs[0].user is not None:
        lines += _more(instance)
    lines += [
        f"wrote {path}" for path in (None if output == "-" else output, fit) if path is not None
    ]
    return "\n".join(lines)


def _more(instance: Instance) -> list[str]:
    """Of a fitted workload: over how long it arrives, what it offers, who it is from, and how much
    of it fails."""
    from ..duration import human
    from ..traces.generate.like import offered_load

    load = offered_load(instance)
    users = len({job.user for job in instance.jobs})
    commands = len({(job.user, job.command) for job in instance.jobs})
    offered = "" if load is None else f", offering {load:.2f} of what the GPUs can do"
    return [
        f"submitted over {human(max(job.submit_s for job in instance.jobs))}{offered}",
        f"from {users} users with {commands} commands; {len(instance.failures)} attempts of "
        f"{len({failure.job for failure in instance.failures})} jobs fail",
    ]
