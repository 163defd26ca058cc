"""Under wct a round preempts exactly when the swap rule of two jobs says so (docs/mathematics.md,
"The round")."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Mode, Node, Profile, Running, Slot, Suspended
from optsched.round.decide import decide

LONG_AGO_S = -1e6
SOLVERS = ("price", "highs", "milp")
EXAMPLES = {"price": 50, "highs": 25, "milp": 10}


@dataclass(frozen=True)
class Swap:
    """Seconds of the victim r and of the waiter w; `load_w` is what w pays before it works."""

    rem_r: int
    rem_w: int
    save_r: int
    startup_r: int
    restore_r: int
    startup_w: int
    restore_w: int
    suspended: bool
    weight_r: int
    weight_w: int
    waiter_first: bool

    @property
    def load_w(self) -> int:
        return self.startup_w + (self.restore_w if self.suspended else 0)

    @property
    def pays(self) -> bool:
        """w_w (rem_r - save_r) > n w_r (save_r + load_w + rem_w + load_r) for one victim."""
        return self.pays_for(1)

    def pays_for(self, victims: int) -> bool:
        load_r = self.startup_r + self.restore_r
        gain = self.weight_w * (self.rem_r - self.save_r)
        return gain > victims * self.weight_r * (self.save_r + self.load_w + self.rem_w + load_r)


@st.composite
def swaps(draw: Any, victims: int = 1, weighted: bool = True) -> Swap:
    """Often on the very edge of the rule, where it turns."""
    seconds = st.one_of(st.integers(0, 9), st.integers(0, 900))
    save_r, startup_r, restore_r, startup_w, restore_w = (draw(seconds) for _ in range(5))
    rem_w = draw(st.integers(1, 5000))
    weight_r, weight_w = (draw(st.integers(1, 4)) for _ in range(2)) if weighted else (1, 1)
    suspended = draw(st.booleans())
    cost = save_r + startup_w + suspended * restore_w + rem_w + startup_r + restore_r
    edge = save_r + victims * weight_r * cost // weight_w
    rem_r = draw(
        st.one_of(st.integers(-2, 2).map(lambda d: max(1, edge + d)), st.integers(1, 20_000))
    )
    return Swap(
        rem_r,
        rem_w,
        save_r,
        startup_r,
        restore_r,
        startup_w,
        restore_w,
        suspended,
        weight_r,
        weight_w,
        draw(st.booleans()),
    )


def round_of(
    swap: Swap, nodes: tuple[int, ...], victims: tuple[tuple[Slot, ...], ...], waiter_gpus: int
) -> Instance:
    """Victims that are alike on all nodes, and a waiter."""
    shape_r = Profile(checkpoint_s=swap.save_r, startup_s=swap.startup_r, restore_s=swap.restore_r)
    shape_w = Profile(checkpoint_s=3.0, startup_s=swap.startup_w, restore_s=swap.restore_w)
    running = tuple(
        Running(
            job=f"r{i}",
            mode=Mode(gpu_type="a", gpus=sum(slot.gpus for slot in placement)),
            placement=placement,
            started_s=LONG_AGO_S,
            remaining_s=swap.rem_r,
        )
        for i, placement in enumerate(victims)
    )
    jobs = [
        Job(
            id=entry.job,
            submit_s=LONG_AGO_S,
            gpus=entry.mode.gpus,
            duration_s=swap.rem_r,
            weight=swap.weight_r,
            profile=shape_r,
        )
        for entry in running
    ]
    waiter = Job(
        id="w",
        submit_s=LONG_AGO_S,
        gpus=waiter_gpus,
        duration_s=swap.rem_w,
        weight=swap.weight_w,
        profile=shape_w,
    )
    return Instance(
        cluster=Cluster(
            nodes=tuple(Node(name=f"n{i}", gpu_type="a", gpus=gpus) for i, gpus in enumerate(nodes))
        ),
        jobs=(waiter, *jobs) if swap.waiter_first else (*jobs, waiter),
        running=running,
        suspended=(Suspended(job="w", remaining_s=swap.rem_w),) if swap.suspended else (),
    )


def decisions(instance: Instance, solver: str, **kept: Any) -> dict[str, str]:
    found = decide(instance, "wct", solver=solver, budget_s=60.0, gap=0.0, **kept)
    assert found.fallback is None
    return {entry.id: entry.decision for entry in found.jobs}


def expected(instance: Instance, preempt: bool, suspended: bool) -> dict[str, str]:
    run = "resume" if suspended else "start"
    return {
        job.id: (run if preempt else "wait")
        if job.id == "w"
        else ("preempt" if preempt else "continue")
        for job in instance.jobs
    }


@pytest.mark.parametrize("solver", SOLVERS)
def test_one_victim_is_preempted_exactly_when_its_remaining_work_is_longer_by_all_that_the_swap_costs(  # noqa: E501
    solver: str,
) -> None:
    @settings(max_examples=EXAMPLES[solver])
    @given(swaps(weighted=False))
    def check(swap: Swap) -> None:
        instance = round_of(swap, (4,), ((Slot(node="n0", gpus=4),),), 4)
        costs = 2 * swap.save_r + swap.load_w + swap.startup_r + swap.restore_r
        preempt = swap.rem_r - swap.rem_w > costs
        assert preempt == swap.pays
        assert decisions(instance, solver) == expected(instance, preempt, swap.suspended)

    check()


@pytest.mark.parametrize("solver", SOLVERS)
def test_weights_count(solver: str) -> None:
    @settings(max_examples=EXAMPLES[solver])
    @given(swaps(), st.integers(1, 4))
    def check(swap: Swap, waiter_gpus: int) -> None:
        instance = round_of(swap, (4,), ((Slot(node="n0", gpus=4),),), waiter_gpus)
        assert decisions(instance, solver) == expected(instance, swap.pays, swap.suspended)

    check()


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_gang_that_needs_several_victims_pays_for_all_of_them(solver: str) -> None:
    @settings(max_examples=EXAMPLES[solver])
    @given(
        st.integers(2, 8).flatmap(lambda n: st.tuples(st.just(n), swaps(victims=n))),
        st.integers(1, 2),
        st.booleans(),
    )
    def check(case: tuple[int, Swap], gpus: int, one_node: bool) -> None:
        victims, swap = case
        nodes = (victims * gpus,) if one_node else (gpus,) * victims
        places = tuple(
            (Slot(node="n0" if one_node else f"n{i}", gpus=gpus),) for i in range(victims)
        )
        instance = round_of(swap, nodes, places, victims * gpus)
        assert decisions(instance, solver) == expected(
            instance, swap.pays_for(victims), swap.suspended
        )

    check()


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_place_that_is_kept_for_a_gang_holds_off_others_and_not_the_gang(solver: str) -> None:
    @settings(max_examples=EXAMPLES[solver])
    @given(swaps(victims=2))
    def check(swap: Swap) -> None:
        places = tuple((Slot(node=f"n{i}", gpus=2),) for i in range(2))
        instance = round_of(swap, (2, 2), places, 4)
        reserved = (((*places[0], *places[1]), 0.0),)
        of_gang = decisions(instance, solver, reserved=reserved, reserved_for="w")
        assert of_gang == expected(instance, swap.pays_for(2), swap.suspended)
        of_other = decisions(instance, solver, reserved=reserved, reserved_for="another")
        assert of_other == expected(instance, False, swap.suspended)

    check()


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_gang_against_a_gang_is_one_against_one(solver: str) -> None:
    @settings(max_examples=EXAMPLES[solver])
    @given(swaps(), st.integers(2, 4))
    def check(swap: Swap, count: int) -> None:
        places = (tuple(Slot(node=f"n{i}", gpus=2) for i in range(count)),)
        instance = round_of(swap, (2,) * count, places, 2 * count)
        assert decisions(instance, solver) == expected(instance, swap.pays, swap.suspended)

    check()


@pytest.mark.parametrize("solver", SOLVERS)
def test_who_could_run_at_once_on_slower_gpus_takes_the_faster_ones_only_for_more_than_the_victim_loses(  # noqa: E501
    solver: str,
) -> None:
    """The waiter gains T' - T seconds by them, the victim loses T; a waiter that would not be done
    on the slower ones before the victim is, gains less."""

    @settings(max_examples=EXAMPLES[solver])
    @given(swaps(), st.integers(1, 19))
    def check(swap: Swap, tenths: int) -> None:
        rate = tenths / 20
        instance = round_of(swap, (4,), ((Slot(node="n0", gpus=4),),), 4)
        slow = Node(name="slow", gpu_type="b", gpus=4)
        waiter, victim = sorted(instance.jobs, key=lambda job: job.id != "w")
        profiles = {
            "w": replace(waiter.profile, rate={"a": 1.0, "b": rate}),
            "r0": replace(victim.profile, rate={"a": 1.0}),
        }
        instance = replace(
            instance,
            cluster=Cluster(nodes=(*instance.cluster.nodes, slow), reference_gpu="a"),
            jobs=tuple(replace(job, profile=profiles[job.id]) for job in instance.jobs),
        )
        stay_s = swap.rem_r - swap.save_r
        load_r = swap.startup_r + swap.restore_r
        fast_s = swap.load_w + swap.rem_w + swap.save_r + load_r
        slow_s = swap.load_w + swap.rem_w / rate
        if stay_s <= 0:
            return
        gained_s = min(1.0, stay_s / slow_s) * (slow_s - fast_s)
        if abs(swap.weight_w * gained_s - swap.weight_r * fast_s) < 1e-6 * fast_s:
            return
        preempt = swap.weight_w * gained_s > swap.weight_r * fast_s
        assert decisions(instance, solver)["r0"] == ("preempt" if preempt else "continue")
        assert decisions(instance, solver)["w"] == ("resume" if swap.suspended else "start")

    check()
