"""Options of plug-ins: declared once, read from texts and values, refused in one sentence."""

import math
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
from annotated_types import Ge, Gt, Le, Lt, MinLen
from hypothesis import given
from hypothesis import strategies as st

from optsched.errors import InputError
from optsched.plugins import registry
from optsched.plugins.options import (
    Duration,
    PluginOptions,
    PositiveDuration,
    Share,
    described,
    read_options,
    read_table,
)


@dataclass(frozen=True, kw_only=True)
class Volume(PluginOptions):
    mount: str
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class Options(PluginOptions):
    lease_s: Annotated[PositiveDuration, "How long a lease is."] = 1200.0
    order: Annotated[Literal["fifo", "las"], "Who comes first."] = "fifo"
    steps: Annotated[tuple[Annotated[float, Gt(0)], ...], MinLen(1), "Thresholds."] = (5.0, 6.5)
    tries: Annotated[int, Ge(1), Lt(10), "Attempts."] = 3
    eager: Annotated[bool, "Starts early."] = False
    factor: Annotated[float | None, Ge(1), "A limit."] = 1.5
    share: Annotated[Share | None, "A part."] = None
    weights: Annotated[Path | None, "A file."] = None
    from_: Annotated[str, "A start."] = ""
    volumes: Annotated[tuple[Volume, ...], "What is mounted."] = ()

    def __post_init__(self) -> None:
        if self.tries == 7:
            raise ValueError("nobody tries seven times")


def read(**given: object) -> Options:
    return read_options("policy it", Options, {k.rstrip("_"): v for k, v in given.items()})


def test_what_users_see() -> None:
    assert [(one.name, one.expected, one.default, one.meaning) for one in described(Options)] == [
        ("lease", "a length of time above 0 s", "20m", "How long a lease is."),
        ("order", "fifo or las", "fifo", "Who comes first."),
        ("steps", "a list, each a number above 0", "5,6.5", "Thresholds."),
        ("tries", "a whole number of at least 1 below 10", "3", "Attempts."),
        ("eager", "no or yes", "no", "Starts early."),
        ("factor", "a number of at least 1, or none", "1.5", "A limit."),
        ("share", "a number from 0 to 1", "none", "A part."),
        ("weights", "a file", "none", "A file."),
        ("from", "a text", "", "A start."),
        ("volumes", "a list, each a table", "", "What is mounted."),
    ]


def test_texts_and_values_are_read_alike() -> None:
    assert read() == Options()
    texts = read(lease="1h30m", order="las", steps="1, 2", tries="4", eager="yes", factor="none")
    assert texts == Options(
        lease_s=5400.0, order="las", steps=(1.0, 2.0), tries=4, eager=True, factor=None
    )
    assert texts == read(lease=5400, order="las", steps=[1, 2.0], tries=4, eager=True, factor=None)
    assert read(weights="a/b", from_="x") == Options(weights=Path("a/b"), from_="x")
    assert pickle.loads(pickle.dumps(texts)) == texts and hash(texts) == hash(
        pickle.loads(pickle.dumps(texts))
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"leas": "1"},
            "policy it has no option leas; it has lease, order, .* and volumes "
            r"\(did you mean lease\?\)",
        ),
        ({"lease": "soon"}, "option lease of policy it: 'soon' is not a duration"),
        ({"lease": "0"}, "option lease of policy it: must be longer than 0 s"),
        ({"lease": math.inf}, "option lease of policy it: must be a number of seconds"),
        ({"lease": True}, "option lease of policy it: must be a number of seconds"),
        ({"order": "sjf"}, "option order of policy it: 'sjf'; expected fifo or las"),
        ({"steps": "1,x"}, "option steps of policy it: '1,x'; expected a list, each a number"),
        ({"steps": ""}, "option steps of policy it: ''; expected a list"),
        ({"tries": "2.5"}, "option tries of policy it: '2.5'; expected a whole number"),
        ({"tries": "10"}, "option tries of policy it: '10'; expected a whole number"),
        ({"tries": "7"}, "policy it: nobody tries seven times"),
        ({"eager": "maybe"}, "option eager of policy it: 'maybe'; expected no or yes"),
        ({"factor": "nan"}, "option factor of policy it: 'nan'; expected a number of at least 1"),
        ({"share": "1.5"}, "option share of policy it: '1.5'; expected a number from 0 to 1"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        read_options("policy it", Options, given)
    assert "\n" not in str(refused.value)


def test_nothing_is_taken_where_nothing_is_declared() -> None:
    assert read_options("policy it", PluginOptions, {}) == PluginOptions()
    with pytest.raises(InputError, match="policy it takes no options; leave out a, b"):
        read_options("policy it", PluginOptions, {"a": "1", "b": "2"})


def test_a_table_tells_every_fault() -> None:
    options, faults = read_table(
        "it", Options, {"lease": "2m", "volumes": [{"mount": "/a"}], "weights": "w"}
    )
    assert not faults and options is not None
    assert (options.lease_s, options.volumes) == (120.0, (Volume(mount="/a"),))
    options, faults = read_table(
        "it", Options, {"lese": 1, "tries": 0, "volumes": [{"mont": "/a"}], "lease": "soon"}
    )
    assert options is None
    told = [str(fault) for fault in faults]
    assert any("it.lese: is not a known field" in one and "lease" in one for one in told)
    assert any("it.tries: should be at least 1, not 0" in one for one in told)
    assert any("it.volumes[0].mount: is missing" in one for one in told)
    assert any("it.volumes[0].mont: is not a known field" in one for one in told)
    assert any("it.lease: 'soon' is not a duration" in one for one in told)


@pytest.mark.parametrize("group", ["policies", "solvers", "rounds"])
def test_every_default_reads_as_itself(group: registry.Group) -> None:
    for name in registry.names(group):
        declared = registry.options_of(group, name)
        for option in described(declared):
            assert option.meaning.endswith("."), f"{name}: {option.name} says nothing of itself"
            found = read_options(name, declared, {option.name: option.default})
            assert getattr(found, option.field) == getattr(declared(), option.field)


@given(st.floats(0, 1e6))
def test_lengths_of_time_are_read_as_they_are_shown(seconds: float) -> None:
    @dataclass(frozen=True)
    class Timed(PluginOptions):
        wait_s: Duration = seconds

    [option] = described(Timed)
    found = read_options("it", Timed, {"wait": option.default})
    assert found.wait_s == pytest.approx(seconds, abs=1e-9)


def test_bounds_on_both_sides_are_a_range() -> None:
    @dataclass(frozen=True)
    class Ranged(PluginOptions):
        count: Annotated[int, Ge(2), Le(9)] = 2

    assert described(Ranged)[0].expected == "a whole number from 2 to 9"


def test_an_interrupted_import_is_no_missing_plug_in(monkeypatch: pytest.MonkeyPatch) -> None:
    class Native:
        def load(self) -> None:
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt as error:
                raise ImportError("initialization failed") from error

    monkeypatch.setattr(registry, "entries", lambda group: {"native": Native()})
    with pytest.raises(KeyboardInterrupt):
        registry.solver("native")
