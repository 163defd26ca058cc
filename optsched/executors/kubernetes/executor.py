"""Jobs as pods of a Kubernetes cluster: one for each node of an attempt, bound to the very node
that was chosen."""

import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ...errors import InputError
from ...model.cluster import Node
from .. import program
from ..base import (
    KEY,
    AttemptKey,
    AttemptState,
    NoAnswerError,
    NodeStatus,
    Observation,
    Order,
    RefusedError,
)
from ..local.attempt_folder import keys
from ..local.taking import take, unusable
from ..tag import tag_of
from .api import KubernetesApi, RejectedError, refused
from .attempt import LOST_GRACE_S, KubernetesAttempt
from .phases import final, leaving, node_of, overdue_s
from .pods import OVERTIME_S, TAG, attempt_pod, binding, deletion, key_of
from .site import Site
from .spec import specification
from .view import SOONEST_S, Seen, View
from .watching import Watcher

AGAIN_S = 5.0
"""How often Kubernetes is told again what it has not done yet."""
KILL_GRACE_S = 5.0
"""What a supervisor is given to kill all and say so."""


class KubernetesExecutor:
    """Runs attempts below `folder`, which all pods have at the same path."""

    name = "kubernetes"
    title = "pods of a Kubernetes cluster"
    runs_images = True

    def __init__(
        self,
        folder: Path,
        api: KubernetesApi,
        site: Site,
        declared: Mapping[str, Node],
        *,
        grace_s: float = 60.0,
    ) -> None:
        """Take `folder` and the attempts that go on there; Kubernetes is not asked before the first
        call.

        `declared` nodes are used, or all that `site` selects if there are none. `grace_s` is for
        pods that somebody else deletes. Raises InputError
        where another process has the folder, or pods would not have it.
        """
        folder = folder.absolute()
        site.check(str(folder))
        self.api, self.site, self._grace_s = api, site, grace_s
        self._attempts_folder, self._mode, self._lock_fd = take(folder)
        try:
            self._tag = tag_of(folder / "kubernetes.json")
            entry = Path(__file__).with_name("entry.py")
            self._entry = program.lay_down(folder / "kubernetes", [entry]) / entry.name
        except OSError as error:
            os.close(self._lock_fd)
            raise unusable(folder, error) from error
        except InputError:
            os.close(self._lock_fd)
            raise
        self._lock = threading.RLock()
        self._woken = threading.Event()
        self._view = View(api, site, self._tag, declared)
        self._swept: Seen | None = None
        self._soon = False
        self._watcher = Watcher(api, f"{TAG}={self._tag}", self._note)
        found = keys(self._attempts_folder)
        self._attempts = {
            key: KubernetesAttempt(self._attempts_folder, key, self._tag) for key in found
        }

    # ----------------------------------------------------------------------------------------------
    # --- to see

    def inventory(self) -> tuple[NodeStatus, ...]:
        """All nodes, by name, with what pods of others leave of them. Raises NoAnswerError."""
        with self._lock:
            return tuple(node.status for node in self._ask().nodes.values())

    def observe(self) -> tuple[Observation, ...]:
        """All attempts that were started or killed and are not forgotten. Raises NoAnswerError."""
        with self._lock:
            seen = self._ask()
            found = []
            for attempt in self._attempts.values():
                found.append(attempt.look(seen, self._mode))
                self._see_to(attempt, seen)
            self._soon = any(
                attempt.soon for attempt in self._attempts.values() if attempt.ended is None
            )
            return tuple(found)

    def _ask(self, known_changes: bool = True) -> Seen:
        """What Kubernetes says by now; pods of attempts that are forgotten here are deleted. Raises
        NoAnswerError."""
        seen = self._view.seen(self._attempts, known_changes)
        if seen is not self._swept:
            self._swept = seen
            for pod in seen.pods.values():
                key = key_of(pod, self._tag)
                if (
                    key is not None
                    and key not in self._attempts
                    and not self._delete(pod, KILL_GRACE_S)
                ):
                    break
        return seen

    # ----------------------------------------------------------------------------------------------
    # --- to act

    def start(self, order: Order) -> None:
        """Make a pod for each node of an attempt and bind them; nothing for those that ever began,
        or if it was killed.

        Raises RefusedError, NoAnswerError.
        """
        if not KEY.fullmatch(str(order.key)):
            raise RefusedError(f"{str(order.key)!r} is no name of an attempt")
        with self._lock:
            attempt = self._attempts.get(order.key)
            fresh = attempt is None
            if attempt is None:
                attempt = self._record(order)
            try:
                self._make(attempt, fresh)
            finally:
                self._view.changed = True

    def _record(self, order: Order) -> KubernetesAttempt:
        seen = self._ask(known_changes=False)  # or many starts would be many lists
        used = Counter[str]()
        for other in self._attempts.values():
            used.update({node["name"]: node["gpus"] for node in other.held()})
        attempt = KubernetesAttempt(self._attempts_folder, order.key, self._tag)
        spec = specification(order, seen.nodes, used, attempt.folder, self.site, self._grace_s)
        try:
            attempt.folder.prepare(spec, self._mode)
            if spec["user"] is not None:
                attempt.folder.give(spec["user"])
        except OSError as error:
            attempt.folder.remove(outputs=True)
            raise RefusedError(
                f"its record cannot be written below {self._attempts_folder}: {error.strerror}"
            ) from error
        self._attempts[order.key] = attempt
        return attempt

    def _make(self, attempt: KubernetesAttempt, fresh: bool) -> None:
        spec, ranks = attempt.folder.spec, attempt.unclaimed()
        if spec is None:
            return
        uids: dict[int, str] = {}
        for rank in ranks:
            pod = attempt_pod(spec, rank, self.site, self._entry, attempt.folder.path, self._tag)
            try:
                made = self.api.create(pod)
            except RejectedError as error:
                if fresh and not uids:  # nothing of it is there
                    attempt.folder.remove(outputs=True)
                    del self._attempts[attempt.key]
                    raise refused(error) from None
                self._give_up(attempt, f"Kubernetes refused a pod of it: {error}")
                return
            if key_of(made, self._tag) != attempt.key:
                self._give_up(attempt, f"another pod is called {pod['metadata']['name']}")
                return
            if final(made) or leaving(made):
                continue  # seen to by `observe`
            if node_of(made) is None:
                uids[rank] = str(made["metadata"]["uid"])
        for rank, uid in uids.items():
            name, node = attempt.pod_names()[rank], spec["nodes"][rank]["name"]
            try:
                self.api.bind(name, binding(name, uid, node))
            except RejectedError as error:
                self._give_up(attempt, f"Kubernetes did not bind its pod to {node}: {error}")
                return

    def _give_up(self, attempt: KubernetesAttempt, reason: str) -> None:
        with suppress(OSError):  # then it is tried again
            attempt.write_stop(LOST_GRACE_S, None, self._mode, lost=reason)

    def checkpoint_stop(self, key: AttemptKey, grace_s: float) -> None:
        """Have the attempt's supervisors send SIGTERM, and SIGKILL to all that is left after
        `grace_s`.

        They keep the deadline, not this process and not Kubernetes. Raises NoAnswerError where it
        cannot be recorded.
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
            attempt = self._attempts.get(key) or KubernetesAttempt(
                self._attempts_folder, key, self._tag
            )
            if attempt.ended is not None:
                return
            stop = attempt.folder.stop_record()
            if stop is None or stop["grace_s"] is not None:
                self._write_stop(attempt, None, None)
            self._attempts[key] = attempt

    def _write_stop(
        self, attempt: KubernetesAttempt, grace_s: float | None, overdue: str | None
    ) -> None:
        try:
            attempt.write_stop(grace_s, overdue, self._mode)
        except OSError as error:
            raise NoAnswerError(
                f"that {attempt.key} is to stop cannot be recorded: {error.strerror}"
            ) from error
        attempt.asked_s = -float("inf")
        with suppress(NoAnswerError):  # supervisors find the record by themselves, only later
            self._see_to(attempt, self._ask(known_changes=False))

    def _see_to(self, attempt: KubernetesAttempt, seen: Seen) -> None:
        """Have Kubernetes delete the pods of an attempt that is to end or has, which also tells its
        supervisors."""
        if not attempt.folder.nodes or time.monotonic() < attempt.asked_s + AGAIN_S:
            return
        stop = attempt.folder.stop_record()
        if stop is None and attempt.ended is None and not attempt.over:
            return
        grace_s = KILL_GRACE_S
        if (
            stop is not None
            and stop["grace_s"] is not None
            and attempt.ended is None
            and not attempt.over
        ):
            grace_s = stop["grace_s"] + OVERTIME_S
        for name in attempt.pod_names():
            pod = seen.pods.get(name)
            if pod is not None:
                attempt.asked_s = time.monotonic()
                if not self._delete(pod, grace_s):
                    return

    def _delete(self, pod: Mapping[str, object], grace_s: float) -> bool:
        """False where nobody answers."""
        if leaving(pod) and not final(pod) and -overdue_s(pod) <= grace_s:
            return True  # it has been told, and no longer time is left
        metadata = dict(pod["metadata"])  # type: ignore[call-overload]
        try:
            self.api.delete(
                metadata["name"], deletion(metadata["uid"], 0 if final(pod) else grace_s)
            )
        except RejectedError:
            return True
        except NoAnswerError:
            return False
        self._view.changed = True
        return True

    # ----------------------------------------------------------------------------------------------
    # --- the rest

    def forget(self, key: AttemptKey) -> None:
        """Remove what is kept of an attempt that has ended, except what it printed. Raises
        NoAnswerError if it has not."""
        with self._lock:
            attempt = self._attempts.get(key)
            if attempt is None:
                return
            if (
                attempt.ended is None
                and attempt.look(self._ask(), self._mode).state is not AttemptState.ENDED
            ):
                raise NoAnswerError(f"{key} has not ended")
            attempt.folder.remove(outputs=False)
            del self._attempts[key]

    def changes(self, timeout_s: float) -> None:
        """Wait until a pod changes, until it is time to ask again, or until `wake` is called."""
        self._watcher.start()
        soon = self._view.changed or self._soon
        self._woken.wait(
            max(0.0, min(timeout_s, self.site.poll_s, SOONEST_S if soon else self.site.poll_s))
        )
        self._woken.clear()

    def wake(self) -> None:
        """End `changes` in another thread, or the next one."""
        self._woken.set()

    def _note(self) -> None:
        self._view.changed = True
        self._woken.set()

    def close(self) -> None:
        """Let go of the folder; attempts go on."""
        with self._lock:
            self._watcher.close()
            os.close(self._lock_fd)
            self._attempts.clear()
        self.wake()
