"""`optsched release-all`: give users' jobs back to Slurm, with no controller running."""

from pathlib import Path

import click

from .parts.arguments import json_option, path_option, quiet_option
from .parts.outputs import print_json


@click.command("release-all")
@path_option(
    "--config",
    required=True,
    envvar="OPTSCHED_CONFIG",
    metavar="FILE",
    help="The cluster.toml of the controller that held the jobs.",
)
@json_option
@quiet_option
def command(config: Path, as_json: bool, quiet: bool) -> int:
    """Release all jobs that are held for optsched, so that Slurm starts them by itself.

    Use it when the controller is gone for good; stop the controller first, as it would hold them
    again. Jobs that users hold themselves stay on hold, and their users can release them.
    """
    from dataclasses import asdict

    from ..control.opening import alone
    from ..control.settings import read_settings
    from ..errors import InputError
    from ..executors.base import NoAnswerError, RefusedError
    from ..executors.sbatch.releasing import release_all
    from ..executors.slurm.client import SlurmClient

    settings = read_settings(config)
    slurm = settings.table("slurm")
    if settings.executor != "slurm" or not slurm.sbatch:
        raise InputError(
            f"{config}: holds no jobs of Slurm's users; name a file with sbatch = true in [slurm]"
        )
    client = SlurmClient(slurm.timeout_s, slurm.conf, slurm.programs)
    given = []
    with alone(settings.state):
        try:
            for one in release_all(client, slurm.partition):
                given.append(one)
                if not (as_json or quiet):
                    click.echo(f"{one.job}: {one.done}")
        except (NoAnswerError, RefusedError) as error:
            raise InputError(
                f"Slurm does not list its jobs: {error}; try again when it answers"
            ) from None
    if as_json:
        print_json({"jobs": [asdict(job) for job in given]})
    elif not (given or quiet):
        click.echo("no job is held for optsched")
    return 1 if any(job.failed for job in given) else 0
