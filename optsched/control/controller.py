"""The controller: observe, decide, write down, act. Its loop holds no state that the journal does
not."""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..driver.live_reservation import Reserving, protected
from ..errors import InputError
from ..executors.base import (
    Arrivals,
    AttemptKey,
    AttemptState,
    DeclinedError,
    Executor,
    NoAnswerError,
    NodeStatus,
    Observation,
    Order,
    Progress,
    RefusedError,
)
from ..files import dump_instance, text_hash
from ..model.cluster import Node
from ..model.instance import Instance, Placement, Slot
from ..round.decide import decide
from ..round.files import dump_round
from ..round.plan import RoundSolution
from .arrivals import Intake
from .clock import Clock
from .disk import short_of_disk
from .journal.events import (
    AttemptEnded,
    AttemptLost,
    Cancelled,
    Changed,
    Claim,
    Event,
    Held,
    KillIntended,
    NodeSeen,
    Noted,
    Released,
    RoundDecided,
    StartIntended,
    StartRefused,
    StopIntended,
    Submitted,
    Why,
)
from .journal.journal import Journal, JournalError, RoundEntry
from .journal.retention import Retention
from .journal.state import Attempt, LiveJob, State
from .posing import Posed, at_fault, pose, sound, stubborn
from .present import may_start, memory_of, present, start_setup_s
from .seen import news, node_news
from .settings import Settings
from .starts import Start, starts

if TYPE_CHECKING:
    from .learning import Learning

AGAIN_S = 5.0
"""How often a call is made again whose effect is not seen."""
SILENT_S = 30.0
"""After so long without an answer from the executor its attempts are lost."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""How long a part of a turn that failed is left alone, doubled by each more time."""
MOST_TRIES = 4
"""How often a round is decided with fewer jobs before that is given up."""
SUSPECT_S, BRIEFLY_S = 600.0, 0.1
"""How long jobs with which deciding fails by a bug are left out, and the wall clock for finding out
which these are."""
MOST_SAID = 300
"""Characters of what is said of a bug."""
OVERTIME_S = 15.0
"""So long after its grace an attempt that has not ended is killed from here."""
DISK_EVERY_S = 5.0
"""How often a disk without room is looked at."""
ENDED_AS = {"failed": "failed", "cancelled": "was cancelled"}
TURNING = (Submitted, Changed, Held, Released, Cancelled, AttemptEnded, StartRefused, NodeSeen)
"""Events after which a new round is due."""


@dataclass(frozen=True, slots=True)
class Failing:
    """A part of a turn that fails: when it is tried again (monotonic), after which pause, and how
    it was said."""

    again_s: float
    wait_s: float
    said: str


class Controller:
    """Drives the jobs of a journal on the nodes of an executor.

    `step` is one turn: it takes in what is seen, decides a round if one is due, and brings what
    runs closer to what the last round decided. A part of it that fails (a bug) keeps nobody from
    the others: it is noted, `bug` is told, and it is tried again later and less often. Every event
    is on the disk before anything is done about it. After a crash a new controller with the same
    journal goes on where the old one was: calls whose effect is not seen are made again, which is
    why every call of an executor is idempotent.

    Raises JournalError where the journal fails; nothing is started then, and what runs goes on
    running.
    """

    def __init__(
        self, settings: Settings, executor: Executor, journal: Journal, clock: Clock
    ) -> None:
        self.settings = settings
        self.executor = executor
        self.journal = journal
        self.clock = clock
        self.cluster = settings.cluster
        self.tenants = tuple(tenant.tenant() for tenant in settings.tenants)
        self.state = State()
        for entry in journal.entries():
            self.state.apply(entry.at_s, entry.event)
        self.statuses: tuple[NodeStatus, ...] = ()
        self.observed: dict[AttemptKey, Observation] = {}
        self.last_round: RoundSolution | None = None
        self.last_instance: Instance | None = None
        self.reserving = Reserving()
        self.decided_s = -float("inf")
        self._due = True
        self.short_of_disk: str | None = None
        self.learning: Learning | None = None
        self.listeners: list[Callable[[float, Event], None]] = []
        self._intake = Intake(self, executor) if isinstance(executor, Arrivals) else None
        self._asked_s: dict[AttemptKey, float] = {}
        self._answered_s = clock.now_s()
        self._looked_s = float("inf")
        self._silence_noted = False
        self._forgotten: set[AttemptKey] = set()
        self._strangers: set[AttemptKey] = set()
        self._sound: dict[Node, str | None] = {}
        self._begun_s = time.monotonic()
        self.round_s = 0.0
        """Seconds of the last turn that decided a round, from looking to writing."""
        self.left_out: dict[str, str] = {}
        """Jobs that the last round was decided without, each with the reason."""
        self.blocked: tuple[Placement, ...] = ()
        """What the last round could not give away."""
        self.retention = Retention(settings.retention)
        self.bug: Callable[[str, Exception], None] = lambda what, error: None
        self._suspects: dict[str, tuple[float, str]] = {}
        self._failing: dict[str, Failing] = {}

    # --------------------------------------------------------------------------------------------
    # what happens

    def record(self, *events: Event) -> None:
        """Write events down, then take them in."""
        now_s = self.clock.now_s()
        self.journal.append(now_s, events)
        self._take_in(now_s, events)

    def _take_in(self, now_s: float, events: Iterable[Event]) -> None:
        for event in events:
            self.state.apply(now_s, event)
            if isinstance(event, TURNING):
                self._due = True
            for listener in self.listeners:
                try:
                    listener(now_s, event)
                except JournalError:
                    raise
                except Exception as error:  # who listens keeps nobody from what was written down
                    self.bug("listening", error)

    def hear(self, now_s: float, event: Event) -> None:
        """Take in an event that is written down already."""
        self._take_in(now_s, [event])

    def step(self) -> float:
        """One turn. Returns after how many seconds the next one is due if nothing happens
        before."""
        self.journal.check_there()
        self._begun_s = time.monotonic()
        self.look()
        self._part("looking at the disk", self._look_at_disk)
        self._part("stopping attempts", self._stop_unwanted)
        if self.short_of_disk is not None:
            self._part("dropping what is old", lambda: self.retention.take_turn(self))
            return DISK_EVERY_S
        if self._round_is_due():
            self._part("deciding a round", self.decide)
            self._part("stopping attempts", self._stop_unwanted)
        self._part("starting attempts", self._start_claimed)
        self._part("dropping what is old", lambda: self.retention.take_turn(self))
        return self._next_s()

    def look(self) -> None:
        """`observe`, as the first part of a turn."""
        self._part("looking at nodes and attempts", self.observe)

    def _part(self, what: str, part: Callable[[], None]) -> None:
        """Do a part of a turn, or leave it for later where it has just failed. Raises JournalError
        only."""
        before = self._failing.get(what)
        if before is not None and time.monotonic() < before.again_s:
            return
        try:
            part()
        except JournalError:
            raise
        except Exception as error:
            self._failed(what, error)
        else:
            self._failing.pop(what, None)

    def _failed(self, what: str, error: Exception) -> None:
        """Note a bug, once for each that is another, and have it tried again later."""
        said = (
            f"{what} failed, and is tried again: {type(error).__name__}: {str(error)[:MOST_SAID]}"
        )
        before = self._failing.get(what)
        wait_s = FIRST_PAUSE_S if before is None else min(LONGEST_PAUSE_S, 2 * before.wait_s)
        self._failing[what] = Failing(time.monotonic() + wait_s, wait_s, said)
        self.bug(what, error)
        if before is None or before.said != said:
            self.record(Noted(text=said))

    def _look_at_disk(self) -> None:
        """Note when there is no room for more starts, and when there is again."""
        before, self.short_of_disk = self.short_of_disk, short_of_disk(self.settings)
        if (before is None) != (self.short_of_disk is None):
            self.record(
                Noted(text=self.short_of_disk or "the disk has room again; jobs are started again")
            )
            self._due = True

    def observe(self) -> None:
        """Take in what is seen of nodes and attempts, and let go of those that have ended."""
        jumped_s = self.clock.jump_s()
        if jumped_s is not None:
            self.record(
                Noted(
                    text=f"the clock of this host jumped by {jumped_s:+.1f} s; times here do not "
                    "follow it"
                )
            )
        self._looked_s = self.clock.now_s()
        try:
            self.statuses = sound(self.executor.inventory(), self._sound)
            self.observed = {one.key: one for one in self.executor.observe()}
            self._take_arrivals()
        except (NoAnswerError, OSError) as error:
            self._silent(str(error))
            return
        now_s = self.clock.now_s()
        self._answered_s, self._silence_noted = now_s, False
        self._record_each(
            [
                *node_news(self.state, self.statuses),
                *news(self.state, self.observed, now_s, self.clock.steady_s),
            ]
        )
        for key, seen in self.observed.items():
            job = self.state.jobs.get(key.job)
            if job is None or key.number > len(job.attempts):
                if key not in self._strangers:
                    self._strangers.add(key)
                    self.record(
                        Noted(
                            text=f"{key} is not in the journal; it is left alone and keeps its GPUs"
                        )
                    )
            elif job.attempts[key.number - 1].ended is None:
                pass  # nothing is dropped that is not written down
            elif seen.state == AttemptState.ENDED and key not in self._forgotten:
                self._forget(key)
            elif seen.state in (AttemptState.STARTING, AttemptState.RUNNING):
                self._end_again(key)

    def _take_arrivals(self) -> None:
        """Take in jobs that were given to the cluster manager itself; a bug about one of them keeps
        nobody from seeing what is. Raises NoAnswerError, OSError, JournalError."""
        if self._intake is None:
            return
        barred = self.state.barred.keys()
        try:
            self._intake.take()
            self._due |= bool(barred - self.state.barred.keys())
        except (NoAnswerError, OSError, JournalError):
            raise
        except Exception as error:
            self._failed("taking in jobs of the cluster manager", error)

    def _end_again(self, key: AttemptKey) -> None:
        """Kill what is still seen of an attempt that is over: somebody vouched for that, or its
        start failed."""
        if self.clock.now_s() - self._asked_s.get(key, -float("inf")) >= AGAIN_S:
            self._asked_s[key] = self.clock.now_s()
            with suppress(NoAnswerError, OSError):
                self.executor.kill(key)

    def _record_each(self, events: list[Event]) -> None:
        """Record events together, and those that can be where one of them cannot."""
        last = self.journal.last
        try:
            self.record(*events)
        except ValueError:
            if self.journal.last != last or len(events) < 2:
                raise
            for event in events:
                whose = getattr(event, "job", "")
                what = f"recording {type(event).__name__} {whose}".rstrip()
                self._part(what, partial(self.record, event))

    def strangers(self) -> tuple[Placement, ...]:
        """Return the GPUs of attempts that go on although the journal does not know them, or knows
        that they ended. Of one that was vouched for only what is seen running counts."""
        return tuple(
            tuple(Slot(node=node, gpus=len(ids)) for node, ids in sorted(seen.gpu_ids.items()))
            for key, seen in self.observed.items()
            if seen.gpu_ids and seen.state != AttemptState.ENDED and self._is_strange(key, seen)
        )

    def _is_strange(self, key: AttemptKey, seen: Observation) -> bool:
        job = self.state.jobs.get(key.job)
        if job is None or key.number > len(job.attempts):
            return True
        attempt = job.attempts[key.number - 1]
        return attempt.ended is not None and not (
            attempt.cleared and seen.state == AttemptState.UNREACHABLE
        )

    def may_go_on(self, attempt: Attempt) -> bool:
        """Whether an attempt may still be there as far as can be known: it is seen, or nobody tells
        what is."""
        seen = self.observed.get(attempt.key)
        if seen is not None:
            return seen.state != AttemptState.ENDED
        return self._answered_s < self._looked_s

    def _forget(self, key: AttemptKey) -> None:
        with suppress(NoAnswerError, OSError):  # else tried again at the next turn
            self.executor.forget(key)
            self._forgotten.add(key)

    def _silent(self, why: str) -> None:
        if self.clock.now_s() - self._answered_s < SILENT_S:
            return
        if not self._silence_noted:
            self._silence_noted = True
            self.record(Noted(text=f"nothing is known of the nodes: {why}"))
        self.record(
            *(
                AttemptLost(job=attempt.key.job, number=attempt.key.number, reason=why)
                for attempt in self.state.live_attempts()
                if attempt.lost is None
            )
        )

    # --------------------------------------------------------------------------------------------
    # deciding

    def _round_is_due(self) -> bool:
        now_s = self.clock.now_s()
        if now_s - self.decided_s >= float(self.settings.every):
            return True
        return self._due or any(
            self.decided_s < job.ready_s <= now_s
            for job in self.state.open.values()
            if job.live is None
        )

    def decide(self) -> None:
        """Decide a round on the present, and write it down with its instance."""
        now_s = self.clock.now_s()
        self._due, self.decided_s = False, now_s
        self._drop_orphans()
        self._drop_stale_claims(now_s)
        self._reserve(now_s)
        posed, found = self._decided(now_s)
        self._leave_out(posed.left_out)
        if found is None:
            return
        self.last_round, self.last_instance, self.blocked = found, posed.instance, posed.blocked
        claims = [*self.state.claims.values()]
        stay = {attempt.key.job for attempt in self.state.live_attempts()} - {
            one.job for one in posed.instance.running
        }
        for entry in found.jobs:
            if entry.decision == "continue":
                stay.add(entry.id)
            elif entry.mode is not None:
                claims.append(Claim(job=entry.id, mode=entry.mode, placement=entry.placement))
        number = self.journal.last_round() + 1
        event = RoundDecided(
            round=number, claims=tuple(claims), stay=tuple(sorted(stay)), blocked=posed.blocked
        )
        text = dump_instance(posed.instance)
        decided = dump_round(replace(found, instance_hash=text_hash(text)))
        listed = RoundEntry(
            number=number,
            at_s=now_s,
            jobs=len(found.jobs),
            value=found.value,
            bound=found.bound,
            wall_s=time.monotonic() - self._begun_s,
            solver=found.solver,
            fallback=found.fallback,
        )
        self.journal.add_round(listed, text, decided, [event])
        self.round_s = time.monotonic() - self._begun_s
        self._take_in(now_s, [event])

    def _reserve(self, now_s: float) -> None:
        """Keep a place for who has waited too long, and claim it once there is room."""
        try:
            due = self.reserving.renew(
                self.state,
                self.cluster,
                self.tenants,
                self.statuses,
                self._progress(),
                now_s,
                left_out=self.left_out,
                strangers=self.strangers(),
            )
        except Exception as error:
            self.bug("keeping a place", error)
            self.reserving.current = None
            return
        if due is not None:
            self.state.claims[due.job] = due

    def _decided(self, now_s: float) -> tuple[Posed, RoundSolution | None]:
        """What the present was posed as, and what was decided of it, None where nobody waits or
        runs.

        Where the running jobs cannot go on together (a quota was lowered, and some may not be
        preempted), these go on and the others are decided about. So they are where deciding fails
        by a bug with a few jobs, for a while. Raises whatever it fails with where no round can be
        decided at all.
        """
        strangers, progress = self.strangers(), self._progress()
        self._suspects = {
            name: one for name, one in self._suspects.items() if now_s - one[0] < SUSPECT_S
        }
        left_out = {
            name: why for name, (_, why) in self._suspects.items() if name in self.state.open
        }
        failed: Exception | None = None
        for _ in range(MOST_TRIES):
            posed = pose(
                lambda without: present(
                    self.state,
                    self.cluster,
                    self.tenants,
                    self.statuses,
                    progress,
                    now_s,
                    left_out=without,
                    strangers=strangers,
                    preempt_unsaved=self.settings.preempt_unsaved,
                ),
                left_out,
            )
            if not posed.instance.jobs:
                return posed, None
            try:
                return posed, self._decide(
                    posed.instance, posed.blocked, float(self.settings.budget)
                )
            except InputError as error:
                if not posed.instance.running:
                    raise
                left_out = posed.left_out | stubborn(posed.instance, str(error))
            except Exception as error:
                said = f"deciding with it failed: {type(error).__name__}: {str(error)[:MOST_SAID]}"
                names = at_fault(posed.instance, partial(self._fails, blocked=posed.blocked))
                failed = error
                self.bug(f"deciding with {', '.join(names[:3])}", error)
                self._suspects |= dict.fromkeys(names, (now_s, said))
                left_out = posed.left_out | dict.fromkeys(names, said)
        self._suspects.clear()  # it is not they
        raise failed or InputError("running jobs cannot go on together")

    def _decide(
        self, instance: Instance, blocked: tuple[Placement, ...], budget_s: float
    ) -> RoundSolution:
        return decide(
            instance,
            self.settings.objective,
            round_s=float(self.settings.length),
            solver=self.settings.solver,
            budget_s=budget_s,
            blocked=blocked,
            last=self.last_round,
            reserved=self.reserving.places(instance.now_s),
            keep=protected(self.state) & {entry.job for entry in instance.running},
        )

    def _fails(self, instance: Instance, blocked: tuple[Placement, ...]) -> bool:
        """Whether deciding it fails by a bug."""
        try:
            self._decide(instance, blocked, BRIEFLY_S)
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
        """Jobs whose predecessor will never complete are cancelled."""
        for job in [*self.state.open.values()]:
            for name in job.submission.job.after:
                before = self.state.jobs.get(name)
                ended = "is unknown" if before is None else ENDED_AS.get(before.status)
                if ended is not None:
                    self.record(
                        Cancelled(job=job.id, reason=f"{name}, which it comes after, {ended}")
                    )
                    break

    def _drop_stale_claims(self, now_s: float) -> None:
        """Claims whose place will not come free by itself: what it lacks is up to the next
        round."""
        going = (
            one
            for one in self.state.live_attempts()
            if one.leaving or one.key.job not in self.state.stay
        )
        leaving = {slot.node for attempt in going for slot in attempt.placement}
        usable = {status.node.name for status in self.statuses if status.usable}
        for name, claim in [*self.state.claims.items()]:
            job = self.state.jobs[name]
            places = {slot.node for slot in claim.placement}
            waits = job.live is not None or (may_start(self.state, job, now_s) and places & leaving)
            if not waits or not places <= usable:
                del self.state.claims[name]

    # --------------------------------------------------------------------------------------------
    # acting

    def _stop_unwanted(self) -> None:
        """Ask those to stop that are cancelled, held, or not to go on after the last round."""
        for attempt in [*self.state.live_attempts()]:
            job = self.state.jobs[attempt.key.job]
            why = self._why_stop(job, attempt)
            if attempt.leaving:
                self._stop_again(attempt)
            elif why is not None:
                self._stop(job, attempt, why)

    def _why_stop(self, job: LiveJob, attempt: Attempt) -> Why | None:
        if job.cancelled is not None:
            return "cancel"
        if job.held is not None:
            return "hold"
        if attempt.lost is not None or job.id in self.state.stay:
            return None
        claim = self.state.claims.get(job.id)
        if claim is None:
            return "preempt"
        return "migrate" if claim.mode.size == attempt.mode.size else "resize"

    def _stop(self, job: LiveJob, attempt: Attempt, why: Why) -> None:
        name, number = attempt.key.job, attempt.key.number
        if attempt.key in self.observed or attempt.started_s is not None:
            self.record(
                StopIntended(job=name, number=number, why=why, grace_s=job.submission.grace_s)
            )
        else:
            self.record(
                KillIntended(
                    job=name, number=number, reason="it was not wanted any more before it began"
                )
            )
        self._ask_to_end(attempt)

    def _stop_again(self, attempt: Attempt) -> None:
        now_s = self.clock.now_s()
        late = attempt.stop_s is not None and now_s > attempt.stop_s + attempt.grace_s + OVERTIME_S
        if late and attempt.killed is None:
            self.record(
                KillIntended(
                    job=attempt.key.job,
                    number=attempt.key.number,
                    reason="it had not ended when its grace was over",
                )
            )
            self._ask_to_end(attempt)
        elif now_s - self._asked_s.get(attempt.key, -float("inf")) >= AGAIN_S:
            self._ask_to_end(attempt)

    def _ask_to_end(self, attempt: Attempt) -> None:
        self._asked_s[attempt.key] = self.clock.now_s()
        try:
            if attempt.killed is not None:
                self.executor.kill(attempt.key)
            else:
                self.executor.checkpoint_stop(attempt.key, attempt.grace_s)
        except (NoAnswerError, OSError):
            pass  # asked again until it is seen to have ended
        except Exception as error:
            self.bug(f"stopping {attempt.key}", error)

    def _start_claimed(self) -> None:
        now_s = self.clock.now_s()
        for attempt in [*self.state.live_attempts()]:
            seen = self.observed.get(attempt.key)
            half_done = attempt.started_s is None and (
                seen is None or seen.state == AttemptState.STARTING
            )
            if (
                half_done
                and not attempt.leaving
                and now_s - self._asked_s.get(attempt.key, -float("inf")) >= AGAIN_S
            ):
                self._start(attempt)
        for start in starts(
            self.state,
            self.cluster,
            self.tenants,
            self.statuses,
            self._progress(),
            now_s,
            self.strangers(),
        ):
            self._start_new(start)

    def _start_new(self, start: Start) -> None:
        claim = start.claim
        job = self.state.jobs[claim.job]
        number = len(job.attempts) + 1
        self.record(
            StartIntended(
                job=claim.job,
                number=number,
                mode=claim.mode,
                placement=claim.placement,
                work_s=job.left_s,
                rate=start.rate,
                setup_s=start_setup_s(job),
                reserved=claim.reserved,
            )
        )
        self._start(job.attempts[-1])

    def _start(self, attempt: Attempt) -> None:
        self._asked_s[attempt.key] = self.clock.now_s()
        try:
            self.executor.start(self._order(attempt))
        except (NoAnswerError, OSError):
            pass  # made again until it is seen
        except RefusedError as error:
            retry_s = error.retry_s if isinstance(error, DeclinedError) else None
            self.record(
                StartRefused(
                    job=attempt.key.job,
                    number=attempt.key.number,
                    reason=str(error),
                    retry_s=retry_s,
                )
            )
        except Exception as error:
            self.bug(f"starting {attempt.key}", error)
            with suppress(
                NoAnswerError, OSError
            ):  # else tried again as if there had been no answer
                self.executor.kill(attempt.key)  # nobody knows how far it came
                self.record(
                    StartRefused(
                        job=attempt.key.job,
                        number=attempt.key.number,
                        reason=f"its start failed: {type(error).__name__}: "
                        f"{str(error)[:MOST_SAID]}",
                    )
                )

    def _order(self, attempt: Attempt) -> Order:
        submission = self.state.jobs[attempt.key.job].submission
        placement = attempt.placement or (Slot(node=self.statuses[0].node.name),)
        return Order(
            key=attempt.key,
            placement=placement,
            argv=submission.argv,
            directory=submission.directory,
            environment=submission.environment,
            memory_gib=memory_of(submission.job, attempt.mode, placement),
            checkpoint_directory=str(self.checkpoints(attempt.key.job)),
            user=submission.user_id,
            origin=submission.origin,
            output_bytes=round(self.settings.output_gib * 2**30),
            image=submission.image,
        )

    def checkpoints(self, job: str) -> Path:
        """Where a job saves, whatever its attempt."""
        return self.settings.attempts / "checkpoints" / job

    # --------------------------------------------------------------------------------------------
    # between turns

    def _progress(self) -> dict[AttemptKey, Progress]:
        return {
            key: seen.progress for key, seen in self.observed.items() if seen.progress is not None
        }

    def _next_s(self) -> float:
        """Seconds until something is due by itself."""
        now_s = self.clock.now_s()
        due = [self.decided_s + float(self.settings.every)]
        for job in self.state.open.values():
            live = job.live
            if live is None:
                due.append(job.ready_s if job.ready_s > now_s and job.held is None else due[0])
            elif live.leaving or live.started_s is None:
                due.append(now_s + AGAIN_S)
        return max(0.0, min(due) - now_s)
