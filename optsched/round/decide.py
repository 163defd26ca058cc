"""decide(): one scheduling round, verified, with its proven gap."""

import gc
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

import numpy as np

from ..driver.borrowing import borrows, priority_of
from ..driver.shares import weighed
from ..errors import InputError, SolverUnavailableError
from ..frozen import frozen, record
from ..model import CLOSED_GAP, Instance, Job, Mode, Placement, Running
from ..objectives import Objective, wanted
from ..physics.catalogue import catalogue_of
from ..physics.unschedulable import why_never
from ..plugins import registry
from ..plugins.options import declaration, read_options
from .build import NOBODY, build
from .model import NO_OPTION, Floats, RoundModel
from .place import Packing, to_placement
from .plan import UNPROVED, JobRound, RoundSolution, RowPrice, TierRound, decision, standing
from .pose import pose
from .realise import keep_all
from .solver import RoundRequest, RoundSolver
from .tiers import Part, Tiers, filled_up
from .verify import verify_round
from .verify_tiers import priority_inversions
from .windows import at_present

DEFAULT_GAP = 1e-6
"""A round whose gap is no larger is taken as optimal: the rounding of sums."""
CHECK_SHARE, CHECK_S = 1.0, 3e-5
"""Time kept free for checking a plan: a share of what posing the problem took, and at most so long
for each job."""
SAME = 1e-12
"""Values that differ by less than this fraction are equal, and the plan that came first stays."""
ROUNDING = 1e-9
"""A bound that is below a verified round by more than this fraction is wrong."""
LEAST_S = 1e-3
"""No tier has less time, however late it is."""
TIGHT_S = 3e-5
"""With less budget than this for each job, the plan that changes nothing is made first of all."""


@contextmanager
def no_collection() -> Iterator[None]:
    """Pause the collection of cyclic garbage, which takes half of the time of large rounds."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


@dataclass(slots=True)
class _Best:
    """The best packing and the best bound so far; `packings` are each better than the
    one before, of all jobs or of the `few`. `others` is what was decided before; `given` is the
    instance with what windows take, which the verifier finds out by itself."""

    instance: Instance
    given: Instance
    blocked: Sequence[Placement]
    others: Mapping[str, JobRound] = field(default_factory=dict)
    few: frozenset[str] | None = None
    packings: list[tuple[float, Packing]] = field(default_factory=list)
    packing: Packing | None = None
    jobs: tuple[JobRound, ...] = ()
    value: float = -math.inf
    bound: float = UNPROVED
    source: str = "nothing"
    prices: Floats | None = None
    rejected: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def offer(self, packing: Packing) -> bool:
        """Keep a packing if it is better than those before; True if it was kept. It is verified at
        the end."""
        value = packing.worth()
        if value <= self.value + SAME * abs(value):
            return False
        self.packings.append((value, packing))
        self.value = value
        return True

    def verified(self) -> bool:
        """Settle on the best packing that the verifier accepts; False if there is none."""
        while self.packings:
            self.value, self.packing = self.packings.pop()
            if self._accepts(self._whole(self.packing)):
                return True
        self.packing, self.value = None, -math.inf
        return False

    def stand(self) -> bool:
        """Settle on the plan in which running jobs go on and nothing starts; False if the verifier
        rejects it. Nothing is said of its value."""
        return self._accepts(tuple(self._standing().values()))

    def complete(self) -> None:
        """Fill up the packing that was settled on (see `tiers.filled_up`), if the verifier accepts
        it."""
        if self.packing is not None:
            filled = filled_up(self.packing)
            if self._accepts(self._whole(filled)):
                self.packing, self.value = filled, filled.worth()

    def _whole(self, packing: Packing) -> tuple[JobRound, ...]:
        """Return the decisions of a packing and, where it is not of all jobs, those of `others` and
        that what is left stays as it is, in the order of the instance."""
        decided = {entry.id: entry for entry in job_rounds(packing, self.instance)}
        if self.few is not None or packing.model.instance is not self.instance:
            left = {} if self.few is None else dict.fromkeys(self.few - self.others.keys())
            others = self._standing().items()
            decided = {name: entry for name, entry in others if name not in left} | decided
        found = map(decided.get, [job.id for job in self.instance.jobs])
        return tuple(entry for entry in found if entry is not None)

    def _standing(self) -> dict[str, JobRound]:
        return {entry.id: entry for entry in standing(self.instance)} | {**self.others}

    def _accepts(self, jobs: tuple[JobRound, ...]) -> bool:
        faults = verify_round(self.given, jobs, self.blocked)
        if faults:
            self.rejected.append(str(faults[0]))
        else:
            self.jobs = jobs
        return not faults

    def prove(self, bound: float, source: str) -> None:
        """Note a bound; none of a round in which jobs were left out says anything."""
        if bound < self.bound and self.few is None:
            self.bound, self.source = bound, source

    def distrust(self, rounding: float) -> None:
        """Take back a bound that the verified round refutes."""
        if self.bound < self.value - rounding:
            self.notes.append(f"the bound by {self.source} is below this round: it does not count")
            self.bound, self.source = UNPROVED, "nothing"

    def priced(self, prices: Floats) -> None:
        self.prices = prices


@no_collection()
def decide(
    instance: Instance,
    objective: str | Objective = "wct",
    *,
    round_s: float = 300.0,
    refill: bool = True,
    solver: str = "price",
    budget_s: float = 1.0,
    gap: float = DEFAULT_GAP,
    seed: int = 0,
    blocked: Sequence[Placement] = (),
    reserved: Sequence[tuple[Placement, float]] = (),
    reserved_for: str | None = None,
    reserved_rank: float = math.inf,
    keep: Collection[str] = (),
    unless_higher: Collection[str] = (),
    last: RoundSolution | None = None,
    options: Mapping[str, object] | None = None,
) -> RoundSolution:
    """Decide which jobs of a checked instance run from `now_s` until the next round, about
    `round_s` later.

    The plan that keeps every running job where it is always stands ready; `solver` (see `optsched
    list rounds`) improves on it for at most `budget_s` seconds of wall clock, posing the problem
    included, or until the proven gap is at most `gap`. Every plan is verified before it counts, for
    which some of the budget is kept free. `refill`, `blocked`, `reserved`, `reserved_for` and
    `keep` are those of `build.build`; jobs of a rank above `reserved_rank` do not heed what is
    reserved, and those of `keep` that are in `unless_higher` make way for jobs of a higher one.
    `last` is the round before, whose prices are a good start. Where the budget is too short to pose
    the problem, all running jobs go on, few waiting ones are looked at or none, nothing is proved,
    and `fallback` says so (see `pose`).

    Jobs of several priorities, and those that borrow below all others, are decided in tiers, the
    highest first and each on what those above it hold: value and bound are then the sums over the
    tiers, and `tiers` has each (see docs/mathematics.md, "The round").

    Raises InputError for a faulty objective, solver name, option or limit, and where running jobs
    hold more than there is and may not be preempted.
    """
    started_s = time.monotonic()
    for what, amount in (("round", round_s), ("budget", budget_s)):
        if not (math.isfinite(amount) and amount > 0):
            raise InputError(f"{what} of {amount} s: it must be a positive number of seconds")
    whole = weighed(instance)
    instance = at_present(whole)
    plug_in = registry.round_solver(solver)
    task = _Task(
        instance=instance,
        given=whole,
        goal=wanted(objective, instance.cluster),
        round_s=round_s,
        refill=refill,
        solver=plug_in,
        options=read_options(f"round solver {solver}", declaration(plug_in), options),
        gap=gap,
        seed=seed,
        blocked=blocked,
        reserved=reserved,
        reserved_for=reserved_for,
        prices={} if last is None else {row.name: row.price for row in last.prices},
    )
    tiers = Tiers(instance, keep, unless_higher)
    if tiers.is_one:
        best = _Best(instance, whole, blocked)
        outcomes = [task.decide(best, instance, keep, started_s, budget_s)]
    else:
        outcomes = _tier_by_tier(task, tiers, reserved_rank, started_s + budget_s)
    last_best = outcomes[-1].best
    notes = [note for each in outcomes for note in each.best.notes]
    if not tiers.is_one:
        firmly = {*keep} - {*unless_higher}
        aside = [placement for placement, _ in reserved]
        found = priority_inversions(instance, last_best.jobs, blocked, firmly, aside)
        notes += [str(inversion) for inversion in found[:1]]
    barred = [name for each in outcomes for name in each.never]
    never = tuple(name for name in barred if why_never(catalogue_of(whole), whole.job[name]))
    value = math.fsum(each.value for each in outcomes)
    return RoundSolution(
        instance_name=instance.name,
        instance_hash=None,
        now_s=instance.now_s,
        round_s=round_s,
        refill=refill,
        objective=task.goal.name,
        solver=solver,
        seed=seed,
        jobs=last_best.jobs
        if tiers.is_one
        else tuple(entry for entry in last_best.jobs if entry.id not in barred),
        value=value,
        bound=max(value, min(UNPROVED, sum(each.bound for each in outcomes))),
        bound_source=", ".join(dict.fromkeys(each.best.source for each in outcomes)),
        prices=()
        if last_best.packing is None
        else _row_prices(last_best.packing, last_best.prices),
        never=never,
        wall_s=time.monotonic() - started_s,
        fallback=next((each.fallback for each in outcomes if each.fallback), None),
        notes=tuple(notes),
        closed=all(each.is_closed for each in outcomes),
        tiers=() if tiers.is_one else tuple(map(_tier_round, tiers.parts, outcomes)),
    )


@record
class _Outcome:
    """The decision of a round or a tier of it: the best that was found, the model, None where there
    was no time for it, and why it is not the whole."""

    best: _Best
    model: RoundModel | None
    fallback: str | None

    @property
    def value(self) -> float:
        """Return the value of those who do not give way."""
        packing = self.best.packing
        if packing is None:
            return 0.0
        model = packing.model
        if not model.depth.any():
            return self.best.value
        return model.worth(packing.chosen[model.depth == 0])

    @property
    def alone(self) -> float:
        """Return that value if each job had the cluster for itself."""
        if self.model is None or not self.model.depth.any():
            return 0.0 if self.model is None else self.model.alone
        return float(self.model.alone_values[self.model.depth == 0].sum())

    @property
    def bound(self) -> float:
        """Return a limit on that value: those who give way are worth no less than nothing."""
        limit = self.best.bound
        if self.model is not None and self.best.few is None:
            limit = min(limit, self.alone)
        return max(self.value, limit)

    @property
    def never(self) -> tuple[str, ...]:
        return () if self.model is None else tuple(job.id for job in self.model.never)

    @property
    def is_closed(self) -> bool:
        """Return whether the bound proves the value, relative to what capacity costs: one job that
        is worth a billion hides nothing about the others."""
        value = self.value
        tolerance = CLOSED_GAP * max(0.0, self.alone - value) + SAME * abs(value)
        return self.bound - value <= tolerance


@frozen
class _Task:
    """All that is the same for the tiers of a round."""

    instance: Instance
    given: Instance
    goal: Objective
    round_s: float
    refill: bool
    solver: RoundSolver
    options: Any
    gap: float
    seed: int
    blocked: Sequence[Placement]
    reserved: Sequence[tuple[Placement, float]]
    reserved_for: str | None
    prices: dict[str, float]

    def decide(
        self,
        best: _Best,
        some: Instance,
        keep: Collection[str],
        started_s: float,
        budget_s: float,
        *,
        reserved: bool = True,
        around: Sequence[tuple[Job, Running]] = (),
        give_way: Mapping[str, int] = NOBODY,
    ) -> _Outcome:
        """Decide about `some` of the jobs, into `best`, beside others `around`. Raises
        InputError."""

        def build_by(some: Instance, **given: Any) -> RoundModel:
            given["around"] = (*around, *given.get("around", ()))
            return build(
                some,
                objective=self.goal,
                round_s=self.round_s,
                refill=self.refill,
                blocked=self.blocked,
                reserved=self.reserved if reserved else (),
                reserved_for=self.reserved_for,
                give_way=give_way,
                **given,
            )

        jobs = len(self.instance.jobs)
        stands = budget_s < TIGHT_S * jobs and best.stand()
        posed = pose(some, build_by, keep, started_s, budget_s)
        model, fallback, best.few = posed.model, posed.shortfall, posed.few
        if model is not None:
            best.prove(model.alone, "each job alone")
            checks_s = min(CHECK_SHARE * (time.monotonic() - started_s), CHECK_S * jobs)
            request = RoundRequest(
                model=model,
                deadline_s=started_s + budget_s - checks_s,
                gap=self.gap,
                seed=self.seed,
                report_packing=best.offer,
                report_bound=best.prove,
                report_prices=best.priced,
                note=best.notes.append,
                prices=self.prices,
                options=self.options,
            )
            fallback = _found(self.solver, request, best, fallback)
            best.distrust(ROUNDING * max(abs(best.value), model.alone))
        if best.rejected:
            best.notes.append(
                f"the verifier rejected {len(best.rejected)} plans, the first for: "
                f"{best.rejected[0]}"
            )
        if best.packing is None and not (stands or best.stand()):
            raise InputError(
                "running: these jobs cannot all go on, and some may not be preempted: "
                f"{best.rejected[-1]}"
            )
        return _Outcome(best, model, fallback)


def _tier_by_tier(
    task: _Task, tiers: Tiers, reserved_rank: float, deadline_s: float
) -> list[_Outcome]:
    """Decide each tier on what those above it leave, in its share of the time that is left."""
    outcomes: list[_Outcome] = []
    while (part := tiers.next()) is not None:
        started_s = time.monotonic()
        outcome = task.decide(
            _Best(task.instance, task.given, task.blocked, part.decided),
            part.instance,
            part.keep,
            started_s,
            max(LEAST_S, (deadline_s - started_s) / tiers.left),
            reserved=part.rank <= reserved_rank,
            around=part.around,
            give_way=part.give_way,
        )
        outcome.best.complete()
        tiers.settle(part, outcome.best.jobs, outcome.never)
        outcomes.append(outcome)
    return outcomes


def _tier_round(part: Part, outcome: _Outcome) -> TierRound:
    return TierRound(
        priority=priority_of(part.rank),
        jobs=len(part.names),
        value=outcome.value,
        bound=outcome.bound,
        borrows=borrows(part.rank),
    )


def _found(
    solver: RoundSolver, request: RoundRequest, best: _Best, shortfall: str | None
) -> str | None:
    """Settle on the best that a solver finds, or on what keeps all; return why it did not decide
    the whole round, or None."""
    fallback = _solve(solver, request) or shortfall
    if not best.verified():
        best.offer(keep_all(request.model, request.deadline))
        best.verified()
        if request.model.jobs:
            return fallback or f"{solver.name} found no plan in time"
    return fallback


def _solve(solver: RoundSolver, request: RoundRequest) -> str | None:
    """Let a solver decide; return why it did not, or None."""
    if not request.model.jobs:
        return None
    reason = solver.supports(request.model)
    if reason is not None:
        return f"{solver.name} cannot decide this round: {reason}"
    try:
        solver.solve(request)
    except (InputError, SolverUnavailableError):
        raise
    except Exception as error:
        return f"{solver.name} crashed: {type(error).__name__}: {error}"
    return None


def job_rounds(packing: Packing, instance: Instance | None = None) -> tuple[JobRound, ...]:
    """Return the decisions of a packing, in the order of the model's jobs, as they are in an
    instance that has these jobs and others. Those to wait or to go on are the same objects in each
    round."""
    model = packing.model
    instance = model.instance if instance is None else instance
    chosen, options, kept = packing.chosen, model.options, model.patterns.kept
    partner = packing.guest | {guest: host for host, guest in packing.guest.items()}
    goes_on = chosen[kept] == options.first[kept]
    changes = chosen >= 0
    changes[kept] = ~goes_on
    changes[[*partner]] = True
    if model.instance is not instance:
        own, all_of = model.instance.running_job, instance.running_job
        differs = [own.get(job.id) is not all_of.get(job.id) for job in model.jobs]
        changes |= np.array(differs, dtype=bool)
    rounds = [*model.waits]
    holds = compress(model.patterns.holds, goes_on)
    for j, hold in zip(kept[goes_on].tolist(), holds, strict=True):
        if hold.goes_on is None:
            changes[j] = True
        else:
            rounds[j] = hold.goes_on
    for j in np.flatnonzero(changes).tolist():
        rounds[j] = _job_round(packing, instance, j, partner.get(j))
    return tuple(rounds)


def _job_round(packing: Packing, instance: Instance, j: int, partner: int | None) -> JobRound:
    """Return the decision of a job, beside a `partner`."""
    model, count = packing.model, len(packing.model.patterns.fresh)
    option = packing.chosen[j]
    p = NO_OPTION if option < 0 else int(model.options.pattern[option])
    mode: Mode | None = None
    placement: Placement = ()
    if 0 <= p < count:
        mode, placement = model.patterns.fresh[p].option.mode, to_placement(model, packing.held[j])
    elif p >= 0:
        hold = model.patterns.holds[p - count]
        mode, placement = hold.mode, hold.placement
        name = None if partner is None else model.jobs[partner].id
        if mode.share_with != name:
            mode = replace(mode, share_with=name)
    name = model.jobs[j].id
    said = decision(instance, name, mode, placement)
    return JobRound(id=name, decision=said, mode=mode, placement=placement)


def _row_prices(packing: Packing, known: Floats | None) -> tuple[RowPrice, ...]:
    model = packing.model
    used = model.usage(packing.chosen[packing.chosen >= 0])
    prices = np.zeros(len(model.rows.limits)) if known is None else known
    return tuple(
        RowPrice(name=row.name, capacity=row.capacity, used=float(amount), price=float(price))
        for row, amount, price in zip(model.rows.limits, used, prices, strict=True)
    )
