"""Stands for a library that is installed but broken."""

raise RuntimeError("this library is broken")
