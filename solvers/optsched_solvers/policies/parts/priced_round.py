"""The round as one optimization problem, as a first step that is tried."""

from dataclasses import replace
from itertools import chain

from optsched.driver import Trial, World
from optsched.driver.snapshot import Snapshot
from optsched.model import Instance, Mode
from optsched.objectives import Objective
from optsched.physics.modes import Option, with_less_gpu_memory
from optsched.plugins import registry
from optsched.round.decide import decide
from optsched.round.plan import JobRound, RoundSolution

from .first_step import Step
from .kept_places import KeptPlaces
from .raised_weights import RaisedWeights

NO_LIMIT_S = 3600.0
"""Wall-clock budget of a round in virtual time: never reached, so that results do not depend on the
clock."""
CORE_OPTIONS = 3000
"""Most options for which a round is solved exactly."""


class PricedRounds:
    """Rounds of one policy, of which each begins with the prices of the `last`."""

    def __init__(
        self,
        objective: Objective,
        *,
        solver: str,
        round_s: float,
        budget_s: float,
        gap: float,
        weights: RaisedWeights,
    ) -> None:
        registry.round_solver(solver)  # an unknown one is refused before any work
        self._objective, self._weights = objective, weights
        self._solver, self._round_s, self._budget_s, self._gap = solver, round_s, budget_s, gap
        unhurried = budget_s >= NO_LIMIT_S and solver == "price"
        self._options = {"core": str(CORE_OPTIONS)} if unhurried else {}
        self.last: RoundSolution | None = None

    def posed(self, world: World, now: Snapshot, *, late: bool = False) -> Instance:
        """Return the instance that rounds decide; with `late`, jobs that take longer than most
        weigh more in it."""
        if not self._objective.is_linear:
            return now.instance
        return self._weights.raised(world, now.instance, late=late)

    def step(
        self,
        world: World,
        now: Snapshot,
        pinned: set[str],
        share: float,
        *,
        places: KeptPlaces,
        tiered: bool,
        late: bool,
    ) -> Step:
        """Return the step of the round in which `pinned` go on, found in a `share` of the budget;
        with `late`, jobs that take longer than most weigh more."""
        posed = self.posed(world, now, late=late)
        solution = decide(
            posed,
            self._objective,
            round_s=self._round_s,
            solver=self._solver,
            budget_s=self._budget_s * share,
            gap=self._gap,
            blocked=now.blocked,
            reserved=places.reserved(world),
            reserved_for=places.reserved_for(world),
            reserved_rank=places.reserved_rank(world),
            keep=pinned,
            unless_higher=pinned - (places.unripe or set()),
            last=self.last,
            options=self._options,
        )
        self.last = solution
        if tiered:
            stays = {entry.id for entry in solution.jobs if entry.decision == "continue"}
            pinned = pinned & stays
        trial = Trial(world)
        _carry_out(trial, posed, solution)
        return Step(trial, (replace(now, instance=posed, pinned=pinned), solution))


def _carry_out(world: Trial, known: Instance, solution: RoundSolution) -> None:
    ends: set[str] = set()  # of whom the round could not know that they end this very instant
    for entry in solution.jobs:
        if entry.decision in ("preempt", "migrate", "resize"):
            if world.may_preempt(entry.id):
                world.preempt(entry.id)
            else:
                ends.add(entry.id)
    for entry in solution.jobs:
        if entry.mode is None or entry.decision == "continue" or entry.id in ends:
            continue
        if entry.mode.share_with is not None:
            _join(world, known, entry)
            continue
        option = _option(world, known, entry.id, entry.mode)
        world.claim(entry.id, option, entry.placement)
    world.start_claimed()


def _join(world: World, known: Instance, entry: JobRound) -> None:
    assert entry.mode is not None and entry.mode.share_with is not None
    option = _option(world, known, entry.id, entry.mode.unshared)
    if world.may_share(entry.id, option, entry.mode.share_with):
        world.start_sharing(entry.id, option, entry.mode.share_with)


def _option(world: World, known: Instance, job_id: str, mode: Mode) -> Option:
    """Return the option of a mode that the round chose for a job as it is `known`: its listed modes
    are as long as it is believed to be."""
    options = world.options(job_id)
    if mode.duration_s is None:
        beside = (with_less_gpu_memory(world.job(job_id), option) for option in options)
        return next(option for option in chain.from_iterable(beside) if option.mode == mode)
    wanted_s = mode.duration_s * world.job(job_id).work_s / known.job[job_id].work_s
    alike = [
        option for option in options if replace(option.mode, duration_s=mode.duration_s) == mode
    ]
    return min(alike, key=lambda option: abs((option.mode.duration_s or 0.0) - wanted_s))
