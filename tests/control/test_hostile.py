"""A controller that nothing stops: hostile jobs, users, clocks, nodes and edits of cluster.toml."""

from typing import Any

from hypothesis import given, settings

from .hostile import HISTORIES, check_history


@given(events=HISTORIES)
@settings(max_examples=60, deadline=None)
def test_nothing_stops_it(events: list[Any]) -> None:
    check_history(events)
