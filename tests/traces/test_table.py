"""Tables say what the csv module says, whatever the order of their columns."""

import csv
import io
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched.traces.tables.table import Table

from .refused import refusal

CELLS = st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), max_size=6)


def read(text: str, *columns: str, optional: tuple[str, ...] = ()) -> list[tuple[int, list[str]]]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        path.write_bytes(text.encode())
        rows = list(Table(path, columns, optional).rows())
    return [(row.line, [row[name] for name in (*columns, *optional)]) for row in rows]


@given(
    st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=5),
    st.permutations(["a", "b", "c"]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_cells_are_found_by_name(
    rows: list[tuple[str, str, str]], order: list[str], ending: str
) -> None:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator=ending)
    writer.writerow(["x", *order])
    for cells in rows:
        named = dict(zip("abc", cells, strict=True))
        writer.writerow(["1", *(named[name] for name in order)])
    assert read(written.getvalue(), "b", "a", optional=("none", "c")) == [
        (2 + i, [b, a, "", c]) for i, (a, b, c) in enumerate(rows)
    ]


def test_blanks_after_commas_blank_lines_and_a_mark_of_the_byte_order_are_no_matter() -> None:
    assert read("\ufeffa, b\n\n1, 2\n\n3,4\n", "b", "a") == [(3, ["2", "1"]), (5, ["4", "3"])]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "t: is empty; expected a table with the columns a, b"),
        (" \n\n", "t: is empty; expected a table with the columns a, b"),
        ("a\n1\n", "t: line 1: expected a header with the columns a, b; b is missing"),
        ("c\n", "t: line 1: expected a header with the columns a, b; a, b are missing"),
        ("a\r,b\n1,2\n", "t: line 1: is not comma-separated text: "),
        ("a,b\n1,2\n3\n", "t: line 3: expected 2 cells separated by commas, not 1, found '3'"),
        (
            'a,b\n1,"' + "x" * 200_000 + '"\n',
            "t: line 2: is not comma-separated text: field larger than field limit",
        ),
    ],
)
def test_what_is_no_such_table_is_refused(text: str, said: str) -> None:
    assert said in refusal(read, text, "a", "b")
