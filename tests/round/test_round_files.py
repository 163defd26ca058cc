"""Round files: what is written is read back, and faults are told with path and remedy."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings

from optsched import Instance, Job, Mode, Running, Slot, Tenant, files
from optsched.errors import InputError
from optsched.files.shape_faults import FaultyFileError
from optsched.round.decide import decide
from optsched.round.files import dump_round, file_format, load_round, read_round, schema
from tests.clusters import one_node
from tests.round.random_rounds import rounds

EXAMPLE = Path(__file__).parents[2] / "instances" / "examples" / "preempt-or-continue.json"
Tree = dict[str, Any]


@pytest.fixture(scope="module")
def text() -> str:
    return dump_round(decide(files.read_instance(EXAMPLE)))


@given(rounds())
@settings(max_examples=25)
def test_what_is_written_is_read_back_byte_for_byte(instance: Instance) -> None:
    solution = decide(instance, budget_s=5.0)
    written = dump_round(solution)
    assert load_round(written) == solution
    assert dump_round(load_round(written)) == written
    jsonschema.validate(json.loads(written), schema())


def test_prices_and_tiers_worth_more_than_there_are_gpus_are_read_back() -> None:
    """Heavy jobs that wait for a quota make it dear; a tier of which nothing could be proved is
    worth whatever a number can be."""
    whole = Job(id="x", gpus=2, duration_s=100.0, tenant="t")
    beyond = Instance(
        cluster=one_node("a", gpus=4),
        tenants=(Tenant(name="t", gpu_quota=1),),
        jobs=(
            whole,
            *(Job(id=f"y{k}", duration_s=10.0, tenant="t", weight=1e12) for k in range(2)),
        ),
        running=(
            Running(
                job="x", mode=Mode(gpus=2), placement=(Slot(node="a", gpus=2),), remaining_s=50.0
            ),
        ),
    )
    many = tuple(Job(id=f"j{k}", duration_s=10.0, priority=k % 2) for k in range(400))
    in_time = decide(beyond)
    hurried = decide(replace(beyond, tenants=(), jobs=many, running=()), budget_s=1e-3)
    assert max(row.price for row in in_time.prices) > 1e12
    assert max(tier.bound for tier in hurried.tiers) > 1e300 and hurried.fallback
    for solution in (in_time, hurried):
        assert load_round(dump_round(solution)) == solution


def test_the_file_says_what_the_round_is(text: str) -> None:
    found = json.loads(text)
    assert list(found) == [
        "format",
        "instance",
        "solver",
        "seed",
        "now_s",
        "round_s",
        "refill",
        "objective",
        "wall_s",
        "fallback",
        "prices",
        "jobs",
    ]
    assert found["objective"] == {
        "name": "wct",
        "value": pytest.approx(3.6397058823),
        "bound": pytest.approx(3.6397058823),
        "gap": 0,
        "status": "optimal",
        "bound_source": "prices",
    }
    assert found["jobs"][1] == {
        "id": "short",
        "decision": "start",
        "mode": {"gpu_type": "a100", "gpus": 1},
        "placement": [{"node": "left", "gpus": 1}],
    }
    assert file_format(text.encode()) == "optsched-round/1"


def test_a_file_may_be_packed(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json.gz").write_bytes(gzip.compress(text.encode()))
    assert dump_round(read_round(tmp_path / "r.json.gz")) == text


def test_a_value_of_0_has_no_gap(text: str) -> None:
    tree = json.loads(text)
    tree["objective"].update(value=0, bound=2.5, gap=None, status="feasible")
    solution = load_round(json.dumps(tree))
    assert solution.gap == float("inf")
    assert json.loads(dump_round(solution))["objective"]["gap"] is None


def price(**fields: object) -> Callable[[Tree], object]:
    return lambda tree: tree["prices"][0].update(fields)


def objective(**fields: object) -> Callable[[Tree], object]:
    return lambda tree: tree["objective"].update(fields)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (price(price=-1), "prices[0].price: should be at least 0, not -1; write a number in range"),
        (
            price(prise=1),
            "prices[0].prise: is not a known field; remove it or correct its name (did you mean",
        ),
        (
            lambda tree: tree["jobs"][1].update(decision="go"),
            "jobs[1].decision: job short: should be ",
        ),
        (
            lambda tree: tree["jobs"][1]["placement"][0].update(gpus=1.5),
            "jobs[1].placement[0].gpus: job short: should be a whole number, not 1.5",
        ),
        (
            lambda tree: tree["jobs"].append(tree["jobs"][0]),
            "jobs: job 'long' appears 2 times in jobs and never; keep one",
        ),
        (
            lambda tree: tree.update(never=["long"]),
            "jobs: job 'long' appears 2 times in jobs and never; keep one",
        ),
        (
            lambda tree: tree.update(round_s=0),
            "round_s: a round takes some time; give its length in seconds",
        ),
        (lambda tree: tree.pop("refill"), "refill: is missing; add it"),
        (
            objective(bound=1.0),
            "objective.bound: 1 lies below the value 3.63970588235; the value is maximised",
        ),
        (
            objective(gap=0.5),
            "objective.gap: is 0.5, value and bound make it 0; correct one of the three",
        ),
        (objective(name="speed"), "objective.name: objective 'speed' is unknown"),
    ],
)
def test_faults_are_told_with_path_and_remedy(
    text: str, edit: Callable[[Tree], object], says: str
) -> None:
    tree = json.loads(text)
    edit(tree)
    with pytest.raises(FaultyFileError) as caught:
        load_round(json.dumps(tree), "round.json")
    assert any(str(fault).startswith(says) for fault in caught.value.faults), caught.value
    assert str(caught.value).startswith("round.json: 1 fault\n")


def test_every_field_is_explained_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    part = page.partition("\n## Round file\n")[2].partition("\n## ")[0]
    found = schema()
    for noun in (
        found,
        *(found["$defs"][name] for name in ("RoundRef", "RoundValue", "RowPrice", "JobRound")),
    ):
        assert {name for name in noun["properties"] if f"`{name}`" not in part} == set()


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_round(tmp_path / "none.json")
    with pytest.raises(
        InputError, match=r'is empty; such a file starts with {"format": "optsched-round/1"'
    ):
        load_round("")
    with pytest.raises(InputError, match="is not JSON"):
        load_round("{")
    assert (
        file_format(b"{") is None
        and file_format(b"[]") is None
        and file_format(b'{"format": 3}') is None
    )


def test_a_plan_is_no_round(text: str) -> None:
    tree = json.loads(text) | {"format": "optsched-plan/1"}
    with pytest.raises(InputError, match=r"is a plan .*, expected a round"):
        load_round(json.dumps(tree), "round.json")
