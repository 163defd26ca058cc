"""The long run of `tests/control/test_hostile.py`: 10,000 hostile histories."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.control.hostile import EVENTS, check_history

pytestmark = pytest.mark.slow


@given(events=st.lists(EVENTS, min_size=3, max_size=30))
@settings(max_examples=10_000)
def test_nothing_stops_it_ten_thousand_times(events: list[Any]) -> None:
    check_history(events)
