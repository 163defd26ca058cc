"""A simulation from its settings to what came of it: a checked plan, bounds and metrics."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..bounds import Bound, Follow, last, lower_bounds, priced_bound
from ..driver import PolicyError
from ..duration import human
from ..engine.incumbent import Incumbent
from ..estimates.parse import parse as parse_estimates
from ..files import instance_hash
from ..model import Instance, Plan, Solution
from ..objectives import Objective, parse
from ..physics.rigid import rigid
from ..plugins import registry
from ..simulate.metrics import Metrics, measure
from ..simulate.metrics.summary import spread, summary
from ..simulate.metrics.table import columns
from ..simulate.metrics.utility import mean_utility
from ..simulate.output import SUMMARY_FORMAT, rounds_total
from ..simulate.report.series import thinned
from ..simulate.run import Simulation
from .results import Drawn

if TYPE_CHECKING:
    from rich.table import Table

REPEATED = ("round_s", "spacing_s", "charge_solver_time", "estimates", "options")
"""Settings that the summary repeats."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is simulated and how; see `Simulation`. With `prices` the result is held against the
    bound by prices on GPU time. Making one raises InputError for a policy, option, objective or
    kind of estimates that does not exist, and for prices of an objective that has none."""

    policy: str
    objective: Objective
    round_s: float | None = None
    spacing_s: float = 0.0
    charge_solver_time: bool = False
    estimates: str = "oracle"
    half_life_s: float | None = None
    rigid: bool = False
    prices: bool = False
    options: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        registry.policy(self.policy, self.objective, self.options)
        parse_estimates(self.estimates)
        if self.prices:
            from ..bounds.by_prices import check_objective

            check_objective(self.objective)

    @classmethod
    def of(cls, policy: str, objective: str | Objective, **how: Any) -> "Setting":
        """Return the setting with an objective that may be given by its name."""
        goal = parse(objective) if isinstance(objective, str) else objective
        return cls(policy=policy, objective=goal, **how)

    def simulation(self, instance: Instance) -> Simulation:
        """Return the simulation of a checked instance, at its start."""
        return Simulation(
            rigid(instance) if self.rigid else instance,
            registry.policy(self.policy, self.objective, self.options),
            round_s=self.round_s,
            spacing_s=self.spacing_s,
            charge_solver_time=self.charge_solver_time,
            estimates=parse_estimates(self.estimates),
            half_life_s=self.half_life_s,
        )

    def asked(self, instance: Instance) -> dict[str, Any]:
        """Return what makes a simulation of an instance what it is."""
        return {
            "instance": instance_hash(instance),
            "policy": self.policy,
            "objective": self.objective.name,
            "options": self.options,
            "round_s": self.round_s,
            "spacing_s": self.spacing_s or None,
            "charge_solver_time": self.charge_solver_time,
            "estimates": self.estimates,
            **self.shares,
            **({"rigid": True} if self.rigid else {}),
        }

    @property
    def shares(self) -> dict[str, float]:
        """Return the half-life of use, where that counts."""
        return {} if self.half_life_s is None else {"half_life_s": self.half_life_s}

    @property
    def words(self) -> tuple[str, ...]:
        """Return what of the setting is not usual, in words."""
        said = {
            f"decided in rounds of {human(self.round_s or 0)}": self.round_s,
            f"decisions at least {human(self.spacing_s)} apart": self.spacing_s,
            "the time that decisions take is charged": self.charge_solver_time,
            f"shares by use with a half-life of {human(self.half_life_s or 0)}": self.half_life_s,
            "elastic jobs run on the GPUs that they asked for": self.rigid,
            f"estimates {self.estimates}": self.estimates != "oracle",
            **{f"option {key}={value}": True for key, value in self.options.items()},
        }
        return tuple(text for text, holds in said.items() if holds)


class Simulated(Drawn):
    """What came of a simulation that has ended: the checked plan, and what was measured.

    With `timing` the metrics say how long decisions took, with `curves` they have distributions and
    use over time, with `utility` the mean utility of what is done; `follow` goes through a search
    for prices. Raises PolicyError where its plan does not pass the verifier.
    """

    def __init__(
        self,
        setting: Setting,
        simulation: Simulation,
        *,
        timing: bool = False,
        curves: bool = False,
        utility: bool = False,
        follow: Follow = last,
    ) -> None:
        self.setting = setting
        self._timing, self._curves, self._utility = timing, curves, utility
        self.instance = simulation.instance
        self.record = simulation.record()
        self.rounds: list[Any] = list(getattr(simulation.policy, "rounds", ()))
        self.policy_facts: dict[str, Any] = getattr(simulation.policy, "facts", dict)()
        self.title = f"policy {setting.policy}: {simulation.policy.title}"
        self.bounds: dict[int, Bound] = {
            bound.level: bound
            for bound in lower_bounds(self.instance, setting.objective, replay=True)
            if math.isfinite(bound.value)
        }
        if setting.prices:
            self.bounds[0], _ = priced_bound(
                self.instance, setting.objective, replay=True, follow=follow
            )
        self.solution = self._solution()

    def _solution(self) -> Solution:
        """Return the plan with its values and the bounds."""
        instance, policy = self.instance, self.setting.policy
        plan = self.record.plan()
        incumbent = Incumbent(instance, self.setting.objective, any_plan=True)
        reason = incumbent.offer(plan, policy, replay=True)
        if reason is not None:
            raise PolicyError(f"the plan of {policy} does not pass the verifier: {reason}")
        for bound in self.bounds.values():
            incumbent.prove(bound.level, bound.value, bound.source)
        was_stopped = any(
            segment.stopped_by is not None for entry in plan.jobs for segment in entry.segments
        )
        return Solution(
            instance_name=instance.name,
            instance_hash=instance_hash(instance),
            solver=policy,
            seed=0,
            objective=self.setting.objective.name,
            status="optimal" if incumbent.is_optimal() else "feasible",
            levels=incumbent.levels(),
            plan=plan,
            bound_source=incumbent.bound_source(),
            notes=(*self.setting.words, *incumbent.refuted_bounds),
            replay=bool(instance.failures or instance.outages) or was_stopped,
        )

    @property
    def plan(self) -> Plan:
        """Return who ran where and when."""
        assert self.solution.plan is not None
        return self.solution.plan

    @cached_property
    def measured(self) -> Metrics:
        """Return everything that is measured of the plan, job by job."""
        return measure(self.record)

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """Return what `optsched simulate --json` prints and `summary.json` holds, field by field in
        docs/formats.md."""
        solution, asked = self.solution, self.setting.asked(self.instance)
        levels = [
            {
                "name": level.name,
                "value": level.value,
                "bound": level.bound,
                "gap": level.gap if level.gap is not None and math.isfinite(level.gap) else None,
                "bound_source": None if level.bound is None else self.bounds[number].source,
            }
            for number, level in enumerate(solution.levels)
        ]
        total = {
            "format": SUMMARY_FORMAT,
            "instance": {"name": solution.instance_name, "hash": solution.instance_hash},
            "policy": solution.solver,
            **{name: asked[name] for name in REPEATED},
            **self.setting.shares,
            "status": solution.status,
            "levels": levels,
            **summary(self.measured),
            "rounds": rounds_total(self.rounds),
        }
        if self._timing:
            taken_s = self.record.decision_wall_s
            of_all = {"count": len(taken_s), "total": float(taken_s.sum())}
            total["decision_wall_s"] = {**of_all, **spread(taken_s)}
        if self._utility:
            total["utility"] = mean_utility(self.measured)
        if self._curves:
            total["curves"] = thinned(self.measured)
        total["policy_facts"] = self.policy_facts
        return total

    def _parts(self) -> "Iterable[str | Table]":
        from ..picture.text_simulation import simulation_parts

        return simulation_parts(self)

    def _columns(self) -> dict[str, list[Any]]:
        return columns(self.measured)

    def _drawn(self) -> tuple[Instance, Solution]:
        return self.instance, self.solution
