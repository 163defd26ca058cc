"""Jobs of Microsoft's Philly cluster, August to December 2017.

Two forms are read, told apart by their first character:

- the published `cluster_job_log`, a JSON list of jobs with status, vc, jobid, user, submitted_time
  and attempts, each with start_time, end_time and detail, a list of machines (ip) and their gpus;
  times may be null or "None";
- a table with timestamp (of submission), duration in seconds, num_gpus and cluster (the virtual
  cluster), as the authors of Pollux made it: one row a job, no users, no attempts.

From the log, a job's last attempt gives its `duration_s` and GPUs; each attempt before it is a
failure that does the work of its run time and keeps none of it. Attempts without a time, or of no
time, are left out. A job that was killed or failed in the end counts as one that held its GPUs so
long. Dropped are jobs that never ran, that were still running when the log was taken (the last
attempt has no end), and those whose last attempt has no time at all. Times are read as they stand:
neither their zone nor the end of daylight saving time is known to the log.

Virtual clusters are tenants. Their quotas are not published.

Source: M. Jeon et al., Analysis of large-scale multi-tenant GPU clusters for DNN training
workloads, ATC'19; github.com/msr-fiddle/philly-traces.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from ...errors import InputError
from ...plugins.options import Flag
from ..clusters import cluster_of
from ..imported import (
    ClusterText,
    FirstDate,
    Format,
    GpuCount,
    Imported,
    LastDate,
    TenantName,
    Track,
    read_text,
)
from ..submitted import NO_SUBMISSION, WITHOUT_GPUS, Submitted, chosen, instance_of, ran_s
from ..tables.dates import time_at, unix_s
from ..tables.json_list import elements
from ..tables.table import Table
from ..usable import stem
from . import philly_machines as machines

LOG_NAMES = (
    "cluster_job_log",
    "cluster_job_log.json",
    "cluster_job_log.gz",
    "cluster_job_log.json.gz",
)
DEFAULT_GPUS_PER_NODE = 8
SHORTEST_S = 1e-3
NO_ATTEMPT = "never ran: it has no attempt"
RUNNING = "its last attempt has no end: it was still running"
NO_START = "its last attempt has no start"
EXPECTED = (
    "{jobid, vc, user, submitted_time, attempts: [{start_time, end_time, detail: [{ip, gpus: "
    "[...]}]}]} with "
    "times as 2017-10-09 07:01:47"
)


def read(
    source: str | Path,
    *,
    jobs: int | None = None,
    track: Track = iter,
    cluster: ClusterText | None = None,
    gpus_per_node: GpuCount | None = None,
    machines_path: Annotated[
        Path | None,
        Flag("--machines"),
        "The machine list (default: cluster_machine_list beside the log).",
    ] = None,
    start: FirstDate = None,
    end: LastDate = None,
    tenant: TenantName = None,
) -> Imported:
    """Read a job log, a folder with one, or the table; `jobs` keeps the first so many that can run.

    The cluster is that of `cluster` (`p100=512`, nodes of `gpus_per_node`, 8 by default), else that
    of the machine list at `machines_path` or beside the log, else the machines that the log names.
    With a table it is as many machines as the published list has. `start` and `end` are dates,
    `tenant` is a virtual cluster. Raises InputError saying where the first fault is.
    """
    if gpus_per_node is not None and cluster is None:
        raise InputError(
            "--gpus-per-node goes with --cluster; the trace's own machines have their sizes"
        )
    path = _log_in(Path(source)) if Path(source).is_dir() else Path(source)
    dropped: Counter[str] = Counter()
    seen: dict[str, set[str]] = {}
    text = read_text(path)
    is_log = text.lstrip()[:1] in ("[", "{")
    entries = list(_from_log(path, text, track, seen)) if is_log else _from_table(path, text, track)
    kept = chosen(entries, dropped, start=start, end=end, tenant=tenant)
    listed = machines_path or machines.beside(path)
    if cluster is not None:
        nodes = cluster_of(cluster, gpus_per_node or DEFAULT_GPUS_PER_NODE)
    elif listed is not None:
        nodes = machines.listed(Path(listed))
    else:
        nodes = machines.named(seen, str(path)) if seen else machines.published()
    return instance_of(path, _name(path), nodes, kept, dropped, read=len(entries), jobs=jobs)


def _log_in(folder: Path) -> Path:
    for name in LOG_NAMES:
        if (folder / name).is_file():
            return folder / name
    raise InputError(
        f"{folder}: has no {LOG_NAMES[0]}; expected a folder of the Philly traces, or a file"
    )


def _name(path: Path) -> str:
    name = stem(path, ".csv", ".json")
    return "philly" if name == LOG_NAMES[0] else name


# ------------------------------------------------------------------------------------------------
# the job log


def _from_log(
    path: Path, text: str, track: Track, seen: dict[str, set[str]]
) -> Iterator[Submitted | str]:
    """Yield the jobs of a log, and for each that cannot be used why; note in `seen` the GPUs of
    every machine it names."""
    for count, record in enumerate(elements(str(path), text, track), start=1):
        try:
            yield _job(record, seen)
        except (KeyError, TypeError, ValueError, AttributeError):
            shown = repr(record)
            raise InputError(
                f"{path}: job {count} of the list: expected {EXPECTED}, found "
                f"{shown if len(shown) <= 300 else shown[:297] + '...'}"
            ) from None


def _job(record: dict[str, Any], seen: dict[str, set[str]]) -> Submitted | str:
    """The job of a record, or why it cannot be used. Raises what a record of another form
    causes."""
    runs: list[tuple[float | None, float | None]] = []
    gpus = 0
    for attempt in _list(record["attempts"]):
        runs.append((_time(attempt["start_time"]), _time(attempt["end_time"])))
        gpus = 0
        for held in _list(attempt["detail"]):
            names = list(map(_text, _list(held["gpus"])))
            seen.setdefault(_text(held["ip"]), set()).update(names)
            gpus += len(names)
    job_id, user, vc = (
        _text(record["jobid"]),
        _text(record["user"] or ""),
        _text(record["vc"] or ""),
    )
    submit_s = _time(record["submitted_time"])
    if not runs:
        return NO_ATTEMPT
    if submit_s is None:
        return NO_SUBMISSION
    start_s, end_s = runs.pop()
    if start_s is None or end_s is None:
        return NO_START if start_s is None else RUNNING
    duration_s = ran_s(start_s, end_s)
    if isinstance(duration_s, str):
        return duration_s
    if not gpus:
        return WITHOUT_GPUS
    failed = tuple(work_s for run in runs if not isinstance(work_s := ran_s(*run), str))
    return Submitted(
        id=job_id,
        submit_s=submit_s,
        gpus=gpus,
        duration_s=duration_s,
        user=user or None,
        tenant=vc or None,
        failed_s=failed,
    )


def _time(value: Any) -> float | None:
    return None if value is None else unix_s(_text(value))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _list(value: Any) -> list[Any]:
    """The list, an empty one for null."""
    if value is not None and not isinstance(value, list):
        raise TypeError
    return value or []


# ------------------------------------------------------------------------------------------------
# the table


def _from_table(path: Path, text: str, track: Track) -> list[Submitted | str]:
    """The jobs of the table, numbered in its order from 0."""
    table = Table(str(path), text, ("timestamp", "duration", "num_gpus", "cluster"))
    submitted: list[Submitted | str] = []
    for line, (timestamp, duration, num_gpus, vc, _) in table.rows(track):
        at = table.at(line)
        submit_s = time_at(at, timestamp, "the timestamp")
        duration_s = at.number(duration, "the duration in seconds")
        gpus = at.whole(num_gpus, "num_gpus")
        if submit_s is None or duration_s < SHORTEST_S or not gpus:
            at.fail(
                f"a timestamp, a duration of at least {SHORTEST_S} s and at least one GPU",
                f"{timestamp},{duration},{num_gpus}",
            )
        submitted.append(
            Submitted(
                id=f"job-{len(submitted)}",
                submit_s=submit_s,
                gpus=gpus,
                duration_s=duration_s,
                tenant=vc or None,
            )
        )
    return submitted


FORMAT = Format(
    title="Philly job log with its machine list (cluster_job_log), or the table made of it "
    "(.csv, .csv.gz)",
    read=read,
)
