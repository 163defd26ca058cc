"""A request to run a job: made into a submission, or refused with what is wrong about it."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import PurePosixPath
from typing import Any

from ...errors import InputError
from ...executors.base import JOB_NAME, AttemptKey
from ...files.shape_faults import FaultyFileError
from ...model.cluster import Cluster
from ...model.job import Elastic, Job, gang
from ...model.profile import UNMEASURED, Profile
from ...model.value import EMPTY
from ...physics.catalogue import Catalogue
from ...physics.unschedulable import why_never
from ..accepting import accepted, check_alone
from ..controller import Controller
from ..journal.state import ENDED_AS, LiveJob, Status
from ..learned import NEVER_S
from ..limits import limits_of, may_use, why_refused
from ..notices import why_not
from ..submission import Submission
from .bodies import MOST_JOBS, MOST_WORD_BYTES, AmendBody, SubmitBody
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
MOST_COMMAND = 1000
"""Characters of the command line that are kept as the job's `command`."""
MOST_WRITTEN_BYTES = 512 * 1024
"""Half of what a record of an attempt may be; the rest is for its nodes."""
SET_BY_EXECUTOR = re.compile(r"OPTSCHED_.*|CUDA_VISIBLE_DEVICES")
INTERPRETER = re.compile(r"(?:python|pypy|perl|ruby|node|bash|sh|zsh|env|torchrun|Rscript)[0-9.]*")


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
            job = replace(submission.job, id=task, command=_command(argv))
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


def read_array(text: str | None) -> tuple[list[int], int | None]:
    """Return the indices of an array, and how many tasks may run at once; index 0 alone for what is
    no array. Raises HttpError 422."""
    if text is None:
        return [0], None
    listed, _, most = text.partition("%")
    if most and not int(most):
        raise HttpError(422, "array: 0 tasks at once would never run; write another number")
    indices: dict[int, None] = {}
    for part in listed.split(","):
        ends, _, step = part.partition(":")
        first, _, last = ends.partition("-")
        numbers = range(int(first), int(last or first) + 1, int(step or 1) or MOST_JOBS)
        if not numbers or (step and not int(step)):
            raise HttpError(422, f"array: {part} holds no index; write FIRST-LAST:STEP")
        if len(indices) + len(numbers) > MOST_JOBS:
            raise HttpError(422, f"array: more than {MOST_JOBS:,} tasks; split it")
        indices |= dict.fromkeys(numbers)
    return [*indices], int(most) if most else None


def argv_of(argv: tuple[str, ...], index: int | None) -> tuple[str, ...]:
    """Return the command of one task."""
    return argv if index is None else tuple(word.replace("{index}", str(index)) for word in argv)


def _command(argv: tuple[str, ...]) -> str:
    return shlex.join(argv)[:MOST_COMMAND]


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
    command = _command(body.argv)
    tenant = _tenant(body, caller, controller)
    priority = _priority(body, controller)
    _check_limits(body.weight, priority, caller, tenant, controller)
    _check_kind(body)
    most_nodes = body.max_nodes or body.min_nodes or 1
    predecessors = {
        field: _predecessors(body, field, caller, controller, beside) for field in NEVER
    }
    job = Job(
        id=name,
        tenant=tenant,
        user=caller.name,
        command=command,
        priority=priority,
        deadline_s=_deadline_s(body.deadline_s, controller),
        after=predecessors.pop("after"),
        cpus=body.cpus or int(body.gpus == 0),
        memory_gib=body.memory_gib or 0.0,
        min_nodes=body.min_nodes or 1,
        max_nodes=None if body.gpus == 0 else most_nodes,
        **{name: getattr(body, name) for name in AS_ASKED},
        **_own_labels(body, caller),
        profile=_profile(body, caller, command, controller),
    )
    about = {name: getattr(body, name) for name in KEPT} | predecessors
    limit_s = _limit_s(body.limit_s, caller, tenant, controller)
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
    _check_job(submission.job, controller, one_node_unasked=one_node_unasked)
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
    _check_limits(weight, asked.get("priority"), caller, tenant, controller)
    _deadline_s(body.deadline_s, controller)
    of_job = {field: value for field, value in asked.items() if field in OF_JOB}
    of_submission = {
        field: value for field, value in asked.items() if field in ("begin_s", "retries")
    }
    noun = replace(noun, **of_job)
    if "limit_s" in asked or "duration_s" in asked:
        limit_s = known.limit_s
        if body.limit_s is not None:
            limit_s = _limit_s(body.limit_s, caller, tenant, controller)
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
        raise HttpError(422, "gpus: a job with GPUs and one without ask for different things")
    refused = why_refused(
        controller.settings, controller.state, noun, privileged=caller.all_jobs, jobs=0
    )
    if refused is not None:
        raise HttpError(403, refused)
    _check_job(noun, controller, one_node_unasked=False)
    return replace(known, job=noun, **of_submission)


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


def _priority(body: SubmitBody, controller: Controller) -> int:
    """Return the priority that is asked for, by its number or as that of a tier."""
    if body.tier is None:
        return body.priority
    tiers = controller.settings.tiers
    priority = next((tier.priority for tier in tiers if tier.name == body.tier), None)
    if priority is None:
        names = ", ".join(tier.name for tier in tiers[:20])
        remedy = f"there are {names}" if names else "give priority, a number, or leave it out"
        raise HttpError(422, f"there is no tier {body.tier!r}; {remedy}")
    if body.priority not in (0, priority):
        raise HttpError(422, f"tier {body.tier} has priority {priority}; leave out priority")
    return priority


def _check_limits(
    weight: float, priority: int | None, caller: Caller, tenant: str | None, controller: Controller
) -> None:
    """Check weight and priority, which are at the cost of others: only operators may ask for more
    than cluster.toml allows."""
    if caller.all_jobs:
        return
    whose = f"jobs of {caller.name}" + (f" in tenant {tenant}" if tenant else "")
    limits = limits_of(controller.settings, caller.name, tenant)
    if weight > limits.weight:
        raise HttpError(
            403,
            f"weight {weight:g} is above {limits.weight:g}, the most that {whose} may have "
            "(max_weight in "
            "cluster.toml); ask an administrator, or give less",
        )
    if priority is None:
        return
    tier = next((tier for tier in controller.settings.tiers if tier.priority == priority), None)
    if tier is not None and not may_use(tier, caller.name, tenant):
        raise HttpError(
            403, f"{whose} may not be of tier {tier.name} (tiers in cluster.toml); ask for another"
        )
    if tier is None and priority > limits.priority:
        raise HttpError(
            403,
            f"priority {priority} is above {limits.priority}, the most that {whose} may have "
            "(max_priority in cluster.toml); ask an administrator, or give less",
        )


def _limit_s(
    asked_s: float | None, caller: Caller, tenant: str | None, controller: Controller
) -> float | None:
    """Return its time limit. Raises HttpError 403 for one that is too long."""
    limits = limits_of(controller.settings, caller.name, tenant)
    limit_s = limits.time_limit_s if asked_s is None else asked_s
    most_s = limits.max_time_limit_s
    if limit_s is not None and most_s is not None and limit_s > most_s and not caller.all_jobs:
        raise HttpError(
            403,
            f"limit_s {limit_s:g} is above {most_s:g}, the most that jobs of {caller.name} may run "
            "(max_time_limit in cluster.toml); ask an administrator, or give less",
        )
    return limit_s


def _deadline_s(asked_s: float | None, controller: Controller) -> float | None:
    if asked_s is not None and asked_s <= controller.clock.now_s():
        raise HttpError(422, "deadline_s has passed; give a Unix time to come")
    return asked_s


NEVER: dict[str, tuple[Status, ...]] = {
    "after": ("failed", "cancelled"),
    "after_any": (),
    "after_not_ok": ("completed",),
}
"""Fields of a request that name predecessors, and how these must not have ended."""


def _predecessors(
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
    for name, choice in (
        ("gpu_memory_gib", "gpu_memory_rates"),
        ("memory_gib_per_gpu", "memory_rates"),
    ):
        if (gib := getattr(body, name)) is not None:
            profile = replace(profile, **{name: gib, choice: {}})
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
