"""From a choice of options to a plan on real nodes, which every round solver needs."""

from collections.abc import Sequence

import numpy as np

from .deadline import NEVER, Deadline
from .model import NO_OPTION, Floats, Ints, RoundModel
from .place import Packing
from .solver import RoundRequest

ORDERS = ((True, False), (False, True), (False, False))
"""(slots first, fragments first) of the packings that are tried in turn (see `Packing`)."""
MANY_OPTIONS = 60_000
"""Beyond so many options one packing takes all the time there is."""
TURNS = 12
"""Most packings in which what found no room before comes first."""
NEARLY = 0.5
"""In each turn those join whose loss is at least this part of the largest."""


def realise(
    request: RoundRequest,
    wish: Ints,
    reduced: Floats,
    *,
    enough: float = np.inf,
    tries: int = 2 * len(ORDERS),
) -> float:
    """Put a choice on nodes in several orders and report each; the best value found.

    Ends when nothing of the choice is lost, when the value is `enough`, or after so many `tries`. A
    job whose option does not fit takes another by `reduced`, or in a second turn by value.
    """
    model = request.model
    target = _target(model, wish, enough)
    best = -np.inf
    attempts = [(ranked, order) for ranked in (reduced, model.options.value) for order in ORDERS]
    for ranked, order in attempts[:tries]:
        left_s = request.left_s()
        best = max(best, _attempt(request, wish, ranked, order=order).worth())
        if best >= target or len(model.options.value) > MANY_OPTIONS or _is_late(request, left_s):
            break
    return best


def realise_losers_first(
    request: RoundRequest, wish: Ints, reduced: Floats, *, enough: float = np.inf
) -> float:
    """Put a choice on nodes again and again, each time first what found no room the time before and
    would be the greatest loss: the rows know nothing of the cores and the memory of single nodes,
    of racks and of uplinks. The best value found.

    After Joslin and Clements, "Squeaky wheel" optimization, Journal of Artificial Intelligence
    Research 10, 1999.
    """
    model = request.model
    target = _target(model, wish, enough)
    urgent: list[int] = []
    best = -np.inf
    for _ in range(TURNS):
        left_s = request.left_s()
        packing = _attempt(request, wish, reduced, urgent)
        best = max(best, packing.worth())
        lost = _values(model, wish) - _values(model, packing.chosen)
        lost[urgent] = 0.0
        if best >= target or lost.max(initial=0.0) <= 0 or model.reserved:
            break
        if _is_late(request, left_s):
            break
        worst = np.flatnonzero(lost >= NEARLY * lost.max())
        urgent = [*worst[np.argsort(-lost[worst], kind="stable")].tolist(), *urgent]
    return best


def _attempt(
    request: RoundRequest,
    wish: Ints,
    ranked: Floats,
    urgent: Sequence[int] = (),
    order: tuple[bool, bool] = (False, False),
) -> Packing:
    """Put a choice on nodes once and report it."""
    packing = Packing(
        request.model, slots_first=order[0], fragments_first=order[1], deadline=request.deadline
    )
    packing.place_all(wish, ranked, urgent)
    packing.fill()
    request.report_packing(packing)
    return packing


def _is_late(request: RoundRequest, left_s: float) -> bool:
    """Return whether another attempt, as long as the one that began with so much time, would come
    too late."""
    return request.left_s() < left_s - request.left_s()


def _target(model: RoundModel, wish: Ints, enough: float) -> float:
    target = min(model.worth(wish), enough)
    return target - 1e-12 * abs(target)


def _values(model: RoundModel, chosen: Ints) -> Floats:
    """Return what each job is worth in a choice."""
    return np.where(chosen >= 0, model.options.value[chosen], 0.0)


def keep_all(model: RoundModel, deadline: Deadline = NEVER) -> Packing:
    """Keep every running job where it is, and give what is free to waiting jobs by value, until the
    deadline."""
    packing = Packing(model, deadline=deadline)
    wish = np.full(len(model.jobs), NO_OPTION, dtype=np.int64)
    wish[model.patterns.kept] = model.options.first[model.patterns.kept]
    packing.place_all(wish, model.options.value)
    packing.fill()
    return packing
