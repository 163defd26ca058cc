"""One attempt as the executor knows it: what its files say, and what Slurm says of its job."""

import math
import time
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..attempts.attempt import FENCE_S, SETTLE_S, AttemptByNode
from ..base import AttemptKey, AttemptState, Observation
from ..supervision import records
from .batch import job_name, parts
from .jobs import SlurmJob
from .others import Part

FORGOTTEN = "Slurm no longer knows its job"
AGENT_KILLED = "its agent was killed"
ENDED_BY_SLURM = {
    "BOOT_FAIL": "a node could not be started",
    "CANCELLED": "its job was cancelled in Slurm",
    "DEADLINE": "its job's deadline in Slurm was reached",
    "NODE_FAIL": "a node failed",
    "PREEMPTED": "Slurm preempted its job",
    "REVOKED": "Slurm revoked its job",
    "TIMEOUT": "its job's time limit in Slurm was reached",
}


class SlurmAttempt(AttemptByNode[Sequence[SlurmJob]]):
    """An attempt that is one job of Slurm's, or several."""

    def __init__(self, attempts: Path, key: AttemptKey) -> None:
        super().__init__(attempts, key)
        record = records.read(self.folder.path / "slurm.json") or {}
        self.job_ids: dict[int, int] = {
            int(part): int(number) for part, number in record.get("jobs", {}).items()
        }
        self.limits: dict[int, tuple[str, int]] = {
            int(part): (limit, minutes)
            for part, (limit, minutes) in record.get("limits", {}).items()
        }
        """Time limits that jobs get back when they have begun, by part, and their minutes until
        then."""
        self.tried_s = time.monotonic()  # when it was last submitted, as far as this process knows
        self._over_memory = False

    def asks(self) -> tuple[Hashable, str, tuple[str, ...]]:
        """Return whose limits it counts against, what tells its job, and its nodes."""
        return self.uid, self.key.job, tuple(self.names)

    def holds(self) -> list[tuple[str, Part]]:
        """Return what it takes of its nodes."""
        return [
            (node["name"], Part(node["gpus"], node["cpus"], math.ceil(node["memory_gib"] * 1024)))
            for node in self.held()
        ]

    def submitted(self, part: int, job_id: int) -> None:
        """Keep under which number Slurm has a part of it. Raises OSError."""
        self.job_ids[part] = job_id
        self._write()

    def keep_limit(self, part: int, limit: tuple[str, int] | None) -> None:
        """Keep which time limit its job is to get back and what it has until then, None for
        nothing. Raises OSError."""
        self.limits.pop(part, None)
        if limit is not None:
            self.limits[part] = limit
        self._write()

    def _write(self) -> None:
        known = {"jobs": self.job_ids, **({"limits": self.limits} if self.limits else {})}
        records.write(self.folder.path / "slurm.json", known)

    def adopt(self, jobs: Sequence[SlurmJob]) -> None:
        """Keep the numbers of `jobs` whose submission was not answered. Raises OSError."""
        for part in self.unsubmitted():
            name = job_name(self.folder, part)
            first = next((job for job in jobs if job.name == name), None)
            if first is not None:
                self.submitted(part, first.id)

    def unsubmitted(self) -> list[int]:
        """Return parts (see `batch.parts`) that Slurm does not have as far as is known."""
        count = len(parts(self.folder.nodes))
        return [part for part in range(count) if part not in self.job_ids]

    # ----------------------------------------------------------------------------------------------
    # --- to see it

    def may_start(self) -> bool:
        """Return whether some part of it may still have to be submitted."""
        return super().may_start() and bool(self.unsubmitted())

    def examine(self, seen: Sequence[SlurmJob]) -> Observation:
        """Return what is seen of it now, by those jobs of Slurm's that bear its key, which is all
        there are."""
        self.adopt(seen)
        return super().examine(seen)

    def look_at(self, rank: int, node: dict[str, Any], seen: Sequence[SlurmJob]) -> AttemptState:
        """Return where it is on one node, by the job of its part."""
        name, job_id = node["name"], self.job_ids.get(node.get("part", 0))
        job = next((job for job in seen if job.id == job_id), None)
        if job is not None and not job.over:
            return self.alive_at(name)  # even where its command has ended: Slurm has its GPUs yet
        why = FORGOTTEN if job is None else self._why_over(name, job)
        if self.ending(name) is None:
            self.look_anew([name])
        if self.over_at(name):
            return AttemptState.ENDED
        if self.claim(name) is not None:
            why = AGENT_KILLED if self._asked() else why
            fence_s = FENCE_S if job is None or job.state == "NODE_FAIL" else 0.0
            return self.lost_at(name, why, time.monotonic(), fence_s)
        if job_id is None:
            wanted = self.stop_record() is None and self.failed() is None
            if wanted or time.monotonic() < self.tried_s + SETTLE_S:
                return AttemptState.STARTING
        elif self.stop_record() is None:
            self.give_up(why)
        return self.end_node(name, None) if self.take(name) else AttemptState.STARTING

    def _why_over(self, name: str, job: SlurmJob) -> str:
        """Return why a job is over whose agent does not say so; all of the attempt ends with one
        that Slurm ended."""
        self._over_memory |= job.state == "OUT_OF_MEMORY"
        if job.state not in ENDED_BY_SLURM:
            said = f"its agent did not say how it ended (Slurm: {job.state})"
            return self.on(name, f"{said}; slurm.out beside its output may say why")
        why = ENDED_BY_SLURM[job.state]
        if self.stop_record() is None:
            self.give_up(why)
        return why

    def _asked(self) -> bool:
        """Return whether somebody asked for its end."""
        return self.stop_record() is not None and self.lost() is None

    def going(self, state: AttemptState, name: str, seen: Sequence[SlurmJob]) -> Observation:
        """Return the attempt, with why Slurm has it wait."""
        reason = next((job.reason for job in seen if job.waits), None)
        if state is not AttemptState.STARTING or reason is None:
            return self.observed(state)
        return replace(self.observed(state), reason=f"Slurm has it wait: {reason}")

    def told(self) -> tuple[int | None, str | None]:
        """Return exit status and reason."""
        if not self._over_memory or self._asked():
            return super().told()
        limit_gib = max(node["memory_mib"] for node in self.folder.nodes) / 1024
        status = next((end["status"] for end in self._endings.values() if end["status"]), -9)
        return status, f"its memory limit of {limit_gib:g} GiB was exceeded"
