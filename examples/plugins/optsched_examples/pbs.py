"""Jobs as jobs of PBS (OpenPBS, PBS Professional), one on each node of an attempt.

executor = "pbs"
shared = "/shared/optsched"

[pbs]
queue = "gpu"
"""

import json
import math
import re
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from optsched.executors.attempts.batch import BatchExecutor, BatchJob
from optsched.executors.base import NoAnswerError, NodeStatus, RefusedError
from optsched.executors.opening import ExecutorContext
from optsched.model import Node
from optsched.plugins.options import PluginOptions, PositiveDuration

WAITS, RUNS = "HQTWM", "BERSU"
"""PBS's letters for jobs that wait and that run; F and X are over."""
DOWN = ("down", "offline", "unknown", "maintenance", "stale")
GIB = {"b": 2.0**-30, "kb": 2.0**-20, "mb": 2.0**-10, "gb": 1.0, "tb": 1024.0}


@dataclass(frozen=True, kw_only=True)
class PbsOptions(PluginOptions):
    """The table `[pbs]`."""

    queue: Annotated[str | None, "The queue whose jobs are optsched's; none: the default one."] = (
        None
    )
    programs: Annotated[Path | None, "The folder of PBS's programs; none: those on the PATH."] = (
        None
    )
    python: Annotated[str, "The Python of the nodes."] = "python3"
    poll_s: Annotated[PositiveDuration, "How often PBS is asked."] = 1.0
    timeout_s: Annotated[PositiveDuration, "What each of PBS's programs may take."] = 10.0
    start_timeout_s: Annotated[PositiveDuration, "How long PBS may leave an attempt waiting."] = (
        60.0
    )


def open_pbs(context: ExecutorContext, options: PbsOptions) -> "PbsExecutor":
    """Jobs of PBS, one on each node.

    Attempts are kept below the folder that all nodes share. Raises InputError.
    """
    context.refuse_emulated()
    return PbsExecutor(context.attempts, options, context.declared)


class PbsExecutor(BatchExecutor):
    """Runs attempts below `folder`, which all nodes see under the same name."""

    name = "pbs"
    title = "jobs of PBS"

    def __init__(
        self, folder: Path, options: PbsOptions, declared: Mapping[str, Node] | None = None
    ) -> None:
        """Take `folder`; `declared` nodes are used, or all that PBS has if there are none."""
        self._options, self._declared = options, declared or {}
        super().__init__(
            folder,
            poll_s=options.poll_s,
            start_timeout_s=options.start_timeout_s,
            python=options.python,
        )

    def nodes(self) -> list[NodeStatus]:
        """Return the nodes as `pbsnodes` lists them."""
        listed = json.loads(self._ask("pbsnodes", "-a", "-F", "json") or "{}").get("nodes", {})
        found = []
        for name, entry in sorted(listed.items()):
            if self._declared and name not in self._declared:
                continue
            there = entry.get("resources_available", {})
            node = self._declared.get(name) or Node(
                name=name,
                gpu_type=there.get("gpu_type"),
                gpus=int(there.get("ngpus", 0)),
                cpus=int(there.get("ncpus", 0)),
                memory_gib=_gib(str(there.get("mem", "0kb"))),
            )
            state = str(entry.get("state", ""))
            bad = next((word for word in state.split(",") if word in DOWN), None)
            reason = None if bad is None else f"is {bad} in PBS"
            found.append(NodeStatus(node=node, usable=bad is None, reason=reason))
        return found

    def jobs(self) -> list[BatchJob]:
        """Return the jobs as `qstat` lists them, those that have finished too."""
        listed = json.loads(self._ask("qstat", "-x", "-f", "-F", "json") or "{}").get("Jobs", {})
        return [
            BatchJob(
                id=number,
                name=str(entry.get("Job_Name")),
                state="waits"
                if entry["job_state"] in WAITS
                else "runs"
                if entry["job_state"] in RUNS
                else "over",
                why=_why(entry),
            )
            for number, entry in listed.items()
        ]

    def submit_job(
        self, name: str, script: str, node: Mapping[str, Any], user: Mapping[str, Any] | None
    ) -> None:
        """Submit with `qsub`, as the user whose job it is."""
        chunk = f"1:host={node['name']}:ncpus={max(1, node['cpus'])}:ngpus={node['gpus']}"
        if node["memory_gib"]:
            chunk += f":mem={math.ceil(node['memory_gib'] * 1024)}mb"
        words = ["-N", name, "-l", f"select={chunk}", "-r", "n", "-j", "oe", "-o", "/dev/null"]
        if self._options.queue is not None:
            words += ["-q", self._options.queue]
        as_user = {} if user is None else {"user": user["uid"], "group": user["gid"]}
        self._ask("qsub", *words, "-", given=script, **as_user)

    def cancel(self, jobs: Collection[BatchJob]) -> None:
        """End with `qdel`."""
        self._ask("qdel", "-W", "force", *(job.id for job in jobs))

    def _ask(self, program: str, *words: str, given: str = "", **more: Any) -> str:
        """What a program prints. Raises NoAnswerError, RefusedError where it says no."""
        folder = self._options.programs
        command = [program if folder is None else str(folder / program), *words]
        try:
            done = subprocess.run(
                command,
                input=given,
                capture_output=True,
                text=True,
                timeout=self._options.timeout_s,
                **more,
            )
        except subprocess.TimeoutExpired as error:
            raise NoAnswerError(f"{program} does not answer") from error
        except OSError as error:
            raise NoAnswerError(f"{program} cannot be run: {error.strerror}") from error
        if done.returncode and program == "qsub" and "connect" not in done.stderr:
            raise RefusedError(f"qsub said: {done.stderr.strip()[:200]}")
        if done.returncode and program != "qdel":
            raise NoAnswerError(f"{program} said: {done.stderr.strip()[:200]}")
        return done.stdout


def _why(entry: Mapping[str, Any]) -> str:
    """A clause on what a job waits for, or on how it came to be over."""
    if entry["job_state"] in WAITS:
        return f"PBS has it wait: {entry.get('comment', 'it does not say why')}"
    return f"PBS ended its job: {entry.get('comment', 'it does not say why')}"


def _gib(text: str) -> float | None:
    found = re.fullmatch(r"([0-9.]+)\s*([kmgt]?b)", text.lower())
    return None if found is None else float(found[1]) * GIB[found[2]] or None
