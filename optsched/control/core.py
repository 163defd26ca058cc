"""What all parts of a controller share: its state, and how parts of a turn fail."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ..executors.base import Arrivals, AttemptKey, Executor, NodeStatus, Observation, Progress
from ..files import Texts
from ..files.faults import Sound
from ..frozen import record
from ..model import Cluster, Instance, Job, Node, Placement
from ..physics.catalogue import Catalogue
from ..physics.unschedulable import why_never
from ..physics.windows import barred_nodes
from ..round.plan import RoundSolution
from ..round.windows import at_present
from .arrivals import Intake
from .budgets import Meter
from .calendar import windows_ahead
from .clock import Clock
from .journal.events import (
    AttemptEnded,
    Cancelled,
    Changed,
    Event,
    Held,
    ManagerReserved,
    NodeSeen,
    Noted,
    Released,
    Requeued,
    StartRefused,
    Submitted,
    WindowLifted,
    WindowSet,
)
from .journal.journal import Journal, JournalError
from .journal.retention import Retention
from .journal.state import LiveJob, State
from .measures import Measures
from .present import as_suspended, as_waiting, ran_before
from .round_driver import LIMIT_S, NamedPolicy, RoundDriver, rounds_of
from .seen import SteadyReports
from .settings import Settings

if TYPE_CHECKING:
    from .expected import LiveForecast
    from .learning import Learning
    from .notices import Notices

AGAIN_S = 5.0
"""How often a call is made again whose effect is not seen."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""How long a part of a turn that failed is left alone, doubled by each more time."""
MOST_SAID = 300
"""Characters of what is said of a bug."""
TURNING = (
    Submitted,
    Changed,
    Held,
    Released,
    Requeued,
    Cancelled,
    AttemptEnded,
    StartRefused,
    NodeSeen,
    WindowSet,
    WindowLifted,
    ManagerReserved,
)
"""Events after which a new round is due."""


@record
class Failing:
    """A part of a turn that fails: when it is tried again (monotonic), after which pause, and how
    it was said."""

    again_s: float
    wait_s: float
    said: str


def said_of(error: Exception) -> str:
    """Return what is said of a bug."""
    return f"{type(error).__name__}: {str(error)[:MOST_SAID]}"


class ControllerCore:
    """The state of a controller, and the recording of events."""

    def __init__(
        self, settings: Settings, executor: Executor, journal: Journal, clock: Clock
    ) -> None:
        self._configure(settings)
        self.executor = executor
        self.journal = journal
        self.clock = clock
        self.state = self._read(settings.half_life_s)
        self.statuses: tuple[NodeStatus, ...] = ()
        self.observed: dict[AttemptKey, Observation] = {}
        self._reports = SteadyReports()
        self.last_round: RoundSolution | None = None
        self.last_instance: Instance | None = None
        self.rounds, self.policy = self.drivers_of(settings)
        self.measures = Measures(settings, self.state)
        self.on_reload: list[Callable[[Settings], None]] = [self.measures.reload]
        """Who is to be told of settings that were taken over."""
        self.decided_s = -float("inf")
        self._due = True
        self.short_of_disk: str | None = None
        self.learning: Learning | None = None
        self.notices: Notices | None = None
        self.forecast: LiveForecast | None = None
        self.meter = Meter(self.state, journal)
        self.listeners: list[Callable[[float, Event], None]] = [
            self.measures.heard,
            self.meter.heard,
        ]
        self._intake = Intake(self, executor) if isinstance(executor, Arrivals) else None
        self._asked_s: dict[AttemptKey, float] = {}
        self._answered_s = clock.now_s()
        self._looked_s = float("inf")
        self._silence_noted = False
        self._reservations_silent = False
        self._windows_looked_at: Settings | None = None
        self._forgotten: set[AttemptKey] = set()
        self._strangers: set[AttemptKey] = set()
        self._checked = Sound()
        self._texts, self._round_texts = Texts(), Texts()
        self._sound: dict[Node, str | None] = {}
        self._begun_s = time.monotonic()
        self.round_s = 0.0
        """Seconds of the last turn that decided a round, from looking to writing."""
        self.left_out: dict[str, str] = {}
        """Jobs that the last round was decided without, each with the reason."""
        self.withheld: dict[str, str] = {}
        """Waiting jobs that limits kept from the last round, each with the reason."""
        self.over_budget: frozenset[str] = frozenset()
        """Those of them that wait for a period in which their budget is not used up."""
        self.blocked: tuple[Placement, ...] = ()
        """What the last round could not give away."""
        self.retention = Retention(settings.retention)
        self.bug: Callable[[str, Exception], None] = lambda what, error: None
        self._suspects: dict[str, tuple[float, str]] = {}
        self._failing: dict[str, Failing] = {}

    def _read(self, half_life_s: float | None) -> State:
        """Return the state that the journal says, with use that halves in this time."""
        state = State(half_life_s)
        for entry in self.journal.entries():
            state.apply(entry.at_s, entry.event)
        return state

    def _configure(self, settings: Settings) -> None:
        self.settings = settings
        self._shared = self._known = settings.cluster
        self.tenants = tuple(tenant.tenant() for tenant in settings.tenants)

    @property
    def cluster(self) -> Cluster:
        """Return what all nodes share, with the windows that are not over and the rates of the
        next days: the same object as long as nothing of it changes."""
        now_s = self.clock.now_s()
        timed: dict[str, Any] = {"windows": (), **self.settings.rates(now_s)}
        state = self.state
        if state.windows or state.reserved or self.settings.windows:
            timed["windows"] = windows_ahead(
                (*state.windows.values(), *state.reserved),
                self.settings.windows,
                {status.node.name: None for status in self.statuses},
                self.tenants,
                self._shared.resources,
                now_s,
            )
        if any(getattr(self._known, name) != value for name, value in timed.items()):
            self._known = replace(self._shared, **timed)
        return self._known

    def drivers_of(self, settings: Settings) -> tuple[RoundDriver, RoundDriver | None]:
        """Return what decides rounds, and the policy that decides in their place where one is
        named. Raises InputError for faulty options."""
        rounds = rounds_of(settings)
        limit_s = LIMIT_S + settings.budget
        if settings.policy is None:
            return RoundDriver(rounds, settings.objective, limit_s), None
        policy = NamedPolicy(settings.policy, settings.policy_options)
        return (
            RoundDriver(rounds, settings.objective, limit_s),
            RoundDriver(policy, settings.objective),
        )

    def take_over(
        self,
        settings: Settings,
        drivers: tuple[RoundDriver, RoundDriver | None],
        executor: Executor,
    ) -> None:
        """Go on with other settings, from the next turn on. A policy that is the same as before
        keeps what it remembers."""
        same = ("policy", "policy_options", "objective", "solver", "length", "budget")
        if any(getattr(settings, name) != getattr(self.settings, name) for name in same):
            self.rounds, self.policy = drivers
        if settings.half_life_s != self.settings.half_life_s:
            self.state.use = self._read(settings.half_life_s).use
        self._configure(settings)
        if executor is not self.executor:
            self.use(executor)
        self.retention.settings = settings.retention
        self._due = True
        for told in self.on_reload:
            told(settings)

    def use(self, executor: Executor) -> None:
        """Go on with another executor, which knows what this one started."""
        self.executor, self._asked_s = executor, {}
        self._intake = Intake(self, executor) if isinstance(executor, Arrivals) else None
        self._forgotten.clear()

    def able(self, now_s: float) -> Callable[[LiveJob], bool]:
        """Return what tells whether nodes that take jobs now could run a job if nothing else did,
        with what windows leave now and to those whose jobs would meet one."""
        tenants = {None, *(tenant.name for tenant in self.tenants)}

        @cache
        def catalogue(barred: frozenset[str] = frozenset()) -> Catalogue:
            nodes = tuple(
                status.node
                for status in self.statuses
                if status.usable and status.node.name not in barred
            )
            cluster = replace(self.cluster, nodes=nodes)
            now = at_present(Instance(now_s=now_s, cluster=cluster, tenants=self.tenants))
            return Catalogue.of(now.cluster, now.tenants)

        def could(job: Job, left: Catalogue) -> bool:
            return bool(left.cluster.nodes) and why_never(left, job) is None

        def tell(job: LiveJob) -> bool:
            known = as_waiting(job)
            if known.tenant not in tenants or not could(known, catalogue()):
                return False
            if not self.cluster.windows:
                return True
            entry = as_suspended(job)
            barred = barred_nodes(
                self.cluster.windows,
                known,
                catalogue().options(known),
                now_s,
                entry.remaining_s,
                ran_before=ran_before(job),
                preemptions=entry.preemptions,
            )
            return not barred or could(known, catalogue(barred))

        return tell

    def driver(self, now_s: float) -> RoundDriver:
        """Return the policy that is named, or rounds where there is none or it has just failed."""
        policy = self.policy
        return policy if policy is not None and policy.may_decide(now_s) else self.rounds

    def record(self, *events: Event) -> None:
        """Write events down, then take them in."""
        now_s = self.clock.now_s()
        self.journal.append(now_s, events)
        self._take_in(now_s, events)

    def _take_in(self, now_s: float, events: Iterable[Event]) -> None:
        for event in events:
            self.state.apply(now_s, event)
            if isinstance(event, TURNING) and not self.driver(now_s).foresaw(event):
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

    def _part(
        self, what: str, part: Callable[[], None], but: tuple[type[Exception], ...] = ()
    ) -> None:
        """Do a part of a turn, or leave it for later where it has just failed. Raises JournalError
        and what is named in `but` only."""
        before = self._failing.get(what)
        if before is not None and time.monotonic() < before.again_s:
            return
        try:
            part()
        except Exception as error:
            if isinstance(error, (JournalError, *but)):
                raise
            self._failed(what, error)
        else:
            self._failing.pop(what, None)

    def _failed(self, what: str, error: Exception) -> None:
        """Note a bug, once for each that is another, and have it tried again later."""
        said = f"{what} failed, and is tried again: {said_of(error)}"
        before = self._failing.get(what)
        wait_s = FIRST_PAUSE_S if before is None else min(LONGEST_PAUSE_S, 2 * before.wait_s)
        self._failing[what] = Failing(time.monotonic() + wait_s, wait_s, said)
        self.bug(what, error)
        if before is None or before.said != said:
            self.record(Noted(text=said))

    def failing(self) -> int:
        """Return how many parts of a turn failed when they were last tried."""
        return len(self._failing)

    def _progress(self) -> dict[AttemptKey, Progress]:
        return {
            key: seen.progress for key, seen in self.observed.items() if seen.progress is not None
        }
