"""Solvers and policies that optsched finds by entry point."""
