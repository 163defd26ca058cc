"""Tables say what the csv module says, whatever the order of their columns."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched.errors import InputError
from optsched.traces.tables.table import Table

CELLS = st.text(
    st.characters(exclude_characters=" \r\n\t\x00", exclude_categories=("Cs",)), max_size=6
)


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
    table = Table("t", written.getvalue(), ("b", "a"), ("none", "c"))
    assert list(table.rows()) == [(2 + i, (b, a, "", c, "")) for i, (a, b, c) in enumerate(rows)]


def test_blanks_after_commas_blank_lines_and_a_mark_of_the_byte_order_are_no_matter() -> None:
    table = Table("t", "\ufeffa, b\n\n1, 2\n\n3,4\n", ("b", "a"))
    assert list(table.rows()) == [(3, ("2", "1", "")), (5, ("4", "3", ""))]


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
    with pytest.raises(InputError) as caught:
        list(Table("t", text, ("a", "b")).rows())
    assert str(caught.value).startswith(said)
