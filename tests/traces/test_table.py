"""Tables say what the csv module says, whatever the order of their columns."""

import csv
import io
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched.traces.tables.table import Row, Table, lines

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
        ("a,b\n1,2\n3\0,4\n", "t: line 3: is no text, as it has a zero byte"),
    ],
)
def test_what_is_no_such_table_is_refused(text: str, said: str) -> None:
    assert said in refusal(read, text, "a", "b")


@pytest.mark.parametrize("text", ["\ufeffx 1\ny 2\n", "x 1\r\ny 2\r\n"])
def test_lines_without_a_header_begin_and_end_as_those_of_tables(text: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(text.encode())
    rows = lines(path, "name number", separator=None)
    assert [(row["name"], row.number("number")) for row in rows] == [("x", 1), ("y", 2)]


def test_a_line_that_a_disk_has_lost_is_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"x 1\n\0\0\0\0\ny 2\n")
    assert "t: line 2: is no text" in refusal(lines, path, "name number", separator=None)


@pytest.mark.parametrize("text", ["1_0", "\u0661", "0x10", "nan", "inf", "1e308", "1,0", ""])
def test_what_is_no_plain_number_is_refused(text: str) -> None:
    row = Row("t", 1, [text], {"a": 0})
    assert f"expected a as a number, found {text!r}" in refusal(row.number, "a")
