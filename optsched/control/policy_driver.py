"""A policy that drives real nodes, kept from ending or blinding the controller."""

import ctypes
import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ..driver.view import PolicyError
from ..errors import OptschedError
from ..executors.base import SAVED_AND_STOPPED
from ..model.instance import Instance, Placement
from ..model.job import Mode
from ..objectives import Objective, parse
from ..plugins import registry
from ..plugins.policy import Policy
from ..round.plan import BY_POLICY, UNPROVED, JobRound, RoundSolution, decision
from ..round.verify import verify_round
from .journal.events import AttemptEnded, Claim, Event
from .journal.state import State
from .live_world import LiveWorld

LIMIT_S = 10.0
"""Wall clock of one decision of a policy; the controller looks at nothing meanwhile."""
PAUSE_S = 600.0
"""For so long rounds are decided in the place of a policy that has failed."""


class PolicyOvertimeError(OptschedError):
    """A policy did not come to a decision in time."""


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy by its name, with its options."""

    name: str
    options: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Commands:
    """A decision: the claims that hold now, the running jobs that are to stop, and all of it as a
    round."""

    claims: tuple[Claim, ...]
    stop: frozenset[str]
    solution: RoundSolution


def commands_of(solution: RoundSolution, instance: Instance, state: State) -> Commands:
    """Return what a round on `instance` commands, beside the claims that there are."""
    claims = [*state.claims.values()]
    stop = {entry.job for entry in instance.running}
    for entry in solution.jobs:
        if entry.decision == "continue":
            stop.discard(entry.id)
        elif entry.mode is not None:
            claims.append(Claim(job=entry.id, mode=entry.mode, placement=entry.placement))
    return Commands(tuple(claims), frozenset(stop), solution)


class PolicyDriver:
    """Has a policy decide on the live cluster as it would in a simulation.

    The policy is made anew, and told what runs, when the nodes or quotas are others than before,
    and after it has failed. A decision counts as a whole or not at all.
    """

    def __init__(self, name: str, objective: str, options: Mapping[str, object]) -> None:
        self.name = name
        self.named = NamedPolicy(name, dict(options))
        self._objective: Objective = parse(objective)
        self._policy: Policy | None = None
        self._world: LiveWorld | None = None
        self._again_s = -math.inf
        self._make()  # what is wrong with its options is said before anything runs

    def next_wake_s(self, after_s: float) -> float:
        """When it wants to decide again even if nothing happens; infinite for never."""
        return math.inf if self._world is None else self._world.next_wake_s(after_s)

    def foresaw(self, event: Event) -> bool:
        """Whether it has decided as if this had happened: a job that costs nothing to save is gone
        as soon as it is preempted."""
        return (
            isinstance(event, AttemptEnded)
            and event.exit_status == SAVED_AND_STOPPED
            and self._world is not None
            and self._world.has_left(event.job)
        )

    def may_decide(self, now_s: float) -> bool:
        """Whether it has not just failed."""
        return now_s >= self._again_s

    def failed(self, now_s: float) -> None:
        """Leave it out for a while, and begin anew then."""
        self._again_s = now_s + PAUSE_S
        self._policy = self._world = None

    def decide(
        self,
        instance: Instance,
        state: State,
        blocked: Sequence[Placement],
        closed: Collection[str],
        round_s: float,
    ) -> Commands:
        """Have it decide on a checked instance of the present.

        Raises PolicyOvertimeError, PolicyError where it commands what cannot be, and whatever the
        policy raises.
        """
        world = self._followed(instance, state, blocked, closed)
        if self._policy is None:
            self._policy = self._make()
        policy = self._policy
        _within(LIMIT_S, lambda: policy.decide(world))
        return self._commands(world, instance, state, blocked, round_s)

    def _make(self) -> Policy:
        return registry.policy(self.name, self._objective, self.named.options)

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
                self._world = self._policy = world = None
        if world is not None:
            try:
                world.follow(instance, blocked, closed)
                return world
            except Exception:  # what is seen does not go with what is known: begin anew
                self._policy = None
        self._world = world = LiveWorld(instance, state)
        world.follow(instance, blocked, closed)
        return world

    def _commands(
        self,
        world: LiveWorld,
        instance: Instance,
        state: State,
        blocked: Sequence[Placement],
        round_s: float,
    ) -> Commands:
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
        self._check(instance, jobs, blocked)
        claims = {
            name: claim for name, claim in state.claims.items() if name not in world.stopped
        } | world.started
        solution = RoundSolution(
            instance_name=instance.name,
            instance_hash=None,
            now_s=instance.now_s,
            round_s=round_s,
            refill=True,
            objective=self._objective.name,
            solver=f"{BY_POLICY}{self.name}",
            seed=0,
            jobs=jobs,
            value=0.0,
            bound=UNPROVED,
            bound_source="nothing",
            prices=(),
            notes=(f"policy {self.name} decided, and nothing is proved",),
            closed=False,
        )
        return Commands(
            tuple(claims.values()),
            frozenset(name for name in runs if name in world.stopped or name in world.started),
            solution,
        )

    def _check(
        self, instance: Instance, jobs: Sequence[JobRound], blocked: Sequence[Placement]
    ) -> None:
        """Raise PolicyError where the checker of rounds finds a fault that was not there before."""
        going_on = [
            JobRound(id=entry.job, decision="continue", mode=entry.mode, placement=entry.placement)
            for entry in instance.running
        ]
        faults = [str(fault) for fault in verify_round(instance, jobs, blocked)]
        if faults:
            known = {str(fault) for fault in verify_round(instance, going_on, blocked)}
            new = [fault for fault in faults if fault not in known]
            if new:
                raise PolicyError(f"it commands what cannot be: {new[0]}")


def _within(limit_s: float, call: Callable[[], None]) -> None:
    """Call in a thread of its own, and let go of it where it has not returned in time.

    Raises what the call raises, and PolicyOvertimeError.
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
