"""What if, beside the controller: that is never kept from its turns, and an answer comes when its
time is up."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from ..beside import START_S, Beside, NoForecastError
from ..round_driver import NamedPolicy
from .future import Outlook
from .simulated import ROUNDS, Change, Seen, compared, courses_of, refuse, seen_of
from .words import Foretold, Shown, told

TIME_LIMIT_S = 20.0
"""Wall clock for an answer; what is reached by then is told."""
MOST_AT_ONCE = 2
"""So many questions at once, as each has processes that compute."""
TURN_S = 20.0
"""So long may one wait for its turn."""
_turns = threading.BoundedSemaphore(MOST_AT_ONCE)
_idle = [(Beside(), Beside()) for _ in range(MOST_AT_ONCE)]
"""For each question a process for the course as things are, and one for that with the change."""


def foretell(
    ahead: Outlook,
    change: Change,
    *,
    objective: str,
    policy: NamedPolicy = ROUNDS,
    time_limit_s: float = TIME_LIMIT_S,
    shown: Shown = None,
) -> Foretold:
    """Return what would become of the present jobs, in words; the courses are played at once,
    beside this process at a low priority.

    Raises InputError for a job, node or GPU type that is not there, NoForecastError where no answer
    came or others ask.
    """
    refuse(ahead, change)
    with _turn() as processes:
        courses = [
            _begun(beside, ahead, own, objective, policy, time_limit_s)
            for beside, own in zip(processes, courses_of(change), strict=False)
        ]
        seen = [course.result() for course in courses]
    return told(compared(ahead, change, seen, policy), ahead.instance.now_s, shown)


@contextmanager
def _turn() -> Iterator[tuple[Beside, Beside]]:
    """Yield processes, those that were asked last if they are free: these are warm."""
    if not _turns.acquire(timeout=TURN_S):
        raise NoForecastError("others are asking what if; ask again later")
    try:
        processes = _idle.pop()
        try:
            yield processes
        finally:
            _idle.append(processes)
    finally:
        _turns.release()


def _begun(
    beside: Beside,
    ahead: Outlook,
    change: Change,
    objective: str,
    policy: NamedPolicy,
    time_limit_s: float,
) -> Future[Seen]:
    """Begin a course in a process, waited for on a thread that does not keep this process alive;
    the process is ended some time after the time limit, so that a result always comes."""
    course: Future[Seen] = Future()
    limit_s = time_limit_s + START_S

    def wait() -> None:
        try:
            course.set_result(
                beside.call(limit_s, seen_of, ahead, change, objective, policy, time_limit_s)
            )
        except BaseException as error:  # raised where the result is asked for
            course.set_exception(error)

    threading.Thread(target=wait, name="what-if", daemon=True).start()
    return course
