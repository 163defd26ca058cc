"""Executors as plug-ins: a function that opens one, found by entry point (`optsched.executors`).

Its name in `cluster.toml` is that of the entry point, and so is that of its table there. It is
called with an `ExecutorContext` and with `options`, whose annotation declares what the table may
hold (see `plugins.options`); the first line of its docstring is its title.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..frozen import frozen
from ..model import Node
from ..plugins import registry
from .base import Executor

if TYPE_CHECKING:
    from ..control.settings import Settings


@frozen
class ExecutorContext:
    """What every executor is told besides its own options.

    `attempts` is the folder below which jobs report and save, which every node sees under this
    name. `nodes` are those that the file declares: with all they have where the manager knows
    nothing of them, else what is to be added to that. GPUs of the `emulated` ones need not exist.
    What jobs print is kept below `outputs` where that is given. `grace_s` is for attempts that
    somebody else stops.
    """

    attempts: Path
    nodes: tuple[Node, ...] = ()
    emulated: frozenset[str] = frozenset()
    outputs: Path | None = None
    grace_s: float = 60.0

    @property
    def declared(self) -> dict[str, Node]:
        """Return the nodes by name."""
        return {node.name: node for node in self.nodes}

    def refuse_emulated(self) -> None:
        """Raise InputError where GPUs are to be emulated, which only this host can do."""
        for name in sorted(self.emulated):
            raise InputError(
                f"nodes: {name} has emulate = true, which is for the local executor; leave it out"
            )


def open_executor(settings: "Settings") -> Executor:
    """Return the executor that `settings` names. Raises InputError where it is unknown or cannot
    serve these settings."""
    emulated = (node.name for part in settings.nodes if part.emulate for node in part.nodes())
    context = ExecutorContext(
        attempts=settings.attempts,
        nodes=settings.cluster.nodes,
        emulated=frozenset(emulated),
        outputs=settings.outputs,
        grace_s=settings.grace,
    )
    open_named = registry.executor(settings.executor)
    opened: Executor = open_named(context, settings.table(settings.executor))
    return opened
