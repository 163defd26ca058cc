"""Lists read element by element say what the whole text says."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched.errors import InputError
from optsched.traces.tables.json_list import STEP, elements

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.lists(VALUES, max_size=6), st.sampled_from([None, 0, 4]), st.sampled_from(["", " \r\n\t"])
)
def test_the_elements_are_those_of_the_list(
    values: list[Any], indent: int | None, blank: str
) -> None:
    text = blank + json.dumps(values, indent=indent) + blank
    assert list(elements("x", text)) == values


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{}",
        "7",
        "[",
        "[1",
        "[1,",
        "[1 2]",
        "[1]]",
        "[1] x",
        "[,1]",
        '["a]',
        "[tru]",
        "[[1]",
        "[" * 100_000,
    ],
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^x: line 1: "):
        list(elements("x", text))


def test_the_line_of_a_fault() -> None:
    with pytest.raises(InputError, match=r"^x: line 4: is no JSON: Expecting"):
        list(elements("x", '[\n{"a": 1},\n{"b":\n}]'))


def test_progress_ends_with_the_list() -> None:
    steps: list[int] = []

    def track(lines: Sequence[str]) -> Iterable[str]:
        for i, line in enumerate(lines):
            steps.append(i)
            yield line

    text = json.dumps(["x" * (STEP // 2)] * 10)
    seen = [len(steps) for _ in elements("x", text, track)]
    assert seen == sorted(seen) and seen[0] < seen[-1] < len(steps)
    assert len(steps) == len(text) // STEP + 1
