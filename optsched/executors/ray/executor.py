"""Jobs on a Ray cluster: one Ray job for each node of an attempt, through Ray's Jobs API."""

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...model import Node
from .. import program
from ..attempts.executor import AttemptExecutor
from ..attempts.folder import AttemptFolder
from ..base import AttemptKey, NoAnswerError, Order
from ..tag import tag_of
from .attempt import LIVE, RayAttempt, Seen
from .nodes import found_nodes
from .server import JobServer, RejectedError
from .site import Site
from .spec import attempt_of, ray_job, specification, submission_id

PROGRAM = [Path(__file__).with_name(name) for name in ("supervising.py", "entry.py")]
"""What nodes of Ray run, the last of them first."""
SWEPT_AT_ONCE = 20
"""Jobs of forgotten attempts that Ray is made to forget in one turn."""


class RayExecutor(AttemptExecutor[RayAttempt]):
    """Runs attempts below `folder`, which all nodes of the Ray cluster have at the same path."""

    name = "ray"
    title = "nodes of a Ray cluster"

    def __init__(
        self,
        folder: Path,
        server: JobServer,
        site: Site,
        nodes: Sequence[Node] = (),
        *,
        grace_s: float = 60.0,
    ) -> None:
        """Take `folder` and the attempts that go on there; Ray is not asked before the first call.

        `nodes` are those to use, all that carry the label of the `site` where there are none. An
        attempt that Ray has not started in time fails. `grace_s` is for jobs that somebody stops
        with Ray's own command. Raises InputError where another process has the folder.
        """
        self._server, self._site, self._nodes = server, site, tuple(nodes)
        self._grace_s = grace_s
        self._seen: Seen | None = None
        super().__init__(folder, site.poll_s)

    def prepare(self, folder: Path) -> None:
        """Lay down what nodes run, and the mark of our jobs."""
        self._tag = tag_of(folder / "ray.json")
        self._entry = program.lay_down(folder / "ray", *PROGRAM)

    def follow(self, key: AttemptKey) -> RayAttempt:
        """Return what follows an attempt from its folder."""
        return RayAttempt(self._attempts_folder, key, self._tag)

    def specification(self, order: Order, folder: AttemptFolder) -> dict[str, Any]:
        """Return the record of an attempt to be started. Raises RefusedError, NoAnswerError."""
        seen = self._ask()
        for other in self._attempts.values():
            other.look(seen)  # what has just ended holds nothing any more
        used, timeout_s = self.used_gpus(), self._site.start_timeout_s
        return specification(order, seen.nodes, used, folder, self._grace_s, timeout_s)

    def submit(self, attempt: RayAttempt, fresh: bool) -> None:
        """Submit a Ray job for each node that Ray does not have. Raises NoAnswerError."""
        try:
            self._submit(attempt)
        finally:
            self._seen = None

    def _submit(self, attempt: RayAttempt) -> None:
        ranks = attempt.unclaimed()
        if not ranks:
            return
        known = self._ask().jobs
        spec = attempt.folder.spec
        for rank in ranks:
            if submission_id(attempt.key, rank, self._tag) in known:
                continue
            job = ray_job(
                spec, rank, self._site.python, self._entry, attempt.folder.path, self._tag
            )
            try:
                self._server.submit(job)
            except RejectedError as error:
                with suppress(OSError):  # then it is submitted again
                    attempt.give_up(attempt.on(attempt.names[rank], f"Ray refused it: {error}"))
                return

    def hasten(self, attempt: RayAttempt) -> None:
        """Have Ray stop its jobs: supervisors find the record by themselves, only later."""
        for rank in attempt.claimed():
            try:
                self._server.stop(submission_id(attempt.key, rank, self._tag))
            except RejectedError:
                continue
            except NoAnswerError:
                return

    def beside_program(self) -> tuple[str, Path]:
        """Return the Python of nodes, and where they have the file `beside.py`."""
        return self._site.python, self._entry.with_name("beside.py")

    def refresh(self) -> None:
        """Ask Ray, unless what it said is young."""
        self._ask()

    def _ask(self) -> Seen:
        """Return what Ray says, at most `poll_s` old. Raises NoAnswerError."""
        now_s = time.monotonic()
        if self._seen is None or now_s - self._seen.at_s >= self.poll_s:
            jobs = self._server.jobs()
            nodes = found_nodes(self._server.nodes(), self._site.label, self._nodes)
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
