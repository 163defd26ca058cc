"""Runs jobs on the nodes of a Ray cluster."""

from .executor import RayExecutor
from .server import JobServer
from .site import Site

__all__ = ["JobServer", "RayExecutor", "Site"]
