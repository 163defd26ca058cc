"""Taking over a changed cluster.toml while jobs run."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import InputError
from ..executors.base import Executor, NoAnswerError
from ..executors.opening import open_executor
from ..frozen import frozen
from .accepting import check_alone
from .explain.blocked import Obstacles
from .journal.events import Noted
from .journal.state import LiveJob
from .present import as_waiting
from .settings import Settings

if TYPE_CHECKING:
    from .controller import Controller

FIXED = ("state", "shared", "outputs", "executor", "kueue")
"""What a controller keeps from its start to its end."""
OF_EXECUTOR = ("nodes", "grace")
"""What the executor is told when it is opened, besides its own table."""


@frozen
class Reloaded:
    """What was taken over of the file: the fields that `changed`, and the waiting jobs that cannot
    run any more, each with the reason."""

    changed: tuple[str, ...]
    unfit: dict[str, str]


def reload(
    controller: "Controller",
    read: Callable[[], Settings],
    open_anew: Callable[[Settings], Executor] = open_executor,
) -> Reloaded:
    """Take over what `read` returns, as a restart would, and go on with all that runs.

    Raises InputError naming the faults, or what only a restart can change; then nothing has
    changed.
    """
    old, new = controller.settings, read()
    changed = _changed(old, new)
    fixed = [name for name in changed if name in (*FIXED, "api.port")]
    if fixed:
        verb = "changes" if len(fixed) == 1 else "change"
        raise InputError(
            f"{', '.join(fixed)} {verb} only when the controller is restarted, so nothing was "
            "taken over; restart it, or put back what was there"
        )
    if not changed:
        return Reloaded(changed=(), unfit={})
    drivers = controller.drivers_of(new)  # what is wrong with them is told before anything is done
    executor = controller.executor
    if {*changed} & {*OF_EXECUTOR, old.executor}:
        executor = _reopened(controller, new, open_anew)
    controller.take_over(new, drivers, executor)
    controller.record(Noted(text=f"cluster.toml was read again: {', '.join(changed)} changed"))
    with suppress(Exception):  # seen, and told of, at the next turn
        controller.look()
    return Reloaded(changed=changed, unfit=_unfit(controller))


def _changed(old: Settings, new: Settings) -> tuple[str, ...]:
    names = [name for name in Settings.model_fields if getattr(old, name) != getattr(new, name)]
    if "api" in names and old.api.port != new.api.port:
        names[names.index("api")] = "api.port"
    if "executor" not in names and old.table(old.executor) != new.table(new.executor):
        names.append(old.executor)
    return tuple(names)


def _reopened(
    controller: "Controller", new: Settings, open_anew: Callable[[Settings], Executor]
) -> Executor:
    """Return the executor opened anew, as it was where it cannot be opened so; what it runs goes
    on."""
    controller.executor.close()
    try:
        return open_anew(new)
    except BaseException:
        try:
            controller.use(open_anew(controller.settings))
        except Exception:
            controller.use(Closed(controller, open_anew))
        raise


class Closed:
    """Stands for an executor that could be opened neither with what is new nor as it was, and is
    tried again at each look; what it runs goes on meanwhile."""

    name = title = "closed"

    def __init__(self, controller: "Controller", open_anew: Callable[[Settings], Executor]) -> None:
        self._controller, self._open = controller, open_anew

    def inventory(self) -> NoReturn:
        """Try it again; what there is, is seen at the next look."""
        try:
            self._controller.use(self._open(self._controller.settings))
        except Exception as error:
            raise NoAnswerError(f"it cannot be opened: {error}") from None
        raise NoAnswerError("it has just been opened again")

    def refuse(self, *_: Any, **__: Any) -> NoReturn:
        """Do nothing of what is asked. Raises NoAnswerError."""
        raise NoAnswerError("the executor is closed")

    start = checkpoint_stop = signal = kill = observe = forget = refuse

    def changes(self, timeout_s: float) -> None:
        """Wait."""
        time.sleep(timeout_s)

    def close(self) -> None:
        """Let go of nothing."""


def _unfit(controller: "Controller") -> dict[str, str]:
    """Return the waiting jobs that could not run if nothing else did."""
    obstacles = Obstacles(controller)
    unfit: dict[str, str] = {}
    for job in controller.state.open.values():
        why = None if job.live is not None else _why_unfit(controller, obstacles, job)
        if why is not None:
            unfit[job.id] = why
    return unfit


def _why_unfit(controller: "Controller", obstacles: Obstacles, job: LiveJob) -> str | None:
    try:
        check_alone(controller, as_waiting(job))
    except InputError as error:
        return str(error).replace("\n", " ")
    now_s = controller.clock.now_s()
    return next((own.why for own in obstacles.of(job, now_s) if own.kind == "never"), None)
