"""A request to run a job: made into a submission, or refused with what is wrong about it."""

import json
import re
import shlex
from dataclasses import fields, replace
from pathlib import PurePosixPath
from typing import Any

from ...errors import InputError
from ...executors.base import JOB_NAME
from ...files.shape_faults import FaultyFileError
from ...model.cluster import Cluster
from ...model.job import Elastic, Job, gang
from ...model.profile import UNMEASURED, Profile
from ...physics.catalogue import Catalogue
from ...physics.unschedulable import why_never
from ..accepting import accepted, check_alone
from ..controller import Controller
from ..journal.state import ENDED_AS
from ..learned import NEVER_S
from ..limits import limits_of, why_refused
from ..notices import why_not
from ..submission import Submission
from .bodies import MOST_WORD_BYTES, SubmitBody
from .peer import Caller
from .refusal import HttpError

REQUESTED = {field.name for field in fields(SubmitBody)}
AS_ASKED = (REQUESTED & {field.name for field in fields(Job)}) - {
    "tenant",
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
KEPT = (REQUESTED & {field.name for field in fields(Submission)}) - {"grace_s"}
"""Fields of a request that the submission has as they are."""
MOST_COMMAND = 1000
"""Characters of the command line that are kept as the job's `command`."""
MOST_WRITTEN_BYTES = 512 * 1024
"""Half of what a record of an attempt may be; the rest is for its nodes."""
SET_BY_EXECUTOR = re.compile(r"OPTSCHED_.*|CUDA_VISIBLE_DEVICES")
INTERPRETER = re.compile(r"(?:python|pypy|perl|ruby|node|bash|sh|zsh|env|torchrun|Rscript)[0-9.]*")


def submission_of(
    body: SubmitBody, name: str, caller: Caller, controller: Controller, own_uid: int
) -> Submission:
    """Return what is to be written down of a request by `caller`; `own_uid` is the controller's
    user.

    Raises HttpError: 403 for what the caller may not ask for, 422 for what is wrong or can never
    run here.
    """
    _check_texts(body)
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
    command = shlex.join(body.argv)[:MOST_COMMAND]
    tenant = _tenant(body, caller, controller)
    _check_limits(body, caller, tenant, controller)
    _check_kind(body)
    most_nodes = body.max_nodes or body.min_nodes or 1
    job = Job(
        id=name,
        tenant=tenant,
        user=caller.name,
        command=command,
        deadline_s=_deadline_s(body, controller),
        after=_after(body, caller, controller),
        cpus=body.cpus or int(body.gpus == 0),
        memory_gib=body.memory_gib or 0.0,
        min_nodes=body.min_nodes or 1,
        max_nodes=None if body.gpus == 0 else most_nodes,
        **{name: getattr(body, name) for name in AS_ASKED},
        **_own_labels(body, caller),
        profile=_profile(body, caller, command, controller),
    )
    about = {name: getattr(body, name) for name in KEPT}
    submission = accepted(controller, job, grace_s=body.grace_s, user_id=user_id, **about)
    refused = why_refused(
        controller.settings, controller.state, submission.job, privileged=caller.all_jobs
    )
    if refused is not None:
        raise HttpError(403, refused)
    one_node_unasked = body.min_nodes is None and body.max_nodes is None
    _check_job(submission.job, controller, one_node_unasked=one_node_unasked)
    return submission


def stem_of(argv: tuple[str, ...]) -> str:
    """Return what a job without a name is called after: the script where an interpreter runs one,
    else the command."""
    words = [PurePosixPath(word).name for word in argv]
    stem = words[0]
    if INTERPRETER.fullmatch(stem) and len(words) > 1 and not argv[1].startswith("-"):
        stem = words[1]
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", stem.rpartition(".")[0] or stem)
    stem = stem.strip("-_")[:48].rstrip("-_")
    return stem if JOB_NAME.fullmatch(stem) else "job"


def _own_labels(body: SubmitBody, caller: Caller) -> dict[str, Any]:
    """Return the labels that the job has and looks for, each in the name space of its user.

    Else anybody could keep another user's jobs off nodes and racks by a guess at their labels.
    """
    mine = f"{caller.name}/"
    return {
        "labels": tuple(mine + label for label in body.labels),
        "affinity": {mine + label: level for label, level in body.affinity.items()},
        "anti_affinity": {mine + label: level for label, level in body.anti_affinity.items()},
    }


def _check_texts(body: SubmitBody) -> None:
    if not body.argv[0]:
        raise HttpError(422, "argv[0] is empty; name the program to run")
    for what, text in (*(("argv", word) for word in body.argv), *body.environment.items()):
        if len(text.encode()) + len(what) + 1 > MOST_WORD_BYTES:
            raise HttpError(
                422, f"{what} has an entry longer than {MOST_WORD_BYTES} bytes; put it into a file"
            )
    written = len(json.dumps([body.argv, body.directory, body.environment]))
    if written > MOST_WRITTEN_BYTES:
        raise HttpError(
            422,
            f"argv and environment take {written} bytes as they are written down (what is not "
            f"ASCII takes 6 a character), at most {MOST_WRITTEN_BYTES} are kept; put some of it "
            "into a file",
        )
    if ".." in PurePosixPath(body.directory).parts:
        raise HttpError(422, "directory must be written without ..")
    for variable in body.environment:
        if SET_BY_EXECUTOR.fullmatch(variable):
            raise HttpError(
                422, f"environment.{variable} is set by whoever starts the job; leave it out"
            )


def _tenant(body: SubmitBody, caller: Caller, controller: Controller) -> str | None:
    tenants = controller.settings.tenants
    if body.tenant is None:
        return next((tenant.name for tenant in tenants if caller.name in tenant.users), None)
    wanted = next((tenant for tenant in tenants if tenant.name == body.tenant), None)
    if wanted is None:
        names = ", ".join(tenant.name for tenant in tenants[:20])
        remedy = f"there are {names}" if names else "leave it out"
        raise HttpError(422, f"there is no tenant {body.tenant!r}; {remedy}")
    if wanted.users and caller.name not in wanted.users and not caller.all_jobs:
        raise HttpError(403, f"{caller.name} is not among the users of tenant {wanted.name}")
    return wanted.name


def _check_limits(
    body: SubmitBody, caller: Caller, tenant: str | None, controller: Controller
) -> None:
    """Check weight and priority, which are at the cost of others: only operators may ask for more
    than cluster.toml allows."""
    if caller.all_jobs:
        return
    whose = f"jobs of {caller.name}" + (f" in tenant {tenant}" if tenant else "")
    weight, priority = limits_of(controller.settings, caller.name, tenant)
    if body.weight > weight:
        raise HttpError(
            403,
            f"weight {body.weight:g} is above {weight:g}, the most that {whose} may have "
            "(max_weight in "
            "cluster.toml); ask an administrator, or give less",
        )
    if body.priority > priority:
        raise HttpError(
            403,
            f"priority {body.priority} is above {priority}, the most that {whose} may have "
            "(max_priority in cluster.toml), and no round looks at it: leave it out, weight counts",
        )


def _deadline_s(body: SubmitBody, controller: Controller) -> float | None:
    if body.deadline_s is not None and body.deadline_s <= controller.clock.now_s():
        raise HttpError(422, "deadline_s has passed; give a Unix time to come")
    return body.deadline_s


def _after(body: SubmitBody, caller: Caller, controller: Controller) -> tuple[str, ...]:
    for name in body.after:
        job = controller.state.jobs.get(name)
        if job is None or not caller.sees(job):
            raise HttpError(422, f"after: there is no job {name!r}")
        if job.finished in ("failed", "cancelled"):
            raise HttpError(
                422, f"after: {name} {ENDED_AS[job.finished]}, so this would never start"
            )
    return tuple(dict.fromkeys(body.after))


KINDS = (
    (True, ("cpus_per_gpu",), "cpus_per_gpu is for jobs with GPUs; give cpus"),
    (False, ("cpus",), "cpus is for jobs without GPUs; give cpus_per_gpu"),
    (
        True,
        ("memory_gib_per_gpu", "gpu_memory_gib"),
        "memory_gib_per_gpu and gpu_memory_gib are for jobs with GPUs; give memory_gib",
    ),
    (False, ("memory_gib",), "memory_gib is for jobs without GPUs; give memory_gib_per_gpu"),
)
"""Fields of jobs with, or without, GPUs, and what is said of them in the others."""


def _check_kind(body: SubmitBody) -> None:
    if body.gpus == 0 and max(body.min_nodes or 1, body.max_nodes or 1) > 1:
        raise HttpError(422, "min_nodes and max_nodes are for jobs with GPUs; leave them out")
    for with_gpus, names, sentence in KINDS:
        given = any(getattr(body, name) is not None for name in names)
        if given and with_gpus == (body.gpus == 0):
            raise HttpError(422, sentence)


def _profile(body: SubmitBody, caller: Caller, command: str, controller: Controller) -> Profile:
    profile = body.profile
    if profile is None:
        learning = controller.learning
        profile = UNMEASURED if learning is None else learning.costs(caller.name, command)
        known = profile.checkpoint_s > 0 or profile.checkpoint_every_s is not None
        if body.saves is False or (body.saves is None and not known):
            profile = replace(profile, checkpoint_s=0.0, checkpoint_every_s=NEVER_S)
    if body.cpus_per_gpu is not None:
        rate = profile.cpus_per_gpu.get(body.cpus_per_gpu, 1.0)
        profile = replace(profile, cpus_per_gpu={body.cpus_per_gpu: rate})
    if body.gpu_types is not None:
        types = dict.fromkeys(body.gpu_types)
        rates = {name: profile.rate.get(name, 0.0 if profile.rate else 1.0) for name in types}
        rates = {name: rate for name, rate in rates.items() if rate > 0}
        if not rates:
            raise HttpError(
                422, "gpu_types names none of the GPU types that the profile has a rate for"
            )
        profile = replace(profile, rate=rates)
    for name in ("gpu_memory_gib", "memory_gib_per_gpu"):
        if (gib := getattr(body, name)) is not None:
            profile = replace(profile, **{name: gib})
    return profile


def _check_job(job: Job, controller: Controller, *, one_node_unasked: bool) -> None:
    """Check the job as a round will see it, so that no round ever meets a faulty one. Raises
    HttpError 422."""
    nodes = (
        tuple(status.node for status in controller.statuses) or controller.settings.cluster.nodes
    )
    cluster = replace(controller.cluster, nodes=nodes)
    try:
        check_alone(controller, replace(job, after=()))
    except FaultyFileError as error:
        said = [
            f"{_field(fault.path)} {fault.problem.removeprefix(f'job {job.id}: ')}; {fault.remedy}"
            for fault in error.faults[:3]
        ]
        raise HttpError(422, ". ".join(said)) from None
    except InputError as error:
        raise HttpError(422, str(error).replace("\n", " ")) from None
    if isinstance(job.gpus, Elastic) and job.gpus.min > job.gpus.max:
        raise HttpError(422, f"gpus.min {job.gpus.min} is above gpus.max {job.gpus.max}; swap them")
    model = job.profile
    if model.fetch_s and model.name is not None:
        for other in (job.profile for job in controller.state.open.values()):
            if other.fetch_s and other.name == model.name and other.model_gib != model.model_gib:
                raise HttpError(
                    422,
                    f"profile.model_gib: model {model.name} has {other.model_gib:g} GiB in "
                    "another job; "
                    "give it that size, or another name",
                )
    never = why_never(Catalogue.of(cluster, controller.tenants), job)
    if never is not None:
        remedy = _on_more_nodes(cluster, job) if one_node_unasked else ""
        raise HttpError(422, f"it can never run here: {never}{remedy}")


def _on_more_nodes(cluster: Cluster, job: Job) -> str:
    """Return what to add where it could run on several nodes."""
    for count in range(2, min(gang(job), len(cluster.nodes)) + 1):
        if Catalogue.of(cluster).fits_somewhere(replace(job, min_nodes=count, max_nodes=count)):
            return f"; if its command is to run on each of {count} nodes, add --nodes {count} (min_nodes in a request)"  # noqa: E501
    return ""


def _field(path: str) -> str:
    return path.removeprefix("jobs[0].").removeprefix("jobs[0]") or "the job"
