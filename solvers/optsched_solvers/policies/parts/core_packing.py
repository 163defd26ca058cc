"""Exact packing of jobs with known GPUs and cores onto nodes."""

from optsched.driver.placement import Room
from optsched.driver.view import Fit
from optsched.driver.world import World
from optsched.model.instance import Slot
from optsched.physics.modes import Option

from .counted_cpsat import solved
from .seating import own_place

EFFORT = 0.5
"""CP-SAT's deterministic time, about as many seconds, after which no packing is found."""


def pack(world: World, room: Room, options: dict[str, Option]) -> dict[str, Fit] | None:
    """A node for every job, as many as possible their own; None where there is none, none was found
    in time, or a job needs several nodes."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    nodes = world.cluster.nodes
    here: dict[tuple[str, int], cp_model.IntVar] = {}
    for job_id, option in options.items():
        need = world.need(job_id, option)
        fits = [
            i
            for i, node in enumerate(nodes)
            if need.nodes >> i & 1 and room.gpus_on(node.name) >= need.gpus
        ]
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
            cores = [
                options[job_id].mode.cpus_per_gpu * options[job_id].mode.gpus for job_id, _ in on_it
            ]
            if sum(cores) > room.cpus_on(node.name):
                model.add(
                    sum(n * at for n, (_, at) in zip(cores, on_it, strict=True))
                    <= room.cpus_on(node.name)
                )
    kept = []
    for job_id, option in options.items():
        place = own_place(world, job_id, option)
        if (
            place is not None
            and len(place) == 1
            and (job_id, world.cluster.node_order[place[0].node]) in here
        ):
            kept.append(here[job_id, world.cluster.node_order[place[0].node]])
    if kept:
        model.maximize(sum(kept))
    solver, _ = solved(model, EFFORT)
    if solver is None:
        return None
    found: dict[str, Fit] = {}
    trial = room.copy()
    for (job_id, i), at in here.items():
        if solver.value(at):
            option = options[job_id]
            slot = Slot(
                node=nodes[i].name,
                gpus=option.mode.gpus,
                cpus=option.mode.gpus * option.mode.cpus_per_gpu,
            )
            need = world.need(job_id, option)
            if not trial.holds(need, (slot,)):  # host memory, a quota or a budget is short
                return None
            trial.take(need, (slot,))
            found[job_id] = option, (slot,)
    return found
