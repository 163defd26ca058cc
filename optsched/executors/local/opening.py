"""The local executor of a cluster.toml."""

from ...errors import InputError
from ...plugins.options import PluginOptions
from ..opening import ExecutorContext
from .executor import LocalExecutor
from .gpus import LocalNode


def open_local(context: ExecutorContext, options: PluginOptions) -> LocalExecutor:
    """Processes of this host, as the nodes that the file declares.

    Attempts are kept below the state folder. Raises InputError.
    """
    if context.outputs is not None:
        try:
            context.outputs.mkdir(parents=True, exist_ok=True, mode=0o711)
        except OSError as error:
            raise InputError(
                f"outputs: {context.outputs} cannot be made: {error.strerror}; name a folder "
                "that can be written"
            ) from None
    nodes = [LocalNode(node=node, emulate=node.name in context.emulated) for node in context.nodes]
    return LocalExecutor(context.attempts, nodes, context.outputs)
