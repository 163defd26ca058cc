"""`highs`: the whole round as one mixed-integer program, solved by HiGHS."""

from optsched.round.exact import program
from optsched.round.model import RoundModel
from optsched.round.realise import keep_all, realise
from optsched.round.solver import RoundRequest

from ..native.within import within

MOST_OPTIONS = 150_000
"""60,000 (5,000 jobs on 8,192 GPUs) take 14 s to the proved optimum, 120,000 more than a minute;
two cores."""


class HighsRoundSolver:
    """Exact on the rows of the round model, without a plan of its own before it is done: for rounds
    that are small, or have the time. No options."""

    name = "highs"
    title = "the whole round model by HiGHS through MathOpt"
    needs = ("ortools",)

    def supports(self, model: RoundModel) -> str | None:
        """Support at most `MOST_OPTIONS` options."""
        if len(model.options.value) > MOST_OPTIONS:
            return f"it has {len(model.options.value)} options, more than the {MOST_OPTIONS} that HiGHS can take at once"  # noqa: E501
        return None

    def solve(self, request: RoundRequest) -> None:
        """Offer the plan that keeps all, then the best that the program and the nodes allow."""
        from ..native.highs import maximise

        model = request.model
        request.report_packing(keep_all(model, request.deadline))
        whole = program(model)
        left_s = request.left_s()
        if left_s <= 0:
            return
        outcome = within(
            left_s, lambda: maximise(whole, 0.9 * left_s, relative_gap=0.5 * request.gap)
        )
        if outcome is None:
            request.note("highs found nothing in time")
            return
        if outcome.x is None:
            request.report_bound(outcome.bound, "highs")
            return
        chosen = whole.choice(model, None, outcome.x)
        realise(request, chosen, model.options.value)
        request.report_bound(
            max(outcome.bound, model.worth(chosen)) if outcome.proved else outcome.bound, "highs"
        )


SOLVER = HighsRoundSolver()
