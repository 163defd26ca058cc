"""Searching how many cores a job needs, from what jobs like it needed before."""

from collections.abc import Mapping


class CoreSearch:
    """Hill climbing over measured core counts, begun at the count that the last job of its category
    and gang size ended with.

    One count up as long as the rate improves by more than `gain`, as a share; where the first step
    up does not, one down as long as it loses no more than that. `searches` and `steps` count how
    often and how many counts were tried.

    Source: H. Zhao et al., CODA, ICDCS 2020 (adaptive CPU allocator), reconstructed.
    """

    def __init__(self, gain: float) -> None:
        self.gain = gain
        self.searches = 0
        self.steps = 0
        self._found: dict[tuple[str, int], int] = {}

    def cores(self, category: str, gpus: int, rates: Mapping[int, float], first: float) -> int:
        """Cores for each GPU; `rates` by measured count, `first` where to begin without a
        history."""
        counts = sorted(rates)
        begin = self._found.get((category, gpus), first)
        i = max((k for k, count in enumerate(counts) if count <= begin), default=0)
        here, tried = i, 1
        while i + 1 < len(counts):
            tried += 1
            if rates[counts[i + 1]] <= rates[counts[i]] * (1 + self.gain):
                break
            i += 1
        while i == here and i > 0:
            tried += 1
            if rates[counts[i - 1]] < rates[counts[i]] * (1 - self.gain):
                break
            i = here = i - 1
        self.searches += 1
        self.steps += tried
        self._found[category, gpus] = counts[i]
        return counts[i]
