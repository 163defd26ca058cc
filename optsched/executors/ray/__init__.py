"""Runs jobs on the nodes of a Ray cluster."""

from .executor import RayExecutor
from .server import JobServer

__all__ = ["JobServer", "RayExecutor"]
