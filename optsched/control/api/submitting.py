"""A request to run a job: made into a submission, or refused with what is wrong about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from ...executors.base import JOB_NAME, AttemptKey
from ...model import Job
from ...model.value import EMPTY
from ..accepting import accepted
from ..controller import Controller
from ..journal.state import LiveJob
from ..limits import why_refused
from ..notices import why_not
from ..submission import Submission
from .bodies import MOST_JOBS, AmendBody, SubmitBody
from .demands import (
    NEVER,
    check_job,
    check_kind,
    check_texts,
    deadline_s_of,
    own_labels,
    predecessors_of,
    profile_of,
)
from .entitled import check_limits, priority_of, tenant_of, time_limit_s
from .naming import argv_of, command_of, read_array, stem_of
from .peer import Caller
from .refusal import HttpError

REQUESTED = {field.name for field in fields(SubmitBody)}
AS_ASKED = (REQUESTED & {field.name for field in fields(Job)}) - {
    "tenant",
    "priority",
    "deadline_s",
    "after",
    "cpus",
    "memory_gib",
    "min_nodes",
    "max_nodes",
    "profile",
    "labels",
    "affinity",
    "anti_affinity",
}
"""Fields of a request that the job has as they are."""
KEPT = (REQUESTED & {field.name for field in fields(Submission)}) - {
    "grace_s",
    "limit_s",
    "array",
    "after_any",
    "after_not_ok",
}
"""Fields of a request that the submission has as they are."""
WHILE_IT_WAITS = ("gpus", "duration_s", "begin_s")
"""Fields that cannot be changed of a job which runs."""
OF_JOB = ("gpus", "weight", "priority", "deadline_s")
MOST_AFTER = 100_000
"""Names of predecessors in one request, counted for each job that waits for them."""


@dataclass
class Taking:
    """Makes the jobs of one request of `caller` into `submissions`; `numbers` are those that names
    were made with. `own_uid` is the controller's user. `names` has the jobs behind each name, of
    an array its tasks."""

    controller: Controller
    caller: Caller
    own_uid: int
    numbers: dict[str, int]
    submissions: list[Submission] = field(default_factory=list)
    names: dict[str, list[str]] = field(default_factory=dict)
    awaited: int = 0

    def take(self, body: SubmitBody) -> None:
        """Take in what `body` asks for. Raises HttpError: 409 for a name that is taken, 422 for too
        many jobs, and as `submission_of`."""
        name = self._free_name(body.argv) if body.name is None else body.name
        self._check_free(name)
        indices, at_once = read_array(body.array)
        if len(self.submissions) + len(indices) > MOST_JOBS:
            raise HttpError(422, f"more than {MOST_JOBS:,} jobs in one request; split it")
        submission = submission_of(
            body,
            name,
            self.caller,
            self.controller,
            self.own_uid,
            self.names,
            jobs=len(self.submissions) + len(indices),
        )
        self.awaited += len(submission.predecessors) * len(indices)
        if self.awaited > MOST_AFTER:
            raise HttpError(422, f"after: more than {MOST_AFTER:,} names to wait for; name fewer")
        if body.array is None:
            self.submissions.append(submission)
            self.names[name] = [name]
            return
        for index in indices:
            task, argv = f"{name}-{index}", argv_of(body.argv, index)
            if not JOB_NAME.fullmatch(task):
                raise HttpError(422, f"name: {task!r} is longer than 63 characters; shorten it")
            self._check_free(task)
            job = replace(submission.job, id=task, command=command_of(argv))
            self.submissions.append(
                replace(submission, job=job, argv=argv, array=name, index=index, at_once=at_once)
            )
            self.names[task] = [task]
        self.names[name] = [f"{name}-{index}" for index in indices]

    def _check_free(self, name: str) -> None:
        if self._taken(name):
            raise HttpError(409, f"there is, or was, a job named {name!r}; choose another name")

    def _free_name(self, argv: tuple[str, ...]) -> str:
        stem = stem_of(argv)
        number = self.numbers.get(stem, 0) + 1
        while self._taken(f"{stem}-{number}"):
            number += 1
        self.numbers[stem] = number
        return f"{stem}-{number}"

    def _taken(self, name: str) -> bool:
        """Tell whether a name is taken: by a job or an array, or by an attempt that the journal
        does not know: to start under its name would start nothing. Or by a job that was dropped,
        from whose checkpoints this one would go on."""
        controller = self.controller
        return (
            name in controller.state.jobs
            or name in controller.state.arrays
            or name in self.names
            or AttemptKey(name, 1) in controller.observed
            or controller.checkpoints(name).exists()
        )


def submission_of(
    body: SubmitBody,
    name: str,
    caller: Caller,
    controller: Controller,
    own_uid: int,
    beside: Mapping[str, list[str]] = EMPTY,
    jobs: int = 1,
) -> Submission:
    """Return what is to be written down of a request by `caller`; `own_uid` is the controller's
    user. `beside` has the jobs behind names of the same request, with which there are so many
    `jobs`.

    Raises HttpError: 403 for what the caller may not ask for, 422 for what is wrong or can never
    run here.
    """
    check_texts(body)
    settings = controller.settings
    if body.image is not None and not getattr(controller.executor, "runs_images", False):
        raise HttpError(
            422, f"image: the executor {settings.executor} runs commands, not images; leave it out"
        )
    unsent = why_not(settings.notices, body.notify, body.notify_to)
    if unsent is not None:
        raise HttpError(422, unsent)
    user_id = caller.uid if own_uid == 0 and caller.uid != 0 else None
    if user_id is None and not caller.all_jobs:
        raise HttpError(
            403,
            "this controller does not run as root, so it can start nothing as another user; ask "
            "its "
            "administrator to run it as root",
        )
    command = command_of(body.argv)
    tenant = tenant_of(body, caller, controller)
    priority = priority_of(body, controller)
    check_limits(body.weight, priority, caller, tenant, controller)
    check_kind(body)
    most_nodes = body.max_nodes or body.min_nodes or 1
    predecessors = {
        field: predecessors_of(body, field, caller, controller, beside) for field in NEVER
    }
    job = Job(
        id=name,
        tenant=tenant,
        user=caller.name,
        command=command,
        priority=priority,
        deadline_s=deadline_s_of(body.deadline_s, controller),
        after=predecessors.pop("after"),
        cpus=body.cpus or int(body.gpus == 0),
        memory_gib=body.memory_gib or 0.0,
        min_nodes=body.min_nodes or 1,
        max_nodes=None if body.gpus == 0 else most_nodes,
        **{name: getattr(body, name) for name in AS_ASKED},
        **own_labels(body, caller),
        profile=profile_of(body, caller, command, controller),
    )
    about = {name: getattr(body, name) for name in KEPT} | predecessors
    limit_s = time_limit_s(body.limit_s, caller, tenant, controller)
    if limit_s is None and body.warning is not None:
        raise HttpError(422, "warning is for jobs with a time limit; give limit_s, too")
    submission = accepted(
        controller, job, limit_s=limit_s, grace_s=body.grace_s, user_id=user_id, **about
    )
    refused = why_refused(
        controller.settings, controller.state, submission.job, privileged=caller.all_jobs, jobs=jobs
    )
    if refused is not None:
        raise HttpError(403, refused)
    one_node_unasked = body.min_nodes is None and body.max_nodes is None
    check_job(submission.job, controller, one_node_unasked=one_node_unasked)
    return submission


def amended(body: AmendBody, job: LiveJob, caller: Caller, controller: Controller) -> Submission:
    """Return what a job is with the changes in `body`. Raises HttpError: 403 and 422 as
    `submission_of`, 409 for what cannot be changed now."""
    known, name = job.submission, job.id
    asked = {
        field.name: value
        for field in fields(body)
        if (value := getattr(body, field.name)) is not None
    }
    if known.origin is not None:
        raise HttpError(409, f"{name} is a job of the cluster manager; change it there")
    early = [field for field in WHILE_IT_WAITS if field in asked]
    if job.live is not None and early:
        raise HttpError(409, f"{name} runs, so its {early[0]} cannot be changed; requeue it first")
    noun, tenant = known.job, known.job.tenant
    weight = asked.get("weight", 0.0)
    check_limits(weight, asked.get("priority"), caller, tenant, controller)
    deadline_s_of(body.deadline_s, controller)
    of_job = {field: value for field, value in asked.items() if field in OF_JOB}
    of_submission = {
        field: value for field, value in asked.items() if field in ("begin_s", "retries")
    }
    noun = replace(noun, **of_job)
    if "limit_s" in asked or "duration_s" in asked:
        limit_s = known.limit_s
        if body.limit_s is not None:
            limit_s = time_limit_s(body.limit_s, caller, tenant, controller)
        stated_s = known.stated_s if body.duration_s is None else body.duration_s
        stated = replace(noun, duration_s=stated_s)
        again = accepted(
            controller, stated, limit_s=limit_s, argv=known.argv, directory=known.directory
        )
        noun = again.job
        of_submission |= {
            "limit_s": limit_s,
            "stated_s": again.stated_s,
            "estimate": again.estimate,
        }
    if "gpus" in asked and (noun.gpus == 0) != (known.job.gpus == 0):
        raise HttpError(422, "gpus: a job with GPUs stays one, and one without too; submit another")
    refused = why_refused(
        controller.settings, controller.state, noun, privileged=caller.all_jobs, jobs=0
    )
    if refused is not None:
        raise HttpError(403, refused)
    check_job(noun, controller, one_node_unasked=False)
    return replace(known, job=noun, **of_submission)
