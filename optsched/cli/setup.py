"""`optsched setup`: what a site adds to its cluster manager."""

import re
from pathlib import Path

import click

from .parts.arguments import Choice, flag_option, option, path_option
from .parts.out import Out, answers


def site_name(value: str) -> str:
    """Read an option that is a name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value):
        words = f"{value!r} is not a name; use letters, digits, dots, dashes and underscores"
        raise click.BadParameter(words)
    return value


def hostlist(value: str) -> str:
    """Read an option that is a list of nodes."""
    from ..executors.slurm.site import split_nodes

    try:
        split_nodes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if re.search(r"[^A-Za-z0-9.,_\[\]-]", value):
        raise click.BadParameter(f"{value!r} is not a list of nodes; write gpu-[0-3,7]")
    return value


@click.command("setup")
@click.argument("manager", type=Choice(["slurm"]), metavar="slurm")
@option(
    "--nodes HOSTLIST",
    "The nodes to hand to optsched, such as gpu-[0-3].",
    required=True,
    type=hostlist,
)
@option(
    "--user NAME",
    "The user who will run `optsched run`; root to run the jobs of all users.",
    required=True,
    type=site_name,
)
@option(
    "--partition NAME",
    "Put the nodes into a partition of this name.",
    default="optsched",
    type=site_name,
)
@option("--reservation NAME", "Use a reservation instead, which changes no file.", type=site_name)
@flag_option("--sbatch", "Let optsched also run what users submit to that partition with sbatch.")
@path_option("--shared DIR", "Folder for attempts, which all nodes see under this name.")
@path_option(
    "--state DIR",
    "Folder of the journal, on a local disk of the controller's host.",
    default="state",
)
@path_option("-o, --output DIR", "Write the lines as files into this folder.")
@answers
def command(
    manager: str,
    nodes: str,
    user: str,
    partition: str,
    reservation: str | None,
    sbatch: bool,
    shared: Path | None,
    state: Path,
    output: Path | None,
    out: Out,
) -> int:
    """Print the few lines that hand nodes of a Slurm cluster to optsched, and the matching
    cluster.toml.

    \b
    optsched setup slurm --nodes gpu-[0-3] --user root --shared /shared/optsched
    optsched setup slurm --nodes gpu-[0-3] --user alice --reservation optsched -o setup
    optsched setup slurm --nodes gpu-[0-3] --user root --partition gpu --sbatch -o setup
    """
    from ..errors import InputError
    from ..executors.slurm.setup import setup, setup_sbatch

    if reservation is not None and user == "root":
        raise InputError(
            "a reservation is for jobs of its own users only; for a controller of root make a "
            "partition"
        )
    if sbatch and (reservation is not None or user != "root"):
        raise InputError(
            "with --sbatch optsched starts jobs of all users: give --user root, and no reservation"
        )
    common, own = str((shared or Path("shared")).absolute()), str(state)
    files = (
        setup_sbatch(nodes, partition, common, own)
        if sbatch
        else setup(nodes, user, partition, reservation, common, own)
    )
    if output is not None:
        there = [name for name in files if (output / name).exists()]
        if there:
            raise InputError(f"{output / there[0]} is there already; name another folder")
        output.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (output / name).write_text(text)
    shown = [f"# ---- {name}\n{text}" for name, text in files.items()]
    out.answer(
        lambda: {"manager": manager, "files": files, "output": output and str(output)},
        lambda: [str(output / name) for name in files] if output else ["\n".join(shown)],
    )
    return 0
