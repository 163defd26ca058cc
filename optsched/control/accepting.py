"""What is the same for every job that is taken in, whichever way it came: the work it is believed
to be, and that rounds can take it."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..files import check_instance
from ..model import Cluster, Instance, Job
from .learning import believed
from .submission import Submission

if TYPE_CHECKING:
    from .core import ControllerCore


def accepted(
    controller: "ControllerCore",
    job: Job,
    *,
    limit_s: float | None = None,
    grace_s: float | None = None,
    **about: Any,
) -> Submission:
    """Return the submission of a job whose `duration_s` is what its user states: with the work that
    it is believed to be in its place, and the grace of the site where none is given."""
    settings = controller.settings
    work_s, estimate = believed(controller.learning, settings.runs, job, limit_s)
    return Submission(
        job=replace(job, duration_s=work_s),
        estimate=estimate,
        stated_s=job.duration_s,
        limit_s=limit_s,
        grace_s=settings.grace if grace_s is None else grace_s,
        **about,
    )


def check_alone(controller: "ControllerCore", job: Job) -> None:
    """Raise InputError for a job that no round could take."""
    cluster = Cluster(resources=controller.cluster.resources)
    alone = Instance(name="job", cluster=cluster, tenants=controller.tenants, jobs=(job,))
    check_instance(alone, now_only=True)
