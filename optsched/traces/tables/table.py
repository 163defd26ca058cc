"""Tables of comma-separated values held in memory, columns found by name."""

import csv
from collections.abc import Iterator, Sequence
from operator import itemgetter

from ...errors import InputError
from ..imported import At, Track


def places(
    source: str, header: Sequence[str], needed: Sequence[str], optional: Sequence[str]
) -> list[int]:
    """Return where each column is in a header, beyond its end for a missing optional one. Raises
    InputError where a needed one is missing."""
    if missing := [name for name in needed if name not in header]:
        raise InputError(
            f"{source}: line 1: expected a header with the columns {', '.join(needed)}; "
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        )
    names = (*needed, *optional)
    return [header.index(name) if name in header else len(header) for name in names]


class Table:
    """The rows of a CSV text: the cells of `columns`, then those of `optional` ones, in this order
    whatever theirs.

    A missing optional column is empty everywhere, blank lines are left out. Raises InputError where
    a column is missing at once, where a row has not as many cells as the header when it comes to
    it.
    """

    def __init__(
        self, source: str, text: str, columns: Sequence[str], optional: Sequence[str] = ()
    ) -> None:
        self.source = source
        self._lines = text.removeprefix("\ufeff").split("\n")
        if not text.strip():
            raise InputError(
                f"{source}: is empty; expected a table with the columns {', '.join(columns)}"
            )
        try:
            self.header = [
                name.strip()
                for name in next(csv.reader(self._lines[:1], skipinitialspace=True), [])
            ]
        except csv.Error as error:
            raise InputError(f"{source}: line 1: is not comma-separated text: {error}") from None
        self._places = places(source, self.header, columns, optional)

    def at(self, line: int) -> At:
        """A line, to say what is wrong there."""
        return At(self.source, line)

    def rows(self, track: Track = iter) -> Iterator[tuple[int, tuple[str, ...]]]:
        """The line and the cells of each row; after the cells asked for comes an empty one."""
        width = len(self.header)
        pick = itemgetter(*self._places, width)
        reader = csv.reader(iter(track(self._lines)), skipinitialspace=True)
        try:
            next(reader)
            for cells in reader:
                if len(cells) == width:
                    cells.append("")
                    yield reader.line_num, pick(cells)
                elif any(cells):
                    self.at(reader.line_num).fail(
                        f"{width} cells separated by commas, not {len(cells)}", ",".join(cells)
                    )
        except csv.Error as error:
            raise InputError(
                f"{self.source}: line {reader.line_num}: is not comma-separated text: {error}"
            ) from None
