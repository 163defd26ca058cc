"""Synergy-OPT: the most throughput from the cores there are, never below the proportional share."""

import math
from collections import Counter

from optsched.driver.placement import Room
from optsched.driver.view import Fit
from optsched.driver.world import World
from optsched.physics import cpus
from optsched.physics.modes import Option

from .parts.configuration_choice import Configuration, by_course, solved
from .parts.core_share import CoreWays
from .parts.placed_reallocation import Placements, own_place
from .synergy_tune import Chosen, SynergyOptions, SynergyTune

MOST_TO_PACK = 4000
"""Jobs times nodes beyond which no exact packing is tried."""


EFFORT = 0.5
"""CP-SAT's deterministic time, about as many seconds, after which no packing is found."""


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
    kept: list[cp_model.IntVar] = []
    for job_id, option in options.items():
        own = own_place(world, job_id, option) or ()
        nodes_of = [world.cluster.node_order[slot.node] for slot in own]
        kept += [here[job_id, i] for i in nodes_of if len(own) == 1 and (job_id, i) in here]
    if kept:
        model.maximize(sum(kept))
    solver, _ = solved(model, EFFORT)
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
            if not trial.holds(need, place):  # host memory, a quota or a budget is short
                return None
            trial.take(need, place)
            placed[job_id] = option, place
    return placed


class SynergyOpt(SynergyTune):
    """Every 300 s the jobs are taken in order, and whoever fits into the GPUs that are left runs
    for the round. Their cores are those with the largest sum of rates, each relative to that with
    the proportional share and not below it, as if all nodes were one.

    This is the integer program 1 of the publication, solved exactly for each GPU type. Then places
    are sought one by one, the job's own first; where that fails, by an exact packing in which as
    many as possible keep theirs; whoever still finds none gets its share, by cutting others back as
    `synergy-tune` does. CPU-only jobs get the cores that GPU jobs leave. Host memory is a fixed
    demand here, not a choice. To give a running job other cores it is preempted and resumed, which
    costs what the profile says.

    Source: J. Mohan et al., Looking beyond GPUs for DNN scheduling on multi-tenant clusters,
    OSDI'22, section 4.1; simulator/opt_algo/synergy_opt.py of the public simulator.
    """

    name = "synergy-opt"
    title = (
        "cores by an integer program for the most throughput, nobody below the proportional share"
    )
    Options = SynergyOptions

    def place_chosen(self, placements: Placements, chosen: Chosen) -> None:
        """Place each with the cores of the program, where that can be placed."""
        world = placements.world
        cores = Counter[str | None]()
        for node in world.cluster.nodes:
            if node.gpus and node.name not in world.lost:
                cores[node.gpu_type] += placements.room.cpus_on(node.name)
        levels: dict[str, tuple[Option, ...]] = {}
        for gpu_type in dict.fromkeys(ways.gpu_type for ways in chosen.values()):
            jobs = {job_id: ways for job_id, ways in chosen.items() if ways.gpu_type == gpu_type}
            picked = most_throughput(list(jobs.values()), cores[gpu_type])
            for (job_id, ways), cpus_per_gpu in zip(jobs.items(), picked, strict=True):
                levels[job_id] = ways.with_cores(cpus_per_gpu)
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


def most_throughput(jobs: list[CoreWays], cores: int) -> list[int]:
    """Return the cores per GPU of each job, with the largest sum of rates relative to the
    proportional share and none below it.

    Exact, by dynamic programming over the cores in all: O(jobs x core counts x cores). Of equal
    sums the one with fewer cores for the later jobs. Where not even the shares are within `cores`,
    everybody gets its share.
    """
    choices = [_choices(ways) for ways in jobs]
    least = [min(cost for cost, _, _ in choice) for choice in choices]
    spare = cores - sum(least)
    if spare < 0:
        return [ways.fair[0].mode.cpus_per_gpu for ways in jobs]
    beyond = [
        [cost - low for cost, _, _ in choice] for choice, low in zip(choices, least, strict=True)
    ]
    spare = min(spare, sum(map(max, beyond)))
    unit = math.gcd(*(more for own in beyond for more in own)) or 1
    configurations = [
        [Configuration(-gain, ((0, (cost - low) // unit),)) for cost, gain, _ in choice]
        for choice, low in zip(choices, least, strict=True)
    ]
    picks = by_course(configurations, spare // unit, margin=1e-12)
    return [choice[i][2] for choice, i in zip(choices, picks, strict=True)]


def _choices(ways: CoreWays) -> list[tuple[int, float, int]]:
    """Return (cores in all, relative rate, cores per GPU) of the counts that are not below the
    share, the fewest first."""
    rates, fair = ways.rates(), ways.fair_rate
    return [
        (ways.gpus * cpus, rates[cpus] / fair, cpus)
        for cpus in sorted(rates)
        if rates[cpus] >= fair
    ]
