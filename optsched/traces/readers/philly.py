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

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from ...errors import InputError
from ...model import Job
from ...plugins.options import Flag
from ..clusters import own_or
from ..imported import (
    ClusterText,
    FirstDate,
    Format,
    GpuCount,
    Imported,
    LastDate,
    TenantName,
    Track,
    found_beside,
    read_text,
)
from ..tables.dates import unix_s
from ..tables.table import UNKNOWN, Table
from ..usable import NO_SUBMISSION, SHORTEST_S, WITHOUT_GPUS, imported, ran_s, stem, window
from . import philly_machines as machines

LOG = "cluster_job_log"
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
    path = Path(source)
    nodes = own_or(cluster, gpus_per_node)
    if path.is_dir():
        path = _log_in(path)
    gpus: dict[str, set[str]] = {}
    failed_s: dict[str, list[float]] = {}
    text = read_text(path)
    if text.lstrip()[:1] in ("[", "{"):
        entries = list(_from_log(path, text, track, gpus, failed_s))
    else:
        entries = list(_from_table(path, track))
    span = window(start, end, 0.0)
    if nodes is None:
        if listed := machines_path or machines.beside(path):
            nodes = machines.listed(Path(listed))
        else:
            nodes = machines.named(gpus, str(path)) if gpus else machines.published()
    name = stem(path, ".csv", ".json")
    return imported(
        path,
        nodes,
        entries,
        jobs,
        name="philly" if name == LOG else name,
        span=span,
        tenant=tenant,
        quotas={},
        failed_s=failed_s,
    )


def _log_in(folder: Path) -> Path:
    for name in (LOG, f"{LOG}.json"):
        if (log := found_beside(name, folder)) is not None:
            return log
    raise InputError(f"{folder}: has no {LOG}; expected a folder of the Philly traces, or a file")


# ------------------------------------------------------------------------------------------------
# the job log


def _from_log(
    path: Path, text: str, track: Track, gpus: dict[str, set[str]], failed_s: dict[str, list[float]]
) -> Iterator[Job | str]:
    """Yield the jobs of a log, and for each that cannot be used why; note the GPUs of every machine
    it names, and the run times of attempts that failed by job."""
    for count, record in enumerate(track(_records(path, text)), start=1):
        try:
            yield _job(record, gpus, failed_s)
        except (KeyError, TypeError, ValueError, AttributeError):
            shown = repr(record)
            raise InputError(
                f"{path}: job {count} of the list: expected {EXPECTED}, found "
                f"{shown if len(shown) <= 300 else shown[:297] + '...'}"
            ) from None


def _records(path: Path, text: str) -> list[Any]:
    try:
        records = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: line {error.lineno}: is no JSON: {error.msg}") from None
    except RecursionError:
        raise InputError(f"{path}: is no JSON: it is nested too deeply") from None
    if not isinstance(records, list):
        raise InputError(f"{path}: line 1: expected a JSON list, which starts with '['")
    return records


def _job(
    record: dict[str, Any], gpus: dict[str, set[str]], failed_s: dict[str, list[float]]
) -> Job | str:
    """Return the job of a record, or why it cannot be used. Raises what a record of another form
    causes."""
    runs: list[tuple[float | None, float | None]] = []
    held = 0
    for attempt in _list(record["attempts"]):
        runs.append((_time_s(attempt["start_time"]), _time_s(attempt["end_time"])))
        held = 0
        for machine in _list(attempt["detail"]):
            names = list(map(_text, _list(machine["gpus"])))
            gpus.setdefault(_text(machine["ip"]), set()).update(names)
            held += len(names)
    job_id, user, vc = (_text(record[key] or "") for key in ("jobid", "user", "vc"))
    submit_s = _time_s(record["submitted_time"])
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
    if not held:
        return WITHOUT_GPUS
    failed_s[job_id] = [work_s for run in runs if not isinstance(work_s := ran_s(*run), str)]
    return Job(
        id=job_id,
        submit_s=submit_s,
        gpus=held,
        duration_s=duration_s,
        user=user or None,
        tenant=vc or None,
    )


def _time_s(value: Any) -> float | None:
    return None if value is None or _text(value).lower() in UNKNOWN else unix_s(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _list(value: Any) -> list[Any]:
    """Return the list, an empty one for null."""
    if value is not None and not isinstance(value, list):
        raise TypeError
    return value or []


# ------------------------------------------------------------------------------------------------
# the table


def _from_table(path: Path, track: Track) -> Iterator[Job]:
    """Yield the jobs of the table, numbered in its order from 0."""
    table = Table(path, ("timestamp", "duration", "num_gpus", "cluster"))
    for i, row in enumerate(table.rows(track)):
        if (submit_s := row.time_s("timestamp")) is None:
            row.refuse("a timestamp", "timestamp")
        yield Job(
            id=f"job-{i}",
            submit_s=submit_s,
            gpus=row.whole("num_gpus", least=1),
            duration_s=row.number("duration", "seconds", least=SHORTEST_S),
            tenant=row["cluster"] or None,
        )


FORMAT = Format(
    title="Philly job log with its machine list (cluster_job_log), or the table made of it "
    "(.csv, .csv.gz)",
    read=read,
)
