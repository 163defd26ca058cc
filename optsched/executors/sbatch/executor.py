"""Jobs that users give to Slurm themselves: job_submit.lua holds them, and here they are let go, on
the nodes that were chosen."""

import re
import threading
import time
from collections.abc import Callable, Collection, Container, Iterable
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import InputError
from ..base import (
    Arrival,
    AttemptKey,
    AttemptState,
    DeclinedError,
    NoAnswerError,
    NodeStatus,
    Observation,
    Order,
    RefusedError,
)
from ..slurm.client import SlurmClient, answered
from ..slurm.declining import ELSEWHERE_S
from ..slurm.executor import SlurmExecutor
from ..slurm.nodes import ask_nodes, number
from ..slurm.others import Part, Reservation, together
from ..slurm.rules import NONE, Rules
from ..slurm.site import Site
from ..supervision import records
from .arriving import Arriving
from .attempt import SbatchAttempt
from .heartbeat import Heartbeat
from .jobs_json import HeldJob, HeldJobs, who
from .request import memory_share_mib, node_count
from .telling import Teller


class SbatchExecutor:
    """Runs jobs of Slurm's users; those without an `origin` are left to `inner`."""

    name = "slurm"
    title = "batch jobs of a Slurm cluster, those that users submit themselves too"

    def __init__(
        self,
        folder: Path,
        inner: SlurmExecutor,
        client: SlurmClient,
        site: Site,
        rules: Rules = NONE,
    ) -> None:
        """Take the attempts that go on below `folder`, which `inner` keeps others from. Raises
        InputError."""
        self._inner, self._client, self._site = inner, client, site
        self._teller = Teller(client, site, inner.declining)
        self._folder = folder.absolute() / "sbatch"
        self._lock = threading.RLock()
        self._held_jobs = HeldJobs(client, site.partition)
        self._jobs: dict[str, HeldJob] = {}
        self._jobs_s = -float("inf")
        self._statuses: tuple[NodeStatus, ...] = ()
        self._attempts = {attempt.key: attempt for attempt in _kept(self._folder)}
        self._progress = self._folder / "progress"
        try:
            self._progress.mkdir(parents=True, exist_ok=True)
            self._folder.chmod(0o711)
            self._progress.chmod(0o1733)  # users' jobs put files there
        except OSError as error:
            raise InputError(f"{self._progress} cannot be made: {error.strerror}") from error
        self._heartbeat = None if site.heartbeat is None else Heartbeat(site.heartbeat)
        self._arriving = Arriving(rules, self._declines, site.partition)

    # ----------------------------------------------------------------------------------------------
    # --- to see

    def inventory(self) -> tuple[NodeStatus, ...]:
        """All nodes as Slurm has them, less what it has given to others. Raises NoAnswerError."""
        with self._lock:
            self._look_at_jobs(self._site.poll_s / 2)
            live = self._live()
            ours = [
                int(job.entry["job_id"]) for origin, job in self._jobs.items() if origin in live
            ]
            parts = [
                part
                for attempt in live.values()
                for part in attempt.holds(self._jobs.get(attempt.origin or ""))
            ]
        self._statuses = self._inner.inventory(ours, parts)
        return self._statuses

    def observe(self) -> tuple[Observation, ...]:
        """All attempts that were started or killed and are not forgotten. Raises NoAnswerError."""
        others = self._inner.observe()
        with self._lock:
            self._look_at_jobs(self._site.poll_s / 2)
            live = self._live()
            self._teller.keep(
                job.whole for job in self._jobs.values() if _slips(job, live.get(job.origin))
            )
            self._teller.keep_from_users(self._jobs.values())
            found = []
            unusable = cache(self._unusable)
            for attempt in self._attempts.values():
                try:
                    found.append(
                        self._look(attempt, self._jobs.get(attempt.origin or ""), unusable)
                    )
                    self._inner.declining.learn(
                        found[-1], attempt.who, attempt.origin or "", attempt.names
                    )
                except OSError as error:
                    reason = f"its record cannot be written: {error.strerror}"
                    found.append(
                        Observation(key=attempt.key, state=AttemptState.UNREACHABLE, reason=reason)
                    )
        if self._heartbeat is not None:
            self._heartbeat.beat()
        mine = {seen.key for seen in found}
        return (*found, *(seen for seen in others if seen.key not in mine))

    def _live(self) -> dict[str, SbatchAttempt]:
        """Attempts that go on, by the origins of their jobs."""
        going = (attempt for attempt in self._attempts.values() if attempt.ended is None)
        return {attempt.origin: attempt for attempt in going if attempt.origin is not None}

    def _look(
        self, attempt: SbatchAttempt, job: HeldJob | None, unusable: Callable[[], Collection[str]]
    ) -> Observation:
        if attempt.ended is None and job is not None:
            self._teller.see_to(attempt, job, self._statuses)
            if self._teller.puts_back(attempt, job):
                return attempt.running(job)
            self._teller.marks_hold(attempt, job)
        return attempt.look(job, unusable)

    def _unusable(self) -> frozenset[str]:
        """Nodes that take no jobs as of now, not as of the last `inventory`. Raises
        NoAnswerError."""
        with answered():
            found = ask_nodes(self._client, {}, self._site.partition)
        return frozenset(node.status.node.name for node in found if not node.status.usable)

    def _look_at_jobs(self, young_s: float = 0.0) -> None:
        """Ask Slurm, unless that was done less than `young_s` ago. Raises NoAnswerError."""
        now_s, told = time.monotonic(), self._teller.told_s >= self._jobs_s
        if now_s < self._jobs_s + young_s and not told:
            return
        with answered():
            found = self._held_jobs.ask(anew=told)
        self._jobs, self._jobs_s = {job.origin: job for job in found}, now_s

    def arrivals(self) -> tuple[Arrival, ...]:
        """Jobs that users submitted, as of the last `observe`."""
        with self._lock:
            nodes = [status.hardware for status in self._statuses]
            return tuple(self._arriving.arrivals(self._jobs.values(), self._live(), nodes))

    # ----------------------------------------------------------------------------------------------
    # --- to act

    def start(self, order: Order) -> None:
        """Let a job go on the nodes of the order; nothing if this attempt was ever started or
        killed.

        Raises RefusedError, NoAnswerError.
        """
        if order.origin is None:
            self._inner.start(order)
            return
        with self._lock:
            attempt = self._attempts.get(order.key)
            if attempt is not None and (attempt.ended is not None or attempt.stop is not None):
                return
            if order.origin not in self._jobs:
                self._look_at_jobs()
            job = self._jobs.get(order.origin)
            if attempt is None:
                if job is None or not job.waits:
                    said = (
                        "knows nothing of its job any more"
                        if job is None
                        else "does not have its job wait any more"
                    )
                    raise RefusedError(f"Slurm {said}")
                self._check_time(order, job)
                attempt = self._record(order, job)
            if job is not None and job.waits and job.restarts == attempt.record["restarts"]:
                try:
                    self._teller.release(attempt, job)
                except RefusedError as error:
                    self._drop(attempt)
                    raise RefusedError(f"{error} (job {job.target})") from None

    def _check_time(self, order: Order, job: HeldJob) -> None:
        """Raises DeclinedError where Slurm would not start it now: for a limit, or as its time
        reaches into a reservation."""
        why = self._declines(job)
        if why is not None:
            raise DeclinedError(why, ELSEWHERE_S)
        declining, taken = self._inner.declining, self._in_its_time(job)
        names = [slot.node for slot in order.placement if slot.node in taken]
        if not names:
            return
        says = taken[names[0]].says(time.time())
        if self._has_room_but(taken, order):
            declining.avoid(says, job.origin, names)
            retry_s = ELSEWHERE_S
        else:  # nobody else is to be kept from these nodes for it
            retry_s = declining.later(says, job.origin)
        raise DeclinedError(
            f"node {names[0]} {says}, and its time limit reaches into that", retry_s
        )

    def _declines(self, job: HeldJob) -> str | None:
        """Why Slurm would start it on no node now: a limit of its user's, or reservations."""
        limit = self._inner.declining.limit(who(job))
        if limit is not None:
            return f"Slurm starts no more jobs of its user: {limit}"
        taken = self._in_its_time(job) if self._inner.reservations else {}
        first = next(
            (taken[one.node.name] for one in self._statuses if one.node.name in taken), None
        )
        if first is None or not all(one.node.name in taken for one in self._statuses):
            return None
        return f"every node {first.says(time.time())} or so, and its time limit reaches into that"

    def _in_its_time(self, job: HeldJob) -> dict[str, Reservation]:
        """Nodes that are reserved before its time limit would end it."""
        limit_min = number(job.entry.get("time_limit"))
        until_s = time.time() + limit_min * 60.0 if limit_min else float("inf")
        return {
            name: one
            for one in self._inner.reservations
            if one.start_s < until_s
            for name in one.nodes
        }

    def _has_room_but(self, taken: Container[str], order: Order) -> bool:
        """Whether so many other nodes than `taken` have the GPUs for it free now, as far as is
        known here."""
        held = together(
            (slot.node, Part(slot.gpus))
            for attempt in self._attempts.values()
            if attempt.ended is None
            for slot in attempt.placement
        )
        needs = max(slot.gpus for slot in order.placement)
        free = [
            one.node.name
            for one in self._statuses
            if one.usable
            and one.node.name not in taken
            and one.node.gpus - (held.get(one.node.name, Part()).gpus or 0) >= needs
        ]
        return len(free) >= len(order.placement)

    def _record(self, order: Order, job: HeldJob) -> SbatchAttempt:
        count = node_count(job)
        if len(order.placement) != count:
            raise RefusedError(
                f"Slurm gives it {count} nodes, its placement has {len(order.placement)}"
            )
        attempt = SbatchAttempt(self._folder, order.key)
        names = {slot.node for slot in order.placement}
        nodes = [status.node for status in self._statuses if status.node.name in names]
        try:
            attempt.write(
                origin=job.origin,
                restarts=job.restarts,
                status=job.status,
                who=list(who(job)),
                placement=[[slot.node, slot.gpus, slot.cpus] for slot in order.placement],
                memory_mib=memory_share_mib(job, nodes),
                uid=job.uid,
                progress=None
                if job.task is not None
                else str(self._progress / f"{job.token}.json"),
            )
        except OSError as error:
            raise RefusedError(
                f"its record cannot be written below {self._folder}: {error.strerror}"
            ) from error
        self._attempts[order.key] = attempt
        return attempt

    def _drop(self, attempt: SbatchAttempt) -> None:
        with suppress(OSError):
            attempt.remove()
        del self._attempts[attempt.key]

    def checkpoint_stop(self, key: AttemptKey, grace_s: float) -> None:
        """Send SIGTERM, or what the job's comment says, to its batch script and all its steps; what
        has not ended after `grace_s` Slurm ends, as soon as this process or the next one asks it
        to. Raises NoAnswerError."""
        with self._lock:
            attempt = self._attempts.get(key)
            if attempt is None:
                self._inner.checkpoint_stop(key, grace_s)
            elif attempt.ended is None and attempt.stop is None:
                self._write_stop(attempt, grace_s)

    def kill(self, key: AttemptKey) -> None:
        """Have Slurm end the attempt (SIGTERM, SIGKILL after its KillWait); one that was never
        started never will be.

        Raises NoAnswerError.
        """
        with self._lock:
            attempt = self._attempts.get(key)
            if attempt is None:  # it could have been started here or there
                self._inner.kill(key)
                attempt = self._attempts[key] = SbatchAttempt(self._folder, key)
            if attempt.ended is None and (
                attempt.stop is None or attempt.stop["grace_s"] is not None
            ):
                self._write_stop(attempt, None)

    def _write_stop(self, attempt: SbatchAttempt, grace_s: float | None) -> None:
        try:
            attempt.write(stop={"asked_s": time.time(), "grace_s": grace_s})
        except OSError as error:
            raise NoAnswerError(
                f"that {attempt.key} is to stop cannot be recorded: {error.strerror}"
            ) from error
        job = self._jobs.get(attempt.origin or "")
        if job is not None:
            attempt.asked_s = -float("inf")
            self._teller.see_to(attempt, job, self._statuses)

    # ----------------------------------------------------------------------------------------------
    # --- the rest

    def forgot_end(self, origin: str, ended_s: float) -> bool:
        """Return whether slurmctld was started after a job was last seen to be over, or ended at
        `ended_s`; one that is requeued by its user is seen to be over before. Raises
        NoAnswerError."""
        with self._lock:
            over_s = max(ended_s, self._arriving.over_s.get(origin, ended_s))
        with answered():
            text = self._client.ask("scontrol", "show", "config")
        found = re.search(r"^BOOT_TIME\s*=\s*(\S+)", text, re.MULTILINE)
        # whole seconds are told
        return found is not None and datetime.fromisoformat(found[1]).timestamp() + 1 > over_s

    def leave(self, origin: str, why: str) -> None:
        """Let a job be: it stays on hold, and its AdminComment says why. Raises NoAnswerError."""
        with self._lock:
            job = self._jobs.get(origin)
            if job is not None:
                said = f"AdminComment=optsched {job.token} not planned: {why}"
                with answered():
                    self._teller.tell("scontrol", "update", f"jobid={job.whole}", said)
                    # as an administrator: its user cannot release it
                    self._teller.tell("scontrol", "hold", job.whole)

    def withdraw(self, origin: str) -> None:
        """Cancel a job in Slurm. Raises NoAnswerError."""
        with self._lock:
            job = self._jobs.get(origin)
            if job is not None and not job.over:
                with answered():
                    self._teller.tell("scancel", "--quiet", job.target)

    def changes(self, timeout_s: float) -> None:
        """Wait until it is time to ask Slurm again."""
        self._inner.changes(timeout_s)

    def wake(self) -> None:
        """End `changes` in another thread, or the next one."""
        self._inner.wake()

    def forget(self, key: AttemptKey) -> None:
        """Drop the record of an attempt that has ended. Raises NoAnswerError if it has not."""
        with self._lock:
            attempt = self._attempts.get(key)
            if attempt is not None:
                if attempt.ended is None:
                    raise NoAnswerError(f"{key} has not ended")
                if attempt.ended["status"] == 0 and attempt.record.get("progress"):
                    with suppress(OSError):
                        Path(attempt.record["progress"]).unlink()
                self._drop(attempt)
        self._inner.forget(key)

    def close(self) -> None:
        """Let go of the folder; attempts go on."""
        with self._lock:
            self._attempts.clear()
        self._inner.close()


def _slips(job: HeldJob, live: SbatchAttempt | None) -> bool:
    """Whether Slurm would start a job by itself, or will once somebody requeues it."""
    if not job.priority or job.completing or job.over or job.left:
        return False
    return job.waits if live is None else job.runs or job.restarts > live.record["restarts"]


def _kept(folder: Path) -> Iterable[SbatchAttempt]:
    for path in sorted(folder.glob("*/*.json")):
        record: dict[str, Any] | None = records.read(str(path))
        key = None if record is None else AttemptKey.parse(str(record.get("key")))
        if key is not None:
            yield SbatchAttempt(folder, key, record)
