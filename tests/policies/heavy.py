"""Policies that search or solve at each decision: tests over all policies do them in the slow
run."""

import pytest

from optsched.plugins.registry import names

HEAVY = ("pollux", "powerflow", "shockwave-style", "sia")
POLICIES = [
    pytest.param(name, marks=pytest.mark.slow) if name in HEAVY else name
    for name in names("policies")
]
"""All policies, as parameters of a test."""
