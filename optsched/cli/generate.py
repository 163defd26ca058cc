"""`optsched generate`: a random instance with jobs like those of a published cluster."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ..errors import InputError
from ..model.instance import Instance
from .import_ import write_checked
from .parts.arguments import (
    check_outputs,
    count_option,
    flag_option,
    option,
    path_option,
    seed_option,
)
from .parts.duration import cost
from .parts.out import Out, answers

FITTED = ("philly", "helios", "acme", "openb")
INVENTED = ("mixed", "llm")
PLANTED = "planted"
ONLY = {
    "arrivals": INVENTED,
    "running": INVENTED,
    "gpu_types": INVENTED,
    "days": FITTED,
    "no_failures": FITTED,
    "quotas": FITTED,
    "cluster": FITTED,
    "fit": FITTED,
    "gpus_per_node": (*FITTED, PLANTED),
}
"""Options that go with some kinds only."""


@click.command("generate")
@option(
    "--like",
    "philly, helios, acme, openb: fitted to that cluster. mixed, llm: synthetic, with mostly "
    "single-GPU or mostly large gangs. planted: cut out of a full cluster, so that the "
    "minimum makespan is 36,000 s.",
    type=click.Choice([*FITTED, *INVENTED, PLANTED]),
    default="philly",
)
@count_option("--jobs N", "Number of jobs.", most=1_000_000, required=True)
@count_option(
    "--gpus G",
    "Number of GPUs; where whole nodes do not add up to it, some nodes are smaller.",
    most=200_000,
)
@option(
    "--cluster SPEC",
    "Fitted only: use these nodes instead of the model's, such as v100=288,p100=96.",
)
@count_option(
    "--gpus-per-node N", "GPUs per node, with --cluster and for planted (default: 8).", most=1000
)
@seed_option(metavar="S", help="Random seed; the same seed gives the same instance.")
@option(
    "--load F",
    "Offered work over capacity. Fitted: by default jobs arrive as often as on the real "
    "cluster. mixed, llm: with --arrivals poisson (default: 0.9).",
    type=click.FloatRange(0, 100, min_open=True),
)
@option(
    "--days D",
    "Fitted only: let all jobs arrive within D days, instead of --load.",
    type=click.FloatRange(0, min_open=True),
)
@option(
    "--arrivals",
    "mixed, llm: submit all jobs at 0 (the default) or one by one.",
    type=click.Choice(["batch", "poisson"]),
)
@option(
    "--running F",
    "mixed, llm: fraction of jobs already running, as far as they fit.",
    type=click.FloatRange(0, 1),
)
@count_option(
    "--gpu-types K", "mixed, llm: 1 for A100 only, 2 adds V100, 3 (the default) adds P100.", most=3
)
@option(
    "--quotas",
    "Fitted only: give virtual clusters GPU quotas in proportion to the published ones.",
    is_flag=True,
    default=None,
)
@option("--no-failures", "Fitted only: let no attempt fail.", is_flag=True, default=None)
@option(
    "--uplinks GBPS",
    "Give every rack an uplink of GBPS Gbit/s, shared by the gangs that cross it.",
    type=click.FloatRange(0, min_open=True),
)
@flag_option("--no-overheads", "Make starting, saving and restoring free.")
@option(
    "--checkpoint TIME",
    "Let saving take TIME for every job, and restoring as long, such as 0, 30s or 5m.",
    "checkpoint_s",
    type=cost,
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
    jobs: int,
    gpus: int | None,
    seed: int,
    load: float | None,
    uplinks: float | None,
    no_overheads: bool,
    checkpoint_s: float | None,
    output: str | None,
    out: Out,
    **only: Any,
) -> None:
    """Generate a random instance of N jobs on G GPUs.

    philly, helios, acme and openb have the nodes, arrivals, gang sizes, run times, users, commands
    and failures of those clusters, as far as they are published. planted has a known minimum
    makespan. Without -o, the instance goes to stdout and the summary to stderr.
    """
    given = {name: value for name, value in only.items() if value is not None}
    for name in given:
        if like not in ONLY[name]:
            flag = "--" + name.replace("_", "-")
            raise InputError(
                f"{flag} goes with --like {', '.join(ONLY[name])}, not with {like}; leave it out"
            )
    if gpus is None and "cluster" not in given:
        raise InputError(
            "how many GPUs? Give --gpus G" + (" or --cluster SPEC" if like in FITTED else "")
        )
    from ..traces.generate.like.fit_page import can_draw, write

    fit: Path | None = given.pop("fit", None)
    check_outputs({"-o": None if output in (None, "-") else Path(str(output)), "--fit": fit}, "-")
    if fit is not None:
        can_draw(fit)
    if like == PLANTED:
        for flag, value in (
            ("--load", load),
            ("--uplinks", uplinks),
            ("--checkpoint", checkpoint_s),
        ):
            if value is not None:
                raise InputError(
                    f"{flag} does not go with --like planted, whose optimum it would change; "
                    "leave it out"
                )
        from ..traces.generate.planted import generate

        instance = generate(jobs=jobs, gpus=gpus or 0, seed=seed, **given)
    else:
        asked = {"jobs": jobs, "seed": seed, "overheads": not no_overheads}
        if like in FITTED:
            cluster = given.pop("cluster", None)
            instance = _fitted(like, load, cluster, given, gpus=gpus, **asked)
        else:
            instance = _invented(like, load, given, gpus=gpus or 0, **asked)
    if uplinks is not None:
        from ..traces.generate.shared_uplinks import with_shared_uplinks

        instance = with_shared_uplinks(instance, uplinks)
    if checkpoint_s is not None:
        from ..traces.profiles.checkpoint_cost import with_checkpoint_cost

        instance = with_checkpoint_cost(instance, checkpoint_s)
    write_checked(instance, output)
    if fit is not None:
        write(instance, like, fit)
    if not out.quiet:
        out.answer(
            lambda: _plain(instance, output),
            lambda: _lines(instance, output, fit),
            err=output in (None, "-"),
        )


def _fitted(
    like: str, load: float | None, cluster: str | None, given: dict[str, Any], **asked: Any
) -> Instance:
    from ..traces.clusters import cluster_of
    from ..traces.generate.like import generate

    nodes = None
    if cluster is not None:
        if asked["gpus"] is not None:
            raise InputError("--cluster says how many GPUs there are; leave --gpus out")
        nodes = cluster_of(cluster, given.pop("gpus_per_node", 8))
    elif "gpus_per_node" in given:
        raise InputError("--gpus-per-node goes with --cluster; the model's nodes have their sizes")
    if load is not None and "days" in given:
        raise InputError("--load and --days both say how fast the jobs come; leave one out")
    failures = "no_failures" not in given
    given.pop("no_failures", None)
    return generate(like, load=load, failures=failures, cluster=nodes, **asked, **given)


def _invented(like: str, load: float | None, given: dict[str, Any], **asked: Any) -> Instance:
    from ..traces.generate.synth import generate

    if load is not None and given.get("arrivals") != "poisson":
        raise InputError(
            f"--load goes with --arrivals poisson for --like {like}; add that or leave --load out"
        )
    load = 0.9 if load is None else load
    return generate(like="llm" if like == "llm" else "mixed", load=load, **asked, **given)


def _plain(instance: Instance, output: str | None) -> dict[str, Any]:
    from ..traces.generate.like import offered_load

    load = offered_load(instance)
    return {
        "instance": instance.name,
        "jobs": len(instance.jobs),
        "running": len(instance.running),
        "failures": len(instance.failures),
        "nodes": len(instance.cluster.nodes),
        "gpus": instance.cluster.total_gpus,
        "offered_load": None if load is None else round(load, 4),
        "output": output or "-",
    }


def _lines(instance: Instance, output: str | None, fit: Path | None) -> Iterator[str]:
    nodes = Counter(node.gpu_type or "without GPUs" for node in instance.cluster.nodes)
    listed = ", ".join(f"{count} {gpu_type}" for gpu_type, count in nodes.items())
    yield (
        f"{instance.name}: {len(instance.jobs)} jobs, {len(instance.running)} of them running, on "
        f"{instance.cluster.total_gpus} GPUs (nodes: {listed})"
    )
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
    yield f"submitted over {human(max(job.submit_s for job in instance.jobs))}{offered}"
    yield (
        f"from {users} users with {commands} commands; {len(instance.failures)} attempts of "
        f"{failing} jobs fail"
    )
