"""The check finds every kind of fault, and none in what the engine makes."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched.model.instance import Instance
from optsched.packing.arrivals import arrivals
from optsched.packing.engine import pack
from optsched.packing.problem import problem
from optsched.packing.result import placements
from optsched.packing.rules import RULES, rule
from optsched.packing.verify import Placement, violations
from tests.packing.cases import instance, instances, job, node

SMALL = instance(
    [node("n", 2, 8, 16.0, "a"), node("m", 1, 8, 16.0, "b")],
    [
        job("half", 1, 0.5),
        job("most", 1, 0.6),
        job("pair", 2),
        job("cores", 1, cpus=8),
        job("memory", 1, gib=16),
        job("only-b", 1, types="b"),
        job("host", 0, cpus=4),
    ],
)


@settings(max_examples=80)
@given(
    instances(most_jobs=9), st.sampled_from(sorted(RULES)), st.floats(0.5, 2.5), st.integers(0, 3)
)
def test_nothing_is_wrong_with_what_rules_do(
    found: Instance, name: str, load: float, seed: int
) -> None:
    asked = problem(found)
    packed = pack(asked, arrivals(asked, load, seed), rule(name)(asked, seed), seed)
    assert violations(found, placements(asked, packed)) == []


@pytest.mark.parametrize(
    ("done", "says"),
    [
        ([("half", "n", (0,)), ("most", "n", (0,))], "takes 0.6 of GPU 0, 0.5 is left"),
        ([("pair", "n", (0, 0))], "sits on 1 GPUs, asks for 2"),
        ([("pair", "n", (0, 1)), ("half", "n", (1,))], "0 is left"),
        ([("half", "n", (2,))], "the node has 2"),
        ([("half", "n", ())], "asks for 1"),
        ([("host", "n", (0,))], "asks for 0"),
        ([("cores", "n", (0,)), ("host", "n", ())], "takes 4 cores, 0 are left"),
        ([("memory", "n", (0,)), ("memory", "n", (1,))], "KiB of memory, 0 are left"),
        ([("only-b", "n", (0,))], "may not use GPUs of type a"),
        ([("half", None, ())], "failed, but fitted on n"),
        ([("pair", "n", (0, 1)), ("only-b", None, ())], "failed, but fitted on m"),
        ([("nobody", "n", (0,))], "not a job of the instance"),
        ([("half", "nowhere", (0,))], "not a node"),
    ],
)
def test_every_fault_is_found(done: Sequence[Placement], says: str) -> None:
    found = violations(SMALL, done)
    assert len(found) == 1
    assert says in found[0]


def test_a_failure_is_right_once_nothing_fits() -> None:
    assert (
        violations(
            SMALL,
            [("pair", "n", (0, 1)), ("pair", None, ()), ("half", "m", (0,)), ("most", None, ())],
        )
        == []
    )


def test_parts_add_up_exactly() -> None:
    """Ten times a tenth is a GPU; an eleventh does not fit."""
    tenths = instance([node("n", 1)], [job("tenth", 1, 0.1)])
    assert violations(tenths, [("tenth", "n", (0,))] * 10 + [("tenth", None, ())]) == []
    assert "0 is left" in violations(tenths, [("tenth", "n", (0,))] * 11)[0]
