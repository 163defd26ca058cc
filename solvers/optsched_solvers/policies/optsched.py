"""The round as a policy: at every decision the active jobs are weighed against each other as one
problem."""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated

from annotated_types import Ge

from optsched.bounds import lower_bounds
from optsched.driver.borrowing import borrowers, may_borrow, priority_of, with_promised
from optsched.driver.outlook import Outlook
from optsched.driver.playout import Playouts
from optsched.driver.reservation import Claimed, Reservation, Reservations
from optsched.driver.snapshot import Snapshot, snapshot
from optsched.driver.trial import Trial
from optsched.driver.world import World
from optsched.model.instance import Instance, Placement
from optsched.model.job import Job, Mode
from optsched.objectives import Objective, Usage, parse
from optsched.physics import hold_to_save_s
from optsched.physics.modes import Option, with_less_gpu_memory
from optsched.plugins import registry
from optsched.plugins.options import Duration, PluginOptions, PositiveDuration, Share
from optsched.round.decide import decide
from optsched.round.plan import JobRound, RoundSolution

from .parts.agenda import Agenda, outline, search
from .parts.demand_queue import arrival_key
from .parts.gang_weights import GANG, GangWeights
from .parts.starting import start_each
from .xion import first_step

NO_LIMIT_S = 3600.0
"""Wall-clock budget of a round in virtual time: never reached, so that results do not depend on the
clock."""
CORE_OPTIONS = 3000
"""Most options for which a round is solved exactly."""
FEW_JOBS = 100
"""With so many jobs or fewer every round is decided, whatever the pace."""
FOR_PRICE, FOR_KEEPING = 0.4, 0.2
"""Shares of the budget for the round in which all may be preempted, and for others, of which there
are at most two."""
MOST_PLANNED = 200
"""Of more jobs no whole plan is sought."""
PLAN_S, REPLAN_S = 0.1, 0.01
"""Counted work of seeking a plan for each job that is here, and of seeking a better one than there
is."""
MOST_PLAN_S = 4.0
"""Most counted work of either, so that a live round of a hundred jobs takes less than a second."""
MOST_PROVED = 2000
"""With more jobs no plan is played to its end to be compared with a bound."""
NEARLY_FREE = 0.01
"""Where saving and restoring take less than this share of what jobs have left, preemptions are
decided by price alone."""


@dataclass(frozen=True, slots=True)
class Step:
    """A first step that was tried, and the round that it came from with what was solved there.

    Played forward it costs less by the share `lead` than where all that runs goes on, and at most
    the share `plan_gap` of it more than any plan for the jobs that are here; None where that was
    not asked. Both are shares of what can still be decided.
    """

    trial: Trial
    decided: tuple[Snapshot, RoundSolution] | None
    lead: float | None = None
    plan_gap: float | None = None


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One decision: when, of how many jobs, how good and how sure its starts are (None where they
    are those of a plan, not of a round), and what is known of the plan that it leads to (see
    `Step`)."""

    now_s: float
    jobs: int
    value: float | None
    bound: float | None
    gap: float | None
    wall_s: float | None
    lead: float | None
    plan_gap: float | None


class Optsched:
    """Decides by `optsched.round.decide` at every event, or while nobody waits every `moves_s`.
    Under wct large gangs weigh more than they say (see `gang_weights`), also in the values of
    `rounds`.

    A job whose place is still held by jobs that are being saved waits for it; that place is kept
    for it (`World.claims`).

    Where saving and restoring take long (`NEARLY_FREE`), whom to preempt is not left to prices,
    which do not see that a job might fit soon anyway, nor that a preemption delays all who wait.
    First steps are tried: that of the round (where run times are known), that of the round in which
    all that runs goes on, that of `xion`, and as long as no job has come that of a list rule, which
    goes on with the last plan. Each is played forward by that rule for the jobs that are here, what
    it costs those still to come is charged, and the cheapest is taken (Bertsekas, Tsitsiklis and
    Wu, Journal of Heuristics 3, 1997). So by its own account it is never worse than to preempt
    nobody now, nor than `xion`; nor, as long as no job has come, than what it planned before.

    No job starves: for one that has waited too long a place is kept (see
    `optsched.driver.reservation`), and once it has started there it is not preempted any more.

    With `pace` a long time is seen roughly, but quickly, and its beginning as it is: what comes
    free between rounds goes to waiting jobs by weight per GPU and second, beside the places that
    are kept. While at most `FEW_JOBS` wait or run every event has its round.
    """

    name = "optsched"
    title = "each round as one optimization problem, with a proven gap"

    @dataclass(frozen=True, kw_only=True)
    class Options(PluginOptions):
        solver: Annotated[str, "Decides the rounds: a name of `optsched list rounds`."] = "price"
        round_s: Annotated[
            PositiveDuration,
            "Length of the round over which options are valued; only the cap on finishing jobs "
            "depends on it.",
        ] = 300.0
        pace: Annotated[
            Share,
            "A round is decided once this share of the time simulated so far has passed since the "
            "last.",
        ] = 0.0
        budget_s: Annotated[
            PositiveDuration,
            "Wall clock of a round. With less than the default, results depend on the clock.",
        ] = NO_LIMIT_S
        gap: Annotated[Share, "A proven gap at which a round is good enough."] = 0.01
        moves_s: Annotated[
            Duration,
            "While nobody waits, it is looked this often whether running jobs should move.",
        ] = 60.0
        gangs: Annotated[
            float,
            Ge(0),
            "Under wct the weight of a gang is raised by this times its share of all GPUs of a "
            "type.",
        ] = GANG
        ahead: Annotated[
            bool, "Where saving takes long, first steps are played forward before one is taken."
        ] = True
        prove: Annotated[
            bool, "Each plan that is played forward is compared with a bound on all plans."
        ] = False

    def __init__(self, options: Options, objective: Objective | None = None) -> None:
        self.objective = objective or parse("wct")
        self.solver, self.round_s, self.pace = options.solver, options.round_s, options.pace
        self.budget_s, self.gap, self.moves_s = options.budget_s, options.gap, options.moves_s
        self.ahead, self.prove = options.ahead, options.prove
        registry.round_solver(self.solver)  # an unknown one is refused before any work
        unhurried = self.budget_s >= NO_LIMIT_S and self.solver == "price"
        self._counts_times_only = not any(isinstance(term, Usage) for term in self.objective.terms)
        self._options = {"core": str(CORE_OPTIONS)} if unhurried else {}
        self.decided: tuple[Snapshot, RoundSolution] | None = None
        self.rounds: list[RoundRecord] = []
        self._last: RoundSolution | None = None
        self.reservations = Reservations()
        self._unripe: set[str] | None = None
        self._known: dict[str, Job] = {}
        self._tiered = False
        self._gangs = GangWeights(options.gangs)
        self._arrived = 0.0
        self._agenda: Agenda | None = None
        self.notes: tuple[str, ...] = ()
        self._moves_s = self._paced_s = -math.inf
        self._biding: set[str] = set()

    def decide(self, world: World) -> None:
        """Start those whose place has come free, then decide anew."""
        self.decided, self.notes = None, ()
        for job_id in world.take_arrived():
            self.reservations.arrived(world, job_id)
            if world.job(job_id).submit_s > world.instance.now_s and world.entry(job_id) is None:
                self._arrived += world.job(job_id).weight
        self._rank(world)
        self._start_claimed(world)
        self._start_reserved(world, first=True)
        waiting = [job_id for job_id in world.waiting if job_id not in world.claims]
        if not waiting:
            if not world.running:
                return
            if world.now_s < self._moves_s:
                world.wake_at(self._moves_s)
                return
        elif world.now_s < self._paced_s and len(waiting) + len(world.running) > FEW_JOBS:
            self._fill(world, [job_id for job_id in waiting if job_id not in self._biding])
            self._keep_places(world)
            world.wake_at(self._paced_s)
            return
        self._moves_s = world.now_s + self.moves_s
        self._paced_s = world.now_s + self.pace * (world.now_s - world.instance.now_s)
        self._take(self._best_step(world, waiting))
        self._biding = self._waits_by_choice(world)
        self._start_claimed(world)
        if self._tiered:
            self._start_reserved(world)
        self._keep_places(world)
        if self._agenda and (next_s := self._agenda.next_start_s(world.now_s)) is not None:
            world.wake_at(next_s)
        if world.waiting and self.objective.changes(world.instance.cluster):
            world.wake_at(world.now_s + self.round_s)

    def _best_step(self, world: World, waiting: list[str]) -> Step:
        """Return the first step that leads furthest, of equals the one that preempts least."""
        pinned = self._kept(world)
        now = self._rank(world) or snapshot(world, jobs=waiting, known=self._known)
        pairs = any(world.hold(job_id).partner is not None for job_id in world.running)
        has_choice = bool(waiting) or pairs or self._agenda is not None
        if not (self.ahead and has_choice and self._preemptions_matter(world)):
            self._agenda = None
            step = self._priced(world, now, pinned, self.budget_s)
            if not (self.prove and self._counts_times_only):
                return step
            return self._told(step, Playouts(world, self.objective), now)
        steps = []
        if world.knows_run_times:  # else what looks best of many preemptions is the most misjudged
            steps.append(self._priced(world, now, pinned, self.budget_s * FOR_PRICE))
        if not steps or steps[0].trial.victims:
            steps.insert(0, self._keeping(world, now, pinned))
        xion = first_step(world, pinned, self.reservations)
        if xion.victims and self._is_allowed(xion):
            steps.append(Step(xion, None))
        playouts = Playouts(world, self.objective)
        going_on = Trial(world, pinned)
        if not (self._arrived or self.reservations.current) and self._is_allowed(going_on):
            steps.append(Step(going_on, None))
        own_levels = len(self.objective.levels)

        def cost(step: Step) -> tuple[float, ...]:
            levels = playouts.cost_by_tier(step.trial)
            if not self.objective.is_linear:
                return levels
            *above, last = levels[: 1 - own_levels or None]  # the lowest tier stands for who comes
            charged = last + self._charge(world, step.trial, xion)
            return *above, charged, *levels[len(above) + 1 :]

        costs = [cost(step) for step in steps]
        least, best = min(zip(costs, steps, strict=True), key=lambda pair: pair[0])
        agenda = None
        for planned, trial in self._planned(
            world, replace(now, pinned=pinned), playouts, best.trial
        ):
            if playouts.cost(trial) < least:
                agenda, best, least = planned, Step(trial, None), playouts.cost(trial)
        if best.decided is None:
            proved = self._keeping(world, now, pinned, but=best.trial.victims)
            if {*proved.trial.victims} == {*best.trial.victims} and cost(proved) <= least:
                best, agenda = proved, None
        self._agenda = agenda
        if self.reservations.current is None:
            best = _as_played(best, playouts)
        return self._told(best, playouts, now, None if self._tiered else steps[0])

    def _rank(self, world: World) -> Snapshot | None:
        """Find out who borrows, and whether jobs are decided in tiers. Return the present as a
        round sees it where that was asked for: where somebody may borrow."""
        now = None
        if may_borrow(world.instance.tenants):
            waiting = [job_id for job_id in world.waiting if job_id not in world.claims]
            now = snapshot(world, jobs=waiting, known=self._known)
            claimed = [
                (world.job(job_id).tenant, option.mode.gpus)
                for job_id, (option, _) in world.claims.items()
            ]
            tenants = with_promised(now.instance.tenants, claimed)
            now = replace(now, instance=replace(now.instance, tenants=tenants))
            before = world.borrowing & (world.saving.keys() | world.claims.keys())
            world.borrowing = before | borrowers(self._posed(world, now))
        self._tiered = _is_tiered(world)
        return now

    def _posed(self, world: World, now: Snapshot) -> Instance:
        """Return the instance that rounds decide."""
        return self._gangs.raised(world, now.instance) if self.objective.is_linear else now.instance

    def _planned(
        self, world: World, now: Snapshot, playouts: Playouts, best: Trial
    ) -> Iterator[tuple[Agenda, Trial]]:
        """Yield the plan of the last decision, if the world is as it says, and the best that list
        search finds, each with its first step: of few jobs of one priority, as long as none has
        come."""
        alike = not (self._arrived or self._tiered)
        if not alike or self.reservations.current or not world.knows_run_times:
            return
        last = self._agenda and self._agenda.step(world, now.pinned)
        if self._agenda and last:
            yield self._agenda, last
        if len(playouts.place) > MOST_PLANNED:
            return
        outlines = [outline(world, playouts, trial) for trial in (best, last) if trial]
        limit_s = min(MOST_PLAN_S, len(playouts.place) * (REPLAN_S if last else PLAN_S))
        found = search(world, now, self.objective, outlines, limit_s)
        if found is not None and (trial := found[0].step(world, now.pinned, found[1])):
            yield found[0], trial

    def _keeping(
        self, world: World, now: Snapshot, pinned: set[str], but: Collection[str] = ()
    ) -> Step:
        """Return the step of the round in which all that runs goes on `but` for some."""
        going_on = pinned | world.running.keys() - {*but}
        return self._priced(world, now, going_on, self.budget_s * FOR_KEEPING)

    def _told(
        self, step: Step, playouts: Playouts, now: Snapshot, keeping: Step | None = None
    ) -> Step:
        """Return the step with what is known of the plan that it leads to: how much less it costs
        than keeping all that runs, and how far it may be from the best plan of all."""
        base = playouts.done_now()[0]
        lead = plan_gap = None
        if keeping is not None:
            kept, value = playouts.cost(keeping.trial)[0], playouts.cost(step.trial)[0]
            lead = (kept - value) / (kept - base) if kept > base else 0.0
        if self.prove and self._counts_times_only and len(playouts.place) <= MOST_PROVED:
            value = playouts.cost(step.trial, to_the_end=True)[0]
            if math.isfinite(value):
                bound = lower_bounds(now.instance.only(playouts.place), self.objective)[0]
                plan_gap = max(0.0, value - bound.value) / (value - base) if value > base else 0.0
        return replace(step, lead=lead, plan_gap=plan_gap)

    def _is_allowed(self, trial: Trial) -> bool:
        """Return whether no job waits in a trial for what jobs of lower priorities hold that it may
        take; also not where a place is kept for others there."""
        if not self._tiered:
            return True
        waiting = [job_id for job_id in trial.waiting if job_id not in trial.claims]
        demands = {(trial.rank(name), trial.demand(name).number): name for name in waiting}
        outlooks: dict[int, Outlook] = {}
        for (rank, _), job_id in demands.items():
            if rank not in outlooks:
                outlooks[rank] = Outlook(trial, self._lower(trial, rank))
            if trial.fit(job_id, outlooks[rank].room) is not None:
                return False
        return True

    def _lower(self, trial: Trial, rank: int) -> list[str]:
        """Return the running jobs of a trial whose place a job of a higher rank may take."""
        preempts = trial.cluster.preempts.get(priority_of(rank), "any") != "never"
        assert self._unripe is not None
        return [
            name
            for name in trial.running
            if trial.rank(name) < rank
            and trial.hold(name).partner is None
            and (
                name in trial.started
                or (preempts and name not in self._unripe and trial.origin.may_preempt(name))
            )
        ]

    def _charge(self, world: World, trial: Trial, xion: Trial) -> float:
        """Return what the preemptions that Xion would not make cost the jobs that are still to
        come: all GPUs stand still for their share of what saving and restoring take, and as many
        jobs wait for that as come while what is here is done."""
        lost_gpu_s = sum(
            world.held_gpus(job) * (hold_to_save_s(world.job(job)) + world.profile(job).restore_s)
            for job in trial.victims
            if job not in xion.victims
        )
        if not (lost_gpu_s and self._arrived):
            return 0.0
        per_s = self._arrived / (world.now_s - world.instance.now_s)
        to_come = per_s * self.reservations.backlog_s(world)
        return lost_gpu_s / max(1, world.cluster.total_gpus) * to_come

    def _take(self, step: Step) -> None:
        step.trial.carry_out()
        if self._unripe is not None:
            self._unripe.update(step.trial.started, step.trial.joined)
        trial, self.notes = step.trial, tuple(_notes(step))
        here = len(trial.waiting) + len(trial.running) + len(trial.saving)
        record = RoundRecord(trial.now_s, here, None, None, None, None, step.lead, step.plan_gap)
        if step.decided is not None:
            seen, self._last = step.decided
            solution = replace(self._last, notes=(*self._last.notes, *self.notes))
            self.decided = seen, solution
            record = replace(
                record,
                jobs=len(solution.jobs),
                value=solution.value,
                bound=solution.bound,
                gap=solution.gap,
                wall_s=solution.wall_s or 0.0,
            )
        self.rounds.append(record)

    def _preemptions_matter(self, world: World) -> bool:
        """Return whether saving and restoring take so long that prices alone are no guide."""
        if not self._counts_times_only:
            return False
        jobs = [*world.waiting, *world.running]
        swap_s = sum(
            hold_to_save_s(world.job(job_id)) + world.profile(job_id).restore_s for job_id in jobs
        )
        return swap_s > 2 * NEARLY_FREE * sum(map(world.fastest_finish_s, jobs))

    def _priced(self, world: World, now: Snapshot, pinned: set[str], budget_s: float) -> Step:
        """Return the step of the round as one optimization problem in which `pinned` go on."""
        posed = self._posed(world, now)
        solution = decide(
            posed,
            self.objective,
            round_s=self.round_s,
            solver=self.solver,
            budget_s=budget_s,
            gap=self.gap,
            blocked=now.blocked,
            reserved=self._reserved(world),
            reserved_rank=self._reserved_rank(world),
            keep=pinned,
            unless_higher=pinned - (self._unripe or set()),
            last=self._last,
            options=self._options,
        )
        self._last = solution
        if self._tiered:
            stays = {entry.id for entry in solution.jobs if entry.decision == "continue"}
            pinned = pinned & stays
        trial = Trial(world)
        self._carry_out(trial, posed, solution)
        return Step(trial, (replace(now, instance=posed, pinned=pinned), solution))

    def _fill(self, world: World, waiting: list[str]) -> None:
        """Start whatever fits beside what is claimed and reserved, the most weight per GPU and
        second first."""
        room = world.free.copy()
        for node in {slot.node for _, placement in world.claims.values() for slot in placement}:
            room.lose(node)

        def start(job_id: str) -> bool:
            fit = self.reservations.fit(world, job_id, room)
            if fit is not None:
                room.take(world.need(job_id, fit[0]), fit[1])
                self._start(world, job_id, *fit)
            return fit is not None

        order = sorted(
            waiting, key=lambda name: arrival_key(world, name, -self._density(world, name))
        )
        start_each(world, order, start)

    def _kept(self, world: World) -> set[str]:
        """Return the running jobs that may not be preempted now, or must not be."""
        if self._unripe is None:
            self._unripe = set(world.running)
        self._unripe = {
            job_id
            for job_id in self._unripe
            if job_id in world.running and not world.may_preempt(job_id)
        }
        return self._unripe | world.protected.intersection(world.running)

    def _start(self, world: World, job_id: str, option: Option, placement: Placement) -> None:
        world.start(job_id, option, placement)
        if self._unripe is not None:
            self._unripe.add(job_id)

    def _waits_by_choice(self, world: World) -> set[str]:
        """Return the jobs that wait, though there is room for them, until what they use costs less:
        no place is kept for these."""
        if not self.objective.tariffs(world.instance.cluster):
            return set()
        return {
            job_id
            for job_id in world.waiting
            if job_id not in world.claims and self.reservations.fit(world, job_id) is not None
        }

    def _keep_places(self, world: World) -> None:
        """Keep a place for who has waited too long."""
        self._renew(world)
        kept = self.reservations.current
        if kept is not None and world.now_s < kept.due_s < math.inf:
            world.wake_at(kept.due_s)

    def _renew(self, world: World) -> None:
        but = {*world.claims, *self._biding}
        self.reservations.renew(world, but=but, claimed=self._claimed(world))

    def _density(self, world: World, job_id: str) -> float:
        return world.job(job_id).weight / (
            world.service_gpus(job_id) * world.fastest_finish_s(job_id)
        )

    def _claimed(self, world: World) -> list[Claimed]:
        """Return the places of claims, and until when their jobs will hold them."""
        return [
            (placement, world.now_s + world.fastest_finish_s(job_id))
            for job_id, (_, placement) in world.claims.items()
        ]

    def _reserved(self, world: World) -> tuple[tuple[Placement, float], ...]:
        kept = self.reservations.current
        if kept is None:
            return ()
        return ((kept.placement, max(0.0, kept.due_s - world.now_s)),)

    def _reserved_rank(self, world: World) -> float:
        kept = self.reservations.current
        return math.inf if kept is None else world.rank(kept.job)

    def _start_reserved(self, world: World, *, first: bool = False) -> None:
        """Start those for whom a place is kept, as soon as there is room that nobody has claimed;
        with `first` only if no job of a higher priority waits, which the round decides before."""
        while True:
            self._renew(world)
            kept = self.reservations.current
            if kept is None or kept.job not in world.waiting or kept.job in world.claims:
                return
            if first and self._tiered and self._is_outranked(world, kept.job):
                return
            claimed = {slot.node for _, placement in world.claims.values() for slot in placement}
            if any(slot.node in claimed for slot in kept.placement):
                return  # what is free there now may be part of a claim
            if not world.free.holds(world.need(kept.job, kept.option), kept.placement):
                self._clear(world, kept)
                return
            self._start(world, kept.job, kept.option, kept.placement)
            world.protected.add(kept.job)

    def _clear(self, world: World, kept: Reservation) -> None:
        """Preempt who is still on a place that is due, and start its job there once they have
        saved."""
        overstaying = self.reservations.overstaying(world, self._kept(world))
        for job_id in overstaying:
            world.preempt(job_id)
        if overstaying:
            world.claim(kept.job, kept.option, kept.placement)
            world.protected.add(kept.job)
            self._start_claimed(world)

    def _is_outranked(self, world: World, job_id: str) -> bool:
        own = world.rank(job_id)
        return any(world.rank(name) > own for name in world.waiting if name not in world.claims)

    def _carry_out(self, world: Trial, known: Instance, solution: RoundSolution) -> None:
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
                self._join(world, known, entry)
                continue
            option = _option(world, known, entry.id, entry.mode)
            world.claim(entry.id, option, entry.placement)
        world.start_claimed()

    def _start_claimed(self, world: World) -> None:
        started = world.start_claimed()
        if self._unripe is not None:
            self._unripe.update(started)

    def _join(self, world: World, known: Instance, entry: JobRound) -> None:
        assert entry.mode is not None and entry.mode.share_with is not None
        option = _option(world, known, entry.id, entry.mode.unshared)
        if world.may_share(entry.id, option, entry.mode.share_with):
            world.start_sharing(entry.id, option, entry.mode.share_with)


def _is_tiered(world: World) -> bool:
    """Return whether the jobs that are here are decided in tiers."""
    ranks = {world.rank(job_id) for job_id in chain(world.waiting, world.running)}
    preempts = world.cluster.preempts
    return len(ranks) > 1 or any(preempts.get(priority_of(r), "any") != "any" for r in ranks)


def _as_played(step: Step, playouts: Playouts) -> Step:
    """Return the step with what the list rule starts beside it at once when it is played; of these
    starts nothing is proved."""
    starts = playouts.first_starts(step.trial)
    for job_id, fit in starts.items():
        step.trial.start(job_id, *fit)
    return Step(step.trial, None) if starts else step


def _notes(step: Step) -> list[str]:
    """Return what is to be said of the plan that a step leads to."""
    notes = []
    if step.lead is not None:
        preempting = len(step.trial.victims)
        notes.append(
            f"looked ahead: {preempting} jobs are preempted, all others that run go on; played "
            f"forward that costs {step.lead:.2%} less than preempting nobody"
            if preempting
            else "looked ahead: preempting nobody costs least"
        )
        notes.append(
            "value, bound and gap are those of the starts beside what goes on"
            if step.decided
            else "nothing is proved of the starts by themselves: they are those of the plan"
        )
    if step.plan_gap is not None:
        notes.append(
            f"of what the jobs that are here cost from now on in the plan that this leads to, "
            f"no plan can save more than {step.plan_gap:.1%}"
        )
    return notes


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
