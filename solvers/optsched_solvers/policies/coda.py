"""CODA-style co-location of GPU and CPU jobs."""

import math
from bisect import insort
from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal

from optsched.driver import Fit, Need, Outlook, Room, World
from optsched.model import Placement
from optsched.physics import with_cores
from optsched.physics.contention import memory_gbps
from optsched.physics.modes import Option
from optsched.plugins.options import PluginOptions, PositiveDuration, Share, declared_options

from .parts.coda_arrays import Arrays
from .parts.core_search import Climb, CoreSearch, Trials, category, changes_in_place, like
from .parts.demand_queue import Entry, arrival_key
from .parts.host_share import ANY, NONE, HostWays, host_shares, host_ways
from .parts.locality_gate import within
from .parts.starting import is_free, start_each


class Coda:
    """A core search for each GPU job, arrays of nodes for CPU jobs, small and wide GPU jobs, and no
    CPU job where the memory bandwidth would slow a GPU job down.

    A GPU job starts with the cores at which the search of the last job of its category (profile,
    else command, else user) and gang size ended, at first its share of the node's. From there it
    climbs: it runs `trial` with a count, which shows the rate that it has, then goes on with one
    step more, or less, where that many are free; unless it may change its cores in place
    (`cores_in_place`), by a new start. With `search=profile` the rates are
    read from the profile before the job starts; with `off` each has its share. Gangs of 4 GPUs and
    more prefer the nodes set aside for them, by their part of the GPUs that jobs have asked for;
    smaller ones keep to the other nodes while a wide one waits. Each of the three queues is in
    order of priority and arrival; what does not fit is skipped. CPU-only jobs go to nodes without
    GPUs, then to cores that no GPU is likely to need, then to those kept for idle GPUs; from these
    they are preempted, the last started first, when a GPU job finds room otherwise. Where a GPU job
    is slowed down because the memory bandwidth of a node is exceeded, CPU-only jobs there that list
    slower modes go on in one of these, in place or by a new start, with fewer cores and less
    bandwidth, the last started first; only where that is not enough are they preempted. They get
    their cores back once the bandwidth is there again.

    Source: H. Zhao et al., CODA: Improving resource utilization by slimming and co-locating DNN and
    CPU jobs, ICDCS 2020.
    """

    name = "coda-style"
    title = "cores by search, arrays for CPU jobs and for small and wide gangs, CPU jobs give way to GPU jobs"  # noqa: E501

    @declared_options
    class Options(PluginOptions):
        gain: Annotated[
            Share, "The improvement that another core count must bring, as a share."
        ] = 0.02
        search: Annotated[
            Literal["steps", "profile", "off"],
            "How cores are found: in steps that the job runs, read from its profile, or not.",
        ] = "steps"
        trial_s: Annotated[
            PositiveDuration, "How long a job runs with a core count before it is judged."
        ] = 60.0
        bandwidth: Annotated[
            Share,
            "The share of a node's memory bandwidth up to which CPU-only jobs are placed there.",
        ] = 1.0
        wide: Annotated[
            Share | None, "The share of the GPUs set aside for wide gangs; none: as asked for."
        ] = None

    def __init__(self, options: Options) -> None:
        self.how = options.search
        self.search = CoreSearch(options.gain)
        self._trials = Trials(self.search, options.trial_s)
        self.bandwidth = options.bandwidth
        self.arrays = Arrays(options.wide)
        self._queues: dict[str, list[Entry]] = {"wide": [], "narrow": [], "cpu": []}
        self._ways: dict[str, tuple[Option, ...]] = {}
        self._on_cpus: dict[str, None] = {}
        self._claims: dict[str, Fit] = {}
        self._begun = False
        self._reclaimed = 0
        self._relieved = 0
        self._slowed: dict[str, None] = {}
        self._cuts = 0

    def facts(self) -> dict[str, float]:
        """Return core counts tried for each search, and how often CPU-only jobs were preempted or
        slowed down, and why."""
        return {
            "core_counts_tried_mean": self.search.steps / max(1, self.search.searches),
            "cpu_jobs_preempted_for_room": self._reclaimed,
            "cpu_jobs_preempted_for_bandwidth": self._relieved,
            "cpu_jobs_slowed_for_bandwidth": self._cuts,
        }

    def decide(self, world: World) -> None:
        """Serve wide gangs, small ones, then CPU-only jobs, until nobody gives way any more."""
        if not self._begun:
            self._begun = True
            self._on_cpus = {
                job_id: None for job_id in world.running if not _gpus(world.placement(job_id))
            }
        self._step(world)
        released = bool(world.take_released())
        if released:
            self._speed_up(world)
        everybody = released or bool(self._claims)
        while True:
            fresh = self._enqueue(world)
            gangs: list[str] = []
            room = self._room(world)
            for name in ("wide", "narrow"):
                self._serve_gangs(world, room, name, fresh, everybody, gangs)
                room = self._room(world)
            if self._enqueue(world):
                everybody = True  # whoever gave way may go elsewhere
            if fresh or everybody:
                self._serve_cpus(world, room)
            if not self._relieve(world, gangs):
                break
            everybody = True
        if world.idle:
            for _, job_id in sorted(entry for queue in self._queues.values() for entry in queue):
                if (fit := world.fit(job_id)) is not None:
                    self._start(world, job_id, fit)
            self._drop_started(world)

    # --------------------------------------------------------------------------------------------
    # who waits

    def _enqueue(self, world: World) -> bool:
        """Put those that have come to wait in their queues, with the cores that were found for
        them."""
        arrived = [job_id for job_id in world.take_arrived() if job_id not in self._claims]
        for job_id in arrived:
            options = world.options(job_id)
            widest = max((option.mode.gpus for option in options), default=0)
            self.arrays.asked(world, job_id, widest)
            self._ways[job_id] = self._slim(world, job_id, options)
            self._queue(world, job_id, widest)
        return bool(arrived)

    def _queue(self, world: World, job_id: str, widest: int) -> None:
        insort(self._queues[self.arrays.queue(widest)], (arrival_key(world, job_id), job_id))

    def _slim(self, world: World, job_id: str, options: tuple[Option, ...]) -> tuple[Option, ...]:
        """Return the options with the core counts to start with; those without GPUs as they are."""
        slim: list[Option] = []
        shares = host_shares(world.cluster)
        memory_gib = world.profile(job_id).memory_gib_per_gpu
        for ways in host_ways(options, memory_gib, shares):
            counts = {option.mode.cpus_per_gpu for option in ways.every}
            if len(counts) > 1:
                share = shares.get(ways.gpu_type, ANY).cores
                cores = self._cores(category(world.job(job_id)), ways, share)
                slim.extend(ways.with_cores(cores))
                self.arrays.found(cores)
            else:
                slim.extend(ways.every)
        return (*slim, *(option for option in options if not option.mode.gpus))

    def _cores(self, category: str, ways: HostWays, share: float) -> int:
        """Return the cores for each GPU to start with."""
        group = category, ways.gpus
        counts = {option.mode.cpus_per_gpu for option in ways.every}
        if self.how != "profile":
            return self.search.first(group, counts, share)
        rates = ways.rates()
        climb = self.search.begin(counts, self.search.first(group, counts, share))
        while climb.goes_on:
            self.search.shown(climb, rates[climb.count])
        return self.search.end(group, climb)

    # --------------------------------------------------------------------------------------------
    # who tries other cores

    def _step(self, world: World) -> None:
        """Let each job whose cores have shown their rate go on to the next count, or back to the
        best, where it may be started anew and finds them on its nodes."""
        for job_id, climb in self._trials.due(world):
            while climb.count != world.running_mode(job_id).cpus_per_gpu:
                if self._resize(world, job_id, climb):
                    break
                if not climb.goes_on:
                    break
                climb.turn()
            if not climb.goes_on:
                self._trials.over(job_id)

    def _resize(self, world: World, job_id: str, climb: Climb) -> bool:
        """Give a job the cores that its search names, on its nodes; whether that can be. For what
        was found CPU-only jobs give way, for a trial they do not."""
        ways = tuple(
            option
            for option in like(world, job_id, world.running_mode(job_id))
            if option.mode.cpus_per_gpu == climb.count
        )
        return self._change(world, job_id, ways, [] if climb.goes_on else self._lent(world))

    def _change(self, world: World, job_id: str, ways: tuple[Option, ...], lent: list[str]) -> bool:
        """Let a job run on its nodes in the first of some ways that can be had once those `lent`
        have left: in place, else by a new start, with a claim; whether there is one."""
        if changes_in_place(world, job_id):
            in_place = partial(hold_place, world, job_id=job_id, ways=ways)
            return job_id not in self._claims and self._claim(world, job_id, in_place, lent)
        if not world.may_preempt(job_id):
            return False
        order = world.cluster.node_order
        nodes = sum(1 << order[slot.node] for slot in world.placement(job_id))
        find = partial(place, world, job_id=job_id, ways=ways, nodes=nodes)
        if not self._claim(world, job_id, find, lent):
            return False
        self._ways[job_id] = ways
        world.preempt(job_id)
        return True

    def _drop_started(self, world: World) -> None:
        for name, queue in self._queues.items():
            self._queues[name] = [
                entry
                for entry in queue
                if entry[1] in world.waiting and entry[1] not in self._claims
            ]

    # --------------------------------------------------------------------------------------------
    # who starts

    def _room(self, world: World) -> Room:
        """Return what is free and not claimed. Claims whose place is free by now are carried out;
        those whose place is gone are given up."""
        for job_id, fit in list(self._claims.items()):
            if job_id in world.saving:
                continue  # it changes its cores
            if job_id in world.running and changes_in_place(world, job_id):
                if world.may_change_cores(job_id, fit[0]):
                    del self._claims[job_id]
                    world.change_cores(job_id, fit[0])
                    self._runs_with(world, job_id, fit)
            elif job_id not in world.waiting:
                del self._claims[job_id]
            elif is_free(world, job_id, fit):
                del self._claims[job_id]
                self._start(world, job_id, fit)
        if not self._claims:
            return world.free
        soon = self._soon(world).room
        return world.free.overlap(soon)

    def _soon(self, world: World) -> Outlook:
        """Return what will be free once nobody is being saved any more, less the claims."""
        soon = Outlook(world, (*world.saving, *filter(world.running.__contains__, self._claims)))
        for job_id, (option, placement) in list(self._claims.items()):
            need = world.need(job_id, option)
            if soon.room.holds(need, placement):
                soon.room.take(need, placement)
            else:
                del self._claims[job_id]
                if job_id in world.saving:
                    continue
                if job_id in world.running:
                    self._trials.over(job_id)
                    continue
                widest = max(other.mode.gpus for other in world.options(job_id))
                self._queue(world, job_id, widest)
        return soon

    def _start(self, world: World, job_id: str, fit: Fit, room: Room | None = None) -> None:
        if room is not None and room is not world.free:
            world.take(room, job_id, fit)
        world.start(job_id, *fit)
        self._ways.pop(job_id, None)
        self._runs_with(world, job_id, fit)

    def _runs_with(self, world: World, job_id: str, fit: Fit) -> None:
        """Note with which cores a job now runs."""
        if self.how == "steps":
            self._trials.started(world, job_id, fit[0])
        if not _gpus(fit[1]):
            self._on_cpus[job_id] = None
            if fit[1] and fit[0].rate < world.fastest(job_id).rate:
                self._slowed[job_id] = None

    def _serve_gangs(
        self, world: World, room: Room, name: str, fresh: bool, everybody: bool, gangs: list[str]
    ) -> None:
        """Start, or give a claim to, the GPU jobs of a queue that fit, with CPU-only jobs gone if
        need be."""
        if not (fresh or everybody):
            return
        refused: set[tuple[int, int]] = set()
        for _, job_id in list(self._queues[name]):
            ways = self._ways[job_id]
            key = world.demand(job_id).number, ways[0].mode.cpus_per_gpu if ways else 0
            if key in refused:
                continue
            find = partial(self._find, world, job_id=job_id, name=name)
            fit = find(room)
            if fit is not None:
                self._start(world, job_id, fit, room)
            elif (lent := self._lent(world)) and self._claim(world, job_id, find, lent):
                room = self._room(world)
            else:
                refused.add(key)
                continue
            gangs.append(job_id)
        self._drop_started(world)

    def _find(self, world: World, room: Room, job_id: str, name: str) -> Fit | None:
        """Return a place in the job's own array, else in the other, which small gangs use only
        while no wide one waits."""
        for nodes in self.arrays.nodes(world, name, alone=not self._queues["wide"]):
            fit = place(world, room, job_id, self._ways[job_id], nodes)
            if fit is not None:
                return fit
        return None

    def _lent(self, world: World) -> list[str]:
        """Return the CPU-only jobs that can give way, the first started first."""
        self._on_cpus = {other: None for other in self._on_cpus if other in world.running}
        return [
            other
            for other in self._on_cpus
            if world.may_preempt(other) and other not in self._claims
        ]

    def _claim(
        self, world: World, job_id: str, find: Callable[[Room], Fit | None], lent: list[str]
    ) -> bool:
        """Give a GPU job a claim to the place that it finds once all saving jobs, those `lent` and
        itself have left; preempt those that are in its way, the last started first. Return whether
        there is one."""
        soon = self._soon(world)
        for other in (*lent, *([job_id] if job_id in world.running else [])):
            soon.release(other)
        fit = find(soon.room)
        if fit is None:
            return False
        world.take(soon.room, job_id, fit)
        for other in lent:
            hold = world.hold(other)
            if soon.room.holds(hold.need, hold.placement):
                soon.put_back(other)
            else:
                world.preempt(other)
                self._reclaimed += 1
        self._claims[job_id] = fit
        return True

    # --------------------------------------------------------------------------------------------
    # CPU-only jobs

    def _serve_cpus(self, world: World, room: Room) -> None:
        def start(job_id: str) -> bool:
            fit = self._place_on_cpus(world, room, job_id)
            if fit is None:
                # Of jobs that load the memory each may find another place.
                return world.profile(job_id).memory_gbps > 0
            self._start(world, job_id, fit, room)
            return True

        start_each(world, [job_id for _, job_id in self._queues["cpu"]], start)
        self._drop_started(world)

    def _place_on_cpus(self, world: World, room: Room, job_id: str) -> Fit | None:
        """Return a place where the memory bandwidth is enough: without GPUs, beside GPUs, on what
        is kept for idle GPUs."""
        for option in self._ways[job_id]:
            need, gbps = world.need(job_id, option), memory_gbps(world.job(job_id), option.mode)
            if not need.needs_node:
                placement = room.place(need)
                if placement is not None:
                    return option, placement
                continue
            for nodes in self._tiers(world, room, need, gbps):
                placement = room.place(within(need, nodes)) if nodes else None
                if placement is not None:
                    return option, placement
        return None

    def _tiers(self, world: World, room: Room, need: Need, gbps: float) -> tuple[int, int, int]:
        without = spare = lent = 0
        shares, able = host_shares(world.cluster), room.able(need)
        for i, node in enumerate(world.cluster.nodes):
            if not able >> i & 1 or room.cpus_on(node.name) < need.cpus:
                continue
            if gbps and node.memory_gbps is not None:
                load = world.memory_load_gbps(node.name)
                if load and load + gbps > self.bandwidth * node.memory_gbps:
                    continue
            share = shares.get(node.gpu_type, NONE)
            kept = room.gpus_on(node.name) * self.arrays.cores_kept(share.cores)
            if not node.gpus:
                without |= 1 << i
            elif room.cpus_on(node.name) - need.cpus >= kept:
                spare |= 1 << i
            else:
                lent |= 1 << i
        return without, spare, lent

    def _relieve(self, world: World, gangs: list[str]) -> bool:
        """Slow down, else preempt CPU-only jobs beside the GPU jobs that have just started, until
        the memory bandwidth is enough; return whether there were any."""
        nodes = dict.fromkeys(
            slot.node
            for job_id in gangs
            if job_id in world.running
            for slot in world.placement(job_id)
        )
        relieved = False
        for name in nodes:
            capacity = world.cluster.node[name].memory_gbps
            if capacity is None or world.memory_load_gbps(name) <= capacity:
                continue
            excess = world.memory_load_gbps(name) - capacity
            for job_id, way in self._relief(world, name, excess).items():
                if way is not None and self._change(world, job_id, (way,), []):
                    self._cuts += 1
                else:
                    world.preempt(job_id)
                    self._relieved += 1
                relieved = True
        return relieved

    def _relief(self, world: World, node: str, excess: float) -> dict[str, Option | None]:
        """Return the CPU-only jobs of a node that change, the last started first, for so much less
        bandwidth, each with the way in which it goes on; none of these if it has to leave."""
        loads = {
            job_id: memory_gbps(world.job(job_id), world.running_mode(job_id))
            for job_id in reversed(self._lent(world))
            if any(slot.node == node for slot in world.placement(job_id))
        }
        found: dict[str, Option | None] = {}
        for job_id, load in loads.items():
            slower = {
                gbps: option
                for option in world.options(job_id)
                if not option.mode.gpus
                and (gbps := memory_gbps(world.job(job_id), option.mode)) < load
            }
            if excess > 0 and slower:
                enough = [gbps for gbps in slower if load - gbps >= excess]
                gbps = max(enough) if enough else min(slower)
                found[job_id], loads[job_id] = slower[gbps], gbps
                excess -= load - gbps
        leave: list[str] = []
        for job_id, load in loads.items():
            if excess > 0 and load:
                leave.append(job_id)
                excess -= load
        for job_id in leave:
            if excess + loads[job_id] <= 0:
                excess += loads[job_id]  # those after it are enough
            else:
                found[job_id] = None
        return found

    def _speed_up(self, world: World) -> None:
        """Give those that were slowed down the fastest way back for which cores and bandwidth of
        their node are enough."""
        for job_id in [*self._slowed]:
            if not world.is_active(job_id):
                del self._slowed[job_id]
            if job_id not in world.running or not world.may_preempt(job_id):
                continue
            job, mode = world.job(job_id), world.running_mode(job_id)
            [slot] = world.placement(job_id)
            capacity = world.cluster.node[slot.node].memory_gbps
            room = math.inf
            if capacity is not None:
                room = capacity - world.memory_load_gbps(slot.node) + memory_gbps(job, mode)
            rate = world.rate_now(job_id)
            faster = tuple(
                option
                for option in world.options(job_id)
                if option.rate > rate and memory_gbps(job, option.mode) <= room
            )
            if faster and self._change(world, job_id, faster, []):
                del self._slowed[job_id]


def place(
    world: World, room: Room, job_id: str, ways: tuple[Option, ...], nodes: int
) -> Fit | None:
    """Return a place on some nodes, in the first way that has one."""
    for option in ways:
        placement = room.place(within(world.need(job_id, option), nodes))
        if placement is not None:
            return option, placement
    return None


def hold_place(world: World, room: Room, job_id: str, ways: tuple[Option, ...]) -> Fit | None:
    """Return the very place of a running job, in the first way that has the cores there."""
    held = world.placement(job_id)
    fits = ((option, with_cores(held, option.mode)) for option in ways)
    return next((fit for fit in fits if room.holds(world.need(job_id, fit[0]), fit[1])), None)


def _gpus(placement: Placement) -> int:
    return sum(slot.gpus for slot in placement)
