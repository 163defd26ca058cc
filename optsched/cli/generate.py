"""`optsched generate`: a random instance with jobs like those of a published cluster."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ..api.workloads import FITTED, KINDS, generate
from ..errors import InputError
from ..model import Instance
from ..noun import number_of
from .import_ import write_checked
from .parts.arguments import (
    Choice,
    amount_option,
    check_outputs,
    count_option,
    flag_option,
    option,
    path_option,
    seed_option,
)
from .parts.duration import cost
from .parts.out import Out, answers


@click.command("generate")
@option(
    "--like",
    "philly, helios, acme, openb: fitted to that cluster. mixed, llm: synthetic, with mostly "
    "single-GPU or mostly large gangs. planted: cut out of a full cluster, so that the "
    "minimum makespan is 36,000 s. even: gangs and run times drawn evenly, one GPU type. "
    "workflows: inference queries as DAGs of models, one GPU a worker.",
    type=Choice(KINDS),
    default="philly",
)
@count_option("--jobs N", "Number of jobs.", most=1_000_000, required=True)
@count_option(
    "--gpus G",
    "Number of GPUs; where whole nodes do not add up to it, some nodes are smaller.",
    most=200_000,
)
@option("--cluster SPEC", "Fitted, even: use these nodes, such as v100=288,p100=96.")
@count_option(
    "--gpus-per-node N",
    "GPUs per node, with --cluster and for planted and even (default: 8).",
    most=1000,
)
@seed_option(metavar="S", help="Random seed; the same seed gives the same instance.")
@amount_option(
    "--load F",
    "Offered work over capacity. Fitted: by default jobs arrive as often as on the real "
    "cluster. mixed, llm: with --arrivals poisson (default: 0.9). even: 1 by default, "
    "workflows: 0.7.",
    most=100,
)
@amount_option("--days D", "Fitted only: let all jobs arrive within D days, instead of --load.")
@option(
    "--arrivals",
    "mixed, llm: submit all jobs at 0 (the default) or one by one (the default of even).",
    type=Choice(["batch", "poisson"]),
)
@option(
    "--running F",
    "mixed, llm: fraction of jobs already running, as far as they fit.",
    type=click.FloatRange(0, 1),
)
@count_option(
    "--gpu-types K", "mixed, llm: 1 for A100 only, 2 adds V100, 3 (the default) adds P100.", most=3
)
@flag_option(
    "--quotas", "Fitted only: give virtual clusters GPU quotas in proportion to the published ones."
)
@flag_option("--no-failures", "Fitted only: let no attempt fail.")
@amount_option(
    "--uplinks GBPS", "Give every rack an uplink of GBPS Gbit/s, shared by the gangs that cross it."
)
@flag_option("--no-overheads", "Make starting, saving and restoring free.")
@option(
    "--checkpoint TIME",
    "Let saving take TIME for every job, and restoring as long, such as 0, 30s or 5m.",
    "checkpoint_s",
    type=cost,
)
@option(
    "--gangs SIZES", "even: GPUs of a job, drawn from these with equal chance (default: 1,1,2,4)."
)
@option("--run-times RANGE", "even: shortest and longest run time (default: 5m-30m).")
@flag_option("--heavy-tail", "even: draw the logarithm of run times evenly.")
@option(
    "--families NAMES",
    "even: measured V100 profiles, drawn from these families with equal chance, such as "
    "resnet50,bert.",
)
@flag_option("--elastic", "even: let gangs also run on fewer GPUs.")
@option(
    "--plans ASKED",
    "even: let jobs train large models with any execution plan (docs/formats.md); users ask for a "
    "random or the best one.",
    type=Choice(["random", "best"]),
)
@option(
    "--cpu-jobs F",
    "even: share of jobs that need 1 to 8 cores and no GPU.",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
)
@count_option("--cores-per-gpu N", "even: cores of a node for each of its GPUs.", most=1000)
@flag_option(
    "--more-memory",
    "even: let jobs of --families use the cores and the host memory beyond a GPU's share that were "
    "measured to make them faster; needs --cores-per-gpu.",
)
@flag_option(
    "--micro-batches",
    "even: let jobs of --families take a half or a quarter of the batch at a time, in less GPU "
    "memory, at the rates that were measured.",
)
@amount_option(
    "--memory-gbps GBPS",
    "even: memory bandwidth of a node, in Gbit/s for each of its GPUs; half of the CPU-only jobs "
    "stream through it (docs/formats.md).",
)
@count_option("--nodes-per-rack N", "even: nodes of a rack (default: no racks).", most=100_000)
@flag_option(
    "--clocks", "even: let GPUs also run at lower clocks, for less power (docs/formats.md)."
)
@flag_option(
    "--cores-in-place", "even: let jobs change their cores while they run, without a new start."
)
@count_option(
    "--copies N",
    "even: let jobs have up to N copies on GPUs of any type, which join their progress.",
    most=1000,
)
@amount_option("--power-cap WATTS", "even: limit on what all working GPUs draw together.")
@option(
    "--duty RANGE",
    "even: let jobs share GPUs, each busy for a share of its step drawn from this, such as 0.1-1.",
)
@amount_option(
    "--locality RATE", "even: rate of a gang spread over nodes that would fit on one.", most=1
)
@amount_option(
    "--variability F",
    "even: let nodes differ in speed; a larger F means more, such as 0.2 (docs/formats.md).",
    most=1,
)
@option(
    "--prices PRICES",
    "even: hourly price of a GPU of each type, such as v100=2.48,p100=1.46,k80=0.45.",
)
@option(
    "--deadlines FACTORS",
    "even: give each job a deadline: its run time times one of these, drawn with equal chance, "
    "such as 1.2,2,10.",
)
@count_option(
    "--past N",
    "Make the first N jobs history that is over before the rest begins: estimates learn from "
    "them, but they are neither scheduled nor measured.",
)
@option("-o, --output INSTANCE", "File to write (.json or .json.gz); - is stdout.")
@path_option(
    "--fit PAGE",
    "Fitted only: also write an HTML page that compares the jobs with the real trace (if it "
    "is under OPTSCHED_DATA) and with published figures.",
)
@answers
def command(
    like: str,
    no_failures: bool,
    no_overheads: bool,
    output: str | None,
    fit: Path | None,
    out: Out,
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
    if not out.quiet:
        out.answer(
            lambda: _plain(instance, output),
            lambda: _lines(instance, output, fit),
            err=output in (None, "-"),
        )


def _plain(instance: Instance, output: str | None) -> dict[str, Any]:
    from ..traces.generate.like import offered_load

    load = offered_load(instance)
    return {
        "instance": instance.name,
        "jobs": len(instance.jobs),
        "running": len(instance.running),
        "failures": len(instance.failures),
        **({"past": len(instance.past)} if instance.past else {}),
        "nodes": len(instance.cluster.nodes),
        "gpus": instance.cluster.total_gpus,
        "offered_load": None if load is None else round(load, 4),
        "output": output or "-",
    }


def _lines(instance: Instance, output: str | None, fit: Path | None) -> Iterator[str]:
    nodes = Counter(
        node.gpu_type or ("with GPUs" if node.gpus else "without GPUs")
        for node in instance.cluster.nodes
    )
    listed = ", ".join(f"{count} {gpu_type}" for gpu_type, count in nodes.items())
    yield (
        f"{instance.name}: {number_of(len(instance.jobs), 'job')}, {len(instance.running)} of them "
        f"running, on {number_of(instance.cluster.total_gpus, 'GPU')} (nodes: {listed})"
    )
    if instance.past:
        yield f"{len(instance.past)} jobs before them are done, for estimates to learn from"
    if instance.tenants or instance.failures or instance.jobs[0].user is not None:
        yield from _more(instance)
    for path in (None if output == "-" else output, fit):
        if path is not None:
            yield f"wrote {path}"


def _more(instance: Instance) -> Iterator[str]:
    """Yield over how long a fitted workload arrives, what it offers, who it is from, and how much
    of it fails."""
    from ..duration import human
    from ..traces.generate.like import offered_load

    load = offered_load(instance)
    users = len({job.user for job in instance.jobs})
    commands = len({(job.user, job.command) for job in instance.jobs})
    failing = len({failure.job for failure in instance.failures})
    offered = "" if load is None else f", offering {load:.2f} of what the GPUs can do"
    span_s = max(job.submit_s for job in instance.jobs) - instance.now_s
    yield f"submitted over {human(span_s)}{offered}"
    yield (
        f"from {users} users with {commands} commands; {len(instance.failures)} attempts of "
        f"{failing} jobs fail"
    )
