"""Calls of native solvers."""
