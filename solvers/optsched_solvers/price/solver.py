"""`price`: prices by dual ascent, packing on real nodes, then the core problem for the time that is left."""

from collections.abc import Mapping

import numpy as np

from optsched.errors import InputError
from optsched.round.model import Floats, RoundModel
from optsched.round.realise import keep_all, realise
from optsched.round.solver import RoundRequest
from optsched.solver import only_options

from ..within import within
from .core import core
from .dual import best_options, optimise
from .rounding import heaviest, round_choice

FINE = 1e-7
"""Tolerance of the prices where the core is small enough to be solved afterwards."""
COARSE, TINY_OPTIONS = 2e-5, 2_000
"""The same where packing is all there is time for, and for so few options that the exact program is quick anyway."""
PRICES_SHARE = 0.6
"""Most of the time that is left for finding prices."""
CORE_OPTIONS = 60_000
"""Most options for which a core is tried."""
FEW_OPTIONS, FEW_TRIES, MORE_TRIES = 10_000, 1, 3
"""Above so many options a choice by prices is put on nodes in one order only, else in up to three."""
HAND_OVER_S = 4e-6
"""Seconds that it takes to hand over one entry of a program, during which nothing can be interrupted."""
CORE_LEAST_S = 0.02
"""No core is tried in less time."""
SPARE_S = 0.005
"""What threads may wake up late, kept free before the deadline besides the time that packing takes."""
KEEP_FIRST_OPTIONS = 5_000
"""Most options for which the plan that keeps all is made first, so that of two plans of equal value it stays."""


class PriceSolver:
    """See DESIGN 7 and docs/mathematics.md, "The round"."""

    name = "price"
    title = "Lagrangian prices and packing, then the exact core"
    needs = ("ortools",)

    def supports(self, model: RoundModel) -> str | None:
        """Every round."""
        return None

    def check_options(self, options: Mapping[str, str]) -> None:
        """Raise InputError for an option that it does not have, or no number."""
        only_options("round solver price", options, ("core",))
        _core_options(options)

    def solve(self, request: RoundRequest) -> None:
        """Anytime: after the prices there is a plan and a bound, and both only get better."""
        model = request.model
        packing_s = 0.0
        if len(model.value) <= KEEP_FIRST_OPTIONS:
            packing_s = request.left_s()
            request.report_packing(keep_all(model))
            packing_s -= request.left_s()
        start = _start(model, request.prices)
        small = len(model.value) <= _core_options(request.options)
        enough_s = max((1 - PRICES_SHARE) * request.left_s(), 1.5 * packing_s)
        tolerance = max(FINE if small and len(model.value) > TINY_OPTIONS else COARSE, 0.02 * request.gap)
        found = optimise(model, start, lambda: request.left_s() < enough_s, tolerance)
        request.report_bound(found.bound, "prices")
        request.report_prices(found.prices)
        reduced = model.reduced_values(found.prices)
        best = best_options(model, reduced)
        value = -np.inf
        if request.left_s() < packing_s:
            return
        enough = found.bound - request.gap * abs(found.bound)
        tries = FEW_TRIES if len(model.value) > FEW_OPTIONS else MORE_TRIES
        for by_prices in (True, False):
            wish = round_choice(model, best, reduced) if by_prices else heaviest(model, found.weights)
            packing_s = request.left_s()
            value = max(value, realise(request, wish, reduced, enough=enough, tries=tries))
            packing_s -= request.left_s()
            if not small or value >= enough or request.left_s() < packing_s:
                break
        if small and value < enough:
            self._core(request, reduced, found.bound, value, SPARE_S + packing_s)

    def _core(self, request: RoundRequest, reduced: Floats, bound: float, value: float, spare_s: float) -> None:
        """The core problem for all the time that is left but `spare_s`, which packing its solution takes."""
        from ..highs import maximise

        model = request.model
        part = core(model, reduced, bound - value)
        if not len(part.options) or request.left_s() - spare_s < CORE_LEAST_S:
            return
        program = part.program(model)
        left_s = request.left_s() - spare_s
        if left_s < CORE_LEAST_S + HAND_OVER_S * len(program.row):
            return
        outcome = within(left_s, lambda: maximise(program, 0.9 * left_s, relative_gap=request.gap * 0.5))
        if outcome is None:
            return
        if outcome.infeasible:  # no better solution exists than the one in hand
            request.report_bound(value, "core")
            return
        if outcome.bound < bound:
            request.report_bound(max(value, outcome.bound), "core")
        if outcome.x is not None:
            realise(request, program.choice(model, part.fixed, outcome.x), reduced)


def _core_options(options: Mapping[str, str]) -> int:
    text = options.get("core", str(CORE_OPTIONS))
    if not text.isdigit():
        raise InputError(f"round solver price: core={text} is no number of options")
    return int(text)


def _start(model: RoundModel, known: dict[str, float]) -> Floats | None:
    """Last round's prices, where there are any for these rows."""
    if not any(row.name in known for row in model.rows):
        return None
    return np.array([known.get(row.name, 0.0) for row in model.rows])


SOLVER = PriceSolver()
