"""The local executor of a cluster.toml."""

from typing import TYPE_CHECKING

from .executor import LocalExecutor
from .gpus import LocalNode

if TYPE_CHECKING:
    from ...control.settings import Settings


def open_local(settings: "Settings") -> LocalExecutor:
    """Processes of this host, as the nodes that the file declares.

    Attempts are kept below the state folder. Raises InputError.
    """
    nodes = [LocalNode(node=node, emulate=part.emulate) for part in settings.nodes for node in part.nodes()]
    return LocalExecutor(settings.attempts, nodes)
