"""Solver `cpsat`: the whole horizon by CP-SAT, list search and a Lagrangian bound."""

from optsched.model import Instance
from optsched.objectives import Inverse, Level, Linear, Objective, RankOfJobs
from optsched.physics.unplanned import unplanned
from optsched.plugins.solver import Guarantee, Report, Request


def unsupported(level: Level) -> str | None:
    """Return why a level of an objective cannot be modelled, or None."""
    for _, term in level:
        if not isinstance(term, RankOfJobs) or term.shape is Linear:
            continue
        if term.shape is not Inverse or term.quantile < 1:
            return f"its model does not hold the largest of such costs as {term.name} has"
        if len(level) > 1:
            return f"{term.name} cannot be part of a weighted sum (put it first: {term.name},wct)"
    return None


class CpSat:
    name = "cpsat"
    title = "whole horizon: CP-SAT model, list search, Lagrangian bound"
    needs: tuple[str, ...] = ("ortools.sat.python.cp_model", "numpy")
    guarantee: Guarantee = "exact"
    constrains = True

    def supports(self, instance: Instance, objective: Objective) -> str | None:
        from ..scheduling.windows import unplanned_window

        if (fault := unplanned(instance) or unplanned_window(instance)) is not None:
            return fault
        for level in objective.levels:
            if (reason := unsupported(level)) is not None:
                return reason
        return None

    def solve(self, request: Request, report: Report) -> None:
        from .search import search

        search(request, report)


SOLVER = CpSat()
