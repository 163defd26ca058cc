"""Estimates by name."""

import math

from ..errors import InputError, perhaps
from . import Estimates
from .history import History
from .learned import Learned
from .noisy import Noisy
from .unknown import Unknown

KINDS = ("oracle", "noisy:SIGMA", "history", "learned", "none")
MOST_SIGMA = 3.0
"""With this one job in three is off by a factor of 20; far beyond, beliefs are too small beside the
work to be told from nothing."""


def parse(text: str) -> Estimates | None:
    """Return fresh estimates of a kind in `KINDS`, for one simulation; None for `oracle`, which
    knows all.

    Raises InputError for any other text, and for `learned` where scikit-learn is not installed.
    """
    kind, _, argument = text.partition(":")
    if kind == "noisy":
        return Noisy(_sigma(text, argument))
    if text == "oracle":
        return None
    if text == "history":
        return History()
    if text == "learned":
        return Learned()
    if text == "none":
        return Unknown()
    raise InputError(
        f"estimates {text!r} are unknown{perhaps(text, KINDS)}; choose from {', '.join(KINDS)}"
    )


def _sigma(text: str, argument: str) -> float:
    try:
        sigma = float(argument)
    except ValueError:
        sigma = math.nan
    if not 0 <= sigma <= MOST_SIGMA:
        raise InputError(
            f"estimates {text!r}: noisy takes the standard deviation of the logarithm, from 0 to "
            f"{MOST_SIGMA:g}, "
            "as in noisy:0.5"
        )
    return sigma
