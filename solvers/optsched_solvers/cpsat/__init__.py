"""Solver `cpsat`: the whole horizon by CP-SAT, large-neighbourhood search and a Lagrangian
bound."""

from optsched.model.instance import Instance
from optsched.objectives import Objective
from optsched.physics.catalogue import on_uplinks
from optsched.physics.contention import crowded_memory
from optsched.physics.model_caches import fetching
from optsched.physics.modes import split_jobs
from optsched.plugins.solver import Guarantee, Report, Request


class CpSat:
    name = "cpsat"
    title = "whole horizon: CP-SAT model, large-neighbourhood search, Lagrangian bound"
    needs: tuple[str, ...] = ("ortools.sat.python.cp_model", "numpy")
    guarantee: Guarantee = "exact"
    constrains = True

    def supports(self, instance: Instance, objective: Objective) -> str | None:
        if (job := split_jobs(instance)) is not None:
            return f"job {job} is to be split equally over nodes, which its model does not hold"
        if (job := on_uplinks(instance)) is not None:
            return f"job {job} may use the uplinks of racks, which its model does not hold"
        if (crowded := crowded_memory(instance)) is not None:
            return f"{crowded}: its model does not know how that slows them down"
        if (job := fetching(instance)) is not None:
            return (
                f"job {job} fetches its model: which nodes have it in their caches is not planned"
            )
        for level in objective.levels:
            if len(level) > 1 and any(term.name == "maxmin" for _, term in level):
                return "maxmin cannot be part of a weighted sum (put it first: maxmin,wct)"
        return None

    def solve(self, request: Request, report: Report) -> None:
        from .search import search

        search(request, report)


SOLVER = CpSat()
