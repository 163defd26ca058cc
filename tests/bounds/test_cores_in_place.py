"""Jobs that change their cores in place: what happens is a plan, and no bound for any is above
it."""

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Mode, Profile, Running, Slot
from optsched.bounds import best_bounds, lower_bounds, priced_bound
from optsched.driver.world import World
from optsched.engine.plan_class import outside_class
from optsched.files import check_instance
from optsched.objectives import parse
from optsched.simulate.run import simulate
from optsched.verify import verify
from optsched.verify_bound import recomputed
from tests.clusters import equal_nodes, one_node
from tests.verified import checked

WCT = parse("wct")


class Restless:
    """Starts whoever fits, and changes the cores of those that run at random."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def decide(self, world: World) -> None:
        for job_id in [*world.waiting]:
            options = list(world.options(job_id))
            self._draw.shuffle(options)
            for option in options:
                place = world.free.place(world.need(job_id, option))
                if place is not None:
                    world.start(job_id, option, place)
                    break
        for job_id in [*world.running]:
            option = self._draw.choice(world.options(job_id))
            if world.may_change_cores(job_id, option):
                world.change_cores(job_id, option)
        if world.running:
            world.wake_at(world.now_s + self._draw.choice((1.0, 3.0, 10.0)))


CURVES = st.dictionaries(
    st.integers(1, 4), st.floats(0.25, 1.5).map(lambda rate: round(rate, 2)), min_size=1
)


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """A node or two with few cores; gangs with curves, and jobs without GPUs that list modes."""
    cores = draw(st.integers(4, 8))
    nodes = equal_nodes(draw(st.integers(1, 2)), gpus=2, cpus=cores)
    jobs = []
    for i in range(draw(st.integers(1, 3))):
        own = Job(
            id=f"j{i}",
            submit_s=draw(st.sampled_from((0.0, 5.0))),
            cores_in_place=draw(st.sampled_from((True, True, False))),
            preemptible=draw(st.booleans()),
            duration_s=20.0,
            profile=Profile(cpus_per_gpu=draw(CURVES), startup_s=draw(st.sampled_from((0.0, 4.0)))),
        )
        if draw(st.booleans()):
            modes = tuple(
                Mode(cpus=k, duration_s=draw(st.sampled_from((10.0, 20.0, 35.0)))) for k in (1, 3)
            )
            profile = Profile(startup_s=own.profile.startup_s)
            own = replace(own, gpus=1, duration_s=None, modes=modes, profile=profile)
        jobs.append(own)
    first, running = replace(jobs[0], submit_s=0.0), ()
    if draw(st.booleans()):
        fewest = min(first.profile.cpus_per_gpu, default=0)
        mode = first.modes[0] if first.modes else Mode(gpus=1, cpus_per_gpu=fewest)
        slot = Slot(node="n0", gpus=mode.gpus, cpus=mode.cpus + mode.cpus_per_gpu)
        left_s = 0.75 * first.work_s
        running = (Running(job="j0", mode=mode, placement=(slot,), remaining_s=left_s),)
    return Instance(cluster=Cluster(nodes=nodes), jobs=(first, *jobs[1:]), running=running)


@settings(max_examples=40)
@given(instances(), st.integers(0, 99))
def test_what_happens_is_a_plan_and_no_bound_is_above_it(instance: Instance, seed: int) -> None:
    check_instance(instance)
    plan = simulate(instance, Restless(seed))
    for name in ("wct", "makespan"):
        objective = parse(name)
        values = checked(instance, plan, objective)
        most = values[0] * (1 + 1e-9) + 1e-6
        bounds = lower_bounds(instance, objective)
        if outside_class(instance, plan) is None:
            bounds = (*bounds, *best_bounds(instance, objective))
        assert all(bound.value <= most for bound in bounds)
    values = verify(instance, plan, WCT).values
    _, certificate = priced_bound(instance, WCT, steps=1)
    assert values is not None and certificate is not None
    proved, faults = recomputed(instance, certificate)
    assert not faults and proved is not None and proved <= values[0] * (1 + 1e-9) + 1e-6


class InTurn:
    """Starts all with the fewest cores, and gives one after the other, once set up, the most."""

    def decide(self, world: World) -> None:
        for job_id in [*world.waiting]:
            slowest = world.options(job_id)[-1]
            place = world.free.place(world.need(job_id, slowest))
            assert place is not None
            world.start(job_id, slowest, place)
        if world.now_s < 100.0:
            world.wake_at(100.0)
            return
        for job_id in [*world.running]:
            if world.may_change_cores(job_id, world.options(job_id)[0]):
                world.change_cores(job_id, world.options(job_id)[0])


def test_a_job_may_set_up_with_few_cores_and_work_with_many() -> None:
    modes = Mode(cpus=5, duration_s=4.0), Mode(cpus=1, duration_s=1000.0)
    profile = Profile(startup_s=100.0)
    jobs = tuple(
        Job(id=f"j{i}", gpus=0, modes=modes, cores_in_place=True, profile=profile) for i in range(4)
    )
    instance = Instance(cluster=one_node("n0", cpus=8), jobs=jobs)
    makespan = parse("makespan")
    report = verify(instance, simulate(instance, InTurn()), makespan)
    assert report.values is not None and report.values[0] < 120.0
    assert all(bound.value <= report.values[0] for bound in lower_bounds(instance, makespan))
