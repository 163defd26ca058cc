"""Runs jobs that users of Slurm submit themselves, which its job_submit.lua holds, on the nodes
that were chosen."""

from .executor import SbatchExecutor

__all__ = ["SbatchExecutor"]
