"""The round by Lagrangian prices, packing and an exact core."""

from .solver import SOLVER

__all__ = ["SOLVER"]
