"""The round as a policy: at every decision the active jobs are weighed against each other as one problem."""

from dataclasses import dataclass

from optsched.errors import InputError
from optsched.instance import Placement, Slot
from optsched.modes import Option
from optsched.objectives import Objective, parse
from optsched.round.decide import decide
from optsched.round.plan import RoundSolution
from optsched.simulate.snapshot import Snapshot, snapshot
from optsched.simulate.world import World

ROUND_S = 300.0
"""Length of the round over which options are valued. Only the cap on finishing jobs depends on it."""
NO_LIMIT_S = 3600.0
"""Wall-clock budget of a round in virtual time: never reached, so that results do not depend on the clock."""
CORE_OPTIONS = 3000
"""Most options for which a round is solved exactly."""
CHANGING = ("tardiness", "deadline", "throughput", "ftf", "maxmin", "tail", "lateness")
"""Objectives under which the order of jobs changes while nothing happens."""


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One decision: when, of how many jobs, how good and how sure."""

    now_s: float
    jobs: int
    value: float
    bound: float
    gap: float
    wall_s: float


class Optsched:
    """Decides by `optsched.round.decide` at every event.

    A job whose place is still held by jobs that are being saved waits for it; that place is kept for it
    (`_claims`). Options: `solver` (a round solver, default price), `round` (seconds).
    """

    name = "optsched"
    title = "each round as one optimization problem, with a proven gap"

    def __init__(self, objective: Objective | None = None, options: dict[str, str] | None = None) -> None:
        self.objective = objective or parse("wct")
        given = dict(options or {})
        self.solver = given.pop("solver", "price")
        self.round_s = _seconds(given.pop("round", str(ROUND_S)))
        if given:
            raise InputError(f"policy optsched has no option {', '.join(given)}; it has solver and round")
        self.rounds: list[RoundRecord] = []
        self._claims: dict[str, tuple[Option, Placement]] = {}
        self._last: RoundSolution | None = None
        self._changing = any(term.name in CHANGING for level in self.objective.levels for _, term in level)

    def decide(self, world: World) -> None:
        """Start those whose place has come free, then decide anew."""
        self._start_claimed(world)
        waiting = [job_id for job_id in world.waiting if job_id not in self._claims]
        if not waiting and not world.running:
            return
        now = snapshot(world, jobs=waiting)
        found = decide(
            now.instance, self.objective, round_s=self.round_s, solver=self.solver, budget_s=NO_LIMIT_S,
            blocked=self._blocked(world, now), keep={one for one in world.running if not world.may_preempt(one)}, last=self._last, options={"core": str(CORE_OPTIONS)},
        )
        self._last = found
        self.rounds.append(RoundRecord(world.now_s, len(found.jobs), found.value, found.bound, found.gap,
                                       found.wall_s or 0.0))
        self._carry_out(world, found)
        if world.waiting and self._changing:
            world.wake_at(world.now_s + self.round_s)

    def _carry_out(self, world: World, found: RoundSolution) -> None:
        for entry in found.jobs:
            if entry.decision in ("preempt", "migrate", "resize"):
                world.preempt(entry.id)
        for entry in found.jobs:
            if entry.mode is None or entry.decision == "continue":
                continue
            option = next(one for one in world.options(entry.id) if one.mode is entry.mode)
            self._claims[entry.id] = option, entry.placement
        self._start_claimed(world)

    def _start_claimed(self, world: World) -> None:
        for job_id in list(self._claims):
            option, placement = self._claims[job_id]
            if job_id in world.waiting and world.free.holds(world.need(job_id, option), placement):
                world.start(job_id, option, placement)
                del self._claims[job_id]

    def _blocked(self, world: World, now: Snapshot) -> tuple[Placement, ...]:
        """What is not there to be given away: of what is being saved and what is claimed, on each node the more, as
        claims are mostly on what is being saved."""
        saving: dict[str, tuple[int, int]] = {}
        claimed: dict[str, tuple[int, int]] = {}
        for into, placements in (
            (saving, [placement for _, placement, _ in now.saving]),
            (claimed, [placement for _, placement in self._claims.values()]),
        ):
            for placement in placements:
                for slot in placement:
                    gpus, cpus = into.get(slot.node, (0, 0))
                    into[slot.node] = gpus + slot.gpus, cpus + slot.cpus
        order = world.cluster.node_order
        nodes = sorted({**saving, **claimed}, key=order.__getitem__)
        none = (0, 0)
        return tuple(
            (Slot(node=name, gpus=max(saving.get(name, none)[0], claimed.get(name, none)[0]),
                  cpus=max(saving.get(name, none)[1], claimed.get(name, none)[1])),)
            for name in nodes
        )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise InputError(f"policy optsched: round={text} is no positive number of seconds")
    return value
