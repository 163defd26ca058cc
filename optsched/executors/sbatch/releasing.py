"""Plugging out: what is held for optsched is given back to Slurm."""

from collections.abc import Iterator

from ...frozen import record
from ..base import NoAnswerError, RefusedError
from ..slurm.client import SlurmClient
from .jobs_json import ON_HOLD, HeldJob, read_held_jobs, which_jobs


@record
class Given:
    """A job that is Slurm's again: `done` says how it goes on there, or why nothing could be
    done."""

    job: str
    done: str
    failed: bool = False


def release_all(client: SlurmClient, partition: str | None) -> Iterator[Given]:
    """Give every job of `partition` that is held for optsched back to Slurm, one at a time.

    A job that its user holds stays on hold, as the user's own. Raises NoAnswerError, RefusedError
    where Slurm's jobs cannot be listed.
    """
    seen: set[str] = set()
    for job in read_held_jobs(client.ask("squeue", "--json", *which_jobs(partition))):
        elsewhere = partition not in (None, job.entry.get("partition"))
        if job.over or job.left or elsewhere or job.whole in seen:
            continue
        seen.add(job.whole)  # the tasks of an array that have not been touched are one job
        try:
            yield Given(job.whole, _give_back(client, job))
        except (NoAnswerError, RefusedError) as error:
            yield Given(job.whole, str(error), failed=True)


def _give_back(client: SlurmClient, job: HeldJob) -> str:
    update = ["scontrol", "update", f"jobid={job.whole}"]
    mark = f"AdminComment=optsched {job.token} not planned: given back"
    if job.runs:  # it keeps its mark, so that a controller that comes back takes it up
        client.ask("scontrol", "release", job.whole)
        return "runs on; Slurm starts it again by itself if its node fails"
    client.ask(*update, mark, "ReqNodeList=")
    if job.held:
        client.ask("scontrol", "uhold", job.whole)
        comment = str(job.entry.get("comment") or "").replace(ON_HOLD, "").strip()
        client.ask(*update, f"Comment={comment or ' '}")
        return "stays on hold for its user, who may release it"
    client.ask("scontrol", "release", job.whole)
    return "waits in Slurm's own queue"
