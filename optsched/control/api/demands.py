"""What a request says of its job, checked field by field and as a round will see it."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from ...errors import InputError
from ...files.shape_faults import FaultyFileError
from ...model import UNMEASURED, Cluster, Elastic, Job, Profile, gang
from ...physics.catalogue import Catalogue
from ...physics.unschedulable import why_never
from ..accepting import check_alone
from ..controller import Controller
from ..journal.state import ENDED_AS, Status
from ..learned import NEVER_S
from .bodies import MOST_WORD_BYTES, SubmitBody
from .peer import Caller
from .refusal import HttpError, unsound

MOST_WRITTEN_BYTES = 512 * 1024
"""Half of what a record of an attempt may be; the rest is for its nodes."""
SET_BY_EXECUTOR = re.compile(r"OPTSCHED_.*|CUDA_VISIBLE_DEVICES")


def own_labels(body: SubmitBody, caller: Caller) -> dict[str, Any]:
    """Return the labels that the job has and looks for, each in the name space of its user.

    Else anybody could keep another user's jobs off nodes and racks by a guess at their labels.
    """
    mine = f"{caller.name}/"
    return {
        "labels": tuple(mine + label for label in body.labels),
        "affinity": {mine + label: level for label, level in body.affinity.items()},
        "anti_affinity": {mine + label: level for label, level in body.anti_affinity.items()},
    }


def check_texts(body: SubmitBody) -> None:
    """Raise HttpError 422 for texts that no process can be given, or too long to be kept."""
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


def deadline_s_of(asked_s: float | None, controller: Controller) -> float | None:
    """Return the deadline. Raises HttpError 422 for one that has passed."""
    if asked_s is not None and asked_s <= controller.clock.now_s():
        raise HttpError(422, "deadline_s has passed; give a Unix time to come")
    return asked_s


NEVER: dict[str, tuple[Status, ...]] = {
    "after": ("failed", "cancelled"),
    "after_any": (),
    "after_not_ok": ("completed",),
}
"""Fields of a request that name predecessors, and how these must not have ended."""


def predecessors_of(
    body: SubmitBody,
    field: str,
    caller: Caller,
    controller: Controller,
    beside: Mapping[str, list[str]],
) -> tuple[str, ...]:
    """Return the names of the jobs in a field of a request, those of an array each."""
    names: dict[str, None] = {}
    for name in getattr(body, field):
        if name in beside:
            names |= dict.fromkeys(beside[name])
            continue
        for task in controller.state.arrays.get(name, [name]):
            names[task] = None
            job = controller.state.jobs.get(task)
            if job is None or not caller.sees(job):
                raise HttpError(422, f"{field}: there is no job {name!r}")
            if job.finished in NEVER[field]:
                raise HttpError(
                    422, f"{field}: {task} {ENDED_AS[job.finished]}, so this would never start"
                )
    return tuple(names)


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


def check_kind(body: SubmitBody) -> None:
    """Raise HttpError 422 for fields of a job without GPUs that are for those with, and the other
    way round."""
    if body.gpus == 0 and max(body.min_nodes or 1, body.max_nodes or 1) > 1:
        raise HttpError(422, "min_nodes and max_nodes are for jobs with GPUs; leave them out")
    for with_gpus, names, sentence in KINDS:
        given = any(getattr(body, name) is not None for name in names)
        if given and with_gpus == (body.gpus == 0):
            raise HttpError(422, sentence)


def profile_of(body: SubmitBody, caller: Caller, command: str, controller: Controller) -> Profile:
    """Return the profile: that of the request, else that of jobs alike, with what the request says
    of its parts."""
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
    for name, choice in (
        ("gpu_memory_gib", "gpu_memory_rates"),
        ("memory_gib_per_gpu", "memory_rates"),
    ):
        if (gib := getattr(body, name)) is not None:
            profile = replace(profile, **{name: gib, choice: {}})
    return profile


def check_job(job: Job, controller: Controller, *, one_node_unasked: bool) -> None:
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
        raise unsound(error) from None
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
