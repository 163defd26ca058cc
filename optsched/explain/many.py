"""The decisions of a whole round or plan, explained job by job."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..driver.shares import weighed
from ..model import Instance, Plan
from ..objectives import Objective, parse
from ..round.build import build
from ..round.decide import decide
from ..round.plan import JobRound, RoundSolution
from ..round.windows import at_present
from . import Explainer, explain_inactive
from .facts import Explanation


def explain_all(
    instance: Instance, jobs: Sequence[str], decided: Callable[[], RoundSolution]
) -> list[Explanation]:
    """Explain what was decided of each of these jobs; `decided` gives the round, and is asked only
    where one of them could run now."""
    inactive = {job: explain_inactive(instance, job) for job in jobs}
    if all(inactive.values()):
        return [explanation for explanation in inactive.values() if explanation is not None]
    solution = decided()
    now = at_present(weighed(instance))
    model = build(now, parse(solution.objective), solution.round_s, refill=solution.refill)
    explainer = Explainer(model, solution)
    return [explanation or explainer.job(job) for job, explanation in inactive.items()]


def round_of_plan(
    instance: Instance,
    plan: Plan,
    objective: str | Objective,
    *,
    solver: str = "plan",
    round_s: float = 300.0,
    budget_s: float = 1.0,
) -> RoundSolution:
    """Return what a plan decides now, with the prices of a round."""
    priced = decide(instance, objective, round_s=round_s, budget_s=budget_s)
    return replace(priced, solver=solver, jobs=_first_steps(instance, plan))


def _first_steps(instance: Instance, plan: Plan) -> tuple[JobRound, ...]:
    """Return what each job holds once those who leave have saved."""
    steps = []
    for entry in plan.jobs:
        if entry.decision in ("wait", "preempt"):
            steps.append(JobRound(id=entry.id, decision=entry.decision))
            continue
        running = instance.running_job.get(entry.id)
        step = entry.segments[0]
        if (
            entry.decision != "continue"
            and running is not None
            and len(entry.segments) > 1
            and (
                set(step.placement) == set(running.placement)
                and step.mode.size == running.mode.size
            )
        ):
            step = entry.segments[1]  # the first is its checkpoint where it was
        steps.append(
            JobRound(id=entry.id, decision=entry.decision, mode=step.mode, placement=step.placement)
        )
    return tuple(steps)
