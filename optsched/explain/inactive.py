"""Jobs that no round decides: those that can never run, and those that cannot run yet."""

from dataclasses import replace

from ..errors import InputError
from ..model.instance import Instance
from ..physics.catalogue import catalogue_of
from ..physics.unschedulable import why_never
from .facts import Explanation
from .words import sentence


def explain_inactive(instance: Instance, job_id: str) -> Explanation | None:
    """Return of a job that can never run, or cannot run yet, why; None of the others, which a round
    decides. Needs no round.

    Raises InputError where the instance has no such job.
    """
    job, running = instance.job.get(job_id), instance.running_job
    if job is None:
        raise InputError(f"job {job_id!r} is not in the instance")
    if job_id in running:
        return None
    catalogue = catalogue_of(instance)
    explanation = None
    if reason := why_never(catalogue, job):
        explanation = Explanation(id=job_id, state="never", reason=reason)
    elif job.after:
        lost = (
            before
            for before in job.after
            if before not in running and why_never(catalogue, instance.job[before])
        )
        reason = next((f"{before} can never run" for before in lost), None)
        explanation = Explanation(id=job_id, state="later", waits_for=job.after, reason=reason)
    elif job.submit_s > instance.now_s:
        explanation = Explanation(id=job_id, state="later")
    return explanation and with_sentence(instance, explanation)


def with_sentence(instance: Instance, explanation: Explanation) -> Explanation:
    """Return an explanation whose numbers are complete, put in words."""
    return replace(explanation, sentence=sentence(instance, explanation))
