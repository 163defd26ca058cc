"""The round as a policy: at every decision the active jobs are weighed against each other as one
problem."""

import math
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Annotated

from annotated_types import Ge

from optsched.bounds import lower_bounds
from optsched.driver.borrowing import borrowers, may_borrow, with_promised
from optsched.driver.playout import Playouts, may_grow
from optsched.driver.reservation import NEARLY_FREE, Reservations, swaps_matter
from optsched.driver.snapshot import Snapshot, snapshot
from optsched.driver.trial import Trial
from optsched.driver.world import World
from optsched.model import Job
from optsched.objectives import Objective, Usage, parse
from optsched.physics import swap_s
from optsched.plugins.options import (
    Duration,
    PluginOptions,
    PositiveDuration,
    Share,
    declared_options,
)
from optsched.round.decide import no_collection
from optsched.round.facts import preemption_s, settle_s
from optsched.round.plan import RoundSolution

from .compass import Compass
from .hadar.copies import HadarE
from .parts.agenda import Agenda, outline, search
from .parts.awaited_places import awaiting
from .parts.first_step import Planning, RoundRecord, Step, as_played, by_rule, notes_of
from .parts.kept_places import KeptPlaces
from .parts.preemptive import Preemptive
from .parts.priced_round import NO_LIMIT_S, PricedRounds
from .parts.raised_weights import GANG, RaisedWeights
from .parts.tiers import is_allowed, is_tiered
from .srtf import Srtf
from .xion import Xion

FEW_JOBS = 100
"""With so many jobs or fewer every round is decided, whatever the pace."""
FOR_PRICE, FOR_KEEPING = 0.4, 0.2
"""Shares of the budget for the round in which all may be preempted, and for others, of which there
are at most two."""
MOST_PLANNED = 200
"""Of more jobs no whole plan is sought, and no GPUs are left idle for one of them."""
PLAN_S, REPLAN_S = 0.015, 0.005
"""Counted work of seeking a plan, times the square of the number of jobs that are here, and of
seeking a better one than there is, times their number."""
MOST_PLAN_S = 4.0
"""Most counted work of either, so that a live round of a hundred jobs takes about a second."""
FEW_PLANNED, FEW_TIMES = 60, 2.0
"""The first plan of so many jobs or fewer is sought boldly, with so many times the work."""
NEARLY_FREE_TO_GROW = 0.005
"""Where jobs are elastic, preempting costs next to nothing only below this share of what jobs have
left: those that may shrink or grow are preempted more often."""
UNCERTAIN = 0.8
"""Where jobs that come rank in the mean below this share of what is believed of them, first steps
are not played forward: that takes each to be as long as is believed, and does not see what it is
worth to try who may end soon."""
STILL = 0.02
"""While nobody comes or goes, urgencies that change with time are looked at again once this share
of that time has passed, and at least a round."""
MOST_PROVED = 2000
"""With more jobs no plan is played to its end to be compared with a bound."""


class Optsched:
    """Decides by `optsched.round.decide` at every event, or while nobody waits every `moves_s`.
    Under wct large gangs weigh more than they say and, once jobs keep coming and where no steps are
    played forward, so do jobs that take longer than most (see `raised_weights`), also in the values
    of `rounds`.

    A job whose place is still held by jobs that are being saved waits for it; that place is kept
    for it (`World.claims`).

    Where saving and restoring take long (`swaps_matter`) and run times are not `UNCERTAIN`, whom to
    preempt is not left to prices, which do not see that a job might fit soon anyway, nor that a
    preemption delays all who wait. First steps are tried: that of the round (where run times are
    known), that of the round in which all that runs goes on, that of `xion`, that of `srtf` (where
    jobs are elastic), of `compass` (where they fetch models) and of `hadare` (where they have
    copies on GPUs of several types), as long as no job has come that of a list rule, which goes on
    with the last plan, and later those that leave GPUs idle for a job that fits soon. Each is
    played forward by that rule for the jobs that are here, what it costs those still to come is
    charged, and the cheapest is taken (Bertsekas, Tsitsiklis and Wu, Journal of Heuristics 3,
    1997). So by its own account it is never worse than to preempt nobody now, nor than `xion` if
    that preempts nobody who is just back; nor, as long as no job has come, than what it planned
    before. Prices alone start elastic jobs on few GPUs, on which they then stay, and know neither
    who has a model nor of gangs of several types.

    No job starves: for one that has waited too long a place is kept (see
    `optsched.driver.reservation`), and once it has started there it is not preempted any more, but
    may move to a better place while nobody waits.

    With `pace` a long time is seen roughly, but quickly, and its beginning as it is: what comes
    free between rounds goes to waiting jobs by weight per GPU and second, beside the places that
    are kept. While at most `FEW_JOBS` wait or run every event has its round.
    """

    name = "optsched"
    title = "each round as one optimization problem, with a proven gap"

    @declared_options
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
        late: Annotated[
            bool,
            "Under wct, while jobs keep coming, those that take longer than nine in ten weigh "
            "more.",
        ] = True
        ahead: Annotated[
            bool, "Where saving takes long, first steps are played forward before one is taken."
        ] = True
        prove: Annotated[
            bool, "Each plan that is played forward is compared with a bound on all plans."
        ] = False

    def __init__(self, options: Options, objective: Objective | None = None) -> None:
        self.objective = objective or parse("wct")
        self.round_s, self.pace, self.moves_s = options.round_s, options.pace, options.moves_s
        self.ahead, self.late, self.prove = options.ahead, options.late, options.prove
        self._counts_times_only = not any(isinstance(term, Usage) for term in self.objective.terms)
        self.decided: tuple[Snapshot, RoundSolution] | None = None
        self.rounds: list[RoundRecord] = []
        self._places = KeptPlaces()
        self._known: dict[str, Job] = {}
        self._known_ranks: dict[str, Job] = {}
        self._tiered = False
        self._weights = RaisedWeights(options.gangs)
        self._priced_rounds = PricedRounds(
            self.objective,
            solver=options.solver,
            round_s=options.round_s,
            budget_s=options.budget_s,
            gap=options.gap,
            weights=self._weights,
        )
        self._arrived = 0.0
        self._rank_shares, self._ranked = 0.0, 0
        self._agenda: Agenda | None = None
        self.notes: tuple[str, ...] = ()
        self._moves_s = self._paced_s = self._changes_s = -math.inf
        self._here, self._still_since_s = set[str](), -math.inf

    @property
    def reservations(self) -> Reservations:
        """Return the place that is kept for who has waited too long."""
        return self._places.reservations

    @no_collection()
    def decide(self, world: World) -> None:
        """Start those whose place has come free, then decide anew."""
        places, self.decided, self.notes = self._places, None, ()
        for job_id in world.take_arrived():
            self.reservations.arrived(world, job_id)
            if world.entry(job_id) is None:
                self._note_newcomer(world, job_id)
        self._weights.note_ended(world)
        self._rank(world)
        places.start_claimed(world)
        places.start_reserved(world, before_higher=not self._tiered)
        waiting = [job_id for job_id in world.waiting if job_id not in world.claims]
        if not waiting:
            if not world.running:
                return
            if world.now_s < self._moves_s:
                world.wake_at(self._moves_s)
                return
        elif world.now_s < self._paced_s and len(waiting) + len(world.running) > FEW_JOBS:
            places.fill(world, [job_id for job_id in waiting if job_id not in places.biding])
            places.keep(world)
            world.wake_at(self._paced_s)
            return
        self._moves_s = world.now_s + self.moves_s
        self._paced_s = world.now_s + self.pace * (world.now_s - world.instance.now_s)
        self._take(self._best_step(world, waiting))
        kept = self.reservations.current
        places.bide(world, self.objective)
        places.start_claimed(world)
        if self._tiered:
            places.start_reserved(world)
        places.keep(world, kept)
        if self._agenda and (next_s := self._agenda.next_start_s(world.now_s)) is not None:
            world.wake_at(next_s)
        if self.objective.changes(world.instance.cluster):
            self._wake_when_changed(world)
        if world.waiting and len(world.waiting) + len(world.running) <= FEW_JOBS:
            self._wake_when_ripe(world)

    def _note_newcomer(self, world: World, job_id: str) -> None:
        """Count who has come, and how uncertain its run time is."""
        if world.job(job_id).submit_s > world.instance.now_s:
            self._arrived += world.job(job_id).weight
        if world.ranks_jobs:
            self._ranked += 1
            rank_s, believed_s = world.rank_work_s(job_id), world.believed_work_s(job_id)
            self._rank_shares += min(1.0, rank_s / believed_s)

    def _wake_when_changed(self, world: World) -> None:
        """Ask for a decision once urgencies may have changed, where jobs may start then."""
        here = {*world.waiting, *world.running}
        if here != self._here:
            self._here, self._still_since_s = here, world.now_s
            if self._changes_s > world.now_s + self.round_s:
                self._changes_s = world.now_s
        if world.now_s < self._changes_s or not _may_start(world):
            return
        later_s = max(self.round_s, STILL * (world.now_s - self._still_since_s))
        for tariff in self.objective.tariffs(world.instance.cluster):
            for change_s in tariff.changes_s(world.now_s)[:1]:
                later_s = min(later_s, max(self.round_s, change_s))
        self._changes_s = world.now_s + later_s
        world.wake_at(self._changes_s)

    def _wake_when_ripe(self, world: World) -> None:
        """Ask for a decision once the first job that is left alone for now may be preempted: until
        then perhaps nothing happens, however long it runs."""
        unripe, now_s = self._places.unripe or set(), world.now_s
        ripe_s = [world.preemptible_at_s(job_id) for job_id in unripe & world.running.keys()]
        ripe_s += [
            world.came_back_s(job_id) + settle_s(world.job(job_id)) for job_id in world.running
        ]
        if later_s := [at_s for at_s in ripe_s if now_s < at_s < math.inf]:
            world.wake_at(min(later_s))

    def _best_step(self, world: World, waiting: list[str]) -> Step:
        """Return the first step that leads furthest, of equals the one that preempts least."""
        pinned = self._places.pinned(world)
        now = self._rank(world)
        pairs = any(world.hold(job_id).partner is not None for job_id in world.running)
        copies = _have_copies(world)
        has_choice = bool(waiting) or pairs or copies or self._agenda is not None
        matter = self._preemptions_matter(world) or (copies and self._counts_times_only)
        uncertain = self._rank_shares < UNCERTAIN * self._ranked
        if uncertain or not (self.ahead and has_choice and matter):
            self._agenda = None
            step = self._by_price(world, self._by_rank(world, waiting, now), pinned)
            if not (self.prove and self._counts_times_only):
                return step
            now = now or snapshot(world, jobs=waiting, known=self._known)
            return self._told(step, Playouts(world, self.objective), now)
        now = now or snapshot(world, jobs=waiting, known=self._known)
        steps = []
        if world.knows_run_times:  # else what looks best of many preemptions is the most misjudged
            steps.append(self._priced(world, now, pinned, FOR_PRICE))
        if not steps or steps[0].trial.victims:
            steps.insert(0, self._keeping(world, now, pinned))
        # as long as no job has come, steps are compared with plans, in which no job grows
        playouts = Playouts(world, self.objective, grow=self._arrived > 0 or copies)
        elastic = may_grow(world, playouts.place)
        xion, by_rules = self._by_rules(world, pinned, elastic=elastic, copies=copies)
        steps += by_rules
        going_on = Trial(world, pinned)
        if not (self._arrived or self.reservations.current) and self._is_allowed(going_on):
            steps.append(Step(going_on, None))
        if self._may_await(world, playouts):
            steps += awaiting(world, playouts, pinned)
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
            best = as_played(best, playouts)
        return self._told(best, playouts, now, None if self._tiered else steps[0])

    def _by_rules(
        self, world: World, pinned: set[str], *, elastic: bool, copies: bool
    ) -> tuple[Trial, list[Step]]:
        """Return what Xion would do now, and the steps of rules that are worth trying: its own,
        where jobs are `elastic` that of SRTF, where they fetch models that of Compass, where they
        have `copies` on GPUs of several types that of HadarE. Prices start all other jobs better,
        if their run times are known."""
        rules: list[Preemptive | Planning] = [Xion()]
        if elastic and world.knows_run_times:
            rules.append(Srtf())
        if self.reservations.current is None and world.fetches_models:
            rules.append(Compass())
        if self.reservations.current is None and copies:
            rules.append(HadarE(HadarE.Options()))
        steps = [by_rule(world, pinned, self.reservations, rule) for rule in rules]
        start_well = elastic or world.fetches_models or not world.knows_run_times
        worth_trying = [
            step
            for step in steps
            if (step.trial.victims or step.awaited or (step.trial.started and start_well))
            and self._is_allowed(step.trial)
        ]
        return steps[0].trial, worth_trying

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
            world.borrowing = before | borrowers(self._priced_rounds.posed(world, now))
        self._tiered = is_tiered(world)
        return now

    def _by_rank(self, world: World, waiting: list[str], now: Snapshot | None) -> Snapshot:
        """Return the present as a round sees it whose step is not played forward: a job of
        uncertain length has its rank left. `now` is the present with the tenants' shares, where
        some borrow."""
        if not world.ranks_jobs:
            return now or snapshot(world, jobs=waiting, known=self._known)
        ranked = snapshot(world, jobs=waiting, known=self._known_ranks, by_rank=True)
        if now is None:
            return ranked
        tenants = now.instance.tenants
        return replace(ranked, instance=replace(ranked.instance, tenants=tenants))

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
        jobs = len(playouts.place)
        few = jobs <= FEW_PLANNED and last is None
        limit_s = min(MOST_PLAN_S, REPLAN_S * jobs if last else PLAN_S * jobs**2)
        limit_s *= FEW_TIMES if few else 1.0
        found = search(world, now, self.objective, outlines, limit_s, bold=few)
        if found is not None and (trial := found[0].step(world, now.pinned, found[1])):
            yield found[0], trial

    def _priced(
        self,
        world: World,
        now: Snapshot,
        pinned: set[str],
        share: float = 1.0,
        *,
        late: bool = False,
    ) -> Step:
        """Return the step of the round in which `pinned` go on, found in a `share` of the budget;
        with `late`, jobs that take longer than most weigh more."""
        return self._priced_rounds.step(
            world, now, pinned, share, places=self._places, tiered=self._tiered, late=late
        )

    def _by_price(self, world: World, now: Snapshot, pinned: set[str]) -> Step:
        """Return the step of the round in which `pinned` go on or, while nobody waits, may move to
        places of their own."""
        unripe = self._places.unripe or set()
        if not world.waiting and pinned - unripe:
            step = self._priced(world, now, pinned & unripe)
            trial = step.trial
            if not pinned.intersection(trial.victims) - {*trial.claims, *trial.started}:
                return step
        late = self.late and bool(world.waiting) and self._arrived > 0
        return self._priced(world, now, pinned, late=late)

    def _is_allowed(self, trial: Trial) -> bool:
        return not self._tiered or is_allowed(trial, self._places.unripe or ())

    def _keeping(
        self, world: World, now: Snapshot, pinned: set[str], but: Collection[str] = ()
    ) -> Step:
        """Return the step of the round in which all that runs goes on `but` for some."""
        going_on = pinned | world.running.keys() - {*but}
        return self._priced(world, now, going_on, FOR_KEEPING)

    def _told(
        self, step: Step, playouts: Playouts, now: Snapshot, keeping: Step | None = None
    ) -> Step:
        """Return the step with what is known of the plan that it leads to: how much less it costs
        than keeping all that runs, and, where what is played is what would happen, how far it may
        be from the best plan of all."""
        lead = plan_gap = None
        if keeping is not None:
            base = playouts.done_now()[0]
            kept, value = playouts.cost(keeping.trial)[0], playouts.cost(step.trial)[0]
            lead = (kept - value) / (kept - base) if kept > base else 0.0
        proves = self.prove and self._counts_times_only and step.trial.foresees_ends
        if proves and len(playouts.place) <= MOST_PROVED:
            here = now.instance.only(playouts.place)
            value, base = playouts.plan_cost(step.trial, here)
            if math.isfinite(value):
                bound = lower_bounds(here, self.objective)[0].value
                certain = min(base, bound)
                plan_gap = (value - bound) / (value - certain) if value > bound else 0.0
        return replace(step, lead=lead, plan_gap=plan_gap)

    def _charge(self, world: World, trial: Trial, xion: Trial) -> float:
        """Return what the preemptions that Xion would not make, and those of jobs that are just
        back, cost the jobs that are still to come: all GPUs stand still for their share of what
        saving and restoring take, and as many jobs wait for that as come while what is here is
        done."""
        lost_gpu_s = sum(
            world.held_gpus(job) * swap_s(world.job(job))
            for job in trial.victims
            if job not in xion.victims or _is_just_back(world, job)
        )
        if not (lost_gpu_s and self._arrived):
            return 0.0
        per_s = self._arrived / (world.now_s - world.instance.now_s)
        to_come = per_s * self.reservations.backlog_s(world)
        return lost_gpu_s / max(1, world.cluster.total_gpus) * to_come

    def _may_await(self, world: World, playouts: Playouts) -> bool:
        """Return whether GPUs may be left idle for a job until the next decision: once jobs keep
        coming, as before that plans of all say who waits for whom."""
        if not (self._arrived and world.knows_run_times) or len(playouts.place) > MOST_PLANNED:
            return False
        return not (self._tiered or self.reservations.current or world.claims)

    def _take(self, step: Step) -> None:
        for job_id in step.awaited:
            step.trial.claims.pop(job_id, None)  # the next decision is free to keep it or not
        step.trial.carry_out()
        self._places.began((*step.trial.started, *step.trial.joined))
        trial, self.notes = step.trial, tuple(notes_of(step))
        here = len(trial.waiting) + len(trial.running) + len(trial.saving)
        record = RoundRecord(trial.now_s, here, None, None, None, None, step.lead, step.plan_gap)
        if step.decided is not None:
            seen, solution = step.decided
            self._priced_rounds.last = solution
            solution = replace(solution, notes=(*solution.notes, *self.notes))
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
        jobs = [*world.waiting, *world.running]
        nearly_free = NEARLY_FREE_TO_GROW if may_grow(world, jobs) else NEARLY_FREE
        return self._counts_times_only and swaps_matter(world, jobs, nearly_free)


def _have_copies(world: World) -> bool:
    """Return whether some job has copies on GPUs of several types, of which prices know nothing:
    of few jobs whose run times are known."""
    jobs = [*world.waiting, *world.running]
    if len(world.cluster.gpu_types) == 1 or not (world.knows_run_times and may_grow(world, jobs)):
        return False
    return any(world.demand(job).elastic and world.profile(job).mixing == "sum" for job in jobs)


def _is_just_back(world: World, job_id: str) -> bool:
    """Return whether a job was preempted before and has not run for as long yet as that cost."""
    return world.now_s < world.came_back_s(job_id) + preemption_s(world.job(job_id))


def _may_start(world: World) -> bool:
    """Return whether a waiting job may start later although nothing happens until then: where one
    fits, or some run that may be preempted for it."""
    return bool(world.waiting and world.running) or any(
        world.fit(job_id) is not None for job_id in world.waiting
    )
