"""Helios' cluster energy saving: idle nodes are powered off and woken again."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast

import numpy as np
from annotated_types import Ge

from optsched.driver import Fit, Room, World
from optsched.frozen import frozen
from optsched.model import Placement
from optsched.physics import TIME_TOLERANCE_S
from optsched.physics.modes import Option
from optsched.plugins.options import Duration, PluginOptions, declared_options

from .backfill import Backfill
from .fifo import Fifo
from .parts.demand_queue import in_order
from .parts.starting import wake

STEP_S = 600.0
LOOKED_AT = 100
"""So many waiting jobs, the first in order, can have nodes woken for them at one decision."""


DAY_STEPS = 144
"""Steps of ten minutes in a day."""


@frozen
class Constants:
    """`history` and `future` are steps over which means are taken, `fall_before` and `fall_after`
    how many nodes fewer must be in use than then, `least` how many nodes a power-off must save,
    `buffer` how many idle ones stay on, `keep` for how many steps none goes off after nodes were
    lacking, `begin` for how many the count follows the use."""

    history: int = 6
    future: int = 18
    fall_before: float = 1.0
    fall_after: float = 1.0
    least: int = 1
    buffer: int = 5
    keep: int = 12
    begin: int = 6


@dataclass(slots=True)
class NodeCount:
    """The number of powered nodes, step by step.

    Source: the public code of Helios (Hu et al., SC 2021), framework/CES Service. Its LightGBM
    forecast is replaced by `forecast`.
    """

    total: int
    constants: Constants
    active: int = 0
    stable_until: int = 0
    used: list[int] = field(default_factory=list)

    def step(self, used: int, expected: list[float] | None = None) -> int:
        """Take one more step in which at most so many nodes were in use; return how many stay on.
        `expected` are those of this and the coming steps (default: `forecast`)."""
        own, i = self.constants, len(self.used)
        self.used.append(used)
        if i < own.begin:
            self.active = min(self.total, used + own.buffer)
            return self.active
        if self.active < used:
            self.active = used + own.buffer
            self.stable_until = i + own.keep
        self.active = min(self.active, self.total)
        soon = forecast(self.used, 2 * own.future) if expected is None else expected
        next_mean = float(np.mean(soon[: own.future]))
        falls_from = float(np.mean(self.used[i - own.history : i])) - used
        falls_to = used - next_mean
        if (
            falls_from >= own.fall_before
            and falls_to >= own.fall_after
            and i >= self.stable_until
            and next_mean >= float(np.mean(soon[: 2 * own.future]))
            and self.active - (used + own.buffer) >= own.least
        ):
            self.active = used + own.buffer
        return self.active


def forecast(used: list[int], steps: int) -> list[float]:
    """Return nodes in use now and in the steps to come: as a day ago, shifted to what is in use
    now; within the first day the trend of the last three hours goes on."""
    now = used[-1]
    i = len(used) - 1
    if i >= DAY_STEPS:
        shift = now - used[i - DAY_STEPS]
        return [max(0.0, float(used[i - DAY_STEPS + k % DAY_STEPS] + shift)) for k in range(steps)]
    latest = used[-18:]
    slope = float(np.polyfit(range(len(latest)), latest, 1)[0]) if len(latest) > 1 else 0.0
    return [max(0.0, now + slope * k) for k in range(steps)]


class Ces:
    """Jobs in order of arrival, on nodes that are powered off when they are idle and use is
    falling.

    Every ten minutes (`NodeCount`): if use has fallen by a node against the mean of the last hour
    and is expected to fall on, no more nodes stay on than those in use and `buffer` more. When a
    waiting job fits only with nodes that are off, these and `buffer` more are woken, and can be
    used `boot` later. Only nodes with GPUs are ever off, and only while nothing runs on them.
    """

    name = "ces"
    title = "first in, first out, with idle nodes powered off while use falls and woken when they are needed"  # noqa: E501

    @declared_options
    class Options(PluginOptions):
        order: Annotated[
            Literal["fifo", "backfill"], "How jobs are ordered: the policy of that name."
        ] = "fifo"
        buffer: Annotated[int, Ge(0), "Nodes that stay on, or are woken, beyond those needed."] = 5
        boot_s: Annotated[Duration, "How long a node takes from waking to use."] = 300.0

    def __init__(self, options: Options) -> None:
        self._rule: Fifo | Backfill = Fifo() if options.order == "fifo" else Backfill()
        self.boot_s = options.boot_s
        self._constants = Constants(buffer=options.buffer)
        self._count: NodeCount | None = None
        self._nodes: list[str] = []
        self._off: dict[str, None] = {}
        self._boots_s: dict[str, float] = {}
        self._used = self._peak = 0
        self._last_s = self._step_s = 0.0
        self._busy_nodes = 0
        self._powered_s = self._all_s = self._delay_s = self._busy_s = 0.0
        self._wakeups = 0
        self._delayed_s: dict[str, float] = {}

    def decide(self, world: World) -> None:
        """Make up for the steps that have passed, start jobs on powered nodes, and wake nodes for
        those that wait."""
        if self._count is None:
            self._nodes = [node.name for node in world.cluster.nodes if node.gpus]
            self._count = NodeCount(len(self._nodes), self._constants)
            self._last_s = self._step_s = world.now_s
            self._used = self._peak = self._busy_nodes = len(self._busy(world))
        busy = self._busy(world)
        self._catch_up(world, self._count, busy)
        on = [
            name for name, at_s in self._boots_s.items() if at_s <= world.now_s + TIME_TOLERANCE_S
        ]
        for name in on:
            del self._boots_s[name]
        view = _Powered(world, (*self._off, *self._boots_s), on)
        self._rule.decide(cast(World, view))
        lacking = self._lacking(world, view.free)
        self._wake(world, lacking)
        self._busy_nodes = len(self._busy(world))
        self._used = self._busy_nodes + len(lacking)
        self._peak = max(self._peak, self._used)
        for job_id in [other for other in self._delayed_s if other not in world.waiting]:
            self._delay_s += world.now_s - self._delayed_s.pop(job_id)

    def facts(self) -> dict[str, float]:
        """Return node-hours powered (booting included), the share of them in use, the share saved,
        nodes woken, and seconds that jobs waited for them."""
        return {
            "powered_node_h": self._powered_s / 3600,
            "powered_use": self._busy_s / self._powered_s if self._powered_s else 0.0,
            "saved_share": 1 - self._powered_s / self._all_s if self._all_s else 0.0,
            "wakeups": self._wakeups,
            "wakeup_delay_s": self._delay_s,
        }

    def _busy(self, world: World) -> dict[str, None]:
        held = (slot.node for job_id in world.holders for slot in world.placement(job_id))
        return dict.fromkeys(name for name in held if world.cluster.node[name].gpus)

    # ----------------------------------------------------------------------------------------------
    # -- steps

    def _catch_up(self, world: World, count: NodeCount, busy: dict[str, None]) -> None:
        """Catch up. Nothing has changed since the last decision, so that the steps in between can
        be made now."""
        while self._step_s <= world.now_s:
            self._account(self._step_s)
            stay = count.step(self._peak)
            self._power_off(stay, busy)
            self._peak = self._used
            self._step_s += STEP_S
        self._account(world.now_s)

    def _power_off(self, stay: int, busy: dict[str, None]) -> None:
        on = [name for name in self._nodes if name not in self._off]
        idle = [name for name in on if name not in busy and name not in self._boots_s]
        for name in idle[::-1][: max(0, len(on) - stay)]:
            self._off[name] = None

    def _account(self, time_s: float) -> None:
        self._powered_s += (len(self._nodes) - len(self._off)) * (time_s - self._last_s)
        self._busy_s += self._busy_nodes * (time_s - self._last_s)
        self._all_s += len(self._nodes) * (time_s - self._last_s)
        self._last_s = time_s

    # ----------------------------------------------------------------------------------------------
    # -- waking

    def _lacking(self, world: World, powered: Room) -> list[str]:
        """Return the nodes that are off, or still boot, on which waiting jobs would fit now, in
        order."""
        if not world.waiting or not (self._off or self._boots_s):
            return []
        every, soon = world.free.copy(), world.free.copy()
        left_out = dict(self._off)
        for name in left_out:
            soon.lose(name)
        lacking: dict[str, None] = {}
        tried: set[object] = set()
        for job_id in in_order(world, world.waiting)[:LOOKED_AT]:
            demand = world.demand(job_id)
            if demand in tried:
                continue
            fit = world.fit(job_id, soon) or world.fit(job_id, every)
            if fit is None:
                if isinstance(self._rule, Fifo):
                    break
                tried.add(demand)
                continue
            need = world.need(job_id, fit[0])
            nodes = [
                slot.node for slot in fit[1] if slot.node in self._off or slot.node in self._boots_s
            ]
            if nodes:
                self._delayed_s.setdefault(job_id, world.now_s)
            lacking.update(dict.fromkeys(nodes))
            every.take(need, fit[1])
            for slot in fit[1]:
                if slot.node in left_out:  # it is to come on as well
                    del left_out[slot.node]
                    soon.regain(slot.node)
            soon.take(need, fit[1])
        return list(lacking)

    def _wake(self, world: World, lacking: list[str]) -> None:
        """Boot the nodes that are lacking and a few more."""
        wanted = [name for name in lacking if name in self._off]
        if not wanted:
            return
        more = [name for name in self._nodes if name in self._off and name not in wanted]
        at_s = world.now_s + self.boot_s
        for name in (*wanted, *more[: self._constants.buffer]):
            del self._off[name]
            self._boots_s[name] = at_s
            self._wakeups += 1
        wake(world, at_s)


class _Powered:
    """The world without the nodes that are off. Only for rules that never preempt."""

    def __init__(self, world: World, off: tuple[str, ...], on: list[str]) -> None:
        self._world = world
        self._on = on
        self.free = world.free
        if off:
            self.free = world.free.copy()
            for name in off:
                self.free.lose(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def take_released(self) -> list[str]:
        """Return what came free, and the nodes that have booted."""
        return [*self._world.take_released(), *self._on]

    def fit(self, job_id: str, room: Room | None = None) -> Fit | None:
        """Fit as `World.fit` does, on powered nodes."""
        return self._world.fit(job_id, self.free if room is None else room)

    def start(self, job_id: str, option: Option, placement: Placement) -> None:
        """Start as `World.start` does; the powered nodes have less room then."""
        self._world.start(job_id, option, placement)
        if self.free is not self._world.free:
            self.free.take(self._world.need(job_id, option), placement)
