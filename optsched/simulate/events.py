"""What is to come in virtual time, in one total order."""

import math
from collections.abc import Callable
from enum import IntEnum
from heapq import heapify, heappop, heappush


class Kind(IntEnum):
    """What happens; at one instant, in this order, so that what ends makes room for what
    arrives."""

    ENDED = 0
    SAVED = 1
    TO_LEAVE = 2
    WINDOW_OVER = 3
    WINDOW_AHEAD = 4
    NODE_BACK = 5
    NODE_LOST = 6
    ARRIVED = 7
    WAKE = 8


ARRIVED = Kind.ARRIVED
"""Looked up once: there is one for every job."""
Event = tuple[float, int, int, int, int]
"""time_s, kind, sequence, index of the job or node, run number. Sequence is unique within a kind,
so the order is total."""


def first_round_s(start_s: float, round_s: float, time_s: float) -> float:
    """Return the first of start, start + round, start + 2 rounds ... that is not before
    `time_s`."""
    rounds = math.ceil((time_s - start_s) / round_s)
    while (
        start_s + rounds * round_s < time_s
    ):  # the division may be off by its rounding, either way
        rounds += 1
    while start_s + (rounds - 1) * round_s >= time_s:
        rounds -= 1
    return start_s + rounds * round_s


class Events:
    """A heap of events, beside the arrivals, which are known from the start and only need sorting
    once.

    Arrivals are (time, rank, position of the job in the instance), in this order.
    """

    def __init__(self, arrivals: list[tuple[float, int, int]]) -> None:
        arrivals.sort(reverse=True)
        self._arrival_s = [time_s for time_s, _, _ in arrivals]
        self._arriving = [index for _, _, index in arrivals]
        self._heap: list[Event] = []
        self._sequence = 0

    def push(self, time_s: float, kind: Kind, index: int = -1, run: int = 0) -> int:
        """Add an event, and return how many are to come beside arrivals; those of one kind at one
        instant come in the order in which they were added."""
        self._sequence += 1
        heap = self._heap
        heappush(heap, (time_s, kind, self._sequence, index, run))
        return len(heap)

    def drop(self, is_over: Callable[[Event], bool]) -> None:
        """Drop the events that mean nothing any more."""
        self._heap = [event for event in self._heap if not is_over(event)]
        heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    def next_s(self) -> float:
        """Return when the next event comes; infinite when nothing is to come."""
        arrival_s = self._arrival_s[-1] if self._arrival_s else math.inf
        return min(arrival_s, self._heap[0][0]) if self._heap else arrival_s

    def pop_instant(self) -> list[Event]:
        """Return all events of the earliest instant, in order; empty when nothing is to come."""
        heap, arrival_s = self._heap, self._arrival_s
        if arrival_s and (not heap or arrival_s[-1] <= heap[0][0]):
            time_s = arrival_s[-1]
        elif heap:
            time_s = heap[0][0]
        else:
            return []
        events = []
        while heap and heap[0][0] == time_s:
            events.append(heappop(heap))
        ended = len(events)
        while arrival_s and arrival_s[-1] == time_s:
            arrival_s.pop()
            index = self._arriving.pop()
            events.append((time_s, ARRIVED, -len(arrival_s), index, 0))
        if 0 < ended < len(events):
            events.sort()
        return events
