"""One attempt as the executor knows it: what its files say, and what Slurm says of its job."""

import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..base import SAVED_AND_STOPPED, AttemptKey, AttemptState, Observation
from ..local import records
from ..local.attempt import exit_status
from ..local.attempt_folder import NEVER_STARTED, AttemptFolder
from ..local.endings import checked, number
from .batch import job_name, parts
from .jobs import SlurmJob
from .others import MIB_PER_GIB, Part

SETTLE_S = 5.0
"""So long a submission whose answer was lost may take to be seen."""
ORPHAN_GRACE_S, ORPHAN_S = 5.0, 15.0
"""What a node that Slurm has given up may still run is asked to save within the first, and waited
for as long as the second."""
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


class SlurmAttempt:
    """Follows one attempt; cheap to look at again and again."""

    def __init__(self, attempts: Path, key: AttemptKey) -> None:
        self.key = key
        self.folder = AttemptFolder(attempts, key)
        self.ended: Observation | None = None
        record = records.read(str(self.folder.path / "slurm.json")) or {}
        self.job_ids: dict[int, int] = {
            int(part): int(number) for part, number in record.get("jobs", {}).items()
        }
        self.tried_s = time.monotonic()  # when it was last submitted, as far as this process knows
        self.hastened_s = -float("inf")
        self._over_s: float | None = None
        self._endings: dict[str, dict[str, Any]] = {}
        self._begun: dict[str, dict[str, Any]] = {}
        self._claims: dict[str, tuple[str, ...]] = {}

    @property
    def uid(self) -> int:
        """Whose job it is."""
        user = None if self.folder.spec is None else self.folder.spec["user"]
        return os.geteuid() if user is None else int(user["uid"])

    @property
    def made_s(self) -> float:
        """When it was to be started, Unix time."""
        return time.time() if self.folder.spec is None else float(self.folder.spec["made_s"])

    def holds(self) -> list[tuple[str, Part]]:
        """What it takes of its nodes."""
        return [
            (
                node["name"],
                Part(
                    int(node["gpus"]),
                    int(node["cpus"]),
                    math.ceil(node["memory_gib"] * MIB_PER_GIB),
                ),
            )
            for node in self.folder.nodes
        ]

    def submitted(self, part: int, job_id: int) -> None:
        """Keep under which number Slurm has a part of it. Raises OSError."""
        self.job_ids[part] = job_id
        records.write(str(self.folder.path / "slurm.json"), {"jobs": self.job_ids})

    def adopt(self, jobs: Sequence[SlurmJob]) -> None:
        """Keep the numbers of `jobs` whose submission was not answered. Raises OSError."""
        for part in self.unsubmitted():
            name = job_name(self.folder, part)
            found = next((job for job in jobs if job.name == name), None)
            if found is not None:
                self.submitted(part, found.id)

    def unsubmitted(self) -> list[int]:
        """Parts (see `batch.parts`) that Slurm does not have as far as is known."""
        spec = self.folder.spec
        return (
            []
            if spec is None
            else [part for part in range(len(parts(spec))) if part not in self.job_ids]
        )

    # ----------------------------------------------------------------------------------------------
    # --- to end it

    def stop_record(self) -> dict[str, Any] | None:
        """That it is to end."""
        return self.folder.stop_record()

    def write_stop(
        self,
        grace_s: float | None,
        overdue: str | None,
        mode: int,
        lost: str | None = None,
        retry_s: float | None = None,
    ) -> None:
        """Have its agents end it, after `grace_s` by force: they keep the deadline, each by its own
        clock; `lost` is why, where nobody asked for it, and `retry_s` is set where Slurm declined
        it. Raises OSError."""
        until_s = 0.0 if grace_s is None else None
        record = {
            "asked_s": time.time(),
            "grace_s": grace_s,
            "until_monotonic_s": until_s,
            "overdue": overdue,
            "lost": lost,
            "retry_s": retry_s,
        }
        self.folder.write_stop(record, mode)
        if self.folder.spec is not None and self.folder.spec["user"] is not None:
            os.chmod(self.folder.path / "stop.json", 0o644)

    def overdue_s(self) -> float:
        """For how long it should have ended; negative before."""
        stop = self.stop_record()
        return (
            -float("inf")
            if stop is None
            else time.time() - stop["asked_s"] - (stop["grace_s"] or 0.0)
        )

    # ----------------------------------------------------------------------------------------------
    # --- to see it

    def look(self, jobs: Sequence[SlurmJob], mode: int) -> Observation:
        """What is seen of it now; `jobs` are those of Slurm's that bear its key, which is all there
        are."""
        try:
            return self.ended or self._look(jobs, mode)
        except OSError as error:
            reason = f"its files cannot be read: {error.strerror}"
            return Observation(key=self.key, state=AttemptState.UNREACHABLE, reason=reason)

    def _look(self, jobs: Sequence[SlurmJob], mode: int) -> Observation:
        if self.folder.damaged:
            reason = f"its record {self.folder.path / 'spec.json'} is damaged"
            return Observation(key=self.key, state=AttemptState.UNREACHABLE, reason=reason)
        if not self.folder.nodes:
            return self._end(
                Observation(key=self.key, state=AttemptState.ENDED, reason=NEVER_STARTED)
            )
        self.adopt(jobs)
        mine = {job.id: job for job in jobs if job.id in self.job_ids.values()}
        self._read_endings()
        going = [job for job in mine.values() if not job.over]
        if going:
            self._lose_a_part(mine, mode)
            return self._summary(self._going(), going)
        missing = [node["name"] for node in self.folder.nodes if node["name"] not in self._endings]
        if self.unsubmitted() and not self._endings:
            if self.stop_record() is None or time.monotonic() < self.tried_s + SETTLE_S:
                return self._summary(AttemptState.STARTING, ())
            if not self.job_ids:
                return self._end(
                    Observation(key=self.key, state=AttemptState.ENDED, reason=NEVER_STARTED)
                )
        if missing:
            self._look_anew(missing)
            missing = [name for name in missing if name not in self._endings]
        ended = self._worst(mine)
        if missing and self._may_be_alive(ended, missing, mode):
            return self._summary(AttemptState.RUNNING, ())
        return self._end(self._with_ending(ended, missing))

    def _worst(self, jobs: Mapping[int, SlurmJob]) -> SlurmJob | None:
        """The job that says most of why it ended: one that Slurm ended; None if Slurm has forgotten
        one."""
        if any(job_id not in jobs for job_id in self.job_ids.values()):
            return None
        return min(
            jobs.values(),
            key=lambda job: job.state not in ENDED_BY_SLURM and job.state != "OUT_OF_MEMORY",
        )

    def _lose_a_part(self, jobs: Mapping[int, SlurmJob], mode: int) -> None:
        """Have the rest of a gang end, a job of which Slurm has ended or forgotten."""
        if len(self.job_ids) < 2 or self.stop_record() is not None:
            return
        for part, nodes in enumerate(parts(self.folder.spec or {"nodes": []})):
            job = jobs.get(self.job_ids.get(part, 0))
            if part not in self.job_ids or (job is not None and not job.over):
                continue
            self._look_anew([node["name"] for node in nodes if node["name"] not in self._endings])
            name = next((node["name"] for node in nodes if node["name"] not in self._endings), None)
            why = None if job is None else ENDED_BY_SLURM.get(job.state)
            if why is None and name is not None:
                why = FORGOTTEN if job is None else self._on(name, _agent_failed(job))
            if why is not None:
                self.write_stop(ORPHAN_GRACE_S, None, mode, lost=why)
                return

    def _end(self, seen: Observation) -> Observation:
        self.ended = seen
        return seen

    def _going(self) -> AttemptState:
        begun = all(self._began(node["name"]) is not None for node in self.folder.nodes)
        return AttemptState.RUNNING if begun else AttemptState.STARTING

    def _began(self, name: str) -> dict[str, Any] | None:
        """What its agent said when it ended there, else when it began."""
        if name not in self._endings and name not in self._begun:
            begun = self.folder.pid(name)
            if begun is None:
                return None
            self._begun[name] = begun
        return self._endings.get(name) or self._begun[name]

    def _read_endings(self) -> None:
        for node in self.folder.nodes:
            name = node["name"]
            if name not in self._endings:
                ending = self.folder.exit(name)
                if ending is not None:
                    self._endings[name] = checked(ending)

    def _look_anew(self, names: Sequence[str]) -> None:
        """Network file systems believe for a while that a file is not there, until something
        changes beside it."""
        for name in names:
            beside = self.folder.path / name / f".look.{os.getpid()}"
            with suppress(OSError):
                beside.touch()
                beside.unlink()
        self._read_endings()

    def _may_be_alive(self, job: SlurmJob | None, missing: Sequence[str], mode: int) -> bool:
        """Whether to wait for what may be left on a node of which Slurm does not know."""
        if job is not None and job.state != "NODE_FAIL":
            return False
        if not any(self._began(name) for name in missing):
            return False
        if self._over_s is None:
            self._over_s = time.monotonic()
            if self.stop_record() is None:
                why = FORGOTTEN if job is None else ENDED_BY_SLURM[job.state]
                self.write_stop(ORPHAN_GRACE_S, None, mode, lost=why)
        return time.monotonic() < self._over_s + ORPHAN_S

    def _summary(self, state: AttemptState, jobs: Sequence[SlurmJob]) -> Observation:
        nodes = [node["name"] for node in self.folder.nodes]
        starts = [(self._began(name) or {}).get("started_s") for name in nodes]
        waits = [job for job in jobs if job.waits] if state is AttemptState.STARTING else []
        return Observation(
            key=self.key,
            state=state,
            gpu_ids={name: self._gpu_ids(name) for name in nodes},
            started_s=max(
                (number(start) or 0.0 for start in starts if start is not None), default=None
            ),
            reason=f"Slurm has it wait: {waits[0].reason}" if waits else None,
            progress=self.folder.progress(),
            output=self.folder.output(),
        )

    def _gpu_ids(self, name: str) -> tuple[str, ...]:
        if name not in self._claims:
            claim = records.read(str(self.folder.path / name / "claim.json"))
            if claim is None:
                return ()
            self._claims[name] = tuple(str(one) for one in claim.get("gpu_ids") or ())
        return self._claims[name]

    def _with_ending(self, job: SlurmJob | None, missing: Sequence[str]) -> Observation:
        common = self._summary(AttemptState.ENDED, ())
        status, reason = self._told(job, missing)
        retry_s = (
            None if common.started_s is not None else (self.stop_record() or {}).get("retry_s")
        )
        endings = list(self._endings.values())
        ends = [ending["ended_s"] for ending in endings if ending["ended_s"] is not None]
        peaks = [
            ending["peak_memory_gib"] for ending in endings if ending["peak_memory_gib"] is not None
        ]
        used = [ending["cpu_s"] for ending in endings if ending["cpu_s"] is not None]
        return Observation(
            key=self.key,
            state=AttemptState.ENDED,
            gpu_ids=common.gpu_ids,
            started_s=common.started_s,
            ended_s=max(ends, default=None),
            exit_status=status,
            reason=reason,
            progress=common.progress,
            output=common.output,
            peak_memory_gib=sum(peaks) if peaks else None,
            cpu_s=sum(used) if used else None,
            retry_s=number(retry_s),
        )

    def _told(self, job: SlurmJob | None, missing: Sequence[str]) -> tuple[int | None, str | None]:
        """Exit status and reason."""
        stop = self.stop_record()
        statuses = [ending["status"] for ending in self._endings.values()]
        begun = bool(self._endings) or any(self._began(name) for name in missing)
        if stop is not None and stop["lost"] is None:
            if not begun:
                return None, NEVER_STARTED
            return (
                (None, self._on(missing[0], "its agent was killed"))
                if missing
                else self._by_itself(statuses)
            )
        why = None if stop is None else stop["lost"]
        if job is not None and job.state == "OUT_OF_MEMORY":
            limit_gib = max(node["memory_mib"] for node in self.folder.nodes) / 1024
            return next(
                (one for one in statuses if one), -9
            ), f"its memory limit of {limit_gib:g} GiB was exceeded"
        if why is None and job is not None:
            why = ENDED_BY_SLURM.get(job.state)
        if why is None and missing:
            why = FORGOTTEN if job is None else self._on(missing[0], _agent_failed(job))
        if why is None:
            return self._by_itself(statuses)
        if SAVED_AND_STOPPED in statuses or (not missing and not any(statuses)):
            return exit_status(statuses), why
        return None, why

    def _by_itself(self, statuses: list[int | None]) -> tuple[int | None, str | None]:
        failed = records.read(str(self.folder.progress_path.with_name("failed.json")))
        name = None if failed is None else failed.get("node")
        if failed is not None and name in self._endings:
            first = self._endings[str(name)]
            words = first["reason"] or f"its command ended with exit status {first['status']}"
            return first["status"], self._on(str(name), words)
        reasons = [
            self._on(node, one["reason"])
            for node, one in self._endings.items()
            if one["reason"] is not None
        ]
        return exit_status(statuses), reasons[0] if reasons else None

    def _on(self, node: str, reason: str) -> str:
        return f"on {node} {reason}" if len(self.folder.nodes) > 1 else reason


def _agent_failed(job: SlurmJob) -> str:
    return f"its agent did not say how it ended (Slurm: {job.state}); slurm.out beside its output may say why"  # noqa: E501
