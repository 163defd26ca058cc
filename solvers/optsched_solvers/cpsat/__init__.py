"""Solver `cpsat`: the whole horizon by CP-SAT, large-neighbourhood search and a Lagrangian
bound."""

from optsched.model.instance import Instance
from optsched.objectives import Objective
from optsched.physics.unplanned import unplanned
from optsched.plugins.solver import Guarantee, Report, Request


class CpSat:
    name = "cpsat"
    title = "whole horizon: CP-SAT model, large-neighbourhood search, Lagrangian bound"
    needs: tuple[str, ...] = ("ortools.sat.python.cp_model", "numpy")
    guarantee: Guarantee = "exact"
    constrains = True

    def supports(self, instance: Instance, objective: Objective) -> str | None:
        if (fault := unplanned(instance)) is not None:
            return fault
        for level in objective.levels:
            if len(level) > 1 and any(term.name == "maxmin" for _, term in level):
                return "maxmin cannot be part of a weighted sum (put it first: maxmin,wct)"
        return None

    def solve(self, request: Request, report: Report) -> None:
        from .search import search

        search(request, report)


SOLVER = CpSat()
