"""From a choice of options to a plan on real nodes, which every round solver needs."""

import numpy as np

from .deadline import NEVER, Deadline
from .model import NO_OPTION, Floats, Ints, RoundModel
from .place import Packing
from .solver import RoundRequest


def realise(request: RoundRequest, wish: Ints, reduced: Floats) -> float:
    """Put a choice on nodes and report it; its value there. A job whose option does not fit takes
    another by `reduced`."""
    packing = Packing(request.model, deadline=request.deadline)
    packing.place_all(wish, reduced)
    packing.fill()
    request.report_packing(packing)
    return packing.worth()


def keep_all(model: RoundModel, deadline: Deadline = NEVER) -> Packing:
    """Keep every running job where it is, and give what is free to waiting jobs by value, until the
    deadline."""
    packing = Packing(model, deadline=deadline)
    wish = np.full(len(model.jobs), NO_OPTION, dtype=np.int64)
    wish[model.patterns.kept] = model.options.first[model.patterns.kept]
    packing.place_all(wish, model.options.value)
    packing.fill()
    return packing
