"""Deciding who runs: rounds, or a policy, and what keeps them from being decided."""

import time
from dataclasses import replace
from functools import partial

from ..duration import human
from ..errors import InputError
from ..files import dump_instance, text_hash
from ..model import Instance, Placement
from ..round.files import dump_round
from .acting import Acting
from .core import said_of
from .journal.events import Cancelled, Held, Noted, RoundDecided
from .journal.journal import RoundEntry
from .limits import look_at_labels, withheld
from .posing import Posed, at_fault, pose, stubborn
from .present import may_start, present, shares_now
from .round_driver import PAUSE_S, Commands, PolicyOvertimeError, RoundDriver, rounds_of

MOST_TRIES = 4
"""How often a round is decided with fewer jobs before that is given up."""
SUSPECT_S, BRIEFLY_S = 600.0, 0.1
"""How long jobs with which deciding fails by a bug are left out, and the wall clock for finding out
which these are."""


class Deciding(Acting):
    """The part of a controller that decides who runs."""

    def _round_is_due(self) -> bool:
        now_s = self.clock.now_s()
        if now_s - self.decided_s >= self.settings.every:
            return True
        return (
            self._due
            or self.driver(now_s).next_wake_s(self.decided_s) <= now_s
            or any(
                self.decided_s < job.ready_s <= now_s
                for job in self.state.open.values()
                if job.live is None
            )
        )

    def decide(self) -> None:
        """Decide a round on the present, and write it down with its instance."""
        now_s = self.clock.now_s()
        self._due, self.decided_s = False, now_s
        self._drop_orphans()
        # Else what was started before would seem never to have begun.
        self._part("starting attempts", self._start_claimed)
        self._drop_stale_claims(now_s)
        left_out, commands = self._decided(now_s)
        self._leave_out(left_out)
        if commands is None:
            return
        solution, seen = commands.solution, commands.seen
        self.last_round, self.last_instance, self.blocked = solution, seen.instance, seen.blocked
        stay = {attempt.key.job for attempt in self.state.live_attempts()} - commands.stop
        number = self.journal.last_round() + 1
        event = RoundDecided(
            round=number, claims=commands.claims, stay=tuple(sorted(stay)), blocked=seen.blocked
        )
        text = dump_instance(seen.instance, self._texts)
        decided = dump_round(replace(solution, instance_hash=text_hash(text)), self._round_texts)
        listed = RoundEntry(
            number=number,
            at_s=now_s,
            jobs=len(solution.jobs),
            value=solution.value,
            bound=solution.bound,
            wall_s=time.monotonic() - self._begun_s,
            solver=solution.solver,
            fallback=solution.fallback,
        )
        self.journal.add_round(listed, text, decided, [event])
        self.round_s = time.monotonic() - self._begun_s
        self.measures.rounds.observe(self.round_s)
        self._take_in(now_s, [event])

    def _decided(self, now_s: float) -> tuple[dict[str, str], Commands | None]:
        """Return who was left out, and what was decided of the others, None where nobody waits or
        runs.

        Where the running jobs cannot go on together (a quota was lowered, and some may not be
        preempted), these go on and the others are decided about. So they are where deciding fails
        by a bug with a few jobs, for a while. Rounds are decided in the place of a policy that
        fails. Raises whatever it fails with where no round can be decided at all.
        """
        self._suspects = {
            name: suspect
            for name, suspect in self._suspects.items()
            if now_s - suspect[0] < SUSPECT_S
        }
        left_out = {
            name: why for name, (_, why) in self._suspects.items() if name in self.state.open
        }
        failed: Exception | None = None
        for _ in range(MOST_TRIES):
            posed = self._pose(now_s, left_out)
            driver = self.driver(now_s)
            try:
                return posed.left_out, self._drive(driver, posed.instance, posed.blocked)
            except Exception as error:
                failed = error
                if driver is self.policy:
                    self._leave_policy_out(driver, now_s, error)
                    continue
                driver.failed(now_s, pause_s=0.0)
                if isinstance(error, PolicyOvertimeError):
                    raise
                if isinstance(error, InputError):
                    if not posed.instance.running:
                        raise
                    left_out = posed.left_out | stubborn(posed.instance, str(error))
                    continue
                said = f"deciding with it failed: {said_of(error)}"
                names = at_fault(posed.instance, partial(self._fails, blocked=posed.blocked))
                self.bug(f"deciding with {', '.join(names[:3])}", error)
                self._suspects |= dict.fromkeys(names, (now_s, said))
                left_out = posed.left_out | dict.fromkeys(names, said)
        self._suspects.clear()  # it is not they
        raise failed or InputError("running jobs cannot go on together")

    def _drive(
        self, driver: RoundDriver, instance: Instance, blocked: tuple[Placement, ...]
    ) -> Commands | None:
        closed = {status.node.name for status in self.statuses if not status.usable}
        return driver.decide(instance, self.state, blocked, closed, self.settings.length)

    def _leave_policy_out(self, policy: RoundDriver, now_s: float, error: Exception) -> None:
        policy.failed(now_s)
        self.bug(f"deciding by policy {policy.named.name}", error)
        self.record(
            Noted(
                text=f"policy {policy.named.name} failed, and rounds are decided in its place for "
                f"{human(PAUSE_S)}: {said_of(error)}"
            )
        )

    def _pose(self, now_s: float, left_out: dict[str, str]) -> Posed:
        progress, strangers = self._progress(), self.strangers()
        shares = shares_now(self.state, self.tenants, self.settings.half_life_s, now_s)
        cluster = self.cluster
        look_at_labels(self.settings, self.state, (status.node for status in self.statuses))
        limited = withheld(
            self.settings, self.state, now_s, self.able(now_s), lambda s: self.meter.spent(s, now_s)
        )
        self.withheld, self.over_budget = limited.jobs, limited.over_budget
        return pose(
            lambda without: present(
                self.state,
                cluster,
                self.tenants,
                self.statuses,
                progress,
                now_s,
                left_out=without,
                withheld=limited.jobs,
                most_gpus=limited.most_gpus,
                strangers=strangers,
                preempt_unsaved=self.settings.preempt_unsaved,
                before=None if self.last_instance is None else self.last_instance.cluster,
                shares=shares,
            ),
            left_out,
            self._checked,
        )

    def _fails(self, instance: Instance, blocked: tuple[Placement, ...]) -> bool:
        """Return whether deciding it fails by a bug."""
        brief = RoundDriver(rounds_of(self.settings, BRIEFLY_S), self.settings.objective)
        try:
            self._drive(brief, instance, blocked)
        except InputError:
            return False
        except Exception:
            return True
        return False

    def _leave_out(self, left_out: dict[str, str]) -> None:
        """Note who is newly left out of rounds."""
        self.record(
            *(
                Noted(
                    text=f"{name} {'goes on and ' if self.state.jobs[name].live else ''}is left "
                    "out of "
                    f"rounds: {why}"
                )
                for name, why in left_out.items()
                if self.left_out.get(name) != why
            )
        )
        self.left_out = left_out

    def _drop_orphans(self) -> None:
        """Cancel or hold jobs whose predecessor will never end as they wait for."""
        for job in [*self.state.open.values()]:
            held = job.submission.if_never == "hold"
            predecessor = self.state.lost_predecessor(job)
            if predecessor is None or (held and job.held is not None):
                continue
            name, ended = predecessor
            reason = f"{name}, which it comes after, {ended}"
            self.record((Held if held else Cancelled)(job=job.id, reason=reason))

    def _drop_stale_claims(self, now_s: float) -> None:
        """Drop claims whose place will not come free by itself: what it lacks is up to the next
        round."""
        going = (
            attempt
            for attempt in self.state.live_attempts()
            if attempt.leaving or attempt.key.job not in self.state.stay
        )
        leaving = {slot.node for attempt in going for slot in attempt.placement}
        usable = {status.node.name for status in self.statuses if status.usable}
        for name, claim in [*self.state.claims.items()]:
            job = self.state.jobs[name]
            places = {slot.node for slot in claim.placement}
            waits = job.live is not None or (may_start(self.state, job, now_s) and places & leaving)
            if not waits or not places <= usable:
                del self.state.claims[name]
