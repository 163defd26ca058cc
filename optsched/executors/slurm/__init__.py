"""Runs jobs as batch jobs of a Slurm cluster."""

from .executor import SlurmExecutor

__all__ = ["SlurmExecutor"]
