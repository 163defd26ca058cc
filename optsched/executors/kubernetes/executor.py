"""Jobs as pods of a Kubernetes cluster: one for each node of an attempt, bound to the very node
that was chosen."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...model import Node
from .. import program
from ..attempts.executor import AttemptExecutor
from ..attempts.folder import AttemptFolder
from ..base import AttemptKey, Beside, NoAnswerError, Observation, Order
from ..tag import tag_of
from .api import KubernetesApi, RejectedError, refused
from .attempt import KubernetesAttempt
from .phases import final, leaving, node_of, overdue_s
from .pods import CONTAINER, OVERTIME_S, TAG, attempt_pod, binding, deletion, key_of
from .site import Site
from .spec import specification
from .view import SOONEST_S, Seen, View
from .watching import Watcher

KILL_GRACE_S = 5.0
"""What a supervisor is given to kill all and say so."""


class KubernetesExecutor(AttemptExecutor[KubernetesAttempt]):
    """Runs attempts below `folder`, which all pods have at the same path."""

    name = "kubernetes"
    title = "pods of a Kubernetes cluster"
    runs_images = True
    gives_records = True

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
        self._declared = declared
        self._swept: Seen | None = None
        self._soon = False
        super().__init__(folder, site.poll_s)

    def prepare(self, folder: Path) -> None:
        """Lay down what pods run, and the mark of ours."""
        self._tag = tag_of(folder / "kubernetes.json")
        entry = Path(__file__).with_name("entry.py")
        self._entry = program.lay_down(folder / "kubernetes", entry)
        self._view = View(self.api, self.site, self._tag, self._declared)
        self._watcher = Watcher(self.api, f"{TAG}={self._tag}", self._note)

    def follow(self, key: AttemptKey) -> KubernetesAttempt:
        """Return what follows an attempt from its folder."""
        return KubernetesAttempt(self._attempts_folder, key, self._tag)

    # ----------------------------------------------------------------------------------------------
    # --- to see

    def observe(self) -> tuple[Observation, ...]:
        """Return all attempts that were started or killed and are not forgotten. Raises
        NoAnswerError."""
        with self._lock:
            observations = super().observe()
            self._soon = any(
                attempt.soon for attempt in self._attempts.values() if attempt.ended is None
            )
            return observations

    def refresh(self) -> None:
        """Ask Kubernetes, unless nothing has changed."""
        self._seen = self._ask()

    def _ask(self, known_changes: bool = True) -> Seen:
        """Return what Kubernetes says by now; pods of attempts that are forgotten here are deleted.
        Raises NoAnswerError."""
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

    def specification(self, order: Order, folder: AttemptFolder) -> dict[str, Any]:
        """Return the record of an attempt to be started. Raises RefusedError, NoAnswerError."""
        seen = self._ask(known_changes=False)  # or many starts would be many lists
        used = self.used_gpus()
        return specification(order, seen.nodes, used, folder, self.site, self._grace_s)

    def submit(self, attempt: KubernetesAttempt, fresh: bool) -> None:
        """Make a pod for each node of an attempt that has none, and bind them. Raises RefusedError,
        NoAnswerError."""
        try:
            self._make(attempt, fresh)
        finally:
            self._view.changed = True

    def _make(self, attempt: KubernetesAttempt, fresh: bool) -> None:
        spec = attempt.folder.spec
        uids: dict[int, str] = {}
        for rank in attempt.unclaimed():
            pod = attempt_pod(spec, rank, self.site, self._entry, attempt.folder.path, self._tag)
            try:
                made = self.api.create(pod)
            except RejectedError as error:
                if fresh and not uids:  # nothing of it is there
                    self.drop(attempt)
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
            attempt.give_up(reason)

    def hasten(self, attempt: KubernetesAttempt) -> None:
        """Delete its pods: supervisors find the record by themselves, only later."""
        attempt.told_s = -float("inf")
        with suppress(NoAnswerError):
            self._delete_unwanted(attempt, self._ask(known_changes=False))

    def enter(
        self, attempt: KubernetesAttempt, rank: int, inside: Sequence[str], terminal: bool
    ) -> Beside:
        """Return what kubectl runs in one of its pods, with the rights there of who asks."""
        pod, tty = attempt.pod_names()[rank], "-it" if terminal else "-i"
        where = (f"--namespace={self.site.namespace}", f"--container={CONTAINER}", tty)
        return Beside(
            argv=("/bin/sh",),
            environment={},
            directory="/",
            enter=("kubectl", "exec", pod, *where, "--", *inside),
        )

    def beside_program(self) -> tuple[str, Path]:
        """Return the Python of pods, and where they have the file `beside.py`."""
        return self.site.python, self._entry.with_name("beside.py")

    def see_to(self, attempt: KubernetesAttempt, seen: Observation) -> None:
        """Delete the pods of an attempt that is to end or has."""
        self._delete_unwanted(attempt, self._seen)

    def _delete_unwanted(self, attempt: KubernetesAttempt, seen: Seen) -> None:
        """Have Kubernetes delete the pods of an attempt that is to end or has, which also tells its
        supervisors."""
        stop, over = attempt.stop_record(), attempt.over or attempt.ended is not None
        pods = [seen.pods[name] for name in attempt.pod_names() if name in seen.pods]
        if (stop is None and not over) or not pods or not attempt.tell_again():
            return
        grace_s = KILL_GRACE_S
        if stop is not None and stop["grace_s"] is not None and not over:
            grace_s = stop["grace_s"] + OVERTIME_S
        for pod in pods:
            if not self._delete(pod, grace_s):
                return

    def _delete(self, pod: Mapping[str, object], grace_s: float) -> bool:
        """Delete it; return False where nobody answers."""
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

    def changes(self, timeout_s: float) -> None:
        """Wait until a pod changes, until it is time to ask again, or until `wake` is called."""
        self._watcher.start()
        soon = self._view.changed or self._soon
        self._woken.wait(
            max(0.0, min(timeout_s, self.site.poll_s, SOONEST_S if soon else self.site.poll_s))
        )
        self._woken.clear()

    def _note(self) -> None:
        self._view.changed = True
        self._woken.set()

    def close(self) -> None:
        """Let go of the folder; attempts go on."""
        self._watcher.close()
        super().close()
