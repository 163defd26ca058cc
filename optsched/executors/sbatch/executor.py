"""Jobs that users give to Slurm themselves: job_submit.lua holds them, and here they are let go, on
the nodes that were chosen."""

import os
import time
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from ...model import Node
from ..attempts.executor import rank_of
from ..base import (
    Arrival,
    AttemptKey,
    Beside,
    DeclinedError,
    NodeStatus,
    Observation,
    Order,
    RefusedError,
)
from ..orders import account
from ..slurm.attempt import SlurmAttempt
from ..slurm.client import SlurmClient, answered
from ..slurm.declining import ELSEWHERE_S
from ..slurm.executor import SlurmExecutor
from ..slurm.nodes import ask_nodes, number
from ..slurm.others import Part, Reservation, minutes_before, together
from ..slurm.site import Site
from ..supervision import records
from .arriving import Arriving
from .attempt import SbatchAttempt
from .heartbeat import Heartbeat
from .jobs_json import HeldJob, HeldJobs, who
from .request import memory_share_mib, node_count
from .telling import Teller

REVOKED_S = 1.0
"""For so long after its last run was put back Slurm may refuse a job's next one, and fail the job:
a credential of the second in which the last was revoked counts as revoked too."""


class SbatchExecutor(SlurmExecutor):
    """Runs jobs of Slurm's users; those without an `origin` as any Slurm executor does."""

    title = "batch jobs of a Slurm cluster, those that users submit themselves too"

    def __init__(
        self, folder: Path, client: SlurmClient, site: Site, declared: Mapping[str, Node]
    ) -> None:
        """Take `folder` and the attempts that go on there. Raises InputError."""
        self._held_jobs = HeldJobs(client, site.partition)
        self._held: dict[str, HeldJob] = {}
        self._requeued_s: dict[str, float] = {}
        self._held_s = -float("inf")
        self._statuses: tuple[NodeStatus, ...] = ()
        super().__init__(folder, client, site, declared)
        self._teller = Teller(client, site, self.declining)
        self._attempts |= {attempt.key: attempt for attempt in _kept(self._records)}
        self._heartbeat = None if site.heartbeat is None else Heartbeat(site.heartbeat)
        self._arriving = Arriving(site, self._declines, site.partition)

    def prepare(self, folder: Path) -> None:
        """Make the folders of records, and of what users' jobs report."""
        self._records = folder / "sbatch"
        self._reports = self._records / "reports"
        self._reporting: set[int] = set()
        self._reports.mkdir(parents=True, exist_ok=True)
        for made in (self._records, self._reports):
            made.chmod(0o711)

    def _let_report(self, uid: int) -> None:
        """Make the folder in which jobs of a user report: nobody else puts a file of their names
        there first."""
        with suppress(OSError):  # then they run without
            (self._reports / str(uid)).mkdir(mode=0o700, exist_ok=True)
            os.chown(self._reports / str(uid), uid, -1)
            self._reporting.add(uid)

    # ----------------------------------------------------------------------------------------------
    # --- to see

    def inventory(self) -> tuple[NodeStatus, ...]:
        """Return all nodes as Slurm has them, less what it has given to others. Raises
        NoAnswerError."""
        with self._lock:
            self._look_at_held(self.poll_s / 2)
            self._statuses = super().inventory()
            return self._statuses

    def _numbers(self) -> set[int]:
        live = self._live()
        held = (job for origin, job in self._held.items() if origin in live)
        return super()._numbers() | {int(job.entry["job_id"]) for job in held}

    def observe(self) -> tuple[Observation, ...]:
        """Return all attempts that were started or killed and are not forgotten. Raises
        NoAnswerError."""
        observations = super().observe()
        if self._heartbeat is not None:
            self._heartbeat.beat()
        return observations

    def refresh(self) -> None:
        """Ask Slurm for its jobs, and keep on hold those that it would start by itself."""
        super().refresh()
        self._look_at_held(self.poll_s / 2)
        self._unusable = cache(self._ask_unusable)
        live = self._live()
        self._teller.keep(
            job.whole for job in self._held.values() if _slips(job, live.get(job.origin))
        )
        self._teller.keep_from_users(self._held.values())

    def _live(self) -> dict[str, SbatchAttempt]:
        """Return attempts that go on, by the origins of their jobs."""
        return {
            attempt.origin: attempt
            for attempt in self._attempts.values()
            if isinstance(attempt, SbatchAttempt) and attempt.ended is None
        }

    def look(self, attempt: SlurmAttempt) -> Observation:
        """Return what is seen of an attempt, once Slurm was told what it has not done yet."""
        if not isinstance(attempt, SbatchAttempt):
            return super().look(attempt)
        try:
            seen = self._look_at_release(attempt, attempt.job)
        except OSError as error:
            return attempt.unreachable(f"its record cannot be written: {error.strerror}")
        self.declining.learn(seen, *attempt.asks())
        return seen

    def _look_at_release(self, attempt: SbatchAttempt, job: HeldJob | None) -> Observation:
        if attempt.ended is None and job is not None:
            minutes = minutes_before(self.reservations, attempt.names, time.time())
            self._teller.see_to_limit(attempt, job, minutes)
            self._teller.see_to(attempt, job, self._statuses)
            if self._teller.puts_back(attempt, job):
                return attempt.running()
            self._teller.marks_hold(attempt, job)
        return attempt.look_at_job(job, self._unusable)

    def _ask_unusable(self) -> frozenset[str]:
        """Return nodes that take no jobs as of now, not as of the last `inventory`. Raises
        NoAnswerError."""
        with answered():
            nodes = ask_nodes(self.client, {}, self.site.partition)
        return frozenset(node.status.node.name for node in nodes if not node.status.usable)

    def _look_at_held(self, young_s: float = 0.0) -> None:
        """Ask Slurm, unless that was done less than `young_s` ago. Raises NoAnswerError."""
        now_s, told = time.monotonic(), self._teller.told_s >= self._held_s
        if now_s < self._held_s + young_s and not told:
            return
        with answered():
            held = self._held_jobs.ask(anew=told)
        for uid in {job.uid for job in held} - self._reporting:
            self._let_report(uid)
        self._note_requeued(held)
        self._held, self._held_s = {job.origin: job for job in held}, now_s
        for attempt in self._live().values():
            attempt.job = self._held.get(attempt.origin)

    def _note_requeued(self, held: Iterable[HeldJob]) -> None:
        """Keep since when each job is known to wait again."""
        before, now_s = self._held, time.monotonic()
        self._requeued_s = {
            job.origin: self._requeued_s[job.origin]
            if job.origin in before and before[job.origin].restarts == job.restarts
            else now_s
            for job in held
            if job.restarts
        }

    def arrivals(self) -> tuple[Arrival, ...]:
        """Return jobs that users submitted, as of the last `observe`."""
        with self._lock:
            nodes = [status.hardware for status in self._statuses]
            return tuple(self._arriving.arrivals(self._held.values(), self._live(), nodes))

    # ----------------------------------------------------------------------------------------------
    # --- to act

    def submit(self, attempt: SlurmAttempt, fresh: bool) -> None:
        """Let a job go on the nodes of its attempt. Raises RefusedError, NoAnswerError."""
        if not isinstance(attempt, SbatchAttempt):
            super().submit(attempt, fresh)
            return
        if attempt.job is None:
            self._look_at_held()
        job = attempt.job
        if job is not None and job.waits and job.restarts == attempt.record["restarts"]:
            again_s = self._requeued_s.get(job.origin, -float("inf")) + REVOKED_S
            time.sleep(max(0.0, again_s - time.monotonic()))
            try:
                self._teller.release(attempt, job)
            except RefusedError as error:
                self.drop(attempt)
                raise RefusedError(f"{error} (job {job.target})") from None

    def _check_time(self, order: Order, job: HeldJob) -> None:
        """Raise DeclinedError where Slurm would not start it now: for a limit, or as its time
        reaches into a reservation."""
        why = self._declines(job)
        if why is not None:
            raise DeclinedError(why, ELSEWHERE_S)
        taken = self._in_its_time(job)
        names = [name for name in order.nodes if name in taken]
        if not names or (
            order.leaves_saved and minutes_before(self.reservations, order.nodes, time.time())
        ):
            return
        says, retry_s = taken[names[0]].says(time.time()), ELSEWHERE_S
        if self._has_room_but(taken, order):
            self.declining.avoid(says, job.origin, names)
        else:  # nobody else is to be kept from these nodes for it
            retry_s = self.declining.later(says, job.origin)
        reaches = f"node {names[0]} {says}, and its time limit reaches into that"
        raise DeclinedError(reaches, retry_s)

    def _shortened(self, job: HeldJob, names: Collection[str]) -> list[int | str] | None:
        """Return the time limit with which Slurm starts it before a reservation of these nodes, and
        its own, which it gets back when it runs; None where its own will do."""
        minutes = minutes_before(self.reservations, names, time.time())
        limit_min = number(job.entry.get("time_limit"))
        if not minutes or (limit_min and limit_min <= minutes):
            return None
        return [minutes, limit_min or "UNLIMITED"]

    def _declines(self, job: HeldJob) -> str | None:
        """Return why Slurm would start it on no node now: a limit of its user's, or
        reservations."""
        limit = self.declining.limit(who(job))
        if limit is not None:
            return f"Slurm starts no more jobs of its user: {limit}"
        if not self.reservations or self._arriving.saves(job):
            return None
        taken = self._in_its_time(job)
        names = [status.node.name for status in self._statuses]
        if not names or any(name not in taken for name in names):
            return None
        says = taken[names[0]].says(time.time())
        return f"every node {says} or so, and its time limit reaches into that"

    def _in_its_time(self, job: HeldJob) -> dict[str, Reservation]:
        """Return nodes that are reserved before its time limit would end it."""
        limit_min, now_s = number(job.entry.get("time_limit")), time.time()
        until_s = now_s + limit_min * 60.0 if limit_min else float("inf")
        reservations = [each for each in self.reservations if now_s < each.end_s]
        reservations = [each for each in reservations if each.start_s < until_s]
        return {name: each for each in reservations for name in each.nodes}

    def _has_room_but(self, taken: Container[str], order: Order) -> bool:
        """Return whether so many other nodes than `taken` have the GPUs for it free now, as far as
        is known here."""
        held = together(part for attempt in self._attempts.values() for part in attempt.holds())
        needs = max(slot.gpus for slot in order.placement)
        others = (
            status.node
            for status in self._statuses
            if status.usable and status.node.name not in taken
        )
        free = [
            node for node in others if node.gpus - (held.get(node.name, Part()).gpus or 0) >= needs
        ]
        return len(free) >= len(order.placement)

    def _record(self, order: Order) -> SlurmAttempt:
        if order.origin is None:
            return super()._record(order)
        if order.origin not in self._held:
            self._look_at_held()
        job = self._held.get(order.origin)
        if job is None:
            raise RefusedError("Slurm knows nothing of its job any more")
        if not job.waits:
            raise RefusedError("Slurm does not have its job wait any more")
        self._check_time(order, job)
        count = node_count(job)
        if len(order.placement) != count:
            raise RefusedError(
                f"Slurm gives it {count} nodes, its placement has {len(order.placement)}"
            )
        attempt = SbatchAttempt(self._records, order.key)
        attempt.job = job
        names = order.nodes
        nodes = [status.node for status in self._statuses if status.node.name in names]
        try:
            attempt.write(
                origin=job.origin,
                restarts=job.restarts,
                status=job.status,
                who=list(who(job)),
                placement=[[slot.node, slot.gpus, slot.cpus] for slot in order.placement],
                memory_mib=memory_share_mib(job, nodes),
                shortened=self._shortened(job, names),
                uid=job.uid,
                progress=None
                if job.task is not None
                else str(self._reports / str(job.uid) / f"{job.token}.json"),
            )
        except OSError as error:
            raise RefusedError(
                f"its record cannot be written below {self._records}: {error.strerror}"
            ) from error
        self._attempts[order.key] = attempt
        return attempt

    def signal(self, key: AttemptKey, number: int) -> None:
        """Send a signal to an attempt of ours; what Slurm runs itself it has to be sent by Slurm.
        Raises RefusedError, NoAnswerError."""
        with self._lock:
            if isinstance(self._attempts.get(key), SbatchAttempt):
                raise RefusedError("it is a job of Slurm itself; use scancel --signal")
            super().signal(key, number)

    def shell(self, key: AttemptKey, terminal: bool, node: str | None = None) -> Beside:
        """Return how to start a shell beside an attempt; in a job of Slurm itself it has the
        variables that Slurm gives to steps, and those of who asks. Raises RefusedError."""
        with self._lock:
            attempt = self._attempts.get(key)
            if not isinstance(attempt, SbatchAttempt):
                return super().shell(key, terminal, node)
            job = attempt.job
            if attempt.ended is not None or job is None or not job.runs:
                raise RefusedError(f"{key} does not run")
            directory = str(job.entry.get("current_working_directory") or "/")
            words, shell = [f"--chdir={directory}"], account(attempt.uid)[2]
            if node is not None:
                words.append(f"--nodelist={job.nodes[rank_of(job.nodes, node)]}")
            return self._step(attempt, int(job.entry["job_id"]), words, terminal, shell)

    def hasten(self, attempt: SlurmAttempt) -> None:
        """Have Slurm end it at once. An attempt that was released gets SIGTERM, or what its job's
        comment says, at its batch script and all its steps; what has not ended after its grace
        Slurm ends (SIGTERM, SIGKILL after its KillWait), as soon as this process or the next one
        asks it to."""
        if not isinstance(attempt, SbatchAttempt):
            super().hasten(attempt)
        elif attempt.job is not None:
            attempt.told_s = -float("inf")
            self._teller.see_to(attempt, attempt.job, self._statuses)

    # ----------------------------------------------------------------------------------------------
    # --- the rest

    def foretell(self, starts: Mapping[str, str]) -> None:
        """Say in the comments of waiting jobs when they start, by origin, the first first; nothing
        is held up meanwhile."""
        with self._lock:
            live, held = self._live(), dict(self._held)
        waits = {
            origin: held[origin]
            for origin in (*starts, *held)
            if origin in held and held[origin].task is None and not held[origin].over
        }
        still = {origin: said for origin, said in starts.items() if origin not in live}
        self._teller.foretell(waits.values(), still)

    def forgot_end(self, origin: str, ended_s: float) -> bool:
        """Return whether slurmctld was started after a job was last seen to be over, or ended at
        `ended_s`; one that is requeued by its user is seen to be over before. Raises
        NoAnswerError."""
        with self._lock:
            over_s = max(ended_s, self._arriving.over_s.get(origin, ended_s))
        with answered():
            boot = self.client.config().get("BOOT_TIME")
        # whole seconds are told
        return boot is not None and datetime.fromisoformat(boot).timestamp() + 1 > over_s

    def leave(self, origin: str, why: str) -> None:
        """Let a job be: it stays on hold, and its AdminComment says why. Raises NoAnswerError."""
        with self._lock:
            job = self._held.get(origin)
            if job is not None:
                said = f"AdminComment=optsched {job.token} not planned: {why}"
                with answered():
                    self._teller.tell("scontrol", "update", f"jobid={job.whole}", said)
                    # as an administrator: its user cannot release it
                    self._teller.tell("scontrol", "hold", job.whole)

    def withdraw(self, origin: str) -> None:
        """Cancel a job in Slurm. Raises NoAnswerError."""
        with self._lock:
            job = self._held.get(origin)
            if job is not None and not job.over:
                with answered():
                    self._teller.tell("scancel", "--quiet", job.target)


def _slips(job: HeldJob, live: SbatchAttempt | None) -> bool:
    """Return whether Slurm would start a job by itself, or will once somebody requeues it."""
    if not job.priority or job.completing or job.over or job.left:
        return False
    return job.waits if live is None else job.runs or job.restarts > live.record["restarts"]


def _kept(folder: Path) -> Iterator[SbatchAttempt]:
    for path in sorted(folder.glob("*/*.json")):
        if path.lstat().st_uid != os.geteuid():
            continue
        record: dict[str, Any] | None = records.read(path)
        key = None if record is None else AttemptKey.parse(str(record.get("key")))
        if record is not None and key is not None and "origin" in record:
            yield SbatchAttempt(folder, key, record)
