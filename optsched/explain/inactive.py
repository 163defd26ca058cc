"""Jobs that no round decides: those that can never run, and those that cannot run yet."""

from dataclasses import replace

from ..errors import InputError
from ..model.instance import Instance
from ..physics.catalogue import catalogue_of
from ..physics.unschedulable import why_never
from .facts import Explanation, State
from .words import sentence


def explain_inactive(instance: Instance, job_id: str) -> Explanation | None:
    """Of a job that can never run, or cannot run yet, why; None of the others, which a round
    decides. Needs no round.

    Raises InputError where the instance has no such job.
    """
    job = instance.job.get(job_id)
    if job is None:
        raise InputError(f"job {job_id!r} is not in the instance")
    if job_id in instance.running_job:
        return None
    reason = why_never(catalogue_of(instance), job)
    if reason is not None:
        return with_sentence(instance, _bare(job_id, "never", reason=reason))
    if job.after:
        lost = [
            one
            for one in job.after
            if one not in instance.running_job
            and why_never(catalogue_of(instance), instance.job[one])
        ]
        reason = f"{lost[0]} can never run" if lost else None
        return with_sentence(instance, _bare(job_id, "later", waits_for=job.after, reason=reason))
    if job.submit_s > instance.now_s:
        return with_sentence(instance, _bare(job_id, "later"))
    return None


def _bare(
    job_id: str, state: State, *, reason: str | None = None, waits_for: tuple[str, ...] = ()
) -> Explanation:
    return Explanation(
        id=job_id,
        state=state,
        reason=reason,
        chosen=None,
        best=None,
        keep=None,
        nodes=(),
        waits_for=waits_for,
        blocked=False,
        margin=None,
        must_stay=None,
        leaver=None,
        swap=None,
        makes_way_for=(),
        takes_from=(),
        sentence="",
    )


def with_sentence(instance: Instance, found: Explanation) -> Explanation:
    """An explanation whose numbers are complete, put in words."""
    return replace(found, sentence=sentence(instance, found))
