"""What if, beside the controller: that is never kept from its turns, and an answer comes when its
time is up."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from ..beside import START_S, Beside, NoForecastError
from ..round_driver import NamedPolicy
from .future import Outlook
from .simulated import ROUNDS, Change, what_if
from .words import Foretold, Shown, told

TIME_LIMIT_S = 20.0
"""Wall clock for an answer; what is reached by then is told."""
MOST_AT_ONCE = 2
"""So many questions at once, as each has a process that computes."""
TURN_S = 20.0
"""So long may one wait for its turn."""
_turns = threading.BoundedSemaphore(MOST_AT_ONCE)
_idle = [Beside() for _ in range(MOST_AT_ONCE)]


def foretell(
    ahead: Outlook,
    change: Change,
    *,
    objective: str,
    policy: NamedPolicy = ROUNDS,
    time_limit_s: float = TIME_LIMIT_S,
    shown: Shown = None,
) -> Foretold:
    """Return what `what_if` answers, in words; computed beside this process at a low priority.

    Raises InputError as that, NoForecastError where no answer came or others ask.
    """
    settings = {"objective": objective, "policy": policy, "time_limit_s": time_limit_s}
    with _turn() as beside:
        answer = beside.call(time_limit_s + START_S, _told, ahead, change, settings, shown)
    return cast(Foretold, answer)


@contextmanager
def _turn() -> Iterator[Beside]:
    """Yield a process, the one that was asked last if it is free: that is warm."""
    if not _turns.acquire(timeout=TURN_S):
        raise NoForecastError("others are asking what if; ask again later")
    try:
        beside = _idle.pop()
        try:
            yield beside
        finally:
            _idle.append(beside)
    finally:
        _turns.release()


def _told(ahead: Outlook, change: Change, settings: dict[str, object], shown: Shown) -> Foretold:
    return told(what_if(ahead, change, **settings), ahead.instance.now_s, shown)  # type: ignore[arg-type]
