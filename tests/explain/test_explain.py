"""Explanations: the numbers add up, they tell the truth about the round, and the sentences read as
they should."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optsched import Instance, Job, Node, Tenant
from optsched.errors import InputError
from optsched.explain import Explainer, Explanation, explain_inactive
from optsched.explain.many import explain_all
from optsched.files import load_instance, read_instance
from optsched.model.cluster import Cluster, Window
from optsched.objectives import parse
from optsched.round.build import build
from optsched.round.decide import decide
from optsched.round.model import RoundModel
from optsched.round.plan import RoundSolution
from tests.clusters import one_node
from tests.round.random_rounds import rounds

EXAMPLES = Path(__file__).parents[2] / "instances" / "examples"
RUNS = ("continue", "start", "resume", "migrate", "resize")


def decided(instance: Instance, objective: str = "wct") -> tuple[RoundModel, RoundSolution]:
    solution = decide(instance, objective, budget_s=20.0)
    model = build(instance, parse(solution.objective), solution.round_s, refill=solution.refill)
    return model, solution


def sentences(instance: Instance) -> list[str]:
    return [one.sentence for one in Explainer(*decided(instance)).jobs()]


def instance_of(text: str, **more: Any) -> Instance:
    return load_instance(
        json.dumps({"format": "optsched/1", **json.loads(text), **more}), now_only=True
    )


# ------------------------------------------------------------------------------------------------
# by hand


def test_preempt_or_continue_in_words() -> None:
    """A round is 300 s. Keeping `long` is worth 300 / (1000 - 20), `nearly-done` 300 / (180 - 20);
    starting one of the others 300 / (10 + 100 + 60), where 10 s are its start-up and 60 s what the
    preemption of the victim costs."""
    assert sentences(read_instance(EXAMPLES / "preempt-or-continue.json")) == [
        "long is preempted and makes way for short: to keep it was worth 0.3061, what it held "
        "costs 1.765 (GPUs of "
        "a100 x 1); this costs it 1 min (20 s to save, 10 s to start up, 30 s to restore).",
        "short starts with 1 a100 GPU on left: it is worth 1.765, what it takes costs 1.765 "
        "(GPUs of a100 x 1); long "
        "made way for it.",
        "nearly-done continues with 1 v100 GPU on right: it is worth 1.875, what it holds costs "
        "1.765 (GPUs of "
        "v100 x 1); it would leave if it were worth 0.1103 less, or what it holds cost so much "
        "more.",
        "patient waits for GPUs of v100 x 1: with 1 v100 GPU it would be worth 1.765, that costs "
        "1.765 (GPUs of "
        "v100 x 1); nearly-done would have to be preempted for it, which loses 1.875 of value "
        "and 1 min of pauses.",
    ]


FRAGMENTS = """{
  "cluster": {"nodes": [{"name": "n[0-1]", "gpu_type": "a", "gpus": 4, "cpus": 8}]},
  "jobs": [
    {"id": "left", "duration_s": 900, "preemptible": false, "profile": {"cpus_per_gpu": {"5": 1}}},
    {"id": "right", "duration_s": 900, "preemptible": false, "profile": {"cpus_per_gpu": {"5": 1}}},
    {"id": "hungry", "duration_s": 100, "profile": {"cpus_per_gpu": {"4": 1}}},
    {"id": "modest", "duration_s": 100, "profile": {"cpus_per_gpu": {"2": 1}}}
  ],
  "running": [
    {"job": "left", "mode": {"gpu_type": "a", "gpus": 1, "cpus_per_gpu": 5},
     "placement": [{"node": "n0", "gpus": 1, "cpus": 5}], "started_s": -900, "remaining_s": 600},
    {"job": "right", "mode": {"gpu_type": "a", "gpus": 1, "cpus_per_gpu": 5},
     "placement": [{"node": "n1", "gpus": 1, "cpus": 5}], "started_s": -900, "remaining_s": 600}
  ]
}"""


def test_priorities_in_words() -> None:
    """Prices say nothing of who goes first by priority."""
    instance = instance_of(
        """{"cluster": {"nodes": [{"name": "n0", "gpus": 4}]}, "jobs": [
            {"id": "low", "gpus": 4, "duration_s": 1000},
            {"id": "low2", "gpus": 4, "duration_s": 1},
            {"id": "high", "gpus": 4, "duration_s": 100000, "priority": 5},
            {"id": "high2", "gpus": 4, "duration_s": 900000, "priority": 5}],
        "running": [{"job": "low", "mode": {"gpus": 4}, "placement": [{"node": "n0", "gpus": 4}],
            "remaining_s": 500}]}"""
    )
    assert sentences(instance) == [
        "low is preempted and makes way for high, of a higher priority; this costs it nothing.",
        "low2 waits: 1 job of a higher priority has what it could use.",
        "high starts with 4 GPUs on n0; low made way for it.",
        "high2 waits: other jobs of its priority are worth more.",
    ]


MEMORY = """{
  "cluster": {"nodes": [
    {"name": "n0", "gpus": 2, "memory_gib": 16}, {"name": "n1", "gpus": 2, "gpu_memory_gib": 15}
  ]},
  "jobs": [
    {"id": "cache", "gpus": 2, "duration_s": 900, "profile": {
      "memory_gib_per_gpu": 16, "memory_rates": {"8": 0.7}, "cpus_per_gpu": {"4": 1},
      "gpu_memory_gib": 40}},
    {"id": "batch", "gpus": 2, "duration_s": 900, "profile": {
      "memory_gib_per_gpu": 20, "gpu_memory_gib": 20, "gpu_memory_rates": {"12.5": 0.8}}}
  ]
}"""


def test_less_memory_in_words() -> None:
    said = [one.split(":")[0] for one in sentences(instance_of(MEMORY))]
    assert said == [
        "cache starts with 2 GPUs with 4 cores and only 8 GiB of memory each on n0",
        "batch starts with 2 GPUs with only 12.5 GiB of GPU memory each on n1",
    ]


def test_fragmentation_in_words() -> None:
    """Six cores are free, three on each node: enough for `hungry` and `modest` by the rows, and not
    on any node for `hungry`, whichever way `modest` is put."""
    model, solution = decided(instance_of(FRAGMENTS))
    found = Explainer(model, solution).job("hungry")
    assert found.blocked and found.best is not None and found.best.reduced > 0
    assert [one.sentence for one in Explainer(model, solution).jobs()] == [
        "left continues with 1 a GPU with 5 cores each on n0 because it is not preemptible.",
        "right continues with 1 a GPU with 5 cores each on n1 because it is not preemptible.",
        "hungry waits for 1 GPU on one node of a x 4 with what goes with it (room for 0, 5 free "
        "in all): with 1 a GPU "
        "with 4 cores each it would be worth 3, more than the 0 that costs, but it does not fit; "
        "the jobs that may be preempted "
        "hold too little for it.",
        "modest starts with 1 a GPU with 2 cores each on n0: it is worth 3, what it takes costs "
        "nothing.",
    ]


QUOTA = """{
  "now_s": 100,
  "cluster": {"nodes": [{"name": "n", "gpu_type": "a", "gpus": 8}]},
  "tenants": [{"name": "red", "gpu_quota": 2}],
  "jobs": [
    {"id": "first", "tenant": "red", "duration_s": 60},
    {"id": "second", "tenant": "red", "duration_s": 100},
    {"id": "third", "tenant": "red", "duration_s": 100},
    {"id": "other", "gpus": 4, "duration_s": 300},
    {"id": "tomorrow", "submit_s": 86500, "duration_s": 60},
    {"id": "after", "after": ["other", "giant"], "duration_s": 60},
    {"id": "giant", "gpus": 16, "duration_s": 60}
  ]
}"""


def test_quota_later_and_never_in_words() -> None:
    """The quota of two GPUs goes to `first`, worth 5, and one of the two that are worth 3: so 3 is
    its price."""
    assert sentences(instance_of(QUOTA)) == [
        "first starts with 1 a GPU on n: it is worth 5, what it takes costs 3 (quota of tenant "
        "red).",
        "second starts with 1 a GPU on n: it is worth 3, what it takes costs 3 (quota of tenant "
        "red).",
        "third waits for quota of tenant red: with 1 a GPU it would be worth 3, that costs 3 "
        "(quota of tenant red); "
        "second would have to wait for it, which loses 3 of value.",
        "other starts with 4 a GPUs on n: it is worth 1, what it takes costs nothing.",
        "tomorrow is not released for another 1 d.",
        "after waits for other and giant to complete, and giant can never run.",
        "giant can never run: it needs 16 GPUs of one type, the cluster has at most 8.",
    ]


def test_who_would_borrow_beyond_what_a_window_leaves_is_told_that_limit() -> None:
    """Of a quota of 4 GPUs, and 4 that may be borrowed, a window leaves 5 in all."""
    night = Window(from_s=0.0, to_s=9e3, name="night", quotas={"t": 5})
    sizes = {"a": 3, "b": 2, "c": 3}
    instance = Instance(
        cluster=Cluster(nodes=(Node(name="n0", gpus=8),), windows=(night,)),
        tenants=(Tenant(name="t", gpu_quota=4, borrow_gpus=4), Tenant(name="u", gpu_quota=4)),
        jobs=tuple(
            Job(id=name, gpus=gpus, duration_s=500.0 + gpus, tenant="t")
            for name, gpus in sizes.items()
        ),
    )
    solution = decide(instance)
    _, _, last = explain_all(instance, [*sizes], lambda: solution)
    assert last.sentence == "c waits: tenant t may hold 5 GPUs while night lasts and holds 5."


def test_jobs_that_no_round_decides_are_explained_without_one() -> None:
    instance = instance_of(QUOTA)
    states = {job.id: explain_inactive(instance, job.id) for job in instance.jobs}
    assert {name: one.state for name, one in states.items() if one is not None} == {
        "tomorrow": "later",
        "after": "later",
        "giant": "never",
    }
    later = states["after"]
    assert later is not None and later.waits_for == ("other", "giant")


def test_what_a_preemption_would_cost_is_told() -> None:
    """Periodic checkpoints: 70 s since the last one are lost, nothing is held to save."""
    instance = instance_of("""{
      "cluster": {"nodes": [{"name": "n", "gpu_type": "a", "gpus": 1}]},
      "jobs": [{"id": "old", "duration_s": 900, "profile":
                 {"checkpoint_every_s": 100, "checkpoint_s": 9, "restore_s": 7, "startup_s": 5}},
               {"id": "new", "duration_s": 600}],
      "running": [{"job": "old", "mode": {"gpu_type": "a", "gpus": 1}, "placement": [{"node": "n", "gpus": 1}],
                   "started_s": -500, "last_checkpoint_s": -70, "remaining_s": 400}]}""")  # noqa: E501
    found = Explainer(*decided(instance)).job("new")
    assert found.state == "wait" and found.swap is not None
    [victim] = found.swap.leavers
    assert (victim.id, victim.save_s, victim.startup_s, victim.restore_s, victim.lost_s) == (
        "old",
        0,
        5,
        7,
        70,
    )
    assert victim.overhead_s == 82
    assert found.sentence.endswith(
        "old would have to be preempted for it, which loses 0.75 of value and 1 min 22 s of pauses."
    )


def test_the_cheapest_set_of_victims_of_a_gang() -> None:
    """On n0 two jobs of 2 GPUs are worth 0.3 each, on n1 one of 4 GPUs is worth 0.5."""

    def entry(name: str, node: str, gpus: int) -> dict[str, Any]:
        return {
            "job": name,
            "mode": {"gpu_type": "a", "gpus": gpus},
            "placement": [{"node": node, "gpus": gpus}],
            "started_s": -900,
            "remaining_s": {"b0": 600, "b1": 1000, "b2": 1000}[name],
        }

    instance = instance_of(
        """{"cluster": {"nodes": [{"name": "n[0-1]", "gpu_type": "a", "gpus": 4}]}}""",
        jobs=[
            {"id": "b0", "gpus": 4, "duration_s": 1500},
            {"id": "b1", "gpus": 2, "duration_s": 1500},
            {"id": "b2", "gpus": 2, "duration_s": 1500},
            {
                "id": "gang",
                "gpus": 4,
                "duration_s": 3000,
                "profile": {"locality": {"node": 1, "rack": 0}},
            },
        ],
        running=[entry("b0", "n1", 4), entry("b1", "n0", 2), entry("b2", "n0", 2)],
    )
    swap = Explainer(*decided(instance)).job("gang").swap
    assert swap is not None
    assert ([one.id for one in swap.leavers], swap.nodes) == (["b0"], ("n1",))
    assert (swap.value_lost, swap.value_gained) == (pytest.approx(0.5), pytest.approx(0.1))


def test_unknown_jobs_and_rounds_of_other_instances_are_refused() -> None:
    model, solution = decided(read_instance(EXAMPLES / "preempt-or-continue.json"))
    with pytest.raises(InputError, match="job 'nobody' is not in the instance"):
        Explainer(model, solution).job("nobody")
    other = Instance(cluster=one_node(gpus=2), jobs=(Job(id="j", duration_s=1.0),))
    with pytest.raises(InputError, match="made for another instance"):
        Explainer(decided(other)[0], solution)


# ------------------------------------------------------------------------------------------------
# at random


def check_numbers(one: Explanation) -> None:
    for option in (one.chosen, one.best, one.keep):
        if option is None:
            continue
        assert option.reduced == option.value - option.price
        assert sum(row.amount * row.price for row in option.rows) == pytest.approx(option.price)
        assert sum(row.share for row in option.rows) == pytest.approx(1.0 if option.rows else 0.0)
        assert option.price == 0 or all(row.price > 0 for row in option.rows)
    if one.best is not None and one.chosen is not None:
        assert one.best.reduced >= one.chosen.reduced
    if one.swap is not None:
        assert one.swap.value_lost == pytest.approx(
            sum(leaver.value for leaver in one.swap.leavers)
        )


@given(rounds(), st.sampled_from(["wct", "tardiness", "maxmin", "ftf", "energy", "deadline,wct"]))
@settings(max_examples=60)
def test_explanations_of_random_rounds_add_up_and_are_true(
    instance: Instance, objective: str
) -> None:
    # A fresh start where a job is setting up already may be shorter, but as a decision it is to
    # continue.
    instance = replace(
        instance, running=tuple(replace(entry, setup_s=0.0) for entry in instance.running)
    )
    model, solution = decided(instance, objective)
    explainer = Explainer(model, solution)
    found = explainer.jobs()
    assert all(one.sentence.endswith(".") for one in found)
    assume(not solution.tiers)  # prices and sums are those of a round in one piece
    assert [one.id for one in found] == [job.id for job in instance.jobs]
    total = 0.0
    for one in found:
        assert (
            one.sentence.startswith(f"{one.id} ")
            and one.sentence.endswith(".")
            and len(one.sentence) > 20
        )
        check_numbers(one)
        assert one.state in ("never", "later") or one.best is not None
        if one.state in RUNS:
            assert one.chosen is not None
            total += one.chosen.value
        if one.state == "continue":
            assert one.margin == (one.chosen.reduced if one.chosen else None)
        if one.must_stay is not None:
            assert one.state == "continue"
        if one.state != "wait":
            continue
        assert one.best is not None
        scale = max(one.best.value, one.best.price)
        if one.blocked:
            assert one.best.reduced > 0 and one.waits_for, "what is not there is named"
        else:
            assert one.best.reduced <= 1e-4 * scale
            assert one.best.value <= 0 or one.waits_for
        if one.swap is not None and solution.status == "optimal":
            assert one.swap.leavers or one.swap.value_gained == 0, "it would fit"
            assert one.swap.value_gained <= one.swap.value_lost + 1e-6 * max(1.0, solution.value), (
                "a better round"
            )
    assert total == pytest.approx(solution.value)
