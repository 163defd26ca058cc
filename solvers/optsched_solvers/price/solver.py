"""`price`: prices by dual ascent, packing on real nodes, then the core problem for the time that is
left."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from annotated_types import Ge

from optsched.model.plan import CLOSED_GAP
from optsched.plugins.options import PluginOptions
from optsched.round.exact import program
from optsched.round.model import Floats, Ints, RoundModel
from optsched.round.place import Packing
from optsched.round.realise import TURNS, keep_all, realise, realise_losers_first
from optsched.round.solver import RoundRequest

from ..native.within import within
from .core import Core, core, near_core
from .dual import Prices, best_options, first_prices, optimise
from .guests import with_guest_rows
from .neighbourhoods import Neighbourhoods
from .rounding import heaviest, one_guest_each, round_choice

FINE = 1e-7
"""Tolerance of the prices in the end."""
COARSE, TINY_OPTIONS = 2e-5, 2_000
"""Tolerance for so few options that the exact program is quick anyway."""
GAP_SHARE = 0.02
"""Tolerance of the first prices as a part of the gap that is asked for."""
PRICES_SHARE = 0.6
"""Most of the time that is left for finding prices."""
EVEN_SHARE = 0.2
"""Most of the time that is left for the prices of jobs that take no more than their share."""
CORE_OPTIONS = 60_000
"""Most options of an exact program."""
FEW_OPTIONS, FEW_TRIES, MORE_TRIES = 10_000, 1, 3
"""Above so many options a choice by prices is put on nodes in one order only, else in up to
three."""
FEW_TURNS = 3
"""Packings in which what found no room before comes first, where neighbourhoods come after them."""
CORES = 8
"""Most exact programs one after the other."""
HAND_OVER_S = 4e-6
"""Seconds that it takes to hand over one entry of a program, during which nothing can be
interrupted."""
CORE_LEAST_S = 0.02
"""No core is tried in less time."""
SPARE_S = 0.005
"""What threads may wake up late, kept free before the deadline besides the time that packing
takes."""


class PriceSolver:
    """See docs/mathematics.md, "The round"."""

    name = "price"
    title = "Lagrangian prices and packing, then the exact core"
    needs = ("ortools",)

    def supports(self, model: RoundModel) -> str | None:
        """Support every round."""
        return None

    @dataclass(frozen=True, kw_only=True)
    class Options(PluginOptions):
        core: Annotated[
            int, Ge(0), "Most options for which what is left of a round is solved exactly."
        ] = CORE_OPTIONS

    def solve(self, request: RoundRequest) -> None:
        """Solve anytime: a bound and the plan that keeps all come first, and both only get better
        until the gap is the one that was asked for."""
        _Search(request, (request.options or self.Options()).core).run()


class _Search:
    """One round: the best value and bound so far, and what a packing takes."""

    def __init__(self, request: RoundRequest, core_options: int) -> None:
        self._request = replace(request, report_packing=self._report)
        self._report_packing = request.report_packing
        self._packing: Packing | None = None
        self._by_nodes = bool(request.model.scarce) and not request.model.reserved
        self._model = request.model
        self._priced = with_guest_rows(request.model)
        self._core_options = core_options
        self._value, self._bound = -np.inf, np.inf
        self._packing_s = 0.0

    def run(self) -> None:
        """Find first prices that are good enough for the gap, then exact ones, then exact programs.
        Prices are sought, and what they say is tried once, even where the plan that keeps all would
        be enough."""
        request, options = self._request, len(self._model.options.value)
        prices = _start(self._priced, request.prices)
        if prices is None:
            prices = first_prices(self._priced)
        self._prove(self._priced.bound(prices), "prices")
        request.report_prices(prices[: len(self._model.rows.limits)])
        self._keep_all()
        finest = FINE if options > TINY_OPTIONS else COARSE
        tolerances = dict.fromkeys((max(finest, GAP_SHARE * request.gap), finest))
        latest = None
        for tolerance in tolerances:
            if (latest is not None and self._is_done()) or request.left_s() < 1.5 * self._packing_s:
                return
            latest = self._prices(prices, tolerance)
            prices = latest.prices
            self._round(latest)
        if latest is not None and not self._is_done() and self._by_nodes:
            self._neighbourhoods(self._priced.reduced_values(latest.prices))
        if latest is not None and not self._is_done():
            self._cores(self._priced.reduced_values(latest.prices), latest.bound)

    def _report(self, packing: Packing) -> bool:
        """Pass a packing on; keep the best."""
        if self._packing is None or packing.worth() > self._packing.worth():
            self._packing = packing
        return self._report_packing(packing)

    def _keep_all(self) -> None:
        """Offer the plan that keeps all: of two plans of equal value it stays, as it comes
        first."""
        left_s = self._request.left_s()
        packing = keep_all(self._model, self._request.deadline)
        self._request.report_packing(packing)
        self._value = max(self._value, packing.worth())
        self._packing_s = left_s - self._request.left_s()

    def _prices(self, start: Floats, tolerance: float) -> Prices:
        left_s = self._request.left_s
        enough_s = max((1 - PRICES_SHARE) * left_s(), 3 * self._packing_s)
        improved = optimise(
            self._priced, start, lambda: left_s() < enough_s, tolerance, max(0.0, self._value)
        )
        if improved.bound <= self._bound:
            self._request.report_prices(improved.prices[: len(self._model.rows.limits)])
        self._prove(improved.bound, "prices")
        return improved

    def _round(self, prices: Prices) -> None:
        """Put choices on nodes, one after the other."""
        tries = FEW_TRIES if len(self._model.options.value) > FEW_OPTIONS else MORE_TRIES
        for wish, reduced in self._choices(prices):
            self._realise(wish, reduced, tries)
            if self._is_done() or self._request.left_s() < 1.5 * self._packing_s:
                return

    def _choices(self, prices: Prices) -> Iterator[tuple[Ints, Floats]]:
        """Return what prices say of each job, where cores or memory are scarce first for jobs that
        take no more than their share of them, and what the relaxed solutions take most often; with
        each the reduced values that say what else a job could do."""
        model = self._model
        if model.evenly is not None:
            even = with_guest_rows(model.evenly)
            left_s, enough_s = self._request.left_s, (1 - EVEN_SHARE) * self._request.left_s()
            own = optimise(even, prices.prices, lambda: left_s() < enough_s, COARSE, 0.0)
            yield self._best(even.reduced_values(own.prices))
        reduced = self._priced.reduced_values(prices.prices)
        yield self._best(reduced)
        yield heaviest(model, prices.weights), reduced

    def _best(self, reduced: Floats) -> tuple[Ints, Floats]:
        """Return the choice in which each job takes the option of most reduced value that fits
        beside those of jobs that have more to lose."""
        model = self._model
        wish = one_guest_each(model, best_options(model, reduced), reduced)
        return round_choice(model, wish, reduced, self._request.deadline), reduced

    def _realise(self, wish: Ints, reduced: Floats, tries: int) -> None:
        """Put a choice on nodes, and where much of it finds no room, once more with that first."""
        request, left_s = self._request, self._request.left_s()
        enough = self._bound - self._tolerance()
        value = realise(request, wish, reduced, enough=enough, tries=tries)
        self._packing_s = max(self._packing_s, (left_s - request.left_s()) / tries)
        self._value = max(self._value, value)
        if (
            not self._is_done()
            and value < self._model.worth(wish)
            and request.left_s() > 3 * self._packing_s
        ):
            turns = FEW_TURNS if self._by_nodes else TURNS
            value = realise_losers_first(request, wish, reduced, enough=enough, turns=turns)
            self._value = max(self._value, value)

    def _prove(self, bound: float, source: str) -> None:
        self._request.report_bound(bound, source)
        self._bound = min(self._bound, bound)

    def _is_done(self) -> bool:
        return self._bound - self._value <= self._tolerance()

    def _tolerance(self) -> float:
        """Return how far the bound may lie above the value in the end: what is taken for closed is
        relative to what capacity can cost, a larger gap that was asked for to the value."""
        gap, value = self._request.gap, abs(self._value)
        if gap <= CLOSED_GAP:
            value = min(value, max(0.0, self._model.alone - self._value))
        return gap * value

    def _neighbourhoods(self, reduced: Floats) -> None:
        """Decide few nodes at a time anew, as long as that makes the best packing better."""
        request = self._request
        assert self._packing is not None
        search = Neighbourhoods(self._packing, reduced, request.seed)
        for packing in search.better(lambda: request.left_s() - SPARE_S):
            request.report_packing(packing)
            self._value = max(self._value, packing.worth())
            if self._is_done():
                return

    def _cores(self, reduced: Floats, proved: float) -> None:
        """Solve exact programs over what the prices leave open, which prove a bound; where that is
        too much, over what is nearest to the margin, which only finds better plans, and so leaves
        less open."""
        for _ in range(CORES):
            difference = proved - self._value
            part = core(self._model, reduced, difference)
            whole = len(part.options) <= self._core_options
            if not whole:
                part = near_core(self._model, reduced, difference, self._core_options)
            before = self._value
            if not len(part.options) or not self._core(part, reduced, whole=whole):
                return
            if self._is_done() or whole or self._value <= before:
                return

    def _core(self, part: Core, reduced: Floats, *, whole: bool) -> bool:
        """Solve one program in the time that is left but for putting its solution on nodes; False
        without one."""
        from ..native.highs import maximise

        model, request = self._model, self._request
        spare_s = SPARE_S + self._packing_s
        if request.left_s() - spare_s < CORE_LEAST_S:
            return False
        stated = program(model, part.options, part.fixed, part.must_run)
        left_s = request.left_s() - spare_s
        if left_s < CORE_LEAST_S + HAND_OVER_S * len(stated.row):
            return False
        outcome = within(
            left_s, lambda: maximise(stated, 0.9 * left_s, absolute_gap=0.5 * self._tolerance())
        )
        if outcome is None:
            return False
        if whole and outcome.infeasible:  # no better solution exists than the one in hand
            self._prove(self._value, "core")
            return False
        if whole and outcome.bound < self._bound:
            self._prove(max(self._value, outcome.bound), "core")
        if outcome.x is None:
            return False
        self._realise(stated.choice(model, part.fixed, outcome.x), reduced, 2 * MORE_TRIES)
        return True


def _start(model: RoundModel, known: dict[str, float]) -> Floats | None:
    """Return last round's prices, where there are any for these rows."""
    if not any(row.name in known for row in model.rows.limits):
        return None
    return np.array([known.get(row.name, 0.0) for row in model.rows.limits])


SOLVER = PriceSolver()
