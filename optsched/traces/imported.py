"""What every trace reader shares: its options, how a source is opened, and what comes out."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le

from ..errors import InputError
from ..frozen import frozen
from ..model import Instance
from ..plugins.options import Flag, PluginOptions, declared_by

Track = Callable[[Sequence[Any]], Iterable[Any]]
"""Goes through the lines of a source one by one, showing progress on the way."""

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


@frozen
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
        """Return what may be set."""
        return declared_by(self.read, "source", "jobs", "track")


@frozen
class Imported:
    """An instance made from a trace: how many jobs the source has, and why some were left out."""

    instance: Instance
    read: int
    dropped: dict[str, int] = field(default_factory=dict)

    @property
    def kept(self) -> int:
        """Return the number of jobs in the instance."""
        return len(self.instance.jobs)


def read_text(path: str | Path) -> str:
    """Return the text of a file, unpacked where it is gzip. Raises InputError where it cannot be
    read."""
    from ..files import read_bytes

    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not a text file; expected UTF-8") from None
    if "\0" in text:  # as where a disk lost what was written
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(f"{path}: line {line}: is no text, as it has a zero byte")
    return text


def read_json(path: str | Path) -> Any:
    """Return the content of a JSON file. Raises InputError where it is none."""
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON: {error}") from None


def found_beside(name: str, *folders: Path) -> Path | None:
    """Return the first file of this name, or of this name and `.gz`, in the folders; None where
    there is none."""
    paths = (folder / (name + packed) for folder in folders for packed in ("", ".gz"))
    return next(filter(Path.is_file, paths), None)
