"""Runs a policy over an instance in virtual time and keeps what happened."""

import gc
import math
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from ..duration import LONGEST_S
from ..errors import InputError, OptschedError
from ..estimates import Estimates
from ..model import Instance, Plan, Shares
from ..physics import TIME_TOLERANCE_S
from ..plugins.policy import Policy
from .record import Record
from .virtual import VirtualWorld


class StalledError(OptschedError):
    """Jobs wait, nothing runs and nothing is to come: the policy will never start them."""


class Simulation:
    """A policy at work on a checked instance in virtual time, from its `now_s` until every job is
    done.

    Progress is exact between events, so the same instance always gives the same record. The policy
    decides at every event, with `spacing_s` not sooner than that after its last decision (with
    `pace` at first sooner: after that share of the time simulated by then), or with `round_s` only
    at multiples of it after `Instance.now_s`: jobs still end, arrive and come free in between, but
    what they leave or ask for waits for the next decision. Rounds before which nothing has happened
    are skipped. With `charge_solver_time` the world goes on while the policy
    thinks: a decision comes as much later as the one before it took on the machine's clock; only
    then do results depend on the machine.

    `estimates` is what the policy may know of the length of jobs; None is all.

    With `half_life_s` jobs count by the shares of their tenants, as with `Instance.shares`.

    Raises InputError for a round or spacing that is no length of time.
    """

    def __init__(
        self,
        instance: Instance,
        policy: Policy,
        *,
        round_s: float | None = None,
        spacing_s: float = 0.0,
        pace: float = math.inf,
        estimates: Estimates | None = None,
        charge_solver_time: bool = False,
        half_life_s: float | None = None,
    ) -> None:
        if round_s is not None and not (math.isfinite(round_s) and round_s >= TIME_TOLERANCE_S):
            raise InputError(
                f"round of {round_s} s: must be a length of time of at least {TIME_TOLERANCE_S:g} s"
            )
        if not (math.isfinite(spacing_s) and spacing_s >= 0):
            raise InputError(f"spacing of {spacing_s} s: must be a length of time")
        if not pace > 0:
            raise InputError(f"pace of {pace}: must be above 0")
        self.instance = instance
        self.policy = policy
        with _rare_collections():
            self.world = VirtualWorld(_sharing(instance, half_life_s), estimates)
        self._round_s = round_s
        self._spacing_s, self._pace = spacing_s, pace
        self._charge_solver_time = charge_solver_time
        self._next_s = -math.inf
        self._thought_s = 0.0

    @property
    def done(self) -> int:
        """Return the jobs completed so far."""
        return len(self.instance.jobs) - self.world.unfinished

    def run(
        self,
        on_progress: Callable[[int], None] | None = None,
        until: Callable[[], bool] | None = None,
    ) -> bool:
        """Go on until every job is done, or until `until`, asked after each decision, says so;
        whether all are done.

        `on_progress` is told after each decision how many jobs are done. Raises StalledError where
        the policy leaves jobs waiting for ever, PolicyError where it asks for what cannot be.
        """
        with _rare_collections():
            return self._run(on_progress, until)

    def _run(
        self, on_progress: Callable[[int], None] | None, until: Callable[[], bool] | None
    ) -> bool:
        world, policy = self.world, self.policy
        while world.unfinished:
            if not world.advance(self._round_s, not_before_s=self._next_s):
                raise StalledError(_why_stalled(world, policy))
            if self._charge_solver_time:
                world.go_on_to(world.now_s + self._thought_s)
            begin_s = time.perf_counter()
            if world.instance.shares is not None:
                world.weigh()
            policy.decide(world)
            self._thought_s = time.perf_counter() - begin_s
            world.rows.decided(world.now_s, self._thought_s)
            if self._spacing_s:
                self._next_s = world.now_s + self._spaced_s()
            if on_progress is not None:
                on_progress(self.done)
            if until is not None and world.unfinished and until():
                return False
        return True

    def _spaced_s(self) -> float:
        """Return how long the policy is not asked again."""
        if self._pace == math.inf:
            return self._spacing_s
        return min(self._spacing_s, self._pace * (self.world.now_s - self.instance.now_s))

    def record(self) -> Record:
        """Return what has happened so far."""
        return self.world.rows.record(self.instance)

    def save(self) -> bytes:
        """Return the simulation as it stands, to be taken up again by `restored`; only by the same
        version of the code."""
        return pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def restored(saved: bytes) -> "Simulation":
        """Return a simulation as it stood when it was saved. What is saved is code as well as data:
        never take it from strangers."""
        simulation: Simulation = pickle.loads(saved)
        return simulation


def simulate(
    instance: Instance,
    policy: Policy,
    *,
    round_s: float | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Plan:
    """Return the plan that `policy` makes of a checked instance, with every job run to its end. See
    `Simulation`."""
    simulation = Simulation(instance, policy, round_s=round_s)
    simulation.run(on_progress)
    return simulation.record().plan()


def _sharing(instance: Instance, half_life_s: float | None) -> Instance:
    if half_life_s is None:
        return instance
    if not 1 <= half_life_s <= LONGEST_S:
        raise InputError(f"half-life of {half_life_s:g} s: must be at least 1 s")
    used = () if instance.shares is None else instance.shares.used
    return replace(instance, shares=Shares(half_life_s=half_life_s, used=used))


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage rarely, and none of what is there already. Jobs and events are many and live
    long: looking for cycles among them again and again takes a quarter of a run."""
    usual = gc.get_threshold()
    rare = max(usual[0], 100_000), 50, 100
    if usual == rare:  # within another simulation
        yield
        return
    gc.set_threshold(*rare)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*usual)


def _why_stalled(world: VirtualWorld, policy: Policy) -> str:
    waiting = list(world.waiting)
    where = f"{policy.name} stops at {world.now_s:g} s, nothing runs or is to come, {len(waiting)} jobs wait"  # noqa: E501
    if not waiting:
        return f"{where}: {world.unfinished} jobs wait for jobs that never complete"
    first = waiting[0]
    needs = world.demand(first).needs
    if world.fit(first) is not None:
        return f"{where}: it does not start job {first}, which fits"
    if needs and not any(world.free.within_budgets(need) for need in needs):
        return f"{where}: what is left of the budgets allows no mode of job {first}"
    for need in needs:
        if need.ties is not None:
            why = world.free.domains.why_closed(need.ties, need.nodes)
            if why is not None:
                return f"{where}: job {first} cannot start: {why}"
    return f"{where}: job {first} does not fit"
