"""Shares: use that decays, Slurm's numbers for it, and that it ends up where the weights say."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched import Instance, Job, Tenant
from optsched.driver import shares as rule
from optsched.driver.fair_tree import Branch, rank, tree
from optsched.driver.shares import DecayedUse, factors, weighed
from optsched.errors import InputError
from optsched.files import check_instance, dump_instance, load_instance
from optsched.model.shares import Shares, Use
from optsched.objectives import parse
from optsched.plugins import registry
from optsched.round.decide import decide
from optsched.simulate.run import Simulation
from optsched.simulate.virtual import VirtualWorld
from tests.clusters import one_node

TENANTS = (
    Tenant(name="vision", weight=3),
    Tenant(name="detect", parent="vision", weight=2),
    Tenant(name="track", parent="vision", weight=1),
    Tenant(name="language", weight=1),
)


def used(**gpu_s: float) -> tuple[Use, ...]:
    names = (name.partition("_") for name in gpu_s)
    return tuple(
        Use(tenant=tenant, user=user, gpu_s=amount)
        for (tenant, _, user), amount in zip(names, gpu_s.values(), strict=True)
    )


def by_name(root: Branch) -> dict[str, Branch]:
    found: dict[str, Branch] = {}

    def walk(branch: Branch) -> None:
        for child in branch.children:
            found[f"{child.tenant}_{child.user}" if child.is_user else str(child.tenant)] = child
            walk(child)

    walk(root)
    return found


def test_the_fair_tree_by_hand() -> None:
    root = tree(TENANTS, used(detect_ann=600.0, detect_bob=200.0, track_cy=0.0, language_dan=200.0))
    rank(root)
    at = by_name(root)
    assert at["vision"].share == 0.75 and at["vision"].effective == 0.8
    assert at["detect"].share == pytest.approx(2 / 3) and at["detect"].effective == 1.0
    assert at["language"].level_fs == pytest.approx(0.25 / 0.2)
    assert at["track"].level_fs == math.inf and at["track_cy"].level_fs == math.inf
    # language before vision (1.25 against 0.94), below vision track before detect, there bob first
    order = ["language_dan", "track_cy", "detect_bob", "detect_ann"]
    assert [at[name].fair_share for name in order] == [1.0, 0.75, 0.5, 0.25]


def test_equal_users_share_a_rank_and_the_next_is_as_far_down_as_without_the_tie() -> None:
    root = tree((Tenant(name="a"),), used(a_x=5.0, a_y=5.0, a_z=6.0))
    rank(root)
    at = by_name(root)
    assert [at[f"a_{user}"].fair_share for user in "xyz"] == [1.0, 1.0, pytest.approx(1 / 3)]


stays = st.lists(
    st.tuples(st.integers(1, 8), st.floats(0, 1e6), st.floats(0, 1e5)), min_size=1, max_size=20
)


@given(stays, st.floats(60, 1e6), st.floats(0, 1e6))
def test_decayed_use_is_the_integral(
    held: list[tuple[int, float, float]], half_life_s: float, later_s: float
) -> None:
    now_s = max(begin + length for _, begin, length in held) + later_s
    ledger = DecayedUse(half_life_s)
    for gpus, begin, length in sorted(held, key=lambda stay: stay[1] + stay[2]):
        ledger.hold(("t", "u"), gpus, begin, begin + length)
    exact = math.fsum(
        gpus
        * half_life_s
        / math.log(2)
        * 2 ** ((begin + length - now_s) / half_life_s)
        * -math.expm1(-math.log(2) * length / half_life_s)
        for gpus, begin, length in held
    )
    total = math.fsum(use.gpu_s for use in ledger.at(now_s))
    assert total == pytest.approx(exact, rel=1e-9, abs=1e-5)
    again = DecayedUse(half_life_s, ledger.at(now_s), now_s)
    assert math.fsum(use.gpu_s for use in again.at(now_s + half_life_s)) == pytest.approx(
        exact / 2, rel=1e-9, abs=1e-5
    )


def test_a_clock_that_was_ahead_for_a_while_does_not_charge_for_ever() -> None:
    ledger = DecayedUse(100.0)
    ledger.hold(("t", "u"), 8, 0.0, 1e9)
    ledger.hold(("t", "u"), 8, 500.0, 600.0)
    use = ledger.at(2600.0)
    assert sum(own.gpu_s for own in use) < 2.0**-20 * 8 * 1000


def test_who_is_still_holding_is_charged_too() -> None:
    ledger = DecayedUse(100.0)
    assert ledger.at(50.0, [(("t", "u"), 2, 0.0)]) == (
        Use(tenant="t", user="u", gpu_s=pytest.approx(200 / math.log(2) * (1 - 2**-0.5))),
    )
    assert ledger.at(50.0) == ()


def test_factors_follow_use_among_those_who_want_something() -> None:
    shares = Shares(half_life_s=1000.0, used=used(detect_ann=5e5, track_cy=5e5, language_dan=1e6))
    factor = factors(TENANTS, shares, 8, [("detect", "ann"), ("language", "dan")])
    # vision has used 1/2 and is entitled to 3/4; inside it only detect wants anything
    assert factor["detect", "ann"] > 1 > factor["language", "dan"]
    both = factors(TENANTS, shares, 8, [("detect", "ann"), ("track", "cy"), ("language", "dan")])
    assert both["detect", "ann"] > factor["detect", "ann"] > both["track", "cy"]
    alone = factors(TENANTS, shares, 8, [("track", "cy")])
    assert alone == {("track", "cy"): 1.0}
    fresh = factors(TENANTS, Shares(half_life_s=1000.0), 8, [("detect", "x"), ("language", "y")])
    assert set(fresh.values()) == {1.0}


@given(
    st.lists(st.floats(0, 1e18), min_size=4, max_size=4),
    st.lists(st.sampled_from([0.0, 1e-9, 1.0, 1e9]), min_size=4, max_size=4),
    st.floats(60, 1e10),
)
def test_factors_are_bounded_whatever_was_used(
    amounts: list[float], weights: list[float], half_life_s: float
) -> None:
    tenants = tuple(
        replace(tenant, weight=weight) for tenant, weight in zip(TENANTS, weights, strict=True)
    )
    uses = used(
        **dict(zip(("detect_a", "track_b", "language_c", "vision_d"), amounts, strict=True))
    )
    shares = Shares(half_life_s=half_life_s, used=uses)
    accounts = [(use.tenant, use.user) for use in uses]
    for factor in factors(tenants, shares, 1000, accounts).values():
        assert rule.LARGEST**-3 * 0.9 <= factor <= rule.LARGEST**3 * 1.1


def instance(half_life_s: float | None = 7200.0, jobs: int = 120) -> Instance:
    """Two tenants that could each fill the cluster for ever, entitled to 3/4 and 1/4."""
    return Instance(
        cluster=one_node(gpus=8),
        tenants=(Tenant(name="large", weight=3), Tenant(name="small", weight=1)),
        shares=None if half_life_s is None else Shares(half_life_s=half_life_s),
        jobs=tuple(
            Job(id=f"{name}-{k}", gpus=1, duration_s=1000.0 + 10 * k, tenant=name, user=name)
            for name in ("large", "small")
            for k in range(jobs)
        ),
    )


def simulated(given: Instance, until_s: float) -> VirtualWorld:
    simulation = Simulation(given, registry.policy("optsched", parse("wct"), {}))
    simulation.run(until=lambda: simulation.world.now_s >= until_s)
    return simulation.world


def held_share(world: VirtualWorld, half_life_s: float) -> float:
    ledger = DecayedUse(half_life_s)
    for job, gpus, begin_s, end_s in world.rows.held_since(0):
        ledger.hold((world.instance.jobs[job].tenant, None), gpus, begin_s, end_s)
    use = {use.tenant: use.gpu_s for use in ledger.at(world.now_s)}
    return use["large"] / sum(use.values())


def test_use_goes_to_what_the_weights_say() -> None:
    with_shares = simulated(instance(), 24_000.0)
    without = simulated(instance(None), 24_000.0)
    assert held_share(with_shares, 7200.0) == pytest.approx(0.75, abs=0.02)
    assert held_share(without, 7200.0) == pytest.approx(0.5, abs=0.05)
    mine = {use.tenant: use.gpu_s for use in with_shares.used()}
    assert mine["large"] / sum(mine.values()) == pytest.approx(0.75, abs=0.02)


@pytest.mark.parametrize(
    ("flood_s", "late_s", "off"), [(600.0, 600.0, 0.06), (300.0, 3000.0, 0.25)]
)
def test_who_floods_a_tenant_takes_nothing_from_its_other_user(
    flood_s: float, late_s: float, off: float
) -> None:
    """Half is due to each, also where the jobs that flood it are far shorter and would else all go
    first."""
    days = [
        ("flood", 0.0, flood_s, int(80_000 / flood_s)),
        ("late", 6000.0, late_s, int(30_000 / late_s)),
    ]
    given = Instance(
        cluster=one_node(gpus=4),
        tenants=(Tenant(name="t"),),
        shares=Shares(half_life_s=2400.0),
        jobs=tuple(
            Job(id=f"{user}-{k}", duration_s=work_s, submit_s=at_s, tenant="t", user=user)
            for user, at_s, work_s, jobs in days
            for k in range(jobs)
        ),
    )
    gpu_s = {use.user: use.gpu_s for use in simulated(given, 11_400.0).used()}
    assert gpu_s["late"] / sum(gpu_s.values()) == pytest.approx(0.5, abs=off)


def test_without_shares_nothing_changes_and_tenants_alone_change_nothing() -> None:
    plain = replace(instance(None, 20), tenants=tuple(Tenant(name=n) for n in ("large", "small")))
    weights = [simulated(given, 1e9).rows.record(given) for given in (plain, instance(None, 20))]
    assert weights[0].start_s.tolist() == weights[1].start_s.tolist()


def test_a_round_on_a_file_weighs_as_one_on_the_weighed_instance() -> None:
    given = replace(
        instance(jobs=6),
        shares=Shares(half_life_s=7200.0, used=used(large_large=5e5, small_small=1e3)),
    )
    started = {entry.id for entry in decide(given, budget_s=60.0).jobs if entry.mode is not None}
    assert {name for name in started if name.startswith("small")} == {
        f"small-{k}" for k in range(6)
    }
    assert decide(weighed(given), budget_s=60.0).value == decide(given, budget_s=60.0).value
    assert weighed(weighed(given)) == weighed(given)


def test_files_keep_tree_and_use_and_say_what_is_wrong() -> None:
    given = replace(
        instance(jobs=1), shares=Shares(half_life_s=86400.0, used=used(large_large=1.5, small_x=2))
    )
    assert load_instance(dump_instance(given)) == given
    wrong = replace(
        given,
        tenants=(
            Tenant(name="large", parent="smal"),
            Tenant(name="small", parent="low"),
            Tenant(name="low", parent="small"),
        ),
        shares=Shares(half_life_s=86400.0, used=used(gone_x=1.0)),
    )
    with pytest.raises(InputError) as refused:
        check_instance(wrong)
    said = str(refused.value)
    assert "its parent 'smal' is not in tenants" in said and "small is below itself" in said
    assert "tenant 'gone' is not in tenants" in said
