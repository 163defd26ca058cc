"""One attempt as the executor knows it: what its files say, and what Slurm says of its job."""

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..attempts.attempt import SETTLE_S, FollowedAttempt
from ..attempts.ending import number
from ..attempts.folder import NEVER_STARTED
from ..base import AttemptKey, AttemptState, Observation
from ..supervision import records
from .batch import job_name, parts
from .jobs import SlurmJob
from .others import Part

ORPHAN_S = 15.0
"""What a node that Slurm has given up may still run is waited for as long."""
FORGOTTEN = "Slurm no longer knows its job"
ENDED_BY_SLURM = {
    "BOOT_FAIL": "a node could not be started",
    "CANCELLED": "its job was cancelled in Slurm",
    "DEADLINE": "its job's deadline in Slurm was reached",
    "NODE_FAIL": "a node failed",
    "PREEMPTED": "Slurm preempted its job",
    "REVOKED": "Slurm revoked its job",
    "TIMEOUT": "its job's time limit in Slurm was reached",
}


class SlurmAttempt(FollowedAttempt[Sequence[SlurmJob]]):
    """An attempt that is one job of Slurm's, or several."""

    def __init__(self, attempts: Path, key: AttemptKey) -> None:
        super().__init__(attempts, key)
        record = records.read(str(self.folder.path / "slurm.json")) or {}
        self.job_ids: dict[int, int] = {
            int(part): int(number) for part, number in record.get("jobs", {}).items()
        }
        self.tried_s = time.monotonic()  # when it was last submitted, as far as this process knows
        self._over_s: float | None = None

    @property
    def uid(self) -> int:
        """Whose job it is."""
        user = None if self.folder.spec is None else self.folder.spec["user"]
        return os.geteuid() if user is None else int(user["uid"])

    def holds(self) -> list[tuple[str, Part]]:
        """What it takes of its nodes."""
        return [
            (node["name"], Part(node["gpus"], node["cpus"], math.ceil(node["memory_gib"] * 1024)))
            for node in self.held()
        ]

    def submitted(self, part: int, job_id: int) -> None:
        """Keep under which number Slurm has a part of it. Raises OSError."""
        self.job_ids[part] = job_id
        records.write(str(self.folder.path / "slurm.json"), {"jobs": self.job_ids})

    def adopt(self, jobs: Sequence[SlurmJob]) -> None:
        """Keep the numbers of `jobs` whose submission was not answered. Raises OSError."""
        for part in self.unsubmitted():
            name = job_name(self.folder, part)
            first = next((job for job in jobs if job.name == name), None)
            if first is not None:
                self.submitted(part, first.id)

    def unsubmitted(self) -> list[int]:
        """Parts (see `batch.parts`) that Slurm does not have as far as is known."""
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
        mine = {job.id: job for job in seen if job.id in self.job_ids.values()}
        missing = self.missing()
        going = [job for job in mine.values() if not job.over]
        if going:
            self._lose_a_part(mine)
            return self._summary(self._going(), going)
        if self.unsubmitted() and not self._endings:
            if self.stop_record() is None or time.monotonic() < self.tried_s + SETTLE_S:
                return self._summary(AttemptState.STARTING, ())
            if not self.job_ids:
                return self.end(
                    Observation(key=self.key, state=AttemptState.ENDED, reason=NEVER_STARTED)
                )
        if missing:
            self.look_anew(missing)
            missing = self.missing()
        ended = self._worst(mine)
        if missing and self._may_be_alive(ended, missing):
            return self._summary(AttemptState.RUNNING, ())
        status, reason = self._how_it_ended(ended, missing)
        begun = self.observed(AttemptState.RUNNING).started_s is not None
        retry_s = None if begun else number((self.stop_record() or {}).get("retry_s"))
        return self.end_with(status, reason, retry_s)

    def _worst(self, jobs: Mapping[int, SlurmJob]) -> SlurmJob | None:
        """The job that says most of why it ended: one that Slurm ended; None if Slurm has forgotten
        one."""
        if any(job_id not in jobs for job_id in self.job_ids.values()):
            return None
        return min(
            jobs.values(),
            key=lambda job: job.state not in ENDED_BY_SLURM and job.state != "OUT_OF_MEMORY",
        )

    def _lose_a_part(self, jobs: Mapping[int, SlurmJob]) -> None:
        """Have the rest of a gang end, a job of which Slurm has ended or forgotten."""
        if len(self.job_ids) < 2 or self.stop_record() is not None:
            return
        for part, nodes in enumerate(parts(self.folder.nodes)):
            job = jobs.get(self.job_ids.get(part, 0))
            if part not in self.job_ids or (job is not None and not job.over):
                continue
            self.look_anew([node["name"] for node in nodes if node["name"] not in self._endings])
            name = next((node["name"] for node in nodes if not self.ending(node["name"])), None)
            why = None if job is None else ENDED_BY_SLURM.get(job.state)
            if why is None and name is not None:
                why = FORGOTTEN if job is None else self.on(name, _agent_failed(job))
            if why is not None:
                self.give_up(why)
                return

    def _going(self) -> AttemptState:
        begun = all(self.ending(name) or self.began(name) for name in self.names)
        return AttemptState.RUNNING if begun else AttemptState.STARTING

    def _may_be_alive(self, job: SlurmJob | None, missing: Sequence[str]) -> bool:
        """Whether to wait for what may be left on a node of which Slurm does not know."""
        if job is not None and job.state != "NODE_FAIL":
            return False
        if not any(self.began(name) for name in missing):
            return False
        if self._over_s is None:
            self._over_s = time.monotonic()
            if self.stop_record() is None:
                why = FORGOTTEN if job is None else ENDED_BY_SLURM[job.state]
                self.give_up(why)
        return time.monotonic() < self._over_s + ORPHAN_S

    def _summary(self, state: AttemptState, jobs: Sequence[SlurmJob]) -> Observation:
        waits = [job for job in jobs if job.waits] if state is AttemptState.STARTING else []
        reason = f"Slurm has it wait: {waits[0].reason}" if waits else None
        return replace(self.observed(state), reason=reason)

    def _how_it_ended(
        self, job: SlurmJob | None, missing: Sequence[str]
    ) -> tuple[int | None, str | None]:
        """Exit status and reason."""
        stop, lost = self.stop_record(), self.lost()
        if stop is not None and lost is None:
            if not self._endings and not any(self.began(name) for name in missing):
                return None, NEVER_STARTED
            return (None, self.on(missing[0], "its agent was killed")) if missing else self.told()
        if job is not None and job.state == "OUT_OF_MEMORY":
            limit_gib = max(node["memory_mib"] for node in self.folder.nodes) / 1024
            status = next((end["status"] for end in self._endings.values() if end["status"]), -9)
            return status, f"its memory limit of {limit_gib:g} GiB was exceeded"
        if lost is None and job is not None:
            lost = ENDED_BY_SLURM.get(job.state)
        if lost is None and missing:
            lost = FORGOTTEN if job is None else self.on(missing[0], _agent_failed(job))
        return self.told() if lost is None else self.ended_by(lost)


def _agent_failed(job: SlurmJob) -> str:
    return f"its agent did not say how it ended (Slurm: {job.state}); slurm.out beside its output may say why"  # noqa: E501
