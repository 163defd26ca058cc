"""`optsched generate`: a random instance with jobs like those of a published trace."""

import json
from collections import Counter
from pathlib import Path

import click

from ..errors import InputError
from ..instance import Instance
from .arguments import check_outputs, json_option, quiet_option
from .import_ import write_checked


@click.command("generate")
@click.option("--like", type=click.Choice(["philly", "llm"]), default="philly", show_default=True,
              help="Gang sizes: mostly one GPU (philly) or mostly many (llm).")
@click.option("--jobs", type=click.IntRange(1, 1_000_000), required=True, metavar="N", help="How many jobs.")
@click.option("--gpus", type=click.IntRange(1, 200_000), required=True, metavar="G",
              help="About how many GPUs; rounded to whole nodes, at least one node of each type.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="S",
              help="Same seed, same instance.")
@click.option("--arrivals", type=click.Choice(["batch", "poisson"]), default="batch", show_default=True,
              help="All submitted at 0, or one by one.")
@click.option("--load", type=click.FloatRange(0, 100, min_open=True), metavar="F",
              help="poisson: work offered by capacity (0.9).")
@click.option("--running", type=click.FloatRange(0, 1), default=0.0, show_default=True, metavar="F",
              help="Fraction of the jobs that already run, as far as they fit.")
@click.option("--gpu-types", type=click.IntRange(1, 3), default=3, show_default=True, metavar="K",
              help="1: A100 only, 2: with V100, 3: with P100.")
@click.option("--no-overheads", is_flag=True, help="Starting, saving and restoring cost nothing.")
@click.option("-o", "--output", metavar="INSTANCE", help="File to write (.json or .json.gz); - is stdout.")
@json_option
@quiet_option
def command(
    like: str, jobs: int, gpus: int, seed: int, arrivals: str, load: float | None, running: float,
    gpu_types: int, no_overheads: bool, output: str | None, as_json: bool, quiet: bool,
) -> None:
    """Make a random instance of N jobs on about G GPUs.

    A mixed cluster of A100, V100 and P100 nodes; 24 families of jobs; log-normal durations. Without -o the
    instance goes to stdout and the summary to stderr.
    """
    from ..traces.synth import generate

    if load is not None and arrivals != "poisson":
        raise InputError("--load goes with --arrivals poisson only; add that or leave --load out")
    if output not in (None, "-"):
        check_outputs({"-o": Path(output)}, "-")
    instance = generate(
        jobs=jobs, gpus=gpus, seed=seed, like="llm" if like == "llm" else "philly",
        arrivals="poisson" if arrivals == "poisson" else "batch", load=0.9 if load is None else load,
        running=running, gpu_types=gpu_types, overheads=not no_overheads,
    )
    write_checked(instance, output)
    if not quiet:
        summary = _json(instance, output) if as_json else _sentences(instance, output)
        click.echo(summary, err=output in (None, "-"))


def _json(instance: Instance, output: str | None) -> str:
    return json.dumps({
        "instance": instance.name, "jobs": len(instance.jobs), "running": len(instance.running),
        "nodes": len(instance.cluster.nodes), "gpus": instance.cluster.total_gpus, "output": output or "-",
    })


def _sentences(instance: Instance, output: str | None) -> str:
    nodes = Counter(node.gpu_type for node in instance.cluster.nodes)
    listed = ", ".join(f"{count} {gpu_type}" for gpu_type, count in nodes.items())
    text = (f"{instance.name}: {len(instance.jobs)} jobs, {len(instance.running)} of them running, on "
            f"{instance.cluster.total_gpus} GPUs (nodes: {listed})")
    return text if output in (None, "-") else f"{text}\nwrote {output}"
