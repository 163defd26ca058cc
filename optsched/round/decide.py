"""decide(): one scheduling round, verified, with its proven gap."""

import gc
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from ..errors import InputError, SolverUnavailableError
from ..model.instance import Instance, Placement
from ..model.plan import CLOSED_GAP
from ..objectives import Objective, wanted
from ..plugins import registry
from ..plugins.options import declaration, read_options
from .build import build
from .model import Floats
from .place import Packing, to_placement
from .plan import UNPROVED, JobRound, RoundSolution, RowPrice, decision, standing
from .pose import pose
from .realise import keep_all
from .solver import RoundRequest, RoundSolver
from .verify import verify_round
from .windows import at_present

DEFAULT_GAP = 1e-6
"""A round whose gap is no larger is taken as optimal: the rounding of sums."""
CHECK_SHARE, CHECK_S = 0.75, 3e-5
"""Time kept free for checking a plan: a share of what posing the problem took, and at most so long
for each job."""
SAME = 1e-12
"""Values that differ by less than this fraction are equal, and the plan that came first stays."""
TIGHT_S = 5e-5
"""With less budget than this for each job, the plan that changes nothing is made first of all."""


@contextmanager
def _no_collection() -> Iterator[None]:
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
    one before, of all jobs or of the `few`."""

    instance: Instance
    blocked: Sequence[Placement]
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
        return self._accepts(standing(self.instance))

    def _whole(self, packing: Packing) -> tuple[JobRound, ...]:
        """Return the decisions of a packing and, where it is of few jobs, that all others stay as
        they are, in the order of the instance."""
        decided = {entry.id: entry for entry in job_rounds(packing)}
        if self.few is not None:
            others = (entry for entry in standing(self.instance) if entry.id not in self.few)
            decided |= {entry.id: entry for entry in others}
        return tuple(decided[job.id] for job in self.instance.jobs if job.id in decided)

    def _accepts(self, jobs: tuple[JobRound, ...]) -> bool:
        faults = verify_round(self.instance, jobs, self.blocked)
        if faults:
            self.rejected.append(str(faults[0]))
        else:
            self.jobs = jobs
        return not faults

    def prove(self, bound: float, source: str) -> None:
        """Note a bound; none of a round in which jobs were left out says anything."""
        if bound < self.bound and self.few is None:
            self.bound, self.source = bound, source

    def priced(self, prices: Floats) -> None:
        self.prices = prices


@_no_collection()
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
    keep: Collection[str] = (),
    last: RoundSolution | None = None,
    options: Mapping[str, object] | None = None,
) -> RoundSolution:
    """Decide which jobs of a checked instance run from `now_s` until the next round, about
    `round_s` later.

    The plan that keeps every running job where it is always stands ready; `solver` (see `optsched
    list rounds`) improves on it for at most `budget_s` seconds of wall clock, posing the problem
    included, or until the proven gap is at most `gap`. Every plan is verified before it counts, for
    which some of the budget is kept free. `refill`, `blocked`, `reserved` and `keep` are those of
    `build.build`; `last` is the round before, whose prices are a good start. Where the budget is
    too short to pose the problem, all running jobs go on, few waiting ones are looked at or none,
    nothing is proved, and `fallback` says so (see `pose`).

    Raises InputError for a faulty objective, solver name, option or limit, and where running jobs
    hold more than there is and may not be preempted.
    """
    started_s = time.monotonic()
    for what, amount in (("round", round_s), ("budget", budget_s)):
        if not (math.isfinite(amount) and amount > 0):
            raise InputError(f"{what} of {amount} s: it must be a positive number of seconds")
    instance = at_present(instance)
    goal = wanted(objective, instance.cluster)
    plug_in = registry.round_solver(solver)
    own = read_options(f"round solver {solver}", declaration(plug_in), options)
    best = _Best(instance, blocked)
    stands = budget_s < TIGHT_S * len(instance.jobs) and best.stand()
    build_by = partial(
        build, objective=goal, round_s=round_s, refill=refill, blocked=blocked, reserved=reserved
    )
    posed = pose(instance, build_by, keep, started_s, budget_s)
    model, fallback, best.few = posed.model, posed.shortfall, posed.few
    if model is not None:
        best.prove(model.alone, "each job alone")
        checks_s = min(CHECK_SHARE * (time.monotonic() - started_s), CHECK_S * len(instance.jobs))
        request = RoundRequest(
            model=model,
            deadline_s=started_s + budget_s - checks_s,
            gap=gap,
            seed=seed,
            report_packing=best.offer,
            report_bound=best.prove,
            report_prices=best.priced,
            note=best.notes.append,
            prices={} if last is None else {row.name: row.price for row in last.prices},
            options=own,
        )
        fallback = _found(plug_in, request, best, fallback)
    if best.rejected:
        best.notes.append(
            f"the verifier rejected {len(best.rejected)} plans, the first for: {best.rejected[0]}"
        )
    if best.packing is None and not (stands or best.stand()):
        raise InputError(
            "running: these jobs cannot all go on, and some may not be preempted: "
            f"{best.rejected[0]}"
        )
    value = 0.0 if best.packing is None else best.value
    alone = 0.0 if model is None else model.alone
    return RoundSolution(
        instance_name=instance.name,
        instance_hash=None,
        now_s=instance.now_s,
        round_s=round_s,
        refill=refill,
        objective=goal.name,
        solver=solver,
        seed=seed,
        jobs=best.jobs,
        value=value,
        bound=max(best.bound, value),
        bound_source=best.source,
        prices=() if best.packing is None else _row_prices(best.packing, best.prices),
        never=() if model is None else tuple(job.id for job in model.never),
        wall_s=time.monotonic() - started_s,
        fallback=fallback,
        notes=tuple(best.notes),
        # Relative to what capacity costs: one job that is worth a billion hides nothing about the
        # others.
        closed=best.bound - value <= CLOSED_GAP * max(0.0, alone - value) + SAME * abs(value),
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


def job_rounds(packing: Packing) -> tuple[JobRound, ...]:
    """Return the decisions of a packing, in the order of the model's jobs."""
    model = packing.model
    partner = packing.guest | {guest: host for host, guest in packing.guest.items()}
    rounds = []
    for j, (job, option) in enumerate(zip(model.jobs, packing.chosen.tolist(), strict=True)):
        if option < 0:
            stops = model.running[j] is not None
            rounds.append(JobRound(id=job.id, decision="preempt" if stops else "wait"))
            continue
        mode, hold = model.mode(option), model.hold(option)
        if hold is None:
            placement = to_placement(model, packing.held[j])
        else:
            placement, name = hold.placement, model.jobs[partner[j]].id if j in partner else None
            if mode.share_with != name:
                mode = replace(mode, share_with=name)
        said = decision(model.instance, job.id, mode, placement)
        rounds.append(JobRound(id=job.id, decision=said, mode=mode, placement=placement))
    return tuple(rounds)


def _row_prices(packing: Packing, known: Floats | None) -> tuple[RowPrice, ...]:
    model = packing.model
    used = model.usage(packing.chosen[packing.chosen >= 0])
    prices = np.zeros(len(model.rows.limits)) if known is None else known
    return tuple(
        RowPrice(name=row.name, capacity=row.capacity, used=float(amount), price=float(price))
        for row, amount, price in zip(model.rows.limits, used, prices, strict=True)
    )
