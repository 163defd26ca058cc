"""The slow-down of jobs by each other on shared channels, from the plan alone."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import pairwise

from ..model import Instance, Job, Plan, Segment
from ..physics.contention import Channel, channel_gbps, channel_loads, may_contend, slowdown

Piece = tuple[float, float]
"""Seconds, and by how much the job is slowed down in them."""


class Crowding:
    """For each channel that is ever overfull, the instants at which its load changes, and load /
    capacity from then on. O(S log S) for S pieces of segments."""

    def __init__(self, instance: Instance, plan: Plan) -> None:
        self._instance = instance
        self._ratios: dict[Channel, tuple[list[float], list[float]]] = {}
        if not may_contend(instance):
            return
        changes: dict[Channel, list[tuple[float, float]]] = defaultdict(list)
        for entry in plan.jobs:
            job = instance.job[entry.id]
            for segment in entry.segments:
                loads = channel_loads(instance.cluster, job, segment.mode, segment.placement)
                for channel, gbps in loads.items():
                    changes[channel].append((segment.start_s, gbps))
                    changes[channel].append((segment.end_s, -gbps))
        for channel, of_channel in changes.items():
            capacity = channel_gbps(instance.cluster, channel)
            ratio: dict[float, float] = {}
            load = 0.0
            for time_s, gbps in sorted(of_channel):
                load += gbps
                ratio[time_s] = load / capacity
            if max(ratio.values()) > 1.0:
                self._ratios[channel] = [*ratio], [*ratio.values()]

    def pieces(self, job: Job, segment: Segment, from_s: float, until_s: float) -> list[Piece]:
        """Return the part of `segment` between two instants, in order, cut wherever the job's
        slow-down may change."""
        if until_s <= from_s or not self._ratios:
            return [(max(0.0, until_s - from_s), 1.0)]
        loads = channel_loads(self._instance.cluster, job, segment.mode, segment.placement)
        crowded = [channel for channel in loads if channel in self._ratios]
        cuts = {from_s, until_s}
        for channel in crowded:
            times, _ = self._ratios[channel]
            cuts.update(times[bisect_right(times, from_s) : bisect_left(times, until_s)])
        return [
            (
                end_s - start_s,
                slowdown(job.profile, {channel: self._at(channel, start_s) for channel in crowded}),
            )
            for start_s, end_s in pairwise(sorted(cuts))
        ]

    def _at(self, channel: Channel, time_s: float) -> float:
        """Return the load / capacity from an instant on."""
        times, ratio = self._ratios[channel]
        i = bisect_right(times, time_s) - 1
        return ratio[i] if i >= 0 else 0.0
