"""A policy that drives real nodes, kept from ending or blinding the controller."""

import ctypes
import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from ..driver import PolicyError
from ..driver.shares import weighed
from ..driver.snapshot import Snapshot
from ..errors import OptschedError
from ..executors.base import SAVED_AND_STOPPED
from ..frozen import record
from ..model import Instance, Mode, Placement
from ..objectives import Objective, parse
from ..plugins import registry
from ..plugins.policy import Policy
from ..round.decide import DEFAULT_GAP
from ..round.plan import BY_POLICY, UNPROVED, JobRound, RoundSolution, decision, going_on
from ..round.verify import verify_round
from .journal.events import AttemptEnded, Claim, Event
from .journal.state import State
from .live_world import LiveWorld
from .settings import Settings

LIMIT_S = 10.0
"""Wall clock of one decision of a policy, beside its own budget; the controller looks at nothing
meanwhile."""
PAUSE_S = 600.0
"""For so long rounds are decided in the place of a policy that has failed."""


class PolicyOvertimeError(OptschedError):
    """A policy did not come to a decision in time."""


@record
class NamedPolicy:
    """A policy by its name, with its options."""

    name: str
    options: Mapping[str, object]


def rounds_of(settings: Settings, budget_s: float | None = None) -> NamedPolicy:
    """Return what drives the nodes where no policy is named: rounds that are as good as they can be
    within their budget, by the weights that users gave."""
    budget_s = settings.budget if budget_s is None else budget_s
    return NamedPolicy(
        "optsched",
        {
            "solver": settings.solver,
            "round": settings.length,
            "budget": budget_s,
            "gap": DEFAULT_GAP,
            "moves": 0.0,
            "gangs": 0.0,
            "late": False,
            "prove": True,
        },
    )


@record
class Commands:
    """A decision: the claims that hold now, the running jobs that are to stop, and all of it as a
    round on the present as it was seen."""

    claims: tuple[Claim, ...]
    stop: frozenset[str]
    seen: Snapshot
    solution: RoundSolution


class RoundDriver:
    """Has a policy decide on the live cluster as it would in a simulation.

    The policy is made anew, and told what runs, when the nodes or quotas are others than before,
    and after it has failed. A decision counts as a whole or not at all.
    """

    def __init__(self, named: NamedPolicy, objective: str, limit_s: float = LIMIT_S) -> None:
        self.named = named
        self._objective: Objective = parse(objective)
        self._limit_s = limit_s
        self._world: LiveWorld | None = None
        self._again_s = -math.inf
        self.policy: Policy | None = self._make()  # faulty options are told before anything runs

    def next_wake_s(self, after_s: float) -> float:
        """Return when it wants to decide again even if nothing happens; infinite for never."""
        return math.inf if self._world is None else self._world.next_wake_s(after_s)

    def foresaw(self, event: Event) -> bool:
        """Return whether it has decided as if this had happened: a job that costs nothing to save
        is gone as soon as it is preempted."""
        return (
            isinstance(event, AttemptEnded)
            and event.exit_status == SAVED_AND_STOPPED
            and self._world is not None
            and self._world.has_left(event.job)
        )

    def may_decide(self, now_s: float) -> bool:
        """Return whether it has not just failed."""
        return now_s >= self._again_s

    def failed(self, now_s: float, pause_s: float = PAUSE_S) -> None:
        """Leave it out for a while, and begin anew then."""
        self._again_s = now_s + pause_s
        self.policy = self._world = None

    def decide(
        self,
        instance: Instance,
        state: State,
        blocked: Sequence[Placement],
        closed: Collection[str],
        round_s: float,
    ) -> Commands | None:
        """Have it decide on a checked instance of the present; return None where there was nothing
        to decide.

        Raises PolicyOvertimeError, PolicyError where it commands what cannot be, and whatever the
        policy raises.
        """
        instance = weighed(instance)
        world = self._followed(instance, state, blocked, closed)
        if self.policy is None:
            self.policy = self._make()
        policy = self.policy
        _within(self._limit_s, lambda: policy.decide(world))
        claims = _claims(world, state)
        stop = frozenset(
            name for name in instance.running_job if name in world.stopped or name in world.started
        )
        decided = getattr(policy, "decided", None)
        if decided is not None:
            seen, solution = decided
            return Commands(claims, stop, _told(seen), solution)
        if not world.started and not stop and (hasattr(policy, "decided") or not instance.jobs):
            return None
        seen = Snapshot(instance, blocked=tuple(blocked))
        return Commands(claims, stop, seen, self._unproved(world, seen, round_s))

    def _make(self) -> Policy:
        return registry.policy(self.named.name, self._objective, self.named.options)

    def _followed(
        self,
        instance: Instance,
        state: State,
        blocked: Sequence[Placement],
        closed: Collection[str],
    ) -> LiveWorld:
        world = self._world
        if world is not None:
            known = world.instance
            if known.cluster != instance.cluster or known.tenants != instance.tenants:
                self._world = self.policy = world = None
        if world is not None:
            try:
                world.follow(instance, blocked, closed)
                return world
            except Exception:  # what is seen does not go with what is known: begin anew
                self.policy = None
        self._world = world = LiveWorld(instance, state)
        world.follow(instance, blocked, closed)
        return world

    def _unproved(self, world: LiveWorld, seen: Snapshot, round_s: float) -> RoundSolution:
        """Return what a policy commanded as a round without a bound, with what it says of it."""
        instance = seen.instance
        runs = instance.running_job
        held: dict[str, tuple[Mode | None, Placement]] = {}
        for job in instance.jobs:
            claim, entry = world.started.get(job.id), runs.get(job.id)
            if claim is not None:
                held[job.id] = claim.mode, claim.placement
            elif entry is not None and job.id not in world.stopped:
                held[job.id] = entry.mode, entry.placement
            else:
                held[job.id] = None, ()
        jobs = tuple(
            JobRound(
                id=name,
                decision=decision(instance, name, mode, placement),
                mode=mode,
                placement=placement,
            )
            for name, (mode, placement) in held.items()
        )
        _check(instance, jobs, seen.blocked)
        return RoundSolution(
            instance_name=instance.name,
            instance_hash=None,
            now_s=instance.now_s,
            round_s=round_s,
            refill=True,
            objective=self._objective.name,
            solver=f"{BY_POLICY}{self.named.name}",
            seed=0,
            jobs=jobs,
            value=0.0,
            bound=UNPROVED,
            bound_source="nothing",
            prices=(),
            notes=getattr(self.policy, "notes", ())
            or (f"policy {self.named.name} decided, and nothing is proved",),
            closed=False,
        )


def _told(seen: Snapshot) -> Snapshot:
    """Return the snapshot with an instance that says itself who was not to be preempted."""
    if not seen.pinned:
        return seen
    jobs = tuple(
        replace(job, preemptible=False) if job.id in seen.pinned and job.preemptible else job
        for job in seen.instance.jobs
    )
    return replace(seen, instance=replace(seen.instance, jobs=jobs))


def _claims(world: LiveWorld, state: State) -> tuple[Claim, ...]:
    """Return the claims that hold now: those there were, what the policy started, and the places
    that wait for others to have saved."""
    claims = {name: claim for name, claim in state.claims.items() if name not in world.stopped}
    claims |= world.started
    for name, (option, placement) in world.claims.items():
        claims[name] = Claim(job=name, mode=option.mode, placement=placement)
    return tuple(replace(claim, reserved=name in world.protected) for name, claim in claims.items())


def _check(instance: Instance, jobs: Sequence[JobRound], blocked: Sequence[Placement]) -> None:
    """Raise PolicyError where the checker of rounds finds a fault that was not there before."""
    faults = [str(fault) for fault in verify_round(instance, jobs, blocked)]
    if not faults:
        return
    before = [going_on(entry) for entry in instance.running]
    known = {str(fault) for fault in verify_round(instance, before, blocked)}
    new = [fault for fault in faults if fault not in known]
    if new:
        raise PolicyError(f"it commands what cannot be: {new[0]}")


def _within(limit_s: float, call: Callable[[], None]) -> None:
    """Call in a thread of its own, and let go of it where it has not returned in time.

    Python code is ended, native code is left to itself: it holds the controller up only where it
    never lets go of the interpreter. Raises what the call raises, and PolicyOvertimeError.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="policy", daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        assert thread.ident is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
        )
        raise PolicyOvertimeError(f"it did not decide within {limit_s:g} s")
    if raised:
        error = raised[0]
        if isinstance(error, Exception):
            raise error
        raise PolicyError(f"it raised {type(error).__name__}") from error
