"""How Ray is reached, and what its nodes have."""

from dataclasses import field
from pathlib import Path
from typing import Annotated

from ...plugins.options import PluginOptions, PositiveDuration, declared_options


@declared_options
class Site(PluginOptions):
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
