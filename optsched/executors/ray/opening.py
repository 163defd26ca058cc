"""The Ray executor of a cluster.toml."""

from ...errors import InputError
from ..opening import ExecutorContext
from .executor import RayExecutor
from .server import JobServer
from .site import Site


def open_ray(context: ExecutorContext, options: Site) -> RayExecutor:
    """Jobs of the Ray cluster that `[ray]` names, one a node.

    Attempts are kept below the folder that all its nodes share. Raises InputError.
    """
    if not options.address.startswith(("http://", "https://")):
        raise InputError(
            f"ray.address: {options.address!r} is not the address of a job server, as "
            "http://127.0.0.1:8265"
        )
    token_file = None if options.token_file is None else options.token_file.expanduser()
    if token_file is not None and not token_file.is_absolute():
        raise InputError(f"ray.token_file: {options.token_file} is not an absolute path")
    server = JobServer(options.address, options.headers, token_file, options.timeout_s)
    return RayExecutor(context.attempts, server, options, context.nodes, grace_s=context.grace_s)
