"""The best choice of GPUs for a gang that overlaps with others, against all sets of GPUs."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Node, Profile, Sharing
from optsched.driver.world import World
from optsched.physics import sharing_rate
from optsched.simulate.virtual import VirtualWorld
from optsched_solvers.policies.parts.overlaps import hosts, overlaps

NODE = Node(name="n", gpus=4)


def gang(name: str, gpus: int, duty: float | None) -> Job:
    sharing = None if duty is None else Sharing(duty=duty)
    return Job(id=name, gpus=gpus, duration_s=100.0, profile=Profile(sharing=sharing))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A node with up to three jobs, two of which may overlap, and `new` that waits."""
    duties = st.sampled_from((None, 0.2, 0.4, 0.6, 0.9))
    jobs = [gang(f"j{i}", draw(st.integers(1, 3)), draw(duties)) for i in range(3)]
    new = gang("new", draw(st.integers(1, 4)), draw(duties))
    world = VirtualWorld(Instance(cluster=Cluster(nodes=(NODE,)), jobs=(*jobs, new)))
    world.advance()
    for job in jobs:
        [option] = world.options(job.id)
        if (fit := world.fit(job.id)) is not None:
            world.start(job.id, *fit)
        elif world.running:
            first = next(iter(world.running))
            if world.may_overlap(job.id, option, "n", {first: 1}):
                world.start_overlapping(job.id, option, "n", {first: 1})
    return world


def best_of_all_sets(world: World) -> float | None:
    """The largest gain of the sum of rates over all sets of GPUs that leave each at most two
    jobs."""
    gpus: list[list[str]] = []
    shared = set[frozenset[str]]()
    for name in world.running:
        with_others = world.running_mode(name).shared_gpus
        for other, count in with_others.items():
            if frozenset((name, other)) not in shared:
                shared.add(frozenset((name, other)))
                gpus += [[name, other]] * count
        partner = world.hold(name).partner
        if partner is None:
            gpus += [[name]] * world.own_gpus(name)["n"]
        elif frozenset((name, partner)) not in shared:
            shared.add(frozenset((name, partner)))
            gpus += [[name, partner]] * world.running_mode(name).gpus
    gpus += [[] for _ in range(world.free.gpus_on("n"))]
    assert len(gpus) == 4

    def rate(name: str, on: list[str]) -> float:
        others = [world.profile(other) for other in on if other != name]
        return min((sharing_rate(world.profile(name), other) for other in others), default=1.0)

    def total(held: list[list[str]]) -> float:
        names = {name for on in held for name in on}
        return sum(min(rate(name, on) for on in held if name in on) for name in names)

    gains = []
    for chosen in combinations(range(4), world.options("new")[0].mode.gpus):
        after = [[*on, "new"] if k in chosen else on for k, on in enumerate(gpus)]
        known = all(rate(name, on) > 0.0 for on in after for name in on)
        if known and max(map(len, after)) <= 2 and any(gpus[k] for k in chosen):
            gains.append(total(after) - total(gpus))
    return max(gains, default=None)


@given(worlds())
def test_no_set_of_gpus_gains_more(world: World) -> None:
    [option] = world.options("new")
    found = [
        gain
        for node, beside in hosts(world, "new", option).items()
        for gain, _ in overlaps(world, "new", option, node, beside)
    ]
    best = best_of_all_sets(world)
    if not found:
        assert best is None or world.free.gpus_on("n") >= option.mode.gpus
    elif world.free.gpus_on("n") < option.mode.gpus:
        assert best is not None and max(found) == pytest.approx(best)
