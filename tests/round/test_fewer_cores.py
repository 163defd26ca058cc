"""Options that only take fewer cores are left out of a round where cores cannot run short, and only
there."""

import pytest
from hypothesis import event, given, settings

import optsched.round.build as building
from optsched import Instance, Job, Profile
from optsched.objectives import parse
from optsched.round.build import build
from optsched.round.decide import decide
from tests.clusters import one_node

from .random_rounds import rounds

pytestmark = pytest.mark.usefixtures("in_one_tier")
WCT = parse("wct")


@settings(max_examples=60)
@given(rounds(most_jobs=6, most_nodes=4))
def test_the_best_round_is_as_good_without_them(instance: Instance) -> None:
    with pytest.MonkeyPatch.context() as patch:
        lean, best = (
            build(instance, WCT, 10.0),
            decide(instance, solver="highs", budget_s=60.0, gap=0.0),
        )
        patch.setattr(building, "_cores_to_spare", lambda *_: False)
        full, all_of_them = (
            build(instance, WCT, 10.0),
            decide(instance, solver="highs", budget_s=60.0, gap=0.0),
        )
    event(f"fewer options: {len(lean.options.value) < len(full.options.value)}")
    assert best.value == pytest.approx(all_of_them.value, rel=1e-6)


def levels(cpus: int, *jobs: Job) -> set[int]:
    """The cores per GPU among the options of a round."""
    model = build(Instance(cluster=one_node(gpus=4, cpus=cpus), jobs=jobs), WCT, 10.0)
    return {one.option.mode.cpus_per_gpu for one in model.patterns.fresh}


def test_they_stay_where_cores_can_run_short() -> None:
    job = Job(
        id="one", gpus=1, duration_s=9.0, profile=Profile(cpus_per_gpu={1: 0.5, 2: 0.9, 4: 1.0})
    )
    assert levels(16, job) == {4}
    assert levels(15, job) == {1, 2, 4}
    assert levels(16, job, Job(id="host", gpus=0, cpus=1, duration_s=9.0)) == {0, 1, 2, 4}
