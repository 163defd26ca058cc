"""Wakes whoever waits when a pod changes: only a hint, for what is true is listed anew."""

import threading
from collections.abc import Callable

from ..base import NoAnswerError
from .api import GONE, KubernetesApi, RejectedError

WATCH_S = 10
"""So long is one request for changes kept open."""
AGAIN_S = 2.0


class Watcher:
    """A thread that calls `changed` after each change of a pod that `selector` matches."""

    def __init__(self, api: KubernetesApi, selector: str, changed: Callable[[], None]) -> None:
        self._api, self._selector, self._changed = api, selector, changed
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="optsched-kubernetes-watch", daemon=True
        )

    def start(self) -> None:
        """Begin, unless it has."""
        if not self._thread.is_alive() and not self._closed.is_set():
            self._thread.start()

    def close(self) -> None:
        """Have it end, soon."""
        self._closed.set()

    def _run(self) -> None:
        version: str | None = None
        while not self._closed.is_set():
            try:
                if version is None:
                    version = self._api.pods(self._selector)[1]
                    self._changed()
                for event in self._api.watch(self._selector, version, WATCH_S):
                    if self._closed.is_set():
                        return
                    version = str(event["object"]["metadata"]["resourceVersion"])
                    if event.get("type") != "BOOKMARK":
                        self._changed()
            except RejectedError as error:
                version = None  # too old (410), or the rights are gone
                if error.status != GONE:
                    self._closed.wait(AGAIN_S)
            except (NoAnswerError, KeyError, TypeError):
                version = None
                self._closed.wait(AGAIN_S)
