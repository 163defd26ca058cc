"""When jobs are expected to start and end, as the last forecast says."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..duration import human
from ..frozen import frozen, record

if TYPE_CHECKING:
    from .journal.state import LiveJob

NO_FORECAST = "none has been made since it came"


@record
class Instants:
    """When a job starts and ends with a probability of 50 % and of 90 % (Unix time); infinite where
    that is beyond the horizon."""

    start_p50_s: float
    start_p90_s: float
    end_p50_s: float
    end_p90_s: float


@frozen
class LiveForecast:
    """A forecast made at `made_s` (Unix time) that looks `horizon_s` ahead: the instants `of` each
    job, and `why` there are none of others.

    Of the forecasts before that could be compared with what came, `starts_held` of
    `starts_compared` named a 90 % quantile by which the job did start, and likewise of ends.
    `cpu_s` is the processor time it took; `fault` why there is none, `of` is then empty.
    """

    made_s: float
    horizon_s: float = 0.0
    of: Mapping[str, Instants]
    why: Mapping[str, str]
    starts_held: int = 0
    starts_compared: int = 0
    ends_held: int = 0
    ends_compared: int = 0
    cpu_s: float = 0.0
    fault: str | None = None


class Expected(NamedTuple):
    """What is shown of a job: absolute times (None: not known), and why some are missing (None:
    none is that could be known)."""

    start_p50_s: float | None = None
    start_p90_s: float | None = None
    end_p50_s: float | None = None
    end_p90_s: float | None = None
    forecast: str | None = None


def expected(known: LiveForecast | None, job: "LiveJob", now_s: float) -> Expected:
    """Return when a job is expected to start and end. What should have happened by now is expected
    now; of one that runs the start is when it did."""
    if job.finished is not None:
        return Expected()
    live = job.live
    began_s = None if live is None else live.started_s
    none = Expected(began_s, began_s)
    if known is None:
        return none._replace(forecast=NO_FORECAST)
    if job.held is not None:
        return none._replace(forecast="it is on hold")
    instants = known.of.get(job.id)
    if instants is None:
        why = known.fault or known.why.get(job.id, NO_FORECAST)
        return none._replace(forecast=why)

    def seen(at_s: float) -> float | None:
        return max(at_s, now_s) if math.isfinite(at_s) else None

    start_p50_s, start_p90_s = seen(instants.start_p50_s), seen(instants.start_p90_s)
    if live is not None:
        start_p50_s = start_p90_s = began_s if began_s is not None else now_s
    end_p50_s, end_p90_s = seen(instants.end_p50_s), seen(instants.end_p90_s)
    unseen = None
    if end_p90_s is None:
        unseen = f"it was not seen to end within {human(known.horizon_s)}"
    return Expected(start_p50_s, start_p90_s, end_p50_s, end_p90_s, unseen)
