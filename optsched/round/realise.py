"""From a choice of options to a plan on real nodes, which every round solver needs."""

import numpy as np

from .model import Floats, Ints, RoundModel
from .place import Packing
from .solver import RoundRequest

ORDERS = ((True, False), (False, True), (False, False))
"""(slots first, fragments first) of the packings that are tried in turn (see `Packing`)."""
MANY_OPTIONS = 60_000
"""Beyond so many options one packing takes all the time there is."""


def realise(
    request: RoundRequest, wish: Ints, reduced: Floats, *, enough: float = np.inf, tries: int = 2 * len(ORDERS)
) -> float:
    """Put a choice on nodes in several orders and report each; the best value found.

    Ends when nothing of the choice is lost, when the value is `enough`, or after so many `tries`. A job whose option
    does not fit takes another by `reduced`, or in a second turn by value.
    """
    model = request.model
    target = min(model.worth(wish), enough)
    best = -np.inf
    attempts = [(ranked, order) for ranked in (reduced, model.value) for order in ORDERS]
    for ranked, (slots_first, fragments_first) in attempts[:tries]:
        left_s = request.left_s()
        packing = Packing(model, slots_first=slots_first, fragments_first=fragments_first)
        packing.place_all(wish, ranked)
        packing.fill()
        request.report_packing(packing)
        best = max(best, packing.worth())
        if best >= target - 1e-12 * abs(target) or len(model.value) > MANY_OPTIONS:
            break
        if request.left_s() < left_s - request.left_s():  # another would come too late
            break
    return best


def keep_all(model: RoundModel) -> Packing:
    """Every running job stays where it is, and what is free goes to waiting jobs by value."""
    packing = Packing(model)
    wish = np.full(len(model.jobs), -1, dtype=np.int64)
    wish[model.kept] = model.first[model.kept]
    packing.place_all(wish, model.value)
    packing.fill()
    return packing
