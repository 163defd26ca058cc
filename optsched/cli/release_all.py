"""`optsched release-all`: give users' jobs back to Slurm, with no controller running."""

from pathlib import Path

import click

from .parts.arguments import path_option
from .parts.out import Out, answers


@click.command("release-all")
@path_option(
    "--config FILE",
    "The cluster.toml of the controller that held the jobs.",
    required=True,
    envvar="OPTSCHED_CONFIG",
)
@answers
def command(config: Path, out: Out) -> int:
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
            for job in release_all(client, slurm.partition):
                given.append(job)
                out.say(f"{job.job}: {job.done}")
        except (NoAnswerError, RefusedError) as error:
            raise InputError(
                f"Slurm does not list its jobs: {error}; try again when it answers"
            ) from None
    none = [] if given else ["no job is held for optsched"]
    out.answer(lambda: {"jobs": [asdict(job) for job in given]}, lambda: none)
    return 1 if any(job.failed for job in given) else 0
