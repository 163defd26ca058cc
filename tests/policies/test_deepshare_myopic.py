"""DeepShare one step ahead: the reward by its formula, and the step against every placement there
is."""

import math
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Mode, Node, Placement, Profile, Running, Slot
from optsched.physics.contention import channel_gbps, channel_loads, slowdown
from optsched.plugins.registry import policy
from optsched.simulate.virtual import VirtualWorld
from optsched_solvers.policies.deepshare_myopic import DeepShareMyopic, Utilisation, reward
from tests.policies.congested import congested, run

SLOW = settings(max_examples=80)
Held = list[tuple[Job, Mode, Placement]]


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30), st.floats(0.0, 1.0))
def test_the_moving_average_has_the_weights_of_span_10(samples: list[float], last: float) -> None:
    """Sum of (1 - a)^i x_i over sum of (1 - a)^i with a = 2 / (10 + 1), the latest x_0."""
    average = Utilisation()
    for sample in samples:
        average.add(sample)
    series = [last, *reversed(samples)]
    weights = [(9 / 11) ** i for i in range(len(series))]
    expected = math.fsum(w * x for w, x in zip(weights, series, strict=True)) / math.fsum(weights)
    assert average.after(last) == pytest.approx(expected)


def test_the_reward_by_hand() -> None:
    """Ratios 1, 0.5 and 0.8: mean loss (0 + 0.5 + 0.2) / 3."""
    assert reward(0.7, 3, 0.9, 0.3, 0.7) == pytest.approx(-0.3 * 0.7 / 3 + 0.7 * 0.9)
    assert reward(0.0, 0, 0.9, 0.3, 0.7) == 0.0


def reward_of(cluster: Cluster, held: Held) -> float:
    """The reward if exactly these run, from the physics; utilisation has one sample, that of the
    next step."""
    total: dict[object, float] = {}
    for job, mode, placement in held:
        for channel, gbps in channel_loads(cluster, job, mode, placement).items():
            total[channel] = total.get(channel, 0.0) + gbps
    lost = 0.0
    for job, mode, placement in held:
        crowding = {
            channel: total[channel] / channel_gbps(cluster, channel)
            for channel in channel_loads(cluster, job, mode, placement)
        }
        lost += 1.0 - 1.0 / slowdown(job.profile, crowding)
    used = sum(slot.gpus for _, _, placement in held for slot in placement)
    return reward(lost, len(held), used / cluster.total_gpus, 0.5, 0.5)


def every_placement(cluster: Cluster, free: dict[str, int], gpus: int) -> Iterator[Placement]:
    for counts in product(*(range(free[node.name] + 1) for node in cluster.nodes)):
        if sum(counts) == gpus:
            yield tuple(
                Slot(node=node.name, gpus=count)
                for node, count in zip(cluster.nodes, counts, strict=True)
                if count
            )


PROFILES = st.builds(
    Profile, network_gbps=st.sampled_from([0.0, 4.0, 6.0]), network_duty=st.sampled_from([0.3, 1.0])
)


@given(
    st.lists(st.sampled_from(["r0", "r1", "r2"]), min_size=4, max_size=4),
    st.lists(PROFILES, min_size=4, max_size=4),
    st.tuples(st.integers(1, 4), st.integers(2, 5)),
    st.data(),
)
@SLOW
def test_the_step_is_the_best_of_all_jobs_and_placements(
    racks: list[str], profiles: list[Profile], sizes: tuple[int, int], data: st.DataObject
) -> None:
    nodes = tuple(Node(name=f"n{i}", gpus=3, rack=rack) for i, rack in enumerate(racks))
    cluster = Cluster(nodes=nodes, rack_uplink_gbps=dict.fromkeys(racks, 7.0), uplinks="shared")
    free = {node.name: 3 for node in nodes}
    running, jobs, held = [], [], []
    for i in range(2):
        first, second = data.draw(st.permutations([node.name for node in nodes]))[:2]
        job = Job(id=f"held{i}", gpus=2, duration_s=100.0, profile=profiles[i])
        placement = tuple(Slot(node=name, gpus=1) for name in sorted((first, second)))
        for slot in placement:
            free[slot.node] -= 1
        jobs.append(job)
        held.append((job, Mode(gpus=2), placement))
        running.append(
            Running(job=job.id, mode=Mode(gpus=2), placement=placement, remaining_s=50.0)
        )
    waiting = [
        Job(id=f"w{i}", gpus=size, duration_s=100.0, profile=profiles[2 + i])
        for i, size in enumerate(sizes)
    ]
    world = VirtualWorld(Instance(cluster=cluster, jobs=(*jobs, *waiting), running=tuple(running)))
    world.advance()
    rule = DeepShareMyopic(DeepShareMyopic.Options())
    for job in waiting:
        rule._waiting[world.demand(job.id)] = [(((0.0, 0.0, 0.0, 0.0)), job.id)]
    found = rule._best(world)
    none = reward_of(cluster, held)
    values = [
        reward_of(cluster, [*held, (job, Mode(gpus=job.gpus), placement)]) - none
        for job in waiting
        for placement in every_placement(cluster, free, int(str(job.gpus)))
    ]
    if found is None:
        assert not values
    else:
        assert found[3] == pytest.approx(max(values), abs=1e-9)


def test_it_leaves_gpus_idle_rather_than_contend() -> None:
    """Uplinks hold one gang. Beside a gang that loses half, utilisation is worth less to it than
    contention costs."""
    nodes = tuple(Node(name=f"n{i}", gpus=2, rack=f"r{i}") for i in range(3))
    cluster = Cluster(
        nodes=nodes, rack_uplink_gbps=dict.fromkeys(("r0", "r1", "r2"), 10.0), uplinks="shared"
    )
    jobs = tuple(
        Job(id=name, gpus=3, duration_s=100.0, profile=Profile(network_gbps=10.0)) for name in "ab"
    )
    instance = Instance(cluster=cluster, jobs=jobs)

    def ends(contention: str) -> list[float]:
        rule = policy("deepshare-myopic", options={"contention": contention, "utilisation": "0.5"})
        return [entry.completion_s for entry in run(instance, rule).jobs]

    # one gang: 0.5 x 0.5; both: -w x 0.5 + 0.5 x 1
    assert ends("0.6") == pytest.approx([100.0, 200.0]) and ends("0.4") == pytest.approx(
        [200.0, 200.0]
    )


def test_more_weight_on_contention_declines_more() -> None:
    instance = congested(1)
    declined = []
    for weight in ("0", "0.7"):
        rule = policy("deepshare-myopic", options={"contention": weight, "utilisation": "0.3"})
        run(instance, rule)
        declined.append(rule.facts()["declined"])  # type: ignore[attr-defined]
    assert declined[0] == 0 < declined[1]
