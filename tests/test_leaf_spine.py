"""Links of leaves: flows and hashing by hand, one spine against the simulator, and the choice of
leaves and spines against enumeration."""

from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import leaf_spine
from benchmarks.leaf_spine import (
    Balanced,
    Hashed,
    OwnLinks,
    Pattern,
    Share,
    choose,
    flows,
    workload,
)
from optsched import Cluster, Instance, Job, Mode, Node, Profile
from optsched.plugins.registry import policy
from optsched.simulate.run import Simulation
from tests.plan_cases import place

NODES = tuple(Node(name=f"{leaf}{i}", gpus=1, rack=leaf) for leaf in "abc" for i in range(4))
CLUSTER = Cluster(nodes=NODES, rack_uplink_gbps=dict.fromkeys("abc", 100.0), uplinks="shared")


@pytest.mark.parametrize(
    ("names", "pattern", "found"),
    [
        ("a0 a1 b0", "ring", [("a1", "b0"), ("b0", "a0")]),
        ("a0 a1 b0 b1", "ring", [("a1", "b0"), ("b1", "a0")]),
        ("a0 a1 b0 b1", "halving", [("a0", "b0"), ("a1", "b1"), ("b0", "a0"), ("b1", "a1")]),
        ("a0 a1 a2 b0", "halving", [("a1", "b0"), ("b0", "a1")]),
        ("a0 a1", "halving", []),
    ],
)
def test_flows_between_leaves(names: str, pattern: Pattern, found: list[tuple[str, str]]) -> None:
    placement = place(*(f"{name}:1g0c" for name in names.split()))
    assert flows(CLUSTER, placement[::-1], pattern) == found


def test_own_flows_and_those_of_others_meet_on_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one spine for all, `first` has two flows on each of its links; `second` adds one where
    it leaves a."""
    monkeypatch.setattr(leaf_spine, "spine_of", lambda *_: 0)
    links = Hashed(CLUSTER, "halving", 4)
    profile = Profile(network_gbps=25.0, network_duty=0.5)
    job = Job(id="first", gpus=4, duration_s=1.0, profile=profile)
    own = links.loads(job, Mode(gpus=4), place("a0:1g0c", "a1:1g0c", "b0:1g0c", "b1:1g0c"))
    links.join(0, own)
    assert links.slowdown(0, profile) == 1 + 0.5 * (2 - 1)
    assert links.slowdown_with(profile, own, own) == 1.0  # who plans sees uplinks of 100
    pair = replace(job, id="second", gpus=2)
    links.join(1, links.loads(pair, Mode(gpus=2), place("a2:1g0c", "c0:1g0c")))
    assert links.slowdown(0, profile) == links.slowdown(1, profile) == 1 + 0.5 * (3 - 1)
    links.leave(0)
    assert links.slowdown(1, profile) == 1.0 and links.worst == {0: 2.0, 1: 2.0}
    assert links.loads(pair, Mode(gpus=2), place("a2:1g0c", "a3:1g0c")) == {}


def test_flows_are_routed_over_the_least_loaded_links() -> None:
    """Two flows leave a for b and two for c, each over a spine of its own."""
    links = Balanced(CLUSTER, "halving", 8)
    profile = Profile(network_gbps=25.0)
    jobs = [Job(id=str(i), gpus=4, duration_s=1.0, profile=profile) for i in range(2)]
    for i, names in enumerate(("a0 a1 b0 b1", "a2 a3 c0 c1")):
        placement = place(*(f"{name}:1g0c" for name in names.split()))
        links.join(i, links.loads(jobs[i], Mode(gpus=4), placement))
    assert links.slowdown(0, profile) == links.slowdown(1, profile) == 1.0
    ups = [channel for channel in (*links.on(0), *links.on(1)) if channel[1].startswith("a to ")]
    assert len(set(ups)) == len(ups) == 4


def test_one_spine_is_the_uplink_of_the_simulator() -> None:
    """Rings on one link for each leaf are gangs that share uplinks evenly."""
    wide = workload(1.0, 1)
    uplinks = dict.fromkeys(wide.cluster.rack_uplink_gbps, leaf_spine.GANG_GBPS)
    cluster = replace(wide.cluster, rack_uplink_gbps=uplinks)
    instance = replace(wide, cluster=cluster, jobs=wide.jobs[:40])
    rule = policy("backfill")
    hashed = leaf_spine.course(instance, rule, Hashed(cluster, "ring", 1))
    shared = leaf_spine.course(instance, policy("backfill"))
    assert hashed.jct_s == pytest.approx(shared.jct_s) and max(hashed.worst) > 1.0


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 7)), min_size=2, max_size=3),
    st.integers(1, 6),
    st.sampled_from(leaf_spine.PATTERNS),
    st.booleans(),
)
def test_the_choice_is_optimal(
    leaves: list[tuple[int, int]], more: int, pattern: Pattern, optical: bool
) -> None:
    """Against all leaves, all numbers of GPUs on them and all sets of spines."""
    free, links = [count for count, _ in leaves], [bits for _, bits in leaves]
    gpus = max(free) + more

    def holds(shares: dict[int, Share]) -> bool:
        sets = {share.spines for share in shares.values()}
        k = {share.spines.bit_count() for share in shares.values()}
        most = 1 if pattern == "ring" else max(share.gpus for share in shares.values())
        return (
            all(0 < share.gpus <= free[i] for i, share in shares.items())
            and sum(share.gpus for share in shares.values()) == gpus
            and all(share.spines & ~links[i] == 0 for i, share in shares.items())
            and (optical or len(sets) == 1)
            and len(k) == 1
            and min(k) >= most
        )

    def cost(shares: dict[int, Share]) -> tuple[int, int, int]:
        bits = max(share.spines.bit_count() for share in shares.values())
        return len(shares), sum(free[i] for i in shares) - gpus, bits

    best = None
    for size in range(2, len(free) + 1):
        for some in combinations(range(len(free)), size):
            ways = [
                [Share(n, bits) for n in range(1, free[i] + 1) for bits in range(1, 8)]
                for i in some
            ]
            for shares in product(*ways):
                found = dict(zip(some, shares, strict=True))
                if holds(found) and (best is None or cost(found) < best):
                    best = cost(found)
        if best is not None:
            break
    chosen = choose(free, links, gpus, pattern, optical=optical)
    if best is None:
        assert chosen is None
    else:
        assert chosen is not None and holds(chosen) and cost(chosen) == best


@pytest.mark.parametrize("optical", [False, True])
def test_links_belong_to_one_job(optical: bool) -> None:
    wide: Instance = workload(1.5, 1)
    instance = replace(wide, jobs=wide.jobs[:40])
    rule = OwnLinks("halving", leaf_spine.SPINES, optical=optical)
    simulation = Simulation(instance, rule)
    several = 0

    def apart() -> bool:
        nonlocal several
        held = [rule.held[name] for name in simulation.world.running if name in rule.held]
        several = max(several, len(held))
        for leaf in instance.cluster.rack_uplink_gbps:
            bits = [links.get(leaf, 0) for links in held]
            assert sum(each.bit_count() for each in bits) == sum(bits).bit_count()
        for name in simulation.world.running:
            slots = simulation.world.hold(name).placement
            racks = [instance.cluster.node[slot.node].rack or "" for slot in slots]
            if len(set(racks)) > 1 and instance.job[name].profile.network_gbps:
                most = max(racks.count(rack) for rack in racks)
                assert all(rule.held[name][rack].bit_count() >= most for rack in racks)
        return False

    simulation.run(until=apart)
    assert several > 1
