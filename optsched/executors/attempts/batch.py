"""Executors over batch systems that start one job on one node: a base for PBS, Flux, LSF, Grid
Engine and others, of which a subclass has the commands only."""

import hashlib
import shlex
import time
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from ...frozen import record
from .. import program, supervision
from ..base import (
    AttemptKey,
    AttemptState,
    Entry,
    NoAnswerError,
    NodeStatus,
    Observation,
    Order,
    Record,
    RefusedError,
)
from ..orders import check, check_places, everybodys_environment, recorded, recorded_node
from .attempt import AGAIN_S, SETTLE_S, AttemptByNode
from .executor import AttemptExecutor
from .folder import AttemptFolder


@record
class BatchJob:
    """A job as the batch system has it: `state` is `over` once nothing of it is left on its node,
    `why` is a clause on that or on what it waits for."""

    id: str
    name: str
    state: Literal["waits", "runs", "over"]
    why: str = ""


class BatchAttempt(AttemptByNode[Mapping[str, BatchJob]]):
    """An attempt that is a job on each of its nodes."""

    def job_names(self) -> list[str]:
        """Return the names of its jobs, by rank: no other attempt anywhere has them."""
        place = hashlib.sha256(str(self.folder.path).encode()).hexdigest()[:12]
        return [f"optsched-{place}-{rank}" for rank in range(len(self.names))]

    def look_at(self, rank: int, node: Record, seen: Mapping[str, BatchJob]) -> AttemptState:
        """Return where it is on one node."""
        name, job = node["name"], seen.get(self.job_names()[rank])
        if self.over_at(name):
            return AttemptState.ENDED
        now_s, claimed = time.monotonic(), self.claim(name) is not None
        if job is None or job.state == "over":
            why = "the batch system has lost its job" if job is None else job.why
            if claimed:
                return self.lost_at(name, why, now_s, fence_s=0.0)
            if not self.lasts(SETTLE_S, name, "gone", now_s):
                return AttemptState.STARTING
            waits_for = "the batch system does not know its job"
            return self.waiting_at(name, None if job is None else why, waits_for)
        state = self.alive_at(name)
        return state if claimed else self.waiting_at(name, None, job.why, job.state == "runs")


class BatchExecutor(AttemptExecutor[BatchAttempt]):
    """An executor whose subclass says which nodes and jobs there are, and how a job is submitted
    and cancelled; all of them raise NoAnswerError, `submit_job` RefusedError too."""

    gives_records = True

    def __init__(
        self,
        folder: Path,
        *,
        poll_s: float = 1.0,
        start_timeout_s: float = 60.0,
        python: str = "python3",
    ) -> None:
        """Take `folder`, which all nodes see under the same name. Raises InputError."""
        self._start_timeout_s, self._python = start_timeout_s, python
        self._seen: dict[str, BatchJob] = {}
        self._jobs_s = -float("inf")
        super().__init__(folder, poll_s)

    @abstractmethod
    def nodes(self) -> Sequence[NodeStatus]:
        """Return the nodes, in a fixed order."""

    @abstractmethod
    def jobs(self) -> Sequence[BatchJob]:
        """Return the jobs that can be ours, those that were over a moment ago among them."""

    @abstractmethod
    def submit_job(self, name: str, script: str, node: Entry, user: Entry | None) -> None:
        """Submit a job of that name to one node: its record has `name`, `gpus`, `cpus` and
        `memory_gib`. The job belongs to `user` (`uid`, `gid`), None for our own."""

    @abstractmethod
    def cancel(self, jobs: Collection[BatchJob]) -> None:
        """End jobs, whether they wait or run."""

    # ----------------------------------------------------------------------------------------------
    # what follows of that

    def prepare(self, folder: Path) -> None:
        """Lay down what nodes run."""
        agent = Path(str(supervision.__file__)).with_name("agent.py")
        self._agent = program.lay_down(folder / "batch", agent)

    def beside_program(self) -> tuple[str, Path]:
        """Return the Python of nodes, and where they have the file `beside.py`."""
        return self._python, self._agent.with_name("beside.py")

    def follow(self, key: AttemptKey) -> BatchAttempt:
        """Return what follows an attempt from its folder."""
        return BatchAttempt(self._attempts_folder, key)

    def inventory(self) -> tuple[NodeStatus, ...]:
        """Return all nodes. Raises NoAnswerError."""
        return tuple(self.nodes())

    def specification(self, order: Order, folder: AttemptFolder) -> Record:
        """Return the record of an attempt to be started. Raises RefusedError, NoAnswerError."""
        check(order)
        check_places(order, {status.node.name: status for status in self.inventory()}, {})
        return {
            **recorded(order),
            "environment": everybodys_environment(order, folder.progress_path),
            "start_timeout_s": self._start_timeout_s,
            "nodes": [recorded_node(order, rank) for rank in range(len(order.placement))],
        }

    def submit(self, attempt: BatchAttempt, fresh: bool) -> None:
        """Submit a job for each node that has none. Raises RefusedError, NoAnswerError."""
        spec = attempt.folder.spec
        if not fresh:
            self.refresh(anew=True)
        submitted = 0
        for rank, name in enumerate(attempt.job_names()):
            if rank not in attempt.unclaimed() or name in self._seen:
                continue
            node = spec["nodes"][rank]
            words = [self._python, "-S", "-E", str(self._agent), str(attempt.folder.path)]
            script = f"#!/bin/sh\nexec {shlex.join([*words, node['name']])}\n"
            try:
                self.submit_job(name, script, node, spec["user"])
            except RefusedError:
                if fresh and not submitted:
                    self.drop(attempt)
                else:
                    self._write_stop(attempt)
                raise
            submitted += 1
            self._jobs_s = -float("inf")

    def refresh(self, anew: bool = False) -> None:
        """Ask for the jobs, where some of ours may be among them. Raises NoAnswerError."""
        going = any(attempt.held() for attempt in self._attempts.values())
        if anew or (going and time.monotonic() >= self._jobs_s + self.poll_s / 2):
            self._seen = {job.name: job for job in self.jobs()}
            self._jobs_s = time.monotonic()

    def see_to(self, attempt: BatchAttempt, seen: Observation) -> None:
        """Cancel jobs that wait in vain, and what is left of those that should be over."""
        over = seen.state is AttemptState.ENDED or attempt.overdue_s() > 2 * AGAIN_S
        unwanted = {"waits", "runs"} if over else {"waits"} if attempt.stop_record() else set()
        jobs = [self._seen[name] for name in attempt.job_names() if name in self._seen]
        jobs = [job for job in jobs if job.state in unwanted]
        if jobs and attempt.tell_again():
            with suppress(NoAnswerError, RefusedError):
                self.cancel(jobs)
