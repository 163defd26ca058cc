"""A policy that starts gangs anywhere, on any mix of GPU types, and preempts at will: random, but
from a seed."""

from dataclasses import replace
from random import Random

from optsched import Elastic
from optsched.driver.mixed import may_mix, mixed_option
from optsched.driver.world import World
from optsched.physics import fits_type, gang_sizes, gpu_type_rate
from optsched.physics.modes import Option


class Mixing:
    name = "mixing"
    title = "random mixes of GPU types"

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.mixed = 0

    def decide(self, world: World) -> None:
        chance = self._random
        for job_id in [*world.running]:
            if (
                world.hold(job_id).partner is None
                and world.may_preempt(job_id)
                and chance.random() < 0.1
            ):
                world.preempt(job_id)
        for job_id in [*world.waiting]:
            if not self._mix(world, job_id):
                found = world.fit(job_id)
                if found is not None:
                    world.start(job_id, *found)

    def _mix(self, world: World, job_id: str) -> bool:
        job, options = world.job(job_id), world.options(job_id)
        like = self._random.choice([one for one in options if one.mode.gpus > 1] or options)
        if like.mode.gpus < 2 or not may_mix(world, job_id, like):
            return False
        fixed = job.modes or not isinstance(job.gpus, Elastic)
        gpus = like.mode.gpus if fixed else self._random.choice(gang_sizes(job))
        usable = usable_gpus(world, job_id, like)
        names = self._random.sample(list(usable), len(usable))
        if not names:
            return False
        node, first = world.cluster.node, names[0]
        names.sort(key=lambda name: name != first and node[name].gpu_type == node[first].gpu_type)
        left, gpus_on = gpus, {}
        for name in names:  # a few of one node, then nodes of other types
            if left:
                most = min(left, usable[name])
                gpus_on[name] = max(1, most - self._random.randint(0, 2)) if name == first else most
                left -= gpus_on[name]
        if left:
            return False
        option, placement = mixed_option(world, job_id, like, gpus_on)
        if option.rate <= 0 or not world.free.holds(world.need(job_id, option), placement):
            return False
        world.start(job_id, option, placement)
        self.mixed += (
            option.mode.gpu_type is None
            and len({world.cluster.node[n].gpu_type for n in gpus_on}) > 1
        )
        return True


def usable_gpus(world: World, job_id: str, like: Option) -> dict[str, int]:
    """GPUs of any type that each node has free for a job which takes cores and memory as in
    `like`."""
    job, need, mode = world.job(job_id), world.need(job_id, like), replace(like.mode, gpu_type=None)
    found = {}
    for node in world.cluster.nodes:
        rated = mode.duration_s is not None or gpu_type_rate(job.profile, node.gpu_type) > 0
        gpus = world.free.usable_of_any_type(need, node.name)
        if node.gpus and rated and fits_type(job, mode, node) and gpus > 0:
            found[node.name] = gpus
    return found
