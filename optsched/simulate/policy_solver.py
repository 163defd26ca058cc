"""A policy as a solver: its plan is what simulating it gives."""

from ..errors import OptschedError
from ..model import Instance
from ..objectives import Objective
from ..plugins import registry
from ..plugins.solver import Guarantee, Report, Request
from .run import simulate


class PolicySolver:
    """Plans by simulating the policy of that name, which is given the objective and the options if
    it takes them; it proves nothing.

    Raises InputError for an unknown policy, SolverUnavailableError for a broken one.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.title: str = registry.policy(name).title
        self.Options = registry.options_of("policies", name)
        self.needs: tuple[str, ...] = ()
        self.guarantee: Guarantee = "none"

    def supports(self, instance: Instance, objective: Objective) -> str | None:
        """Support every instance and every objective."""
        return None

    def solve(self, request: Request, report: Report) -> None:
        """Simulate a fresh policy. Where it leaves jobs waiting for ever there is no plan, and a
        note says why."""
        policy = registry.policy(self.name, request.objective, request.options)
        try:
            plan = simulate(request.instance, policy)
        except OptschedError as error:
            report.note(str(error))
            return
        report.plan(plan)
