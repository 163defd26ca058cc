"""The Ray executor of a cluster.toml."""

from typing import TYPE_CHECKING

from ...errors import InputError
from .executor import RayExecutor
from .server import JobServer

if TYPE_CHECKING:
    from ...control.settings import Settings


def open_ray(settings: "Settings") -> RayExecutor:
    """Jobs of the Ray cluster that `[ray]` names, one a node.

    Attempts are kept below the folder that all its nodes share. Raises InputError.
    """
    ray = settings.ray
    if not ray.address.startswith(("http://", "https://")):
        raise InputError(
            f"ray.address: {ray.address!r} is no address of a job server, as http://127.0.0.1:8265"
        )
    token_file = None if ray.token_file is None else ray.token_file.expanduser()
    if token_file is not None and not token_file.is_absolute():
        raise InputError(f"ray.token_file: {ray.token_file} is no absolute path")
    server = JobServer(ray.address, ray.headers, token_file, float(ray.timeout))
    nodes = [node for part in settings.nodes for node in part.nodes()]
    return RayExecutor(
        settings.attempts,
        server,
        nodes,
        label=ray.label,
        python=ray.python,
        poll_s=float(ray.poll),
        start_timeout_s=float(ray.start_timeout),
        grace_s=float(settings.grace),
    )
