"""One attempt of a job that Slurm has: what was written down of it, and what Slurm says of its
job."""

import json
import time
from collections.abc import Callable, Collection, Hashable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..attempts.attempt import FENCE_S
from ..attempts.folder import NEVER_STARTED, Report
from ..base import SAVED_AND_STOPPED, AttemptKey, AttemptState, Observation, Progress, Record, inner
from ..slurm.attempt import ENDED_BY_SLURM, FORGOTTEN, SlurmAttempt
from ..slurm.nodes import number
from ..slurm.others import Part
from ..supervision import records
from .jobs_json import HeldJob

ROLLED_BACK = "Slurm crashed and forgot that it had started its job"
SIGKILLED, SIGTERMED = -9, -15
KILLED_BY_SLURM = {"OUT_OF_MEMORY": SIGKILLED, "TIMEOUT": SIGTERMED, "DEADLINE": SIGTERMED}
REASONS = {**ENDED_BY_SLURM, "OUT_OF_MEMORY": "its memory limit in Slurm was exceeded"}


class SbatchAttempt(SlurmAttempt):
    """A record in a file of its own, written before Slurm is told anything.

    `release` says that Slurm has the attempt's key in its job, and may have been told to start it.
    `seen` is what was last seen of a run of it. `job` is what Slurm last said of its job.
    """

    job: HeldJob | None = None

    def __init__(self, folder: Path, key: AttemptKey, record: Record | None = None) -> None:
        super().__init__(folder, key)
        self.path = folder / key.job / f"{key.number}.json"
        self.record = record or {"key": str(key)}
        self._missed_s: float | None = None
        self.ended = None if self.record.get("ended") is None else self._told()

    @property
    def origin(self) -> str:
        return str(self.record["origin"])

    @property
    def uid(self) -> int:
        """Return whose job it is."""
        return int(self.record["uid"])

    @property
    def who(self) -> tuple[Any, ...]:
        """Return whose limits it counts against."""
        return tuple(inner(self.record, "who"))

    def asks(self) -> tuple[Hashable, str, tuple[str, ...]]:
        """Return whose limits it counts against, what tells its job, and its nodes."""
        return self.who, self.origin, tuple(self.names)

    @property
    def names(self) -> list[str]:
        """Return its nodes, by rank."""
        return [node for node, _, _ in self.record["placement"]]

    def holds(self) -> list[tuple[str, Part]]:
        """Return what it takes of its nodes."""
        if self.ended is not None:
            return []
        entry = {} if self.job is None else self.job.entry
        memory_mib = self.record.get("memory_mib") or number(entry.get("memory_per_node")) or 0
        return [
            (node, Part(gpus, cpus, memory_mib)) for node, gpus, cpus in self.record["placement"]
        ]

    @property
    def stop(self) -> Record | None:
        return self.record.get("stop")

    def stop_record(self) -> Record | None:
        """Return that it is to end, None where it is not."""
        return self.stop

    def may_start(self) -> bool:
        """Return whether it may still have to be started."""
        return self.ended is None and self.stop is None

    def write_stop(
        self, grace_s: float | None, lost: str | None = None, retry_s: float | None = None
    ) -> None:
        """Write down that it is to end. Raises OSError."""
        self.write(stop={**records.stop(grace_s, lost), "retry_s": retry_s})

    def write(self, **news: Any) -> None:
        """Write down `news`, durably. Raises OSError; then nothing has changed.

        The first time takes room for the next, and each of those for the one after it: how it is
        stopped and ended can be written when the disk is full.
        """
        record = {**self.record, **news}
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        room_bytes = len(json.dumps(record, indent=1)) + records.RESERVE_BYTES
        if self.path.exists():
            records.write_reserved(self.path, record)
            with suppress(OSError):  # then the next is written as any other file
                records.reserve(self.path, room_bytes)
        else:
            records.reserve(self.path, room_bytes)
            records.write(self.path, record)
        self.record = record

    def remove(self, outputs: bool) -> None:
        """Drop the record, and the report of a job that has done all."""
        done = self.ended is not None and self.ended.exit_status == 0
        own = (self.path, f"{self.path}.reserve")
        for path in (*own, *([self.record.get("progress")] if done else [])):
            with suppress(OSError):
                Path(path or "").unlink()

    def mine(self, job: HeldJob) -> bool:
        """Return whether Slurm's job, as it is now, was last told to run this attempt."""
        return job.key == self.key

    # ----------------------------------------------------------------------------------------------
    # --- to see it

    def look_at_job(
        self, job: HeldJob | None, unusable: Callable[[], Collection[str]]
    ) -> Observation:
        """Return what is seen of it; its end is written down the first time. `unusable` are the
        nodes that take no jobs now.

        Raises OSError, and what `unusable` does.
        """
        self.job = job
        return self.ended or self._look(job, unusable)

    def running(self) -> Observation:
        """Return what is seen of it while its end is not to be told yet. Raises OSError."""
        return self._seen(AttemptState.RUNNING)

    def _look(self, job: HeldJob | None, unusable: Callable[[], Collection[str]]) -> Observation:
        if job is None:
            return self._missed(FORGOTTEN)
        mine, requeued = self.mine(job), job.restarts > self.record["restarts"]
        if mine:
            self._missed_s = None
        if job.runs:
            if not requeued and not mine:
                return self._end(None, "its job was started in Slurm by somebody else")
            self._keep(job)
            return self.running()
        if requeued:
            return self._requeued(job, unusable)
        if job.over:
            return self._over(job) if mine else self._end(None, NEVER_STARTED)
        return self._look_at_waiting(job, mine)

    def _look_at_waiting(self, job: HeldJob, mine: bool) -> Observation:
        if self.record.get("seen") is not None or (self.record.get("release") and not mine):
            return self._missed(ROLLED_BACK)
        if self.stop is not None and job.priority == 0:
            return self._end(None, self.lost() or NEVER_STARTED)
        why = f"Slurm has it wait: {job.reason}" if mine and job.priority else None
        return self._seen(AttemptState.STARTING, why)

    def _keep(self, job: HeldJob) -> None:
        """Write down the run, once."""
        if self.record.get("seen") is None and not job.completing:
            self.write(seen=self._run())

    def _run(self) -> Record:
        """Return since when, on which GPUs, and where it prints to."""
        before, job = self.record.get("seen"), self.job
        if before is not None:
            return dict(before)
        past = job is not None and job.restarts > self.record["restarts"]
        if job is None or job.waits or job.completing or past:
            return {"started_s": None, "gpu_ids": {}, "output": None}
        ids = {node: list(ids) for node, ids in job.gpu_ids.items()}
        return {"started_s": job.started_s, "gpu_ids": ids, "output": job.output}

    def _missed(self, why: str) -> Observation:
        """Return an attempt of which Slurm knows nothing any more: what is left of it is waited
        for."""
        if not self.record.get("release"):
            return self._end(None, NEVER_STARTED)
        if self._missed_s is None:
            self._missed_s = time.monotonic()
        if time.monotonic() >= self._missed_s + FENCE_S:
            return self._end(None, why)
        begun = self.record.get("seen") is not None
        return self._seen(AttemptState.RUNNING if begun else AttemptState.STARTING, why)

    def _over(self, job: HeldJob) -> Observation:
        """Return the observation that it ended, and its job with it."""
        if not job.started_s and "CANCELLED" in job.states:
            return self._end(None, REASONS["CANCELLED"])
        state = min(job.states & {*REASONS}, default=None)
        if state is None:
            return self._end(job.status, None, job.ended_s)
        stop = self.stop or {"grace_s": 0.0}
        killed = stop["grace_s"] is None or stop.get("forced")
        status = job.status or KILLED_BY_SLURM.get(state)
        if state == "CANCELLED":
            status = SIGKILLED if killed else status
        elif state not in KILLED_BY_SLURM:  # a node failed, or Slurm took it back
            status = None
        return self._end(status, REASONS[state], job.ended_s)

    def _requeued(self, job: HeldJob, unusable: Callable[[], Collection[str]]) -> Observation:
        """Return the observation that it ended, and its job waits again."""
        stop, last = self.stop or {}, self.record.get("last")
        if "SPECIAL_EXIT" in job.states:
            return self._end(SAVED_AND_STOPPED, None)
        if last is not None:  # how it ended before it was put back
            return self._end(last["status"], None, last["ended_s"])
        if stop and stop["grace_s"] is None:
            return self._end(SIGKILLED, None)
        if stop.get("forced"):
            return self._end(SIGKILLED, records.stop(stop["grace_s"])["overdue"])
        if job.status and job.status != self.record["status"]:
            return self._end(job.status, None)
        bad = () if stop else unusable()
        lost = next((name for name in self.names if name in bad), None)
        if lost is not None:
            return self._end(None, f"a node failed: {lost}")
        # as scripts do that have saved, by `scontrol requeue`
        return self._end(SAVED_AND_STOPPED, None if stop else "its job was requeued in Slurm")

    def _end(
        self, status: int | None, reason: str | None, at_s: float | None = None
    ) -> Observation:
        """Write down how it ended. Raises OSError."""
        progress = self.progress()
        ended = {
            "status": status,
            "reason": reason,
            "ended_s": at_s or (None if reason == NEVER_STARTED else time.time()),
            **self._run(),
            "retry_s": (self.stop or {}).get("retry_s"),
            "progress": None if progress is None else asdict(progress),
        }
        self.write(ended=ended)
        self.ended = self._told()
        return self.ended

    def _told(self) -> Observation:
        ended = self.record["ended"]
        progress = ended["progress"]
        return Observation(
            key=self.key,
            state=AttemptState.ENDED,
            exit_status=ended["status"],
            reason=ended["reason"],
            ended_s=ended["ended_s"],
            started_s=ended["started_s"],
            gpu_ids=_ids(ended["gpu_ids"]),
            output=ended["output"],
            retry_s=ended.get("retry_s"),
            progress=None if progress is None else Progress(**progress),
        )

    def _seen(self, state: AttemptState, reason: str | None = None) -> Observation:
        run = self._run()
        running = state is AttemptState.RUNNING
        return Observation(
            key=self.key,
            state=state,
            gpu_ids=_ids(run["gpu_ids"]),
            reason=reason,
            output=run["output"],
            started_s=run["started_s"] if running else None,
            progress=self.progress() if running else None,
        )

    def progress(self) -> Progress | None:
        """Return what this run of its job reports of itself, if it does: the file is the same for
        all of them, and in a folder where others may write."""
        path = Path(self.record.get("progress") or "/")
        started_s = inner(self.record, "seen").get("started_s")
        try:
            if started_s is None or path.lstat().st_uid != self.record["uid"]:
                return None
        except OSError:
            return None
        reported = Report(path).progress()
        return reported if reported is not None and reported.at_s >= started_s else None


def _ids(listed: dict[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {node: tuple(ids) for node, ids in listed.items()}
