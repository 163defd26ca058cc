"""What a simulation was worth: computed from its `Record` alone."""

from .measure import Metrics, measure
from .summary import summary

__all__ = ["Metrics", "measure", "summary"]
