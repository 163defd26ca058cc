"""What every trace reader shares: how a source is opened, what comes out, and how a fault is
worded."""

import gzip
import math
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NoReturn

from ..errors import InputError
from ..model.instance import Instance

Track = Callable[[Sequence[str]], Iterable[str]]
"""Goes through the lines of a source one by one, showing progress on the way."""

MAX_NUMBER = 1e10


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What `optsched import` lets a user set for some formats: `--flag`, passed to `read` as
    `name`.

    Kinds: `path` a file, `text`, `count` a whole number of at least 1, `off` a flag that passes
    False. Formats that take the same option share one object.
    """

    name: str
    flag: str
    kind: Literal["path", "text", "count", "off"]
    help: str
    metavar: str | None = None


CLUSTER = Option(
    name="cluster",
    flag="--cluster",
    kind="text",
    metavar="SPEC",
    help="GPUs by type, as v100=288,p100=96; gavel: also 36:36:36 or a cluster_specs.json.",
)
GPUS_PER_NODE = Option(
    name="gpus_per_node",
    flag="--gpus-per-node",
    kind="count",
    metavar="N",
    help="GPUs of each node.",
)
START = Option(
    name="start",
    flag="--from",
    kind="text",
    metavar="DATE",
    help="Leave out jobs submitted before, as 2017-10-03 or 2017-10-03T12:00.",
)
END = Option(
    name="end",
    flag="--until",
    kind="text",
    metavar="DATE",
    help="Leave out jobs submitted then or later.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One trace format: `read(source, jobs=, track=, **options)`.

    `profiled` formats come with measured profiles (or need none); to jobs of the others `optsched
    import` attaches measured ones.
    """

    title: str
    read: Callable[..., "Imported"]
    options: tuple[Option, ...] = ()
    profiled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """An instance made from a trace: how many jobs the source has, and why some were left out."""

    instance: Instance
    read: int
    dropped: dict[str, int] = field(default_factory=dict)

    @property
    def kept(self) -> int:
        """Jobs in the instance."""
        return len(self.instance.jobs)


def read_text(path: str | Path) -> str:
    """The text of a file, unpacked where it is gzip. Raises InputError where it cannot be read."""
    try:
        data = Path(path).read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: is not a sound gzip file: {error}") from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not a text file; expected UTF-8") from None


@dataclass(frozen=True, slots=True)
class At:
    """A line of a source, counted from 1, for messages."""

    source: str
    line: int

    def fail(self, expected: str, found: str) -> NoReturn:
        """Raise InputError: what stands there and what is expected."""
        shown = found if len(found) <= 60 else found[:57] + "..."
        raise InputError(f"{self.source}: line {self.line}: expected {expected}, found {shown!r}")

    def whole(self, text: str, what: str) -> int:
        """A whole number >= 0."""
        if re.fullmatch(r"[0-9]{1,9}", text) is None:
            self.fail(f"{what} as a whole number", text)
        return int(text)

    def number(self, text: str, what: str) -> float:
        """A finite number of at most 1e10 in size."""
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not abs(value) <= MAX_NUMBER:
            self.fail(f"{what} as a number", text)
        return value
