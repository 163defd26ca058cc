"""One solve: what was found, by whom, and what went wrong."""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..errors import InputError
from ..files import InstanceRef, instance_hash
from ..files.certificate import Certificate, load_certificate
from ..frozen import frozen, record
from ..model import Instance, Level, Plan, Solution, Status
from ..objectives import Objective, Usage
from ..plugins import registry
from ..plugins.options import NO_OPTIONS
from ..plugins.solver import Constrain, Report, Request, Solver
from .child import told
from .incumbent import Incumbent
from .plan_class import PreemptingFirst, in_one_piece, saved_later
from .warm_start import offer_initial, offer_whole
from .watchdog import Child

HEURISTIC_SHARE = 0.1
"""Part of the time limit after which no further policy is tried."""
MANY_JOBS, VERY_MANY_JOBS = 2_000, 20_000
"""Above these numbers of jobs two policies, and one, are enough."""

OVERRUN = 0.1
"""Part of the time limit that a solver may take on top before it is killed."""
MOST_MORE_S = 300.0
"""Most seconds more that a solver is given to compile what it keeps on this machine."""
REPRODUCIBLE_SHARE = 0.8
"""With one worker the solver is given this fixed part of the time limit, whatever the clock
says."""
PROGRESS_EVERY_S = 0.5
UNIX_CLOCK_S = 1e9
"""A clock that reads so much is taken to count from 1970: this was in 2001."""
MAX_NOTES = 10
ROUNDING = 1e-6
"""A bound may be so much larger than what its certificate proves, relative to it."""


@frozen
class Progress:
    """The state of a running solve: seconds since its start; value, proven bound and gap of the
    first level that is not settled; what gave the plan. None where there is none yet."""

    elapsed_s: float
    value: float | None
    bound: float | None
    gap: float | None
    source: str | None


@record
class Limits:
    """The time limit of a search, its workers and seed, and the proven gap that is enough."""

    time_limit_s: float
    workers: int
    seed: int
    gap: float

    def check(self) -> None:
        """Raise InputError for a limit that makes no sense."""
        if not (math.isfinite(self.time_limit_s) and self.time_limit_s > 0):
            raise InputError(f"time limit {self.time_limit_s} is not a positive number of seconds")
        if self.workers < 1:
            raise InputError(f"workers {self.workers} must be at least 1")
        if not (math.isfinite(self.gap) and self.gap >= 0):
            raise InputError(f"gap {self.gap} must be a number from 0 on, as 0.01 for 1 %")


class Search:
    """One solve: what was found, and what went wrong."""

    def __init__(
        self,
        instance: Instance,
        objective: Objective,
        limits: Limits,
        started_s: float,
        on_progress: Callable[[Progress], None] | None,
        log: Callable[[str], None] | None,
    ) -> None:
        self.given, self.hash = instance, instance_hash(instance)
        self.instance = instance = instance.undisturbed
        self.objective = objective
        self.time_limit_s = limits.time_limit_s
        self.seed = limits.seed
        self.workers = limits.workers
        self.gap = limits.gap
        self.options = NO_OPTIONS
        self.started_s = started_s
        self.on_progress = on_progress
        self.log = log
        self.initial: Plan | None = None
        self.constrain: Constrain | None = None
        self.on_certificate: Callable[[Certificate], None] | None = None
        self.certificate: Certificate | None = None
        self.constrained_bounds: dict[int, float] = {}
        self._logged = ""
        self.incumbent = Incumbent(instance, objective, any_plan=False)
        self.not_run: str | None = None  # why there is no exact solver
        self.interrupted = False
        self.more_s = 0.0  # what the exact solver has compiled for, once on this machine
        self.ran = False
        self.finished = False  # the exact solver did all it could
        self.infeasible: str | None = None
        self.trouble: list[str] = []  # what the exact solver did wrong
        self.crashed = False
        self.notes: list[str] = []
        self.lock = threading.Lock()  # in this process, solvers report from threads of their own

    def elapsed_s(self) -> float:
        return time.monotonic() - self.started_s

    def run(self, policies: tuple[str, ...], exact: Solver | None, child: Child | None) -> None:
        """Run all of it; the first Ctrl-C ends it, a second one, while things are being ended, gets
        through."""
        self.doubt_submissions()
        try:
            if self.initial is not None:
                self.start_from(self.initial)
            self.heuristics(policies)
            self.combinatorial_bounds()
            if exact is not None:
                self.exact(exact, child)
        except KeyboardInterrupt:
            if self.interrupted:
                raise
            self.interrupted = True

    def start_from(self, plan: Plan) -> None:
        """Take the initial plan; under side constraints, which it may break, only as a hint."""
        if self.constrain is None:
            self.note(offer_initial(self.incumbent, plan))
            self.progress()
            return
        hint = Incumbent(self.instance, self.objective, any_plan=False)
        if reason := offer_whole(hint, plan):
            self.note(f"the initial plan is not used: {reason}")
        self.initial = hint.plan

    def doubt_submissions(self) -> None:
        """Note where jobs wait since 1970, as happens to those without a `submit_s`."""
        instance = self.instance
        count = sum(job.submit_s == 0 for job in instance.jobs)
        since_submission = any(
            term.origin == "submission"
            for term in self.objective.terms
            if not isinstance(term, Usage)
        )
        if instance.now_s >= UNIX_CLOCK_S and count and since_submission:
            self.note(
                f"submit_s of {count:,} of {len(instance.jobs):,} jobs is 0 or left out, which "
                "is 1970 on the clock of "
                f"now_s ({instance.now_s:.12g} s): their waiting counts from then; give submit_s"
            )

    # ------------------------------------------------------------------------------------
    # heuristics, bounds

    def heuristics(self, policies: tuple[str, ...]) -> None:
        """Simulate policies for a first plan: at least one, and on until one gives a plan."""
        from ..simulate.run import simulate

        jobs = len(self.instance.jobs)
        instance = self.instance if self.incumbent.any_plan else in_one_piece(self.instance)
        enough = 1 if jobs > VERY_MANY_JOBS else 2 if jobs > MANY_JOBS else len(policies)
        for tried, name in enumerate(policies):
            late = self.workers > 1 and self.elapsed_s() > HEURISTIC_SHARE * self.time_limit_s
            if self.incumbent.plan is not None and (tried >= enough or late):
                break
            try:
                options = self.options if self.incumbent.any_plan else None
                plan = simulate(instance, registry.policy(name, self.objective, options))
                if not self.incumbent.any_plan and (later := saved_later(instance, plan)):
                    again = PreemptingFirst(later, registry.policy(name, self.objective))
                    plan = simulate(instance, again)
                reason = self.incumbent.offer(plan, name)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
            if reason is not None:
                self.note(f"{name} gave no valid plan: {reason}")
            self.progress()

    def combinatorial_bounds(self) -> None:
        """Take the bounds that need no solver: on the plan class, or on every plan where such are
        allowed."""
        from ..bounds import best_bounds, lower_bounds

        bounds = lower_bounds if self.incumbent.any_plan else best_bounds
        for bound in bounds(self.instance, self.objective):
            if math.isfinite(bound.value):
                self.incumbent.prove(bound.level, float(bound.value), bound.source)
        self.progress()

    # ------------------------------------------------------------------------------------ the exact
    # solver

    def is_enough(self) -> bool:
        """Return whether the plan is as good as it can be, or as was asked for."""
        if self.incumbent.is_optimal():
            return True
        return self.gap > 0 and all(
            level.gap is not None and level.gap <= self.gap for level in self.incumbent.levels()
        )

    def exact(self, solver: Solver, child: Child | None) -> None:
        """Run the exact solver for the rest of the time, unless nothing is left to find or no time
        is."""
        if self.incumbent.is_optimal():
            self.note(
                f"bounds prove the plan of {self.incumbent.source} optimal, {solver.name} did "
                "not run"
            )
            self.finished = True
            return
        if self.is_enough():
            self.finished = True
            return
        left_s = self.time_limit_s - self.elapsed_s()
        if left_s <= 0:
            self.trouble.append(
                f"the heuristics took the whole time limit, none was left for {solver.name}"
            )
            return
        request = Request(
            instance=self.instance,
            objective=self.objective,
            time_limit_s=left_s if self.workers > 1 else REPRODUCIBLE_SHARE * self.time_limit_s,
            seed=self.seed,
            workers=self.workers,
            incumbent=self.initial if self.constrain is not None else self.incumbent.plan,
            options=self.options,
            log=self.log is not None,
            constrain=self.constrain,
            certify=self.on_certificate is not None,
        )
        self.ran = True
        if child is None:
            self._here(solver, request)
            return
        child.send(request, self.started_s + self.time_limit_s if self.workers > 1 else None)
        killed = False
        try:
            killed = self._listen(solver, child)
        except KeyboardInterrupt:
            self.interrupted = True
        child.stop()
        if not self.finished:
            self._hear(solver, child, 0.0)
        if self.finished or self.trouble or self.interrupted:
            return
        if killed:
            self.trouble.append(f"{solver.name} did not stop at its time limit and was killed")
        else:
            self.crashed = True
            self.trouble.append(f"{solver.name} {child.how_it_ended()}")
            if output := child.last_output():
                self.notes.append(f"last output of {solver.name}: {output}")

    def _listen(self, solver: Solver, child: Child) -> bool:
        """Hear the child until it is done or nothing is left to find; True where its time was up
        before."""
        limit_s, shown_s = (1 + OVERRUN) * self.time_limit_s, time.monotonic()
        while not child.ended and not self.finished:
            now_s, until_s = time.monotonic(), self.started_s + limit_s + self.more_s
            if now_s >= until_s:
                return True
            self._hear(solver, child, min(PROGRESS_EVERY_S, until_s - now_s))
            if time.monotonic() >= shown_s + PROGRESS_EVERY_S:
                shown_s = time.monotonic()
                self.progress()
        return False

    def _hear(self, solver: Solver, child: Child, timeout_s: float) -> None:
        for message in child.receive(timeout_s):
            self.hear(solver.name, *message)
            if self.finished:
                return

    def _here(self, solver: Solver, request: Request) -> None:
        def tell(kind: str, *said: Any) -> None:
            with self.lock:
                self.hear(solver.name, kind, *said)

        try:
            solver.solve(request, Report.telling(tell))
            tell("done")
        except Exception as error:
            tell(*told(error))

    def hear(self, name: str, kind: str, *said: Any) -> None:
        """Take in one message of the solver."""
        incumbent = self.incumbent
        before = incumbent.plan, incumbent.levels()
        match kind:
            case "log":
                if self.log is not None:
                    self.log(str(said[0]))
                return
            case "more_time":
                self.more_s = min(max(0.0, said[0]), MOST_MORE_S)  # what is no number, too
                return
            case "plan":
                self._plan(name, said[0])
            case "bound":
                self._bound(name, *said)
            case "infeasible" if self.constrain is not None:
                self.trouble.append(f"no plan meets the side constraints: {said[0]}")
            case "infeasible":
                self.infeasible = str(said[0])
            case "note":
                self.note(str(said[0]))
            case "certificate":
                self._take_certificate(str(said[0]))
            case "junk":
                self.blame(f"{name} {said[0]}")
            case "unable":
                self.trouble.append(f"{name} cannot go on: {said[0]}")
            case "error":
                self.crashed = True
                self.trouble.append(f"{name} crashed: {said[0]}")
                lines = str(said[1]).strip().splitlines()[-3:-1]
                where = " / ".join(line.strip() for line in lines)
                self.notes.append(f"{name} crashed at: {where}")
            case _:
                self.finished = True
        while incumbent.refuted_claims:
            self.blame(f"{name} claimed {incumbent.refuted_claims.pop(0)}")
        if (incumbent.plan, incumbent.levels()) != before:
            self.progress()
            self.finished = self.finished or self.is_enough()

    def _plan(self, name: str, plan: object) -> None:
        reason = self.incumbent.offer(plan, name)
        if reason is not None:
            self.blame(f"{name} returned a plan that does not pass the verifier: {reason}")

    def _take_certificate(self, text: str) -> None:
        """Keep a certificate, for this instance, if it proves more than the one before."""
        try:
            read = load_certificate(text)
        except InputError as error:
            self.note(f"a certificate cannot be read: {error}")
            return
        made = replace(read, instance=InstanceRef(name=self.given.name, hash=self.hash))
        if self.certificate is None or made.value > self.certificate.value:
            self.certificate = made

    def _bound(self, name: str, level: int, bound: float, source: str) -> None:
        """Take a bound as a claim about the instance, unless side constraints helped to prove
        it."""
        if self.constrain is not None:
            known = self.constrained_bounds.get(level, -math.inf)
            self.constrained_bounds[level] = max(known, bound)
            return
        proof = source if source.startswith(name) else f"{name}: {source}"
        reason = self.incumbent.claim(level, bound, proof)
        if reason is not None:
            self.blame(f"{name} claimed {reason}")

    def blame(self, reason: str) -> None:
        """Discard the bounds of a solver that was caught being wrong: none counts any more."""
        self.incumbent.distrust_claims()
        if reason not in self.trouble and len(self.trouble) < MAX_NOTES:
            self.trouble.append(reason)

    def note(self, text: str | None) -> None:
        if text is not None and text not in self.notes and len(self.notes) < MAX_NOTES:
            self.notes.append(text)

    def progress(self) -> None:
        if self.on_progress is None and self.log is None:
            return
        level = self.incumbent.levels()[self.incumbent.unsettled()]
        self.log_stand(level)
        if self.on_progress is None:
            return
        self.on_progress(
            Progress(
                elapsed_s=self.elapsed_s(),
                value=level.value,
                bound=level.bound,
                gap=level.gap,
                source=self.incumbent.source,
            )
        )

    def log_stand(self, level: Level) -> None:
        """Log value, bound and gap of a level where they have changed visibly."""
        numbers = (
            "none" if number is None else f"{number:.6g}"
            for number in (level.value, level.bound, level.gap)
        )
        value, bound, gap = numbers
        line = f"{level.name}: value {value}, bound {bound}, gap {gap}, plan by "
        line += self.incumbent.source or "nobody"
        if self.log is not None and line != self._logged:
            self._logged = line
            self.log(f"{self.elapsed_s():8.2f} s  {line}")

    # ------------------------------------------------------------------------------------ the
    # answer

    def solution(self, exact: Solver | None) -> Solution:
        """Return the answer, with the reasons for what is not as it was asked for."""
        incumbent, infeasible = self.incumbent, False
        if exact is not None and self.infeasible is not None:
            infeasible = incumbent.plan is None
            if infeasible:
                self.notes.append(f"{exact.name} claims that no plan exists: {self.infeasible}")
            else:
                self.blame(
                    f"{exact.name} claims that no plan exists ({self.infeasible}), "
                    f"but the plan of {incumbent.source} passes the verifier"
                )
        if self.interrupted:
            self.notes.append("stopped by Ctrl-C")
            if exact is not None and not self.finished:
                self.trouble.append(f"{exact.name} was stopped by Ctrl-C before it was done")
        if self.gap > 0 and not incumbent.is_optimal() and self.is_enough():
            self.notes.append(f"the search ended at a gap of at most {self.gap:.4g}, as asked")
        for number, bound in sorted(self.constrained_bounds.items()):
            name = incumbent.levels()[number].name
            self.notes.append(
                f"with the side constraints {name} is at least {bound:.10g} "
                f"({exact.name if exact else ''}); this is not a bound of the instance"
            )
        self._certify()
        name, fallback = self._who_answered(exact)
        status: Status = "unknown"
        if incumbent.plan is not None:
            status = "optimal" if incumbent.is_optimal() else "feasible"
        elif infeasible:
            status = "infeasible"
        return Solution(
            instance_name=self.instance.name,
            instance_hash=self.hash,
            solver=name,
            seed=self.seed,
            objective=self.objective.name,
            status=status,
            levels=incumbent.levels(),
            plan=incumbent.plan,
            bound_source=incumbent.bound_source(),
            wall_s=None if self.workers == 1 else round(self.elapsed_s(), 3),
            fallback=fallback,
            notes=(*self.notes, *incumbent.refuted_bounds),
        )

    def _certify(self) -> None:
        """Give who asked for it the certificate that was made, if the check of bounds accepts it;
        note why there is none, or how far the bound is above it."""
        if self.on_certificate is None:
            return
        level, source = self.incumbent.levels()[0], self.incumbent.bound_source()
        if self.certificate is None:
            self.note(f"there is no certificate: none was made of the bound by {source}")
            return
        from ..verify_bound import recomputed

        certificate = self.certificate
        _, wrong = recomputed(self.given, certificate)
        if wrong:
            self.note(f"there is no certificate: the check of bounds says that {wrong[0]}")
            return
        if level.bound is not None and level.bound > certificate.value + ROUNDING * abs(
            level.bound
        ):
            self.note(f"the certificate proves {certificate.value:.10g}, the bound is by {source}")
        self.on_certificate(certificate)

    def _who_answered(self, exact: Solver | None) -> tuple[str, str | None]:
        """Return whose answer it is, and why it is a heuristic's if it was not to be."""
        source, trouble = self.incumbent.source or "none", "; ".join(self.trouble)
        if exact is None:
            return source, self.not_run
        if source == exact.name:
            if self.crashed:
                return source, f"{trouble}; the plan is the best that it had found until then"
            self.notes.extend(self.trouble)
            return source, None
        has_plan = self.incumbent.plan is not None
        if trouble:
            return source if has_plan else exact.name, trouble
        if self.ran and has_plan:
            self.note(f"the plan is that of {source}, {exact.name} found no better one")
        return exact.name if self.ran else source, None
