"""The Ray executor of a cluster.toml."""

from dataclasses import field
from pathlib import Path
from typing import Annotated

from ...errors import InputError
from ...plugins.options import PluginOptions, PositiveDuration, declared_options
from ..opening import ExecutorContext
from .executor import RayExecutor
from .server import JobServer


@declared_options
class RayOptions(PluginOptions):
    """The table `[ray]`."""

    address: Annotated[str, "Where the job server of Ray's head answers."] = "http://127.0.0.1:8265"
    headers: Annotated[dict[str, str], "Headers of each call."] = field(default_factory=dict)
    token_file: Annotated[Path | None, "The file with the bearer token of each call."] = None
    timeout_s: Annotated[PositiveDuration, "How long a call may take."] = 10.0
    poll_s: Annotated[PositiveDuration, "How often to poll Ray."] = 1.0
    label: Annotated[str, "The label of Ray's nodes whose values are their names."] = (
        "optsched-node"
    )
    python: Annotated[str, "The Python of the nodes."] = "python3"
    start_timeout_s: Annotated[PositiveDuration, "How long Ray may leave an attempt waiting."] = (
        60.0
    )


def open_ray(context: ExecutorContext, options: RayOptions) -> RayExecutor:
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
    return RayExecutor(
        context.attempts,
        server,
        context.nodes,
        label=options.label,
        python=options.python,
        poll_s=options.poll_s,
        start_timeout_s=options.start_timeout_s,
        grace_s=context.grace_s,
    )
