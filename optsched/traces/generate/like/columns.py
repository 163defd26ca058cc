"""The marginals of a workload as arrays: of an instance, and of a real trace where the public data
is present."""

from collections import Counter
from dataclasses import field
from datetime import datetime
from pathlib import Path

import numpy as np

from ....frozen import frozen
from ....model import Instance, gang
from ...tables.table import Row, Table
from .arrivals import DAY_S, HOUR_S
from .distribution import Floats
from .model import HOURS, WEEKDAYS
from .population import Ints

WEEK_S = WEEKDAYS * DAY_S
MONDAY = datetime(2017, 1, 2)
PHILLY_DENSE = datetime(2017, 10, 3), datetime(2017, 12, 13)
"""The weeks in which the cleaned trace has many jobs a day; before and after there are only
some."""
OPENB_DENSE_S = 115 * DAY_S
EARTH = ("3sl", "6YE", "pDC")


@frozen
class Columns:
    """What is known of a workload, one value a job; None or empty is not known.

    `submit_s` ascends, second 0 is midnight before a Monday (where the trace tells the day).
    `hours` are the shares of submissions by hour of the day. `after_s` are run times to failure by
    cause.
    """

    name: str
    gpus: Ints | None = None
    run_s: Floats | None = None
    submit_s: Floats | None = None
    hours: Floats | None = None
    weekdays: Floats | None = None
    tenants: dict[str, int] = field(default_factory=dict)
    users: dict[str, int] = field(default_factory=dict)
    after_s: dict[str, Floats] = field(default_factory=dict)


def of_instance(instance: Instance) -> Columns:
    """Return the columns of a generated workload."""
    jobs = instance.jobs
    after_s: dict[str, list[float]] = {}
    for failure in instance.failures:
        after_s.setdefault(failure.kind or "", []).append(failure.work_s)
    submit_s = np.array([job.submit_s for job in jobs])
    return Columns(
        name="generated",
        gpus=np.array([gang(job) for job in jobs]),
        run_s=np.array([job.work_s for job in jobs]),
        submit_s=submit_s,
        hours=_by_hour(submit_s),
        weekdays=_by_weekday(submit_s),
        tenants=dict(Counter(job.tenant for job in jobs if job.tenant is not None)),
        users=dict(Counter(job.user for job in jobs if job.user is not None)),
        after_s={kind: np.array(seconds) for kind, seconds in after_s.items()},
    )


def of_trace(kind: str, data: Path | None) -> Columns | None:
    """Return what the public data in the folder `data` holds of the cluster `kind`; None where
    there is nothing.

    Raises InputError where a file is not what it should be.
    """
    readers = {"philly": _philly, "helios": _helios, "openb": _openb}
    if data is None or kind not in readers:
        return None
    return readers[kind](data)


def _philly(data: Path) -> Columns | None:
    path = data / "philly" / "philly.csv.gz"
    if not path.is_file():
        return None
    rows = _rows(path, "timestamp", "duration", "num_gpus", "cluster")
    at = [datetime.fromisoformat(row["timestamp"]) for row in rows]
    start, end = PHILLY_DENSE
    submit_s = np.sort(
        np.array([(time - MONDAY).total_seconds() for time in at if start <= time < end])
    )
    submit_s -= submit_s[0] // WEEK_S * WEEK_S
    return Columns(
        name="Philly trace",
        gpus=np.array([row.count("num_gpus") for row in rows]),
        run_s=np.array([row.number("duration") for row in rows]),
        submit_s=submit_s,
        hours=_by_hour(submit_s),
        weekdays=_by_weekday(submit_s),
        tenants=dict(Counter(row["cluster"] for row in rows)),
    )


def _openb(data: Path) -> Columns | None:
    path = data / "alibaba_openb" / "openb_pod_list_default.csv.gz"
    if not path.is_file():
        return None
    rows = _rows(path, "num_gpu", "creation_time", "deletion_time", "scheduled_time")
    submit_s = np.sort(np.array([row.number("creation_time") for row in rows]))
    submit_s = submit_s[submit_s >= OPENB_DENSE_S] - OPENB_DENSE_S
    ran = [row for row in rows if row["scheduled_time"]]
    return Columns(
        name="openb pods",
        gpus=np.array([row.count("num_gpu") for row in ran]),
        run_s=np.maximum(
            1.0, [row.number("deletion_time") - row.number("scheduled_time") for row in ran]
        ),
        submit_s=submit_s,
        hours=_by_hour(submit_s),
    )


def _helios(data: Path) -> Columns | None:
    """Return only the minutes in which the jobs of three virtual clusters of Earth became more, in
    May 2020."""
    paths = [data / "helios_acme" / f"Earth_vc{name}_cluster_sequence.csv.gz" for name in EARTH]
    if not all(path.is_file() for path in paths):
        return None
    hours, weekdays = np.zeros(HOURS), np.zeros(WEEKDAYS)
    for path in paths:
        rows = _rows(path, "time", "total_gpujob_num")
        more = np.clip(np.diff([row.whole("total_gpujob_num") for row in rows]), 0, None)
        at = [datetime.fromisoformat(row["time"]) for row in rows[1:]]
        days = [time.weekday() for time in at]
        hours += np.bincount([time.hour for time in at], weights=more, minlength=HOURS)
        weekdays += np.bincount(days, weights=more, minlength=WEEKDAYS) / np.bincount(
            days, minlength=WEEKDAYS
        )
    return Columns(
        name="three virtual clusters of Earth",
        hours=hours / hours.sum(),
        weekdays=weekdays / weekdays.sum(),
    )


def _by_hour(submit_s: Floats) -> Floats:
    return _cyclic(submit_s // HOUR_S, HOURS)


def _cyclic(instants: Floats, period: int) -> Floats:
    count = np.bincount(instants.astype(np.int64) % period, minlength=period)
    return np.asarray(count / count.sum())


def _by_weekday(submit_s: Floats) -> Floats | None:
    """Return submissions of a day by weekday, as shares; only of whole weeks, None where there is
    none."""
    weeks = int(submit_s[-1] // WEEK_S)
    whole = submit_s[submit_s < weeks * WEEK_S]
    return _cyclic(whole // DAY_S, WEEKDAYS) if len(whole) else None


def _rows(path: Path, *columns: str) -> list[Row]:
    return list(Table(path, columns).rows())
