"""Synergy-OPT: the most throughput from the cores and the host memory there are, never below the
proportional share."""

import math
from collections import Counter, defaultdict

from optsched.driver import Fit, Room, World
from optsched.physics import cpus, memory_gib
from optsched.physics.modes import Option

from .parts.configuration_choice import Configuration, by_course, choose, solved
from .parts.host_share import Host, HostWays
from .parts.placed_reallocation import Placements, own_place
from .parts.service_order import OrderOption
from .synergy_tune import Chosen, SynergyTune

MOST_TO_PACK = 4000
"""Jobs times nodes beyond which no exact packing is tried."""


MIB = 1024
"""Of a GiB: the whole parts of memory that the programs count, rounded down."""


def pack(world: World, room: Room, options: dict[str, Option]) -> dict[str, Fit] | None:
    """Return a node for every job, as many as possible their own; None where there is none, none
    was found in time, or a job needs several nodes."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    nodes = world.cluster.nodes
    here: dict[tuple[str, int], cp_model.IntVar] = {}
    for job_id, option in options.items():
        need = world.need(job_id, option)
        fits = [i for i, node in enumerate(nodes) if room.usable(need, node.name) >= need.gpus]
        if not fits:
            return None
        for i in fits:
            here[job_id, i] = model.new_bool_var("")
        model.add_exactly_one(here[job_id, i] for i in fits)
    for i, node in enumerate(nodes):
        on_it = [(job_id, at) for (job_id, k), at in here.items() if k == i]
        if on_it:
            model.add(
                sum(options[job_id].mode.gpus * at for job_id, at in on_it)
                <= room.gpus_on(node.name)
            )
            cores = [cpus(options[job_id].mode, options[job_id].mode.gpus) for job_id, _ in on_it]
            if sum(cores) > room.cpus_on(node.name):
                model.add(
                    sum(n * at for n, (_, at) in zip(cores, on_it, strict=True))
                    <= room.cpus_on(node.name)
                )
            gib = [
                memory_gib(world.job(job_id), options[job_id].mode, options[job_id].mode.gpus)
                for job_id, _ in on_it
            ]
            if sum(gib) > room.memory_gib_on(node.name):
                model.add(
                    sum(int(MIB * n) * at for n, (_, at) in zip(gib, on_it, strict=True))
                    <= int(MIB * room.memory_gib_on(node.name))
                )
    kept: list[cp_model.IntVar] = []
    for job_id, option in options.items():
        own = own_place(world, job_id, option) or ()
        nodes_of = [world.cluster.node_order[slot.node] for slot in own]
        kept += [here[job_id, i] for i in nodes_of if len(own) == 1 and (job_id, i) in here]
    if kept:
        model.maximize(sum(kept))
    solver, _ = solved(model)
    if solver is None:
        return None
    placed: dict[str, Fit] = {}
    trial = room.copy()
    for (job_id, i), at in here.items():
        if solver.value(at):
            option = options[job_id]
            gpus = option.mode.gpus
            need = world.need(job_id, option)
            place = room.layout.alone(i, gpus, cpus(option.mode, gpus))
            if not trial.holds(need, place):  # a quota or a budget is short
                return None
            trial.take(need, place)
            placed[job_id] = option, place
    return placed


class SynergyOpt(SynergyTune):
    """Every 300 s the jobs are taken in order, and whoever fits into the GPUs that are left runs
    for the round. Their cores and memory are those with the largest sum of rates, each relative to
    that with the proportional share and not below it, as if all nodes were one.

    This is the integer program 1 of the publication, solved exactly for each GPU type. Then places
    are sought one by one, the job's own first; where that fails, by an exact packing in which as
    many as possible keep theirs; whoever still finds none gets its share, by cutting others back as
    `synergy-tune` does. CPU-only jobs get what GPU jobs leave. To give a running job other cores or
    memory it is preempted and resumed, which costs what the profile says.

    Source: J. Mohan et al., Looking beyond GPUs for DNN scheduling on multi-tenant clusters,
    OSDI'22, section 4.1; simulator/opt_algo/synergy_opt.py of the public simulator.
    """

    name = "synergy-opt"
    title = "cores and memory by an integer program for the most throughput, nobody below its share"
    Options = OrderOption

    def place_chosen(self, placements: Placements, chosen: Chosen) -> None:
        """Place each with the cores and memory of the program, where that can be placed."""
        world, room = placements.world, placements.room
        cores, gib = Counter[str | None](), defaultdict[str | None, float](float)
        for node in world.cluster.nodes:
            if node.gpus and node.name not in world.lost:
                cores[node.gpu_type] += room.cpus_on(node.name)
                gib[node.gpu_type] += room.memory_gib_on(node.name)
        levels: dict[str, tuple[Option, ...]] = {}
        for gpu_type in dict.fromkeys(ways.gpu_type for ways in chosen.values()):
            jobs = {job_id: ways for job_id, ways in chosen.items() if ways.gpu_type == gpu_type}
            picked = most_throughput(list(jobs.values()), cores[gpu_type], gib[gpu_type])
            for (job_id, ways), host in zip(jobs.items(), picked, strict=True):
                levels[job_id] = ways.with_host(host)
        left = [job_id for job_id in chosen if not placements.give(job_id, levels[job_id])]
        if left and len(chosen) * len(world.cluster.nodes) <= MOST_TO_PACK:
            placed = {job_id: placements.take_back(job_id) for job_id in list(placements.of)}
            packed = pack(world, placements.room, {job_id: levels[job_id][0] for job_id in chosen})
            if packed is not None:
                # those whose own places are still respected first: others may be packed there
                placed = {job_id: packed[job_id] for job_id in (*left, *placed)}
                left = []
            for job_id, (option, placement) in placed.items():
                placements.put(job_id, option, placement)
        for job_id in left:
            self.give_share(placements, job_id, chosen)


def most_throughput(jobs: list[HostWays], cores: int, gib: float) -> list[Host]:
    """Return cores and memory per GPU of each job, with the largest sum of rates relative to the
    proportional share and none below it.

    Where memory is no choice this is exact, by dynamic programming over the cores in all:
    O(jobs x core counts x cores); of equal sums the one with fewer cores for the later jobs. With
    both it is solved by `choose`. Where not even the shares are within what there is, everybody
    gets its share.
    """
    choices = [_choices(ways) for ways in jobs]
    least = [Host(*map(min, zip(*(host for host, _ in own), strict=True))) for own in choices]
    beyond = [
        [
            (ways.gpus * int(host.cores - low.cores), int(MIB * ways.gpus * (host.gib - low.gib)))
            for host, _ in own
        ]
        for ways, own, low in zip(jobs, choices, least, strict=True)
    ]
    most = [sum(max(use[k] for use in own) for own in beyond) for k in (0, 1)]
    spare = cores - sum(ways.gpus * int(low.cores) for ways, low in zip(jobs, least, strict=True))
    room = [min(spare, most[0])]
    if most[1]:
        taken_gib = sum(ways.gpus * low.gib for ways, low in zip(jobs, least, strict=True))
        room.append(math.floor(min(MIB * (gib - taken_gib) + 1e-6, most[1])))
    if min(room) < 0:
        return [ways.host(ways.fair[0]) for ways in jobs]
    units = [math.gcd(*(use[k] for own in beyond for use in own)) or 1 for k in range(len(room))]
    configurations = [
        [
            Configuration(-gain, tuple((k, use[k] // unit) for k, unit in enumerate(units)))
            for use, (_, gain) in zip(uses, own, strict=True)
        ]
        for uses, own in zip(beyond, choices, strict=True)
    ]
    parts = [most // unit for most, unit in zip(room, units, strict=True)]
    if len(parts) == 1:
        picks = by_course(configurations, parts[0], margin=1e-12)
    else:
        picks = choose(configurations, parts).chosen
    return [own[i][0] for own, i in zip(choices, picks, strict=True)]


def _choices(ways: HostWays) -> list[tuple[Host, float]]:
    """Return cores and memory per GPU, and the relative rate, of what is not below the share, the
    least first. The least of each of the two is among them together: the rate is that of the
    scarcer."""
    rates = ways.by_host()
    return [
        (host, rates[host] / ways.fair_rate)
        for host in sorted(rates)
        if rates[host] >= ways.fair_rate
    ]
