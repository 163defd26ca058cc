"""`price`: prices by dual ascent, packing on real nodes, then the core problem for the time that is
left."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
from annotated_types import Ge

from optsched.model import CLOSED_GAP
from optsched.plugins.options import PluginOptions, declared_options
from optsched.round.exact import program
from optsched.round.model import Floats, Ints, RoundModel
from optsched.round.place import Packing
from optsched.round.realise import keep_all, realise
from optsched.round.solver import RoundRequest

from ..native.within import within
from .configurations import Configurations
from .core import Core, core, neighbourhood
from .dual import Prices, first_prices, improve, optimise, priced_once
from .guests import with_guest_rows
from .knapsacks import Knapsacks
from .neighbourhoods import Neighbourhoods
from .quotas import Filling, quota_bound
from .rounding import one_guest_each, preferred, round_choice

FINE = 1e-7
"""Tolerance of the prices in the end."""
COARSE, TINY_OPTIONS = 2e-5, 2_000
"""Tolerance for so few options that the exact program is quick anyway."""
COARSER, GAP_SHARE = (1e-4, 1e-5), 0.02
"""Tolerances of the prices before, or so much of the gap that is asked for."""
CORE_OPTIONS = 60_000
"""Most options of an exact program."""
FIRST_CORE, CORE_GROWTH = 1_000, 4
"""Most options of the first exact program, and how many times as many the next one has."""
WHOLE = 2
"""Of so many times as many options a program is solved whole: to leave some out makes it no easier,
and proves nothing."""
NEARLY = 0.1
"""Part of the gap at which a program that proves no bound is solved well enough."""
MUCH_LOST = 1e-2
"""Part of a solution's value from which on nodes are looked at one by one, if what found no room on
them is worth that much; roughly, where a gap as large is good enough."""
FAR = 1.5e-2
"""Part of it from which on all nodes are filled anew before, where a small gap is asked for: less
is found sooner by deciding few nodes at a time."""
KNAPSACK_MISSES = 3
"""A choice is put on nodes by knapsacks until so many times in a row are no better."""
NEARBY = 10
"""Times the gap that is asked for within which the plan that keeps all must be of the bound for
the last prices to be good enough."""
SMALL_GAP = 1e-3
"""Where at most this gap is asked for, the search for prices ends once they prove it. With a larger
one it goes on: a much smaller gap soon follows."""
FEW_OPTIONS = 10_000
"""Above so many options a choice by prices is not put on nodes where a plan in hand is good enough
already: packing takes too long."""
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

    @declared_options
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
        self._request = replace(request, report_packing=self._offer)
        self._report = request.report_packing
        self._model = request.model
        self._priced = with_guest_rows(request.model)
        self._core_options = core_options
        self._best: Packing | None = None
        self._stuck: Packing | None = None
        self._value, self._bound = -np.inf, np.inf
        self._by_rows = -np.inf  # what the last program's choice is worth before it is on nodes
        self._packing_s = 0.0
        self._tried_evenly = self._is_configured = False
        self._is_large = len(self._model.options.value) > FEW_OPTIONS

    def run(self) -> None:
        """Search."""
        try:
            self._search()
        finally:
            del self._request  # it reports to this search: a cycle, which nothing frees at once

    def _search(self) -> None:
        """Try what the prices of the last round say of each job where little has changed; then find
        prices, coarse ones first, or better ones than these, and decide what they leave in doubt by
        exact programs. What comes next does not depend on the time that is left: more time means
        more steps."""
        last = _start(self._priced, self._request.prices)
        prices = first_prices(self._priced) if last is None else last
        self._prove(self._priced.bound(prices), "prices", prices)
        self._keep_all()
        if self._left_s() < 0 or (self._is_large and self._is_done()):
            return
        near = self._bound - self._value <= NEARBY * self._tolerance() and not self._is_large
        if last is not None and near and self._is_enough(priced_once(self._priced, last)):
            return
        finest = FINE if len(self._model.options.value) > TINY_OPTIONS else COARSE
        coarse = (max(least, finest, GAP_SHARE * self._request.gap) for least in COARSER)
        tolerances, floor = tuple(dict.fromkeys((*coarse, finest))), max(0.0, self._value)
        stops = self._is_large and self._request.gap <= SMALL_GAP
        enough = self._value + self._tolerance() if stops else -np.inf
        if last is None or self._best is None:
            found = optimise(self._priced, prices, self._left_s, tolerances, floor, enough)
        else:
            chosen = self._best.chosen
            found = improve(self._priced, last, chosen, self._left_s, tolerances, enough)
        for latest in found:
            if self._is_enough(latest) or self._decide(latest, FIRST_CORE):
                return
        size = FIRST_CORE
        while size < self._core_options:
            if 2.0 * self._by_rows > self._bound + self._value:
                self._refine(latest)
            size *= CORE_GROWTH
            if self._is_done() or self._decide(latest, size) or self._is_done():
                break
        self._refine(latest)

    def _is_enough(self, latest: Prices) -> bool:
        """Report what prices prove, and put on nodes what they say; return whether nothing is left
        to do, or no time."""
        self._prove(latest.bound, "prices", latest.prices)
        if self._left_s() < 0 or (self._is_large and self._is_done()):
            return True
        bound, fillings = quota_bound(self._priced, latest.prices)
        self._prove(bound, "prices and quotas")
        self._round(latest)
        if fillings and not self._is_done() and self._left_s() > 0:
            self._realise(*self._choice(self._priced, latest, fillings))
        return self._is_done()

    def _refine(self, latest: Prices) -> None:
        """Decide single nodes anew, although little is lost there, where a small gap is asked
        for."""
        if self._request.gap <= SMALL_GAP and self._left_s() > 0:
            self._by_nodes(self._priced.reduced_values(latest.prices), latest.prices)

    def _left_s(self) -> float:
        """Return the seconds left but for putting another choice on nodes."""
        return self._request.left_s() - 1.5 * self._packing_s

    def _offer(self, packing: Packing) -> bool:
        """Report a packing, and note the best."""
        value = packing.worth()
        if value > self._value:
            self._best, self._value = packing, value
        return self._report(packing)

    def _keep_all(self) -> None:
        """Offer the plan that keeps all: of two plans of equal value it stays, as it comes
        first."""
        left_s = self._request.left_s()
        self._offer(keep_all(self._model, self._request.deadline))
        self._packing_s = max(self._packing_s, left_s - self._request.left_s())

    def _round(self, prices: Prices) -> None:
        """Put on nodes what prices say of each job; where cores or memory are scarce, first what
        they say of jobs that take no more than their share of them."""
        model = self._model
        if model.evenly is not None and not self._tried_evenly:
            self._tried_evenly = True
            even = with_guest_rows(model.evenly)
            *_, own = optimise(even, prices.prices, self._left_s, (COARSE,))
            if self._left_s() < 0:
                return
            self._realise(*self._choice(even, own))
            if self._is_done() or self._left_s() < 0:
                return
        wish, reduced = self._choice(self._priced, prices)
        if self._is_much_lost(wish, self._realise(wish, reduced)) and model.scarce:
            is_small = self._request.gap <= SMALL_GAP
            if self._is_much_lost(wish, self._value, FAR if is_small else MUCH_LOST):
                self._by_knapsacks(wish, reduced)
                self._by_configurations(prices.prices)
            self._by_nodes(reduced, prices.prices)

    def _choice(
        self, priced: RoundModel, prices: Prices, fillings: Sequence[Filling] = ()
    ) -> tuple[Ints, Floats]:
        """Return the choice in which each job takes the option that it had best take, where there
        are `fillings` the one that fills its quota, and that fits beside those of jobs that have
        more to lose; with the reduced values."""
        reduced = priced.reduced_values(prices.prices)
        wish = preferred(self._model, reduced, prices.weights)
        for filling in fillings:
            for j, option in filling.choice(prices.weights).items():
                wish[j] = option
        wish = one_guest_each(self._model, wish, reduced)
        return round_choice(self._model, wish, reduced, self._request.deadline), reduced

    def _realise(self, wish: Ints, reduced: Floats) -> float:
        """Put a choice on nodes; return its value there."""
        left_s = self._request.left_s()
        value = realise(self._request, wish, reduced)
        self._packing_s = max(self._packing_s, left_s - self._request.left_s())
        return value

    def _prove(self, bound: float, source: str, prices: Floats | None = None) -> None:
        """Report a bound, and the prices that prove it."""
        if prices is not None and bound <= self._bound:
            self._request.report_prices(prices[: len(self._model.rows.limits)])
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

    def _decide(self, prices: Prices, most: int) -> bool:
        """Solve an exact program over what prices leave open, which proves a bound; where that is
        more than `most` options, over what is most in doubt, which only finds better plans, and so
        leaves less open. Return whether nothing is left to do, or no time."""
        model, most = self._model, min(most, self._core_options)
        reduced = self._priced.reduced_values(prices.prices)
        part = core(model, reduced, prices.bound - self._value)
        whole = len(part.options) <= min(WHOLE * most, self._core_options)
        if not whole and most and self._best is not None:
            part = neighbourhood(model, reduced, prices.weights, self._best.chosen, most)
        elif not whole:
            return False
        if not len(part.options):
            return True
        return not self._core(part, reduced, prices.prices, whole=whole) or whole

    def _core(self, part: Core, reduced: Floats, prices: Floats, *, whole: bool) -> bool:
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
        enough = 0.5 * self._tolerance()
        if not whole:
            enough = max(enough, NEARLY * (self._bound - self._value))
        outcome = within(left_s, lambda: maximise(stated, 0.9 * left_s, absolute_gap=enough))
        if outcome is None:
            return False
        if whole and outcome.infeasible:  # no better solution exists than the one in hand
            self._prove(self._value, "core")
            return False
        if whole and outcome.bound < self._bound:
            self._prove(max(self._value, outcome.bound), "core")
        if outcome.x is None:
            return False
        wish = stated.choice(model, part.fixed, outcome.x)
        self._by_rows = model.worth(wish)
        if self._is_much_lost(wish, self._realise(wish, reduced)):
            self._by_nodes(reduced, prices)
        return True

    def _is_much_lost(self, wish: Ints, value: float, part: float = MUCH_LOST) -> bool:
        """Return whether single nodes are short of so large a part of what rows promise: a choice
        is worth `value` on nodes."""
        worth = self._model.worth(wish)
        return value < worth - part * abs(worth)

    def _by_knapsacks(self, wish: Ints, reduced: Floats) -> None:
        """Put a choice on nodes one node at a time, as long as that makes the best plan better."""
        if self._model.reserved:
            return
        misses = 0
        for packing in Knapsacks(self._model, wish, reduced, self._request.deadline).packings():
            misses = 0 if packing.worth() > self._value else misses + 1
            self._offer(packing)
            if misses == KNAPSACK_MISSES or self._is_done() or self._left_s() < 0:
                return

    def _by_configurations(self, prices: Floats) -> None:
        """Bound and decide what each node holds, by columns, once; only where the plan is far from
        the bound."""
        far = self._bound - self._value > MUCH_LOST * abs(self._value)
        if not far or self._model.reserved or self._is_configured or self._is_done():
            return
        assert self._best is not None
        self._is_configured = True
        search = Configurations(self._priced, prices, self._best)
        self._prove(search.bound, "node configurations")
        for bound in search.bounds(self._left_s):
            self._prove(bound, "node configurations")
            if self._is_done():
                return
        for packing in search.packings(self._left_s):
            self._offer(packing)

    def _by_nodes(self, reduced: Floats, prices: Floats) -> None:
        """Decide few nodes at a time anew, exactly, as long as that makes the best plan better."""
        if self._model.reserved or self._best is self._stuck or self._is_done():
            return
        assert self._best is not None
        search = Neighbourhoods(self._best, reduced, prices, self._request.seed)
        rough = self._request.gap >= MUCH_LOST
        for packing in search.better(self._left_s, rough=rough):
            self._offer(packing)
            if self._is_done():
                return
        self._stuck = self._best


def _start(model: RoundModel, known: dict[str, float]) -> Floats | None:
    """Return last round's prices, where there are any for these rows."""
    if not any(row.name in known for row in model.rows.limits):
        return None
    prices = np.array([known.get(row.name, 0.0) for row in model.rows.limits])
    return np.asarray(np.minimum(prices, model.dearest), dtype=float)


SOLVER = PriceSolver()
