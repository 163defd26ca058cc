"""Contracts of plug-ins, and how they are found by entry point."""
