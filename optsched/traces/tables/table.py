"""Rows of tables, whose cells are found by the name of their column."""

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ...errors import InputError
from ..imported import Track, read_text
from .dates import unix_s

MAX_NUMBER = 1e10
UNKNOWN = frozenset(("", "nan", "nat", "none", "null", "\\n"))
"""How traces say, in letters of either case, that they do not know."""
SEPARATED_BY = {",": "commas", "\t": "tabs", None: "blanks"}


@dataclass(slots=True)
class At:
    """A line of a source, counted from 1, for messages."""

    source: str
    line: int

    def fail(self, expected: str, found: str) -> NoReturn:
        """Raise InputError: what stands there and what is expected."""
        shown = found if len(found) <= 60 else found[:57] + "..."
        raise InputError(f"{self.source}: line {self.line}: expected {expected}, found {shown!r}")

    def as_whole(self, text: str, what: str) -> int:
        """Return a whole number >= 0."""
        if not (text.isascii() and text.isdecimal() and len(text) < 10):
            self.fail(f"{what} as a whole number", text)
        return int(text)


@dataclass(slots=True)
class Row(At):
    """A row of a table: its cells, and where each column is; a missing optional one is empty."""

    cells: Sequence[str]
    places: Mapping[str, int | None]

    def __getitem__(self, column: str) -> str:
        place = self.places[column]
        return "" if place is None else self.cells[place].strip()

    def refuse(self, expected: str, *columns: str) -> NoReturn:
        """Raise InputError: what is expected, and what these columns, or all, have."""
        self.fail(expected, ",".join(map(self.__getitem__, columns) if columns else self.cells))

    def named(self, column: str) -> str:
        """Return a text that is not empty."""
        if not (text := self[column]):
            self.fail(f"a {column}", text)
        return text

    def whole(self, column: str, least: int = 0) -> int:
        """Return a whole number."""
        number = self.as_whole(text := self[column], column)
        if number < least:
            self.fail(f"{column} of at least {least}", text)
        return number

    def number(
        self, column: str, unit: str = "", least: float = -MAX_NUMBER, suffix: str = ""
    ) -> float:
        """Return a finite number of at most 1e10 in size."""
        text = self[column]
        what = f"{column} in {unit}" if unit else column
        value = math.nan
        if text.isascii() and "_" not in text:  # `float` would read 1_0 as 10
            with suppress(ValueError):
                value = float(text.upper().removesuffix(suffix))
        if not abs(value) <= MAX_NUMBER:
            self.fail(f"{what} as a number", text)
        if value < least:
            self.fail(f"{what} of at least {least:g}", text)
        return value

    def known(self, column: str) -> float | None:
        """Return a number >= 0, or None where the cell says that it is unknown."""
        return None if self[column].lower() in UNKNOWN else self.number(column, least=0)

    def count(self, column: str) -> int:
        """Return a whole number, also one written as 2.0; an unknown one is 0."""
        value = self.known(column) or 0.0
        if value != int(value) or value >= 1e9:
            self.fail(f"{column} as a whole number", self[column])
        return int(value)

    def time_s(self, column: str) -> float | None:
        """Return the Unix time of a cell, None where it is missing."""
        text = self[column]
        try:
            return unix_s(text)
        except ValueError:
            if text.lower() in UNKNOWN:
                return None
            self.fail(f"{column} as 2017-10-09 07:01:47, or nothing", text)


class Table:
    """A table of comma-separated values, plain or gzip, with a header that has these columns.

    `headless` are the columns of a table that may come without a header. Blank lines are left out.
    Raises InputError where the file cannot be read or a column is missing at once, where a row has
    not as many cells as the header when it comes to it.
    """

    def __init__(
        self,
        path: Path,
        columns: Sequence[str],
        optional: Sequence[str] = (),
        *,
        headless: Sequence[str] = (),
    ) -> None:
        self.source = str(path)
        self._lines = read_text(path).split("\n")
        if not any(map(str.strip, self._lines)):
            raise InputError(
                f"{path}: is empty; expected a table with the columns {', '.join(columns)}"
            )
        first = next(self._parsed(self._lines[:1]), (1, []))[1]
        self.header = [name.strip() for name in first]
        self._first_row = 2
        if headless and not set(columns) & set(self.header):
            if len(self.header) != len(headless):
                raise InputError(
                    f"{path}: line 1: expected {len(headless)} columns ({', '.join(headless)}), "
                    f"found {len(self.header)}"
                )
            self.header, self._first_row = list(headless), 1
        if missing := [name for name in columns if name not in self.header]:
            raise InputError(
                f"{path}: line 1: expected a header with the columns {', '.join(columns)}; "
                f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
            )
        self._places: dict[str, int | None] = dict.fromkeys(optional)
        self._places |= {name: i for i, name in reversed([*enumerate(self.header)])}

    def rows(self, track: Track = iter) -> Iterator[Row]:
        """Yield each row."""
        width = len(self.header)
        for line, cells in self._parsed(track(self._lines)):
            if line < self._first_row or not any(cells):
                continue
            row = Row(self.source, line, cells, self._places)
            if len(cells) != width:
                row.refuse(f"{width} cells separated by commas, not {len(cells)}")
            yield row

    def _parsed(self, lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
        reader = csv.reader(lines, skipinitialspace=True)
        try:
            for cells in reader:
                yield reader.line_num, cells
        except csv.Error as error:
            raise InputError(
                f"{self.source}: line {reader.line_num}: is not comma-separated text: {error}"
            ) from None


def lines(
    path: Path, *layouts: str, separator: str | None, track: Track = iter, comment: str = "\0"
) -> list[Row]:
    """Return the lines of a file without a header, a job each: its columns are those of the layout,
    names separated by blanks, that has as many. Raises InputError where there is no line, or none
    of the layouts for one."""
    columns = [layout.split() for layout in layouts]
    places: dict[int, dict[str, int | None]] = {
        len(names): {name: i for i, name in enumerate(names)} for names in columns
    }
    expected = f"{' or '.join(map(str, places))} cells separated by {SEPARATED_BY[separator]}"
    rows = []
    for number, text in enumerate(track(read_text(path).split("\n")), start=1):
        if not text.strip() or text.lstrip().startswith(comment):
            continue
        cells = text.split(separator)
        if len(cells) not in places:
            At(str(path), number).fail(f"{expected}, not {len(cells)}", text.strip())
        rows.append(Row(str(path), number, cells, places[len(cells)]))
    if not rows:
        raise InputError(
            f"{path}: is empty; expected one job a line, {expected}: {' or '.join(layouts)}"
        )
    return rows
