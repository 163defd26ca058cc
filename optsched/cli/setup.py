"""`optsched setup`: what a site adds to its cluster manager."""

from pathlib import Path

import click

from .parts.arguments import flag_option, json_option, path_option, quiet_option
from .parts.outputs import print_json

NAMES = r"[A-Za-z0-9][A-Za-z0-9._-]*"


@click.command("setup")
@click.argument("manager", type=click.Choice(["slurm"]), metavar="slurm")
@click.option(
    "--nodes",
    required=True,
    metavar="HOSTLIST",
    help="The nodes to hand to optsched, such as gpu-[0-3].",
)
@click.option(
    "--user",
    required=True,
    metavar="NAME",
    help="The user who will run `optsched run`; root to run the jobs of all users.",
)
@click.option(
    "--partition",
    default="optsched",
    metavar="NAME",
    help="Put the nodes into a partition of this name.",
)
@click.option(
    "--reservation", metavar="NAME", help="Use a reservation instead, which changes no file."
)
@flag_option(
    "--sbatch", help="Let optsched also run what users submit to that partition with sbatch."
)
@path_option(
    "--shared", metavar="DIR", help="Folder for attempts, which all nodes see under this name."
)
@path_option(
    "--state",
    default="state",
    metavar="DIR",
    help="Folder of the journal, on a local disk of the controller's host.",
)
@path_option("-o", "--output", metavar="DIR", help="Write the lines as files into this folder.")
@json_option
@quiet_option
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
    as_json: bool,
    quiet: bool,
) -> int:
    """Print the few lines that hand nodes of a Slurm cluster to optsched, and the matching
    cluster.toml.

    \b
    optsched setup slurm --nodes gpu-[0-3] --user root --shared /shared/optsched
    optsched setup slurm --nodes gpu-[0-3] --user alice --reservation optsched -o setup
    optsched setup slurm --nodes gpu-[0-3] --user root --partition gpu --sbatch -o setup
    """
    import re

    from ..errors import InputError
    from ..executors.slurm.setup import setup, setup_sbatch
    from ..executors.slurm.site import split_nodes

    for what, text in (
        ("--user", user),
        ("--partition", partition),
        ("--reservation", reservation or "x"),
    ):
        if not re.fullmatch(NAMES, text):
            words = f"{text!r} is no name; use letters, digits, dots, dashes and underscores"
            raise click.BadParameter(words, None, None, what)
    try:
        split_nodes(nodes)
    except ValueError as error:
        raise click.BadParameter(str(error), None, None, "--nodes") from None
    if re.search(r"[^A-Za-z0-9.,_\[\]-]", nodes):
        raise click.BadParameter(
            f"{nodes!r} is no list of nodes; write gpu-[0-3,7]", None, None, "--nodes"
        )
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
    if as_json:
        print_json({"manager": manager, "files": files, "output": output and str(output)})
    elif output is None:
        click.echo("\n".join(f"# ---- {name}\n{text}" for name, text in files.items()), nl=False)
    elif not quiet:
        click.echo("\n".join(str(output / name) for name in files))
    return 0
