"""The partial allocation mechanism for gangs: a proportionally fair choice, and what each winner
takes from others."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Bid:
    """A job that asks for `gpus`; `gain` is the logarithm of how much better off it is with
    them."""

    job: str
    gpus: int
    gain: float


@dataclass(frozen=True, slots=True)
class Win:
    """A job that gets its GPUs; `keeps` is the share of its allocation that is left after its
    hidden payment."""

    job: str
    keeps: float


def allocate(bids: list[Bid], gpus: int) -> list[Win]:
    """The bids that fit into `gpus` together and whose gains add up to most (the product of
    valuations is largest), and for each what it keeps: the product of the others' valuations with
    it over that without it.

    Exact, in O(bids x GPUs). Source: K. Mahajan et al., Themis, NSDI 2020, section 5.1, after R.
    Cole et al., Mechanism design for fair division, EC 2013; a gang gets all or nothing.
    """
    before = [np.zeros(gpus + 1)]
    for bid in bids:
        before.append(_with(before[-1], bid))
    after = [np.zeros(gpus + 1)]
    for bid in reversed(bids):
        after.append(_with(after[-1], bid))
    after.reverse()
    best = float(before[-1][gpus])
    wins = []
    left = gpus
    for i in range(len(bids) - 1, -1, -1):
        bid = bids[i]
        if bid.gpus > left or before[i + 1][left] == before[i][left]:
            continue
        left -= bid.gpus
        without = float(np.max(before[i] + after[i + 1][::-1]))
        wins.append(Win(bid.job, min(1.0, math.exp(best - bid.gain - without))))
    return wins[::-1]


def _with(best: NDArray[np.float64], bid: Bid) -> NDArray[np.float64]:
    """The largest sum of gains for each number of GPUs, with one more bid."""
    if bid.gpus >= len(best):
        return best
    found = best.copy()
    taken = best[: len(best) - bid.gpus] + bid.gain
    np.maximum(found[bid.gpus :], taken, out=found[bid.gpus :])
    return found
