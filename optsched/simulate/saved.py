"""A simulation that can be interrupted: its state on disk while it runs, and how it is taken up
again."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from .. import __version__, files
from ..errors import InputError
from .run import Simulation

STATE = "state.bin"
STATE_FORMAT = "optsched-state/1"
EVERY_S = 60.0
"""How often the state is written at most; a large one less often."""
MOST_OF_TIME = 0.05
"""Share of the run time that may go into writing states."""


class RunInterruptedError(Exception):
    """Ctrl-C or a polite kill; the state is on disk."""


def run_saving(
    simulation: Simulation, path: Path, asked: dict[str, Any], tell: Callable[[int], None] | None
) -> None:
    """Run to the end, writing the state to `path` now and then, so that a run that dies loses
    little.

    `asked` is what makes a simulation what it is (instance, policy, options). Ctrl-C and SIGTERM
    end the run after the decision it is at, with the state written. The file goes when the
    simulation is complete. Raises RunInterruptedError, and what `Simulation.run` raises;
    InputError where the state cannot be written.
    """
    begun_s = time.monotonic()
    spent_s, last_s = 0.0, begun_s

    def due() -> bool:
        now_s = time.monotonic()
        return stop.is_set() or (
            now_s - last_s >= EVERY_S and spent_s <= MOST_OF_TIME * (now_s - begun_s)
        )

    with _polite_stop() as stop:
        while not simulation.run(tell, until=due):
            last_s = time.monotonic()
            save(simulation, path, asked)
            spent_s += time.monotonic() - last_s
            last_s = time.monotonic()
            if stop.is_set():
                raise RunInterruptedError
    path.unlink(missing_ok=True)


def save(simulation: Simulation, path: Path, asked: dict[str, Any]) -> None:
    """Write the state, whole or not at all, making its directory. Raises InputError where it cannot
    be written."""
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"{path.parent}: cannot be made: {error.strerror or error}") from None
    head = {"format": STATE_FORMAT, "version": __version__, **asked}
    files.write_bytes(path, json.dumps(head).encode() + b"\n" + simulation.save())


def take_up(path: Path, asked: dict[str, Any]) -> Simulation:
    """Return the simulation that was saved. Raises InputError where there is none, or it is not the
    one asked for."""
    try:
        head, _, state = path.read_bytes().partition(b"\n")
        header = json.loads(head)
    except FileNotFoundError:
        raise InputError(
            f"{path}: there is no interrupted simulation; leave --resume out to begin one"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read: {error}; leave --resume out to begin anew"
        ) from None
    wanted = {"format": STATE_FORMAT, "version": __version__, **json.loads(json.dumps(asked))}
    for name, value in wanted.items():
        if not isinstance(header, dict) or header.get(name) != value:
            was = header.get(name) if isinstance(header, dict) else None
            raise InputError(
                f"{path}: the interrupted simulation had {name} {json.dumps(was)}, this is "
                f"{json.dumps(value)}; "
                "ask for the same, or leave --resume out to begin anew"
            )
    try:
        return Simulation.restored(state)
    except Exception as error:  # a truncated pickle can raise anything
        raise InputError(
            f"{path}: is damaged ({type(error).__name__}); leave --resume out to begin anew"
        ) from None


@contextmanager
def _polite_stop() -> Iterator[threading.Event]:
    """Yield an event that is set by the first Ctrl-C or SIGTERM; a second one has its usual
    effect."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, before[number])

    for number in (int(signal.SIGINT), int(signal.SIGTERM)):
        before[number] = signal.signal(number, note)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
