"""Jobs on a Ray cluster: one Ray job for each node of an attempt, through Ray's Jobs API."""

import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ...errors import InputError
from ...model.cluster import Node
from ..base import KEY, AttemptKey, NoAnswerError, NodeStatus, Observation, Order, RefusedError
from ..local.attempt_folder import keys
from ..local.taking import take, unusable
from ..tag import tag_of
from .attempt import LIVE, RayAttempt, Seen
from .nodes import found_nodes
from .program import lay_down
from .server import JobServer, RejectedError
from .spec import attempt_of, ray_job, specification, submission_id

SWEPT_AT_ONCE = 20
"""Jobs of forgotten attempts that Ray is made to forget in one turn."""


class RayExecutor:
    """Runs attempts below `folder`, which all nodes of the Ray cluster have at the same path."""

    name = "ray"
    title = "nodes of a Ray cluster"

    def __init__(
        self,
        folder: Path,
        server: JobServer,
        nodes: Sequence[Node] = (),
        *,
        label: str = "optsched-node",
        python: str = "python3",
        poll_s: float = 1.0,
        start_timeout_s: float = 60.0,
        grace_s: float = 60.0,
    ) -> None:
        """Take `folder` and the attempts that go on there; Ray is not asked before the first call.

        `nodes` are those to use, all that carry `label` where there are none. `python` is what
        nodes have. Ray is asked at most every `poll_s`; an attempt that it has not started after
        `start_timeout_s` fails. `grace_s` is for jobs that somebody stops with Ray's own command.
        Raises InputError where another process has the folder.
        """
        self._server, self._nodes, self._label, self._python = server, tuple(nodes), label, python
        self._poll_s, self._start_timeout_s, self._grace_s = poll_s, start_timeout_s, grace_s
        self._attempts_folder, self._mode, self._lock_fd = take(folder)
        try:
            self._tag = tag_of(folder.absolute() / "ray.json")
            self._entry = lay_down(folder.absolute() / "ray")
        except OSError as error:
            os.close(self._lock_fd)
            raise unusable(folder, error) from error
        except InputError:
            os.close(self._lock_fd)
            raise
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._seen: Seen | None = None
        found = keys(self._attempts_folder)
        self._attempts = {key: RayAttempt(self._attempts_folder, key, self._tag) for key in found}

    def inventory(self) -> tuple[NodeStatus, ...]:
        """All nodes; one that Ray does not have, or has twice, or that is dead, is not usable.
        Raises NoAnswerError."""
        with self._lock:
            return tuple(found.status for found in self._ask().nodes.values())

    def start(self, order: Order) -> None:
        """Submit a Ray job for each node of an attempt; nothing for those that were ever submitted
        or killed.

        Raises RefusedError, NoAnswerError.
        """
        if not KEY.fullmatch(str(order.key)):
            raise RefusedError(f"{str(order.key)!r} is no name of an attempt")
        with self._lock:
            attempt = self._attempts.get(order.key) or self._record(order)
            try:
                self._submit(attempt)
            finally:
                self._seen = None

    def _record(self, order: Order) -> RayAttempt:
        seen = self._ask()
        used = Counter[str]()
        for other in self._attempts.values():
            other.look(seen)  # what has just ended holds nothing any more
            used.update(other.gpus())
        attempt = RayAttempt(self._attempts_folder, order.key, self._tag)
        spec = specification(
            order, seen.nodes, used, attempt.folder, self._grace_s, self._start_timeout_s
        )
        try:
            attempt.folder.prepare(spec, self._mode)
        except OSError as error:
            raise RefusedError(
                f"its record cannot be written below {self._attempts_folder}: {error.strerror}"
            ) from error
        self._attempts[order.key] = attempt
        return attempt

    def _submit(self, attempt: RayAttempt) -> None:
        ranks = attempt.unclaimed()
        if not ranks:
            return
        known = self._ask().jobs
        spec = attempt.folder.spec
        for rank in ranks:
            if spec is None or submission_id(attempt.key, rank, self._tag) in known:
                continue
            job = ray_job(spec, rank, self._python, self._entry, attempt.folder.path, self._tag)
            try:
                self._server.submit(job)
            except RejectedError as error:
                with suppress(OSError):  # then it is submitted again
                    attempt.fail(spec["nodes"][rank]["name"], f"Ray refused it: {error}")
                return

    def checkpoint_stop(self, key: AttemptKey, grace_s: float) -> None:
        """Have the attempt's supervisors send SIGTERM, and SIGKILL to all that is left after
        `grace_s`.

        They keep the deadline, not this process and not Ray. Raises NoAnswerError where it cannot
        be recorded.
        """
        with self._lock:
            attempt = self._attempts.get(key)
            if (
                attempt is None
                or attempt.ended is not None
                or attempt.folder.stop_record() is not None
            ):
                return
            overdue = f"did not stop within the {grace_s:g} s it was given, and was killed"
            self._write_stop(attempt, grace_s, overdue)

    def kill(self, key: AttemptKey) -> None:
        """SIGKILL to all of the attempt; one that was never started never will be. Raises
        NoAnswerError."""
        if not KEY.fullmatch(str(key)):
            raise InputError(f"{str(key)!r} is no name of an attempt")
        with self._lock:
            attempt = self._attempts.get(key) or RayAttempt(self._attempts_folder, key, self._tag)
            if attempt.ended is not None:
                return
            self._write_stop(attempt, None, None)
            self._attempts[key] = attempt

    def _write_stop(self, attempt: RayAttempt, grace_s: float | None, overdue: str | None) -> None:
        record = {"asked_s": time.time(), "grace_s": grace_s, "overdue": overdue}
        try:
            attempt.folder.write_stop(record, self._mode)
        except OSError as error:
            raise NoAnswerError(
                f"that {attempt.key} is to stop cannot be recorded: {error.strerror}"
            ) from error
        for rank in attempt.claimed():
            try:
                self._server.stop(submission_id(attempt.key, rank, self._tag))
            except RejectedError:
                continue
            except NoAnswerError:
                return  # supervisors find the record by themselves, only later

    def observe(self) -> tuple[Observation, ...]:
        """All attempts that were started or killed and are not forgotten. Raises NoAnswerError."""
        with self._lock:
            seen = self._ask()
            return tuple([attempt.look(seen) for attempt in self._attempts.values()])

    def forget(self, key: AttemptKey) -> None:
        """Remove what is kept of an attempt that has ended, except what it printed. Raises
        NoAnswerError if it has not."""
        with self._lock:
            attempt = self._attempts.get(key)
            if attempt is None:
                return
            if attempt.ended is None and attempt.look(self._ask()).state != "ended":
                raise NoAnswerError(f"{key} has not ended")
            attempt.folder.remove(outputs=False)
            del self._attempts[key]

    def changes(self, timeout_s: float) -> None:
        """Wait until Ray is asked again, at the latest until time is up."""
        self._closed.wait(max(0.0, min(timeout_s, self._poll_s)))

    def close(self) -> None:
        """Let go of the folder; attempts go on."""
        with self._lock:
            self._closed.set()
            os.close(self._lock_fd)
            self._attempts.clear()

    def _ask(self) -> Seen:
        """What Ray says, at most `poll_s` old. Raises NoAnswerError."""
        now_s = time.monotonic()
        if self._seen is None or now_s - self._seen.at_s >= self._poll_s:
            jobs = self._server.jobs()
            nodes = found_nodes(self._server.nodes(), self._label, self._nodes)
            self._seen = Seen(at_s=now_s, nodes=nodes, jobs=jobs)
            self._sweep(self._seen)
        return self._seen

    def _sweep(self, seen: Seen) -> None:
        """Have Ray forget jobs of attempts that are forgotten here."""
        over = [
            name
            for name, job in seen.jobs.items()
            if job.get("status") not in LIVE
            and (key := attempt_of(name, self._tag)) is not None
            and key not in self._attempts
        ]
        for name in over[:SWEPT_AT_ONCE]:
            try:
                self._server.delete(name)
            except RejectedError:
                continue
            except NoAnswerError:
                return
