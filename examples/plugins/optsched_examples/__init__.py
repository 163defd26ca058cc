"""Plug-ins of optsched from another package: an executor, a policy and a solver."""
