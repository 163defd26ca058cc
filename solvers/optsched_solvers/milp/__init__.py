"""Solver `milp`: a readable time-indexed model of the whole horizon in PuLP."""

from .solver import MilpSolver

SOLVER = MilpSolver()
