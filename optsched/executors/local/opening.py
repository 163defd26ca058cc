"""The local executor of a cluster.toml."""

from typing import TYPE_CHECKING

from ...errors import InputError
from .executor import LocalExecutor
from .gpus import LocalNode

if TYPE_CHECKING:
    from ...control.settings import Settings


def open_local(settings: "Settings") -> LocalExecutor:
    """Processes of this host, as the nodes that the file declares.

    Attempts are kept below the state folder. Raises InputError.
    """
    if settings.outputs is not None:
        try:
            settings.outputs.mkdir(parents=True, exist_ok=True, mode=0o711)
        except OSError as error:
            raise InputError(
                f"outputs: {settings.outputs} cannot be made: {error.strerror}; name a folder "
                "that can be written"
            ) from None
    nodes = [
        LocalNode(node=node, emulate=part.emulate)
        for part in settings.nodes
        for node in part.nodes()
    ]
    return LocalExecutor(settings.attempts, nodes, settings.outputs)
