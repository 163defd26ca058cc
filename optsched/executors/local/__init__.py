"""Runs jobs as processes of this host."""

from .executor import LocalExecutor
from .gpus import LocalNode

__all__ = ["LocalExecutor", "LocalNode"]
