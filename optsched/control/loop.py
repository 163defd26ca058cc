"""The thread on which a controller turns; others ask it to do things between turns."""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from ..errors import InputError
from .controller import Controller
from .journal.events import Noted
from .journal.journal import JournalError
from .reloading import Reloaded, reload
from .settings import Settings

Answer = TypeVar("Answer")
LOOK_S = 1.0
"""How often to look where nothing seems to happen."""
LONGEST_S = 60.0
"""So long at the most between two turns."""


class LoopStoppedError(Exception):
    """The controller no longer turns."""


class Loop:
    """Turns a controller whenever something happened or is due, until it is told to stop.

    Only the thread that calls `run` touches the controller: whoever else wants something of it uses
    `ask`.
    """

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self._asked: deque[tuple[Callable[[Controller], Any], Future[Any]]] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._changing, self._reloading = threading.Lock(), False
        self.read: Callable[[], Settings] | None = None
        """Reads cluster.toml again; None where there is no such file."""
        self._watcher = threading.Thread(target=self._watch, name="executor", daemon=True)

    def ask(self, call: Callable[[Controller], Answer], timeout_s: float = 30.0) -> Answer:
        """Have `call` done with the controller between two turns; its result or its exception.

        Raises LoopStoppedError where the controller no longer turns, TimeoutError where it does
        not get to it in time; then it never will.
        """
        answer: Future[Answer] = Future()
        self._asked.append((call, answer))
        self._wake.set()
        if self._stopping:
            raise LoopStoppedError
        try:
            return answer.result(timeout_s)
        except TimeoutError:
            if answer.cancel():  # it is not begun any more
                raise
            return answer.result()

    def reload_soon(self) -> None:
        """Have it done within a second, faults noted; may be called from a signal handler, which
        must take no lock."""
        self._asked.append((self._reload_and_note, Future()))

    def reload_now(self, controller: Controller) -> Reloaded:
        """Have the controller take over the cluster.toml that there is now, on the thread of this
        loop. Raises InputError where it is faulty, or changes what only a restart can change."""
        if self.read is None:
            raise InputError("this controller was not started from a file")
        self._reloading = True  # so that the watcher lets go of the executor
        try:
            with self._changing:
                return reload(controller, self.read)
        finally:
            self._reloading = False

    def _reload_and_note(self, controller: Controller) -> None:
        try:
            self.reload_now(controller)
        except InputError as error:
            said = str(error).replace("\n", " ")
            controller.record(Noted(text=f"cluster.toml was not taken over: {said}"))

    def stop(self) -> None:
        """Have `run` return after the present turn, within a second; may be called from a signal
        handler, which must take no lock."""
        self._stopping = True

    def run(self) -> None:
        """Turn until `stop`. Raises JournalError, and nothing else: a turn that fails is followed
        by others, later."""
        self._watcher.start()
        fault: Exception = LoopStoppedError()
        try:
            while not self._stopping:
                self._wake.clear()
                self._answer()
                try:
                    wait_s = self.controller.step()
                except JournalError:
                    raise
                except Exception as error:
                    self.controller.bug("a turn", error)
                    wait_s = LOOK_S
                    time.sleep(LOOK_S)
                self._wake.wait(min(wait_s, LONGEST_S))
        except JournalError as error:
            fault = error
            raise
        finally:
            self._stopping = True
            while self._asked:
                _, answer = self._asked.popleft()
                if answer.set_running_or_notify_cancel():
                    answer.set_exception(fault)

    def _answer(self) -> None:
        while self._asked:
            call, answer = self._asked.popleft()
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(call(self.controller))
            except JournalError as error:
                answer.set_exception(error)
                raise
            except Exception as error:
                answer.set_exception(error)

    def _watch(self) -> None:
        while not self._stopping:
            try:
                if self._reloading:
                    time.sleep(0.01)
                with self._changing:
                    self.controller.executor.changes(LOOK_S)
            except Exception:  # what is wrong the next turn finds out
                time.sleep(LOOK_S)
            self._wake.set()
