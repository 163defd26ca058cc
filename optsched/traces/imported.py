"""What every trace reader shares: how a source is opened, what comes out, and how a fault is
worded."""

import gzip
import math
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NoReturn

from annotated_types import Ge, Le

from ..errors import InputError
from ..model.instance import Instance
from ..plugins.options import Flag, PluginOptions, declared_by

Track = Callable[[Sequence[str]], Iterable[str]]
"""Goes through the lines of a source one by one, showing progress on the way."""

MAX_NUMBER = 1e10


ClusterText = Annotated[
    str, "GPUs by type, as v100=288,p100=96; gavel: also 36:36:36 or a cluster_specs.json."
]
GpuCount = Annotated[int, Ge(1), Le(1_000_000), "GPUs of each node."]
FirstDate = Annotated[
    str | None,
    Flag("--from"),
    "Leave out jobs submitted before, as 2017-10-03 or 2017-10-03T12:00.",
]
LastDate = Annotated[str | None, Flag("--until"), "Leave out jobs submitted then or later."]
TenantName = Annotated[str | None, "Keep the jobs of this virtual cluster only."]
WithCpuJobs = Annotated[bool, Flag("--gpu-jobs-only"), "Leave out jobs without GPUs."]
ThroughputTable = Annotated[
    Path | None, "The throughput table (default: beside the trace or in the folder above)."
]
WithOverheads = Annotated[bool, Flag("--no-overheads"), "Saving and restoring cost nothing."]
SwitchTable = Annotated[Path | None, "The cluster, as a table of switches and nodes (n32g4.csv)."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One trace format, a plug-in (entry points `optsched.importers`): `read(source, jobs=, track=,
    **options)`, whose other parameters declare its options.

    `profiled` formats come with measured profiles (or need none); to jobs of the others `optsched
    import` attaches measured ones.
    """

    title: str
    read: Callable[..., "Imported"]
    profiled: bool = False

    @property
    def Options(self) -> type[PluginOptions]:
        """What may be set."""
        return declared_by(self.read, "source", "jobs", "track")


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
