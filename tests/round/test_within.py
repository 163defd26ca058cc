"""Calls of native code: their time is limited."""

import threading

import pytest

from optsched.errors import SolverUnavailableError
from optsched_solvers.native.within import within


def test_what_a_call_returns() -> None:
    assert within(60.0, lambda: 7) == 7


def test_what_a_call_raises() -> None:
    def fail() -> None:
        raise SolverUnavailableError("no licence")

    with pytest.raises(SolverUnavailableError, match="no licence"):
        within(60.0, fail)


def test_a_call_that_takes_too_long_is_given_up() -> None:
    release = threading.Event()
    try:
        assert within(0.01, lambda: release.wait(60.0)) is None
    finally:
        release.set()
