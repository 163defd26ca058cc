"""The controller: observe, decide, write down, act. Its loop holds no state that the journal does not."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..executors.base import (
    Arrivals,
    AttemptKey,
    AttemptState,
    Executor,
    NoAnswer,
    NodeStatus,
    Observation,
    Order,
    Progress,
    Refused,
)
from ..files import dump_instance, instance_hash, load_instance
from ..instance import Instance, Slot
from ..round.decide import decide
from ..round.files import dump_round
from ..round.plan import RoundSolution
from .arrivals import Intake
from .clock import Clock
from .disk import short_of_disk
from .events import (
    AttemptEnded,
    AttemptLost,
    Cancelled,
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
from .journal import Journal, RoundEntry
from .present import may_start, memory_of, present, start_setup_s
from .seen import news, node_news
from .settings import Settings
from .starts import Start, starts
from .state import Attempt, LiveJob, State

if TYPE_CHECKING:
    from .learning import Learning

AGAIN_S = 5.0
"""How often a call is made again whose effect is not seen."""
SILENT_S = 30.0
"""After so long without an answer from the executor its attempts are lost."""
OVERTIME_S = 15.0
"""So long after its grace an attempt that has not ended is killed from here."""
DISK_EVERY_S = 5.0
"""How often a disk without room is looked at."""
ENDED_AS = {"failed": "failed", "cancelled": "was cancelled"}
TURNING = (Submitted, Held, Released, Cancelled, AttemptEnded, StartRefused, NodeSeen)
"""Events after which a new round is due."""


class Controller:
    """Drives the jobs of a journal on the nodes of an executor.

    `step` is one turn: it takes in what is seen, decides a round if one is due, and brings what runs closer to what the
    last round decided. Every event is on the disk before anything is done about it. After a crash a new controller with
    the same journal goes on where the old one was: calls whose effect is not seen are made again, which is why every
    call of an executor is idempotent.

    Raises JournalFault where the journal fails; nothing is started then, and what runs goes on running.
    """

    def __init__(self, settings: Settings, executor: Executor, journal: Journal, clock: Clock) -> None:
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
        self.decided_s = -float("inf")
        self._due = True
        self.short_of_disk: str | None = None
        self.learning: Learning | None = None
        self.listeners: list[Callable[[float, Event], None]] = []
        self._intake = Intake(self, executor) if isinstance(executor, Arrivals) else None
        self._asked_s: dict[AttemptKey, float] = {}
        self._answered_s = clock.now_s()
        self._silence_noted = False
        self._forgotten: set[AttemptKey] = set()
        self._strangers: set[AttemptKey] = set()

    # -------------------------------------------------------------------------------------------- what happens

    def record(self, *events: Event) -> None:
        """Write events down, then take them in."""
        now_s = self.clock.now_s()
        self.journal.append(now_s, events)
        self._take_in(now_s, events)

    def _take_in(self, now_s: float, events: Iterable[Event]) -> None:
        for event in events:
            self.state.apply(now_s, event)
            for listener in self.listeners:
                listener(now_s, event)
            if isinstance(event, TURNING):
                self._due = True

    def step(self) -> float:
        """One turn. Returns after how many seconds the next one is due if nothing happens before."""
        self.observe()
        self._look_at_disk()
        self._stop_unwanted()
        if self.short_of_disk is not None:
            return DISK_EVERY_S
        if self._round_is_due():
            self.decide()
            self._stop_unwanted()
        self._start_claimed()
        return self._next_s()

    def _look_at_disk(self) -> None:
        """Note when there is no room for more starts, and when there is again."""
        before, self.short_of_disk = self.short_of_disk, short_of_disk(self.settings)
        if (before is None) != (self.short_of_disk is None):
            self.record(Noted(text=self.short_of_disk or "the disk has room again; jobs are started again"))
            self._due = True

    def observe(self) -> None:
        """Take in what is seen of nodes and attempts, and let go of those that have ended."""
        jumped_s = self.clock.jump_s()
        if jumped_s is not None:
            self.record(Noted(text=f"the clock of this host jumped by {jumped_s:+.1f} s; times here do not follow it"))
        try:
            self.statuses = self.executor.inventory()
            self.observed = {one.key: one for one in self.executor.observe()}
            if self._intake is not None:
                self._intake.take()
        except (NoAnswer, OSError) as error:
            self._silent(str(error))
            return
        now_s = self.clock.now_s()
        self._answered_s, self._silence_noted = now_s, False
        self.record(*node_news(self.state, self.statuses), *news(self.state, self.observed, now_s, self.clock.steady_s))
        for key, seen in self.observed.items():
            job = self.state.jobs.get(key.job)
            if job is None or key.number > len(job.attempts):
                if key not in self._strangers:
                    self._strangers.add(key)
                    self.record(Noted(text=f"{key} is not in the journal; it is left alone"))
            elif seen.state == AttemptState.ENDED and key not in self._forgotten:
                self._forget(key)

    def _forget(self, key: AttemptKey) -> None:
        with suppress(NoAnswer, OSError):  # else tried again at the next turn
            self.executor.forget(key)
            self._forgotten.add(key)

    def _silent(self, why: str) -> None:
        if self.clock.now_s() - self._answered_s < SILENT_S:
            return
        if not self._silence_noted:
            self._silence_noted = True
            self.record(Noted(text=f"nothing is known of the nodes: {why}"))
        self.record(*(
            AttemptLost(job=attempt.key.job, number=attempt.key.number, reason=why)
            for attempt in self.state.live_attempts() if attempt.lost is None
        ))

    # -------------------------------------------------------------------------------------------- deciding

    def _round_is_due(self) -> bool:
        now_s = self.clock.now_s()
        if now_s - self.decided_s >= float(self.settings.every):
            return True
        return self._due or any(
            self.decided_s < job.ready_s <= now_s for job in self.state.open.values() if job.live is None
        )

    def decide(self) -> None:
        """Decide a round on the present, and write it down with its instance."""
        now_s = self.clock.now_s()
        self._due, self.decided_s = False, now_s
        self._drop_orphans()
        self._drop_stale_claims(now_s)
        view = present(
            self.state, self.cluster, self.tenants, self.statuses, self._progress(), now_s
        )
        if not view.instance.jobs:
            return
        text = dump_instance(view.instance)
        instance = load_instance(text, view.instance.name, accept_never=True)
        found = decide(
            instance, self.settings.objective, round_s=float(self.settings.length), solver=self.settings.solver,
            budget_s=float(self.settings.budget), blocked=view.blocked, last=self.last_round,
        )
        self.last_round, self.last_instance = found, instance
        claims = [*self.state.claims.values()]
        stay = {attempt.key.job for attempt in self.state.live_attempts()} - {one.job for one in instance.running}
        for entry in found.jobs:
            if entry.decision == "continue":
                stay.add(entry.id)
            elif entry.mode is not None:
                claims.append(Claim(job=entry.id, mode=entry.mode, placement=entry.placement))
        number = self.journal.last_round() + 1
        event = RoundDecided(round=number, claims=tuple(claims), stay=tuple(sorted(stay)))
        listed = RoundEntry(
            number=number, at_s=now_s, jobs=len(found.jobs), value=found.value, bound=found.bound,
            wall_s=found.wall_s or 0.0, solver=found.solver, fallback=found.fallback,
        )
        decided = dump_round(replace(found, instance_hash=instance_hash(instance)))
        self.journal.add_round(listed, text, decided, [event])
        self._take_in(now_s, [event])

    def _drop_orphans(self) -> None:
        """Jobs whose predecessor will never complete are cancelled."""
        for job in [*self.state.open.values()]:
            for name in job.submission.job.after:
                before = self.state.jobs.get(name)
                ended = "is unknown" if before is None else ENDED_AS.get(before.status)
                if ended is not None:
                    self.record(Cancelled(job=job.id, reason=f"{name}, which it comes after, {ended}"))
                    break

    def _drop_stale_claims(self, now_s: float) -> None:
        """Claims whose place will not come free by itself: what it lacks is up to the next round."""
        going = (one for one in self.state.live_attempts() if one.leaving or one.key.job not in self.state.stay)
        leaving = {slot.node for attempt in going for slot in attempt.placement}
        usable = {status.node.name for status in self.statuses if status.usable}
        for name, claim in [*self.state.claims.items()]:
            job = self.state.jobs[name]
            places = {slot.node for slot in claim.placement}
            waits = job.live is not None or (may_start(self.state, job, now_s) and places & leaving)
            if not waits or not places <= usable:
                del self.state.claims[name]

    # -------------------------------------------------------------------------------------------- acting

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
            self.record(StopIntended(job=name, number=number, why=why, grace_s=job.submission.grace_s))
        else:
            self.record(KillIntended(job=name, number=number, reason="it was not wanted any more before it began"))
        self._ask_to_end(attempt)

    def _stop_again(self, attempt: Attempt) -> None:
        now_s = self.clock.now_s()
        late = attempt.stop_s is not None and now_s > attempt.stop_s + attempt.grace_s + OVERTIME_S
        if late and attempt.killed is None:
            self.record(KillIntended(
                job=attempt.key.job, number=attempt.key.number, reason="it had not ended when its grace was over"
            ))
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
        except (NoAnswer, OSError):
            pass  # asked again until it is seen to have ended

    def _start_claimed(self) -> None:
        now_s = self.clock.now_s()
        for attempt in [*self.state.live_attempts()]:
            seen = self.observed.get(attempt.key)
            half_done = attempt.started_s is None and (seen is None or seen.state == AttemptState.STARTING)
            if half_done and not attempt.leaving and now_s - self._asked_s.get(attempt.key, -float("inf")) >= AGAIN_S:
                self._start(attempt)
        for start in starts(self.state, self.cluster, self.tenants, self.statuses, self._progress(), now_s):
            self._start_new(start)

    def _start_new(self, start: Start) -> None:
        claim = start.claim
        job = self.state.jobs[claim.job]
        number = len(job.attempts) + 1
        self.record(StartIntended(
            job=claim.job, number=number, mode=claim.mode, placement=claim.placement, work_s=job.left_s,
            rate=start.rate, setup_s=start_setup_s(job),
        ))
        self._start(job.attempts[-1])

    def _start(self, attempt: Attempt) -> None:
        self._asked_s[attempt.key] = self.clock.now_s()
        try:
            self.executor.start(self._order(attempt))
        except (NoAnswer, OSError):
            pass  # made again until it is seen
        except Refused as error:
            self.record(StartRefused(job=attempt.key.job, number=attempt.key.number, reason=str(error)))

    def _order(self, attempt: Attempt) -> Order:
        submission = self.state.jobs[attempt.key.job].submission
        placement = attempt.placement or (Slot(node=self.statuses[0].node.name),)
        return Order(
            key=attempt.key, placement=placement, argv=submission.argv, directory=submission.directory,
            environment=submission.environment, memory_gib=memory_of(submission.job, attempt.mode, placement),
            checkpoint_directory=str(self.checkpoints(attempt.key.job)), user=submission.user_id,
            origin=submission.origin, output_bytes=round(self.settings.output_gib * 2**30),
            image=submission.image,
        )

    def checkpoints(self, job: str) -> Path:
        """Where a job saves, whatever its attempt."""
        return self.settings.state / "checkpoints" / job

    # -------------------------------------------------------------------------------------------- between turns

    def _progress(self) -> dict[AttemptKey, Progress]:
        return {key: seen.progress for key, seen in self.observed.items() if seen.progress is not None}

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
