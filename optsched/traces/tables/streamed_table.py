"""Tables of comma-separated values that may be larger than memory: read line by line, columns found
by name."""

import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, overload

from ...errors import InputError
from ..imported import At, Track
from .table import places


class Lines(Sequence[str]):
    """The lines of a text file, plain or gzip, read from it whenever they are gone through.

    Going through them raises InputError where the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._count: int | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            with self._open() as file:
                yield from file
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"{self.path}: is not a sound gzip file: {error}") from None
        except UnicodeDecodeError:
            raise InputError(f"{self.path}: is not a text file; expected UTF-8") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"{self.path}: cannot be read: {reason}") from None

    def _open(self) -> IO[str]:
        with self.path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        return (
            gzip.open(self.path, "rt", encoding="utf-8-sig")
            if packed
            else self.path.open(encoding="utf-8-sig")
        )

    def __len__(self) -> int:
        if self._count is None:
            self._count = sum(1 for _ in self)
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, int) and index >= 0:
            for line in islice(self, index, None):
                return line
            raise IndexError(index)
        return list(self)[index]


def first_row(path: Path) -> list[str]:
    """The cells of a table's first line, stripped. Raises InputError for a file without any."""
    for line in Lines(path):
        try:
            return [cell.strip() for cell in next(csv.reader([line]), [])]
        except csv.Error as error:
            raise InputError(f"{path}: line 1: is no row of a table: {error}") from None
    raise InputError(f"{path}: is empty; expected a table of comma-separated values")


def table(
    path: Path,
    needed: Sequence[str],
    *,
    optional: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    track: Track = iter,
) -> Iterator[tuple[At, list[str]]]:
    """Each row as its place and the cells of the `needed` columns, then the `optional` ones (""
    where absent).

    `columns` are those of a table that may come without a header line. Raises InputError for a
    missing column and for a row of another length.
    """
    head = first_row(path)
    headless = columns is not None and not set(needed) & set(head)
    if headless:
        assert columns is not None
        if len(head) != len(columns):
            raise InputError(
                f"{path}: line 1: expected {len(columns)} columns ({', '.join(columns)}), found "
                f"{len(head)}"
            )
        head = list(columns)
    order = places(str(path), head, needed, optional)
    width, source = len(head), str(path)
    rows = csv.reader(iter(track(Lines(path))))
    try:
        for row in rows:
            if not row or (rows.line_num == 1 and not headless):
                continue
            at = At(source, rows.line_num)
            if len(row) != width:
                at.fail(f"{width} cells separated by commas, not {len(row)}", ",".join(row))
            row.append("")
            yield at, [row[i].strip() for i in order]
    except csv.Error as error:
        raise InputError(f"{path}: line {rows.line_num}: is no row of a table: {error}") from None
