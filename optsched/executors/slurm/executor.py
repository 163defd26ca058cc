"""Jobs as batch jobs of a Slurm cluster: one for each attempt, on exactly the nodes that were
chosen."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...model import Node, Window
from ..attempts.executor import AttemptExecutor
from ..attempts.folder import AttemptFolder
from ..base import (
    AttemptKey,
    Beside,
    DeclinedError,
    NoAnswerError,
    NodeStatus,
    Observation,
    Order,
    RefusedError,
)
from . import batch
from .attempt import SlurmAttempt
from .client import SlurmClient, answered
from .declining import ELSEWHERE_S, Declining
from .jobs import SHELL_STEP, SlurmJob, ask_jobs, limit_min
from .nodes import SlurmNode, ask_nodes
from .others import (
    SHORTEST_S,
    Others,
    Part,
    Reservation,
    ask_reservations,
    minutes_before,
    reserved,
    together,
    windows_of,
    without,
)
from .site import Site

NODES_EVERY = 5
"""Looks at jobs for one at the nodes."""
RESERVATIONS_AGAIN_S = 30.0
"""So long after it did not tell of its reservations Slurm is asked for them again."""
OVERTIME_S = 10.0
"""So long after its time an attempt that its agents have not ended is cancelled in Slurm."""


class SlurmExecutor(AttemptExecutor[SlurmAttempt]):
    """Runs attempts below `folder`, which all nodes must see under the same name."""

    name = "slurm"
    title = "batch jobs of a Slurm cluster"
    gives_records = True

    def __init__(
        self, folder: Path, client: SlurmClient, site: Site, declared: Mapping[str, Node]
    ) -> None:
        """Take `folder` and the attempts that go on there; `declared` nodes are used, or all if
        there are none.

        Raises InputError where Slurm has no such nodes, or another process has the folder.
        """
        self.client, self.site, self._declared = client, site, declared
        self._nodes: dict[str, SlurmNode] = {}
        self._nodes_s = self._jobs_s = -float("inf")
        self._jobs: list[SlurmJob] = []
        self._others = Others(client)
        self.declining = Declining()
        self.reservations: list[Reservation] = []
        self._reservations_untold: str | None = None
        self._reservations_s = -float("inf")
        super().__init__(folder, site.poll_s)
        with suppress(NoAnswerError):
            self._look_at_nodes()
            if not self._nodes:
                os.close(self._lock_fd)
                raise InputError(f"Slurm has no nodes {site.describe(declared)}; see `sinfo`")
        self._nodes_s = -float("inf")  # whoever asks next may know more of what is ours

    # ----------------------------------------------------------------------------------------------
    # --- to see

    def inventory(self) -> tuple[NodeStatus, ...]:
        """Return all nodes as Slurm has them, in its order, less what it has given to others.
        Raises NoAnswerError."""
        with self._lock:
            if time.monotonic() >= self._nodes_s + NODES_EVERY * self.site.poll_s:
                self._look_at_nodes()
            return tuple(self._tried(node.status) for node in self._nodes.values())

    def _tried(self, status: NodeStatus) -> NodeStatus:
        why = self.declining.node(status.node.name) if status.usable else None
        return (
            status
            if why is None
            else replace(status, usable=False, reason=f"starts nothing, says Slurm: {why}")
        )

    def _look_at_nodes(self) -> None:
        with answered():
            names = self.site.reserved(self.client)
            nodes = {
                node.status.node.name: node
                for node in ask_nodes(self.client, self._declared, self.site.partition)
                if names is None or node.status.node.name in names
            }
            held = self._others.held(nodes, self._numbers())
        self._look_at_reservations()
        own = together(part for attempt in self._attempts.values() for part in attempt.holds())
        self._nodes = {
            name: replace(
                node,
                status=without(
                    reserved(node.status, self.reservations, time.time()),
                    held.get(name, Part()),
                    own.get(name, Part()),
                ),
            )
            for name, node in nodes.items()
        }
        self._nodes_s = time.monotonic()

    def _look_at_reservations(self) -> None:
        """Ask Slurm what it has reserved for others; where it does not tell, what was known before
        holds."""
        if time.monotonic() < self._reservations_s:
            return
        try:
            self.reservations = ask_reservations(self.client, self.site.reservation)
            self._reservations_untold = None
        except (NoAnswerError, RefusedError) as error:
            self._reservations_untold = str(error)
            self._reservations_s = time.monotonic() + RESERVATIONS_AGAIN_S

    def reserved_windows(self) -> tuple[Window, ...]:
        """Return what Slurm has reserved for others on our nodes, as of the last `inventory`. Who
        cannot give jobs their time limits back leaves a minute earlier. Raises NoAnswerError."""
        with self._lock:
            if self._reservations_untold is not None:
                raise NoAnswerError(self._reservations_untold)
            early_s = 0.0 if os.geteuid() == 0 else SHORTEST_S
            return windows_of(self.reservations, self._nodes, early_s)

    def _going(self) -> Iterable[SlurmAttempt]:
        return (attempt for attempt in self._attempts.values() if attempt.ended is None)

    def _numbers(self) -> set[int]:
        """Return those of our jobs, as far as they are known."""
        known = {
            number for attempt in self._attempts.values() for number in attempt.job_ids.values()
        }
        return known | {job.id for attempt in self._going() for job in self._own(attempt)}

    def follow(self, key: AttemptKey) -> SlurmAttempt:
        """Return what follows an attempt from its folder."""
        return SlurmAttempt(self._attempts_folder, key)

    def refresh(self) -> None:
        """Ask Slurm for its jobs, where some of ours may be among them."""
        if any(attempt.folder.nodes for attempt in self._going()):
            self._look_at_jobs(self.poll_s / 2)

    def look(self, attempt: SlurmAttempt) -> Observation:
        """Return what is seen of an attempt."""
        seen = attempt.look(self._own(attempt))
        self.declining.learn(seen, *attempt.asks())
        return seen

    def _look_at_jobs(self, young_s: float = 0.0) -> None:
        """Ask Slurm, unless that was done less than `young_s` ago. Raises NoAnswerError."""
        if time.monotonic() < self._jobs_s + young_s:
            return
        with answered():
            self._jobs = ask_jobs(self.client, self.site.which_jobs())
        self._jobs_s = time.monotonic()

    def _own(self, attempt: SlurmAttempt) -> list[SlurmJob]:
        """Return its jobs, the first submitted first: of others' that bear the same key neither
        owner nor folder agree."""
        mark = attempt.key, attempt.uid, str(attempt.folder.path)
        mine = (job for job in self._jobs if (job.key, job.uid, job.directory) == mark)
        return sorted(mine, key=lambda job: job.id)

    # ----------------------------------------------------------------------------------------------
    # --- to act

    def specification(self, order: Order, folder: AttemptFolder) -> dict[str, Any]:
        """Return the record of an attempt to be started. Raises RefusedError, NoAnswerError."""
        uid = os.geteuid() if order.user is None else order.user
        limit = self.declining.limit(uid)
        if limit is not None:
            why = f"Slurm starts no more jobs of its user: {limit}"
            raise DeclinedError(why, self.declining.left_s(uid))
        if not self._nodes:
            self.inventory()
        if minutes_before(self.reservations, order.nodes, time.time()) == 0:
            raise DeclinedError("a reservation in Slurm of its nodes is too near", ELSEWHERE_S)
        return batch.specification(order, self._nodes, folder)

    def submit(self, attempt: SlurmAttempt, fresh: bool) -> None:
        """Submit the parts of an attempt that Slurm does not have. Raises RefusedError,
        NoAnswerError."""
        if not fresh:  # it was submitted, or was about to be, and nobody knows what became of that
            self._look_at_jobs()
            try:
                attempt.adopt(self._own(attempt))
            except OSError as error:
                raise NoAnswerError(_unrecorded(attempt, error)) from error
        for part in attempt.unsubmitted():
            self._submit(attempt, part, fresh)
            fresh = False

    def _submit(self, attempt: SlurmAttempt, part: int, fresh: bool) -> None:
        spec = attempt.folder.spec
        attempt.tried_s = time.monotonic()
        try:
            said = self.client.ask(
                "sbatch",
                *batch.words(spec, attempt.folder, part, self.site.words()),
                given=batch.script(spec, attempt.folder, part, self.site.python),
            )
        except RefusedError:
            if fresh:
                self.drop(attempt)
            else:  # an earlier submission may still be on its way, or another part of it run
                self._write_stop(attempt)
                self.hasten(attempt)
            raise
        self._jobs_s = -float("inf")
        number, *_ = said.strip().split(";")  # the cluster's name, where there are several
        if not number.isdecimal():
            raise NoAnswerError(
                f"sbatch said {said.strip()[:200]!r} where a job's number was expected"
            )
        try:
            attempt.submitted(part, int(number))
            self._shorten(attempt, part)
        except OSError as error:
            raise NoAnswerError(_unrecorded(attempt, error)) from error

    def _shorten(self, attempt: SlurmAttempt, part: int) -> None:
        """Lower the time limit of a job that would reach into a reservation, for which Slurm would
        not start it. Raises OSError."""
        minutes = minutes_before(self.reservations, attempt.names, time.time())
        if minutes is None:
            return
        target = str(attempt.job_ids[part])
        with suppress(NoAnswerError, RefusedError):
            limit = self.client.ask("squeue", "-h", f"--jobs={target}", "-o", "%l").strip()
            if limit_min(limit) > minutes:
                attempt.keep_limit(part, (limit, minutes))
                self._set_limit(target, str(max(1, minutes)))

    def _see_to_limits(self, attempt: SlurmAttempt, jobs: Iterable[SlurmJob]) -> None:
        """Lower the time limit again of a job that Slurm was late to start, and give those that
        have begun their own back, which only root may: they are asked to save in time."""
        states = {job.id: job for job in jobs}
        for part, (limit, before) in [*attempt.limits.items()]:
            job = states.get(attempt.job_ids.get(part, 0))
            minutes = minutes_before(self.reservations, attempt.names, time.time())
            with suppress(NoAnswerError, RefusedError, OSError):
                if job is not None and job.waits and minutes and minutes < before:
                    self._set_limit(str(job.id), str(minutes))
                    attempt.keep_limit(part, (limit, minutes))
                elif job is not None and job.state == "RUNNING" and os.geteuid() == 0:
                    self._set_limit(str(job.id), limit)
                    attempt.keep_limit(part, None)

    def _set_limit(self, target: str, limit: str) -> None:
        self.client.ask("scontrol", "update", f"jobid={target}", f"TimeLimit={limit}")

    def hasten(self, attempt: SlurmAttempt) -> None:
        """Tell the agents to look at once, and Slurm not to begin what waits: they would find out
        by themselves."""
        jobs = self._own(attempt)
        ids = {job.id for job in jobs if not job.over} | {*attempt.job_ids.values()}
        if not ids or attempt.ended is not None:
            return
        attempt.told_s = time.monotonic()
        self._jobs_s = -float("inf")
        listed = [str(number) for number in sorted(ids)]
        with suppress(NoAnswerError, RefusedError):
            if any(job.waits for job in jobs) or not jobs:
                self.client.ask("scancel", "--quiet", "--state=PENDING", *listed)
            if len(attempt.folder.nodes) == 1:
                self.client.ask("scancel", "--quiet", "--batch", "--signal=USR2", *listed)

    def enter(
        self, attempt: SlurmAttempt, rank: int, inside: Sequence[str], terminal: bool
    ) -> Beside:
        """Return the step in which a shell runs on one of its nodes. Raises RefusedError."""
        node = attempt.folder.nodes[rank]
        job_id = attempt.job_ids.get(node["part"])
        shell = attempt.folder.spec["environment"].get("SHELL", "/bin/sh")
        if job_id is None:
            raise RefusedError("Slurm has not begun it yet")
        words = (f"--nodelist={node['name']}", "--chdir=/", *inside)
        return self._step(attempt, job_id, words, terminal, shell)

    def _step(
        self, attempt: SlurmAttempt, job_id: int, words: Sequence[str], terminal: bool, shell: str
    ) -> Beside:
        """Return what srun runs beside all else of a job, with all that the job has."""
        step = (self.client.srun, f"--jobid={job_id}", f"--job-name={SHELL_STEP}", "--overlap")
        alone = ("--nodes=1", "--ntasks=1", "--mem=0", "--mpi=none")
        pty = ("--pty",) if terminal else ()
        return Beside(
            argv=(shell,),
            environment=self.client.where,
            directory="/",
            user=attempt.uid,
            enter=(*step, *alone, *pty, *words),
        )

    def beside_program(self) -> tuple[str, Path]:
        """Return the Python of the nodes, and where they have the file `beside.py`."""
        python, path = super().beside_program()
        return self.site.python or python, path

    def see_to(self, attempt: SlurmAttempt, seen: Observation) -> None:
        """End what Slurm should not have any more."""
        own = [job for job in self._own(attempt) if not job.over]
        self._see_to_limits(attempt, own)
        unwanted = own
        if attempt.ended is None and attempt.overdue_s() <= OVERTIME_S:
            wanted = attempt.job_ids.values()
            twice = [job for job in own if job.id not in wanted]  # of one submitted twice
            waiting = [job for job in own if job.waits]
            if attempt.stop_record() is not None:
                unwanted = [*twice, *waiting]
            elif not waiting or not self._cannot_start(attempt):
                unwanted = twice
        if unwanted and attempt.tell_again():
            with suppress(NoAnswerError, RefusedError):
                self.client.ask("scancel", "--quiet", *(str(job.id) for job in unwanted))

    def _cannot_start(self, attempt: SlurmAttempt) -> bool:
        """Return whether a node that it waits for takes no jobs any more, or Slurm has had it wait
        for too long; then it is given up. A node that is silent is waited for: it answers again
        soon, or else Slurm says that it is down."""
        known = (self._nodes.get(name) for name in attempt.names)
        closed = [node.status for node in known if node is not None and not node.silent]
        late = (
            job.reason
            for job in self._own(attempt)
            if job.waits and attempt.waited_s() > self.site.gives_up_s(job.reason)
        )
        gives_up = self.declining.gives_up(closed, next(late, None), *attempt.asks())
        if gives_up is None:
            return False
        why, retry_s = gives_up
        with suppress(OSError):
            attempt.give_up(why, retry_s=retry_s)
            return True
        return False


def _unrecorded(attempt: SlurmAttempt, error: OSError) -> str:
    return f"that {attempt.key} was submitted cannot be recorded: {error.strerror}"
