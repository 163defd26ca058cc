"""A clock that does not follow the host's when that jumps."""

import time

import pytest

from optsched.control.clock import SteadyClock


def test_it_is_never_behind_the_journal() -> None:
    ahead_s = time.time() + 5000.0
    clock = SteadyClock(ahead_s)
    assert clock.now_s() >= ahead_s and clock.jump_s() is None
    assert SteadyClock(0.0).now_s() == pytest.approx(time.time(), abs=1.0)


def test_a_jump_is_told_once_and_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteadyClock(0.0)
    before_s, wall_s = clock.now_s(), time.time()
    monkeypatch.setattr(time, "time", lambda: wall_s + 3600.0)
    assert clock.jump_s() == pytest.approx(3600.0, abs=1.0) and clock.jump_s() is None
    assert clock.now_s() == pytest.approx(before_s, abs=5.0)
    assert clock.steady_s(wall_s + 3590.0) == pytest.approx(before_s - 10.0, abs=5.0)
    assert clock.steady_s(wall_s + 9999.0) <= clock.now_s()
    monkeypatch.setattr(time, "time", lambda: wall_s - 3600.0)
    assert clock.jump_s() == pytest.approx(-7200.0, abs=1.0)
