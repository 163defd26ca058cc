"""All jobs of Slurm's, from `squeue --json`: the shape of 22.05 (words and plain numbers) and that
of later releases (lists, and numbers with `set` and `infinite` beside them)."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from ...frozen import frozen
from ..base import AttemptKey, Entry, RefusedError, inner
from ..slurm.client import SlurmClient, understood
from ..slurm.jobs import OVER, WAITING
from ..slurm.nodes import number, words
from ..slurm.site import split_nodes

MARK = re.compile(
    r"optsched ([0-9]+\.[0-9]+)(?: (optsched:\S+)( released)?| (not planned)\b.*)?", re.DOTALL
)
"""What job_submit.lua and this package write into a job's AdminComment, which users cannot: a text
that no other job bears, then the last attempt that was started of it and whether its key has been
used to release it, or that it is left alone."""
ON_HOLD = "[on hold]"
"""What job_submit.lua adds to the comment of a job whose user holds it."""
INDICES = re.compile(r"gpu(?::[^:(]+)?:[0-9]+\(IDX:([0-9,-]+)\)")
CODE = re.compile(r"%(\d?)(.)")
"""A part of the name of an output file that Slurm replaces."""
MOST_TASKS = 100_000
READ_S = 15.0
"""So old may the last JSON be where nothing seems to have changed since."""
WHAT_CHANGES = (
    "JobID:12,State:16,Reason:30,PriorityLong:12,RestartCnt:6,NodeList:80,ReqNodes:80,Dependency:40,Comment:120,"
    "exit_code:8,EligibleTime:20,Partition:40,QOS:20,Account:20,TimeLimit:14,tres-per-node:40,tres-per-job:40,"
    "tres-per-task:40,NumNodes:8,NumCPUs:8,MinMemory:12,Feature:20"
)
"""Cut off at these widths: a text that is to differ, not to be read."""


@frozen
class HeldJob:
    """A job that job_submit.lua has marked with `token`, as Slurm has it.

    `target` is what scontrol calls it: a number, or that of an array and a `task` of it. `states`
    are Slurm's, capital letters; `status` is how its last run ended, the negative number of a
    signal. `released` says that `key` was used to release it, `left` that it is none of ours any
    more. `entry` has all that Slurm says, read by `request_of` where a job is new.
    """

    token: str
    target: str
    task: int | None
    limit: int
    states: frozenset[str]
    reason: str
    uid: int
    priority: int
    restarts: int
    status: int | None
    nodes: tuple[str, ...]
    gpu_ids: Mapping[str, tuple[str, ...]]
    started_s: float | None
    ended_s: float | None
    eligible_s: float
    depends: bool
    key: AttemptKey | None
    released: bool
    left: bool
    held: bool
    entry: Entry

    @property
    def output(self) -> str | None:
        """Return the file with what its batch script prints; None where that cannot be told."""
        entry = self.entry
        if entry.get("batch_flag") is False:
            return None
        usual = "slurm-%j.out" if self.task is None else "slurm-%A_%a.out"
        text = str(entry.get("standard_output") or usual)
        meant = {
            "%": "%",
            "j": str(entry["job_id"]),
            "J": str(entry["job_id"]),
            "A": self.target.partition("_")[0],
            "a": str(self.task),
            "u": str(entry.get("user_name")),
            "x": str(entry.get("name")),
            "N": "".join(self.nodes[:1]),
        }
        if not all(meant.get(code) for _, code in CODE.findall(text)):
            return None
        path = CODE.sub(lambda code: meant[code[2]].rjust(int(code[1] or 0), "0"), text)
        return str(PurePosixPath(str(entry.get("current_working_directory") or "/"), path))

    @property
    def origin(self) -> str:
        """Return what of all jobs there ever were only this one has."""
        return self.token if self.task is None else f"{self.token}_{self.task}"

    @property
    def whole(self) -> str:
        """Return what it is called together with the tasks of its array that have not been touched
        yet, if it is such a one."""
        split = self.task is None or number(self.entry["array_task_id"]) is not None
        return self.target if split else self.target.partition("_")[0]

    @property
    def held_by_user(self) -> bool:
        """Return whether Slurm says that its user holds it, and means it."""
        return self.reason == "JobHeldUser" and "SPECIAL_EXIT" not in self.states

    @property
    def over(self) -> bool:
        return bool(self.states & OVER) and not self.completing

    @property
    def completing(self) -> bool:
        return "COMPLETING" in self.states

    @property
    def waits(self) -> bool:
        return (
            bool(self.states & (WAITING - {"CONFIGURING"}))
            and not self.completing
            and not self.over
        )

    @property
    def runs(self) -> bool:
        """Return whether it has nodes."""
        return not self.waits and not self.over


def who(job: HeldJob) -> tuple[int, str, str]:
    """Return whose limits it counts against: its user, account and QOS."""
    return job.uid, str(job.entry.get("account") or ""), str(job.entry.get("qos") or "")


class HeldJobs:
    """Asks Slurm for all jobs that job_submit.lua has marked.

    `squeue --json` takes ten times as long as a text with what changes; so that is asked for first,
    and the JSON only where the text is another one than before, or the last JSON is old. Both are
    asked for the partition alone; Slurm 22.05 prints the JSON of all jobs of the cluster all the
    same.
    """

    def __init__(self, client: SlurmClient, partition: str | None) -> None:
        self._client = client
        self._which = which_jobs(partition)
        self._text: str | None = None
        self._jobs: list[HeldJob] = []
        self._read_s = -float("inf")

    def ask(self, anew: bool) -> list[HeldJob]:
        """Return jobs as of now; `anew` says that something has changed. Raises NoAnswerError,
        RefusedError."""
        try:
            text = self._client.ask("squeue", "-h", *self._which, "-O", WHAT_CHANGES)
        except RefusedError:  # a release that calls these fields otherwise
            text = None
        if anew or text is None or text != self._text or time.monotonic() > self._read_s + READ_S:
            now_s = time.monotonic()
            self._jobs = list(read_held_jobs(self._client.ask("squeue", "--json", *self._which)))
            self._text, self._read_s = text, now_s
        return self._jobs


def which_jobs(partition: str | None) -> tuple[str, ...]:
    """Return the options of squeue that leave the jobs of a partition, those that have ended
    too."""
    return ("--states=all", *(() if partition is None else (f"--partition={partition}",)))


def read_held_jobs(text: str) -> Iterator[HeldJob]:
    """Yield marked jobs in what squeue prints, each task of an array by itself. Raises
    NoAnswerError where it is something else."""
    with understood("jobs"):
        for entry in json.loads(text)["jobs"]:
            mark = MARK.fullmatch(entry["admin_comment"] or "")
            if mark is not None:
                yield from _tasks(entry, mark)


def _tasks(entry: Entry, mark: re.Match[str]) -> Iterator[HeldJob]:
    array, task = number(entry["array_job_id"]), number(entry["array_task_id"])
    listed = entry.get("array_task_string") or ""
    if not array:
        yield _job(entry, mark, str(entry["job_id"]), None)
    elif task is not None:
        yield _job(entry, mark, f"{array}_{task}", task)
    else:
        for each in task_numbers(listed):
            yield _job(entry, mark, f"{array}_{each}", each)


def task_numbers(text: str) -> list[int]:
    """Return tasks in a text as "1-3,7,10-20:5%2"; those Slurm leaves out for brevity ("...") are
    missing."""
    numbers: list[int] = []
    for part in text.partition("%")[0].strip("[]").split(","):
        span = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part.strip())
        if span is not None:
            tasks = range(int(span[1]), int(span[2] or span[1]) + 1, max(1, int(span[3] or 1)))
            numbers += tasks[: MOST_TASKS - len(numbers)]
    return numbers


def _job(entry: Entry, mark: re.Match[str], target: str, task: int | None) -> HeldJob:
    nodes = tuple(split_nodes(entry["nodes"])) if entry["nodes"] else ()
    return HeldJob(
        token=mark[1],
        target=target,
        task=task,
        limit=number(entry.get("array_max_tasks")) or 0,
        states=frozenset(words(entry["job_state"])),
        reason=str(entry.get("state_reason") or ""),
        uid=int(entry["user_id"]),
        priority=_priority(entry),
        restarts=number(entry["restart_cnt"]) or 0,
        status=exit_status(entry["exit_code"]),
        nodes=nodes,
        gpu_ids=_gpu_ids(nodes, inner(entry, "gres_detail")),
        started_s=number(entry.get("start_time")) or None,
        ended_s=number(entry.get("end_time")) or None,
        eligible_s=float(number(entry.get("eligible_time")) or 0),
        depends=bool(entry.get("dependency")),
        key=AttemptKey.parse(mark[2] or ""),
        released=mark[3] is not None,
        left=mark[4] is not None,
        held=ON_HOLD in (entry.get("comment") or ""),
        entry=entry,
    )


def _priority(entry: Entry) -> int:
    return 0 if entry.get("hold") is True else number(entry["priority"]) or 0


def exit_status(value: Any) -> int | None:
    """Return how a job ended: an exit status, or the negative number of a signal; None where Slurm
    does not say.

    22.05 gives the status of `wait`, later releases give its parts.
    """
    if isinstance(value, Mapping):
        told = inner(value, "signal")
        signal = number(told.get("id") or told.get("signal_id"))
        return -signal if signal else number(value.get("return_code"))
    status = number(value)
    if status is None:
        return None
    return -(status & 0x7F) if status & 0x7F else status >> 8 & 0xFF


def _gpu_ids(nodes: tuple[str, ...], details: list[str]) -> dict[str, tuple[str, ...]]:
    """Return indices of GPUs by node, from a text for each node."""
    return {
        node: tuple(map(str, task_numbers(",".join(INDICES.findall(text)))))
        for node, text in zip(nodes, details, strict=False)
    }
