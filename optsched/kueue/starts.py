"""When Workloads that wait are expected to start, as an annotation of each."""

import math
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from ..control.beside import Beside, NoForecastError
from ..control.forecasting import LIMIT_S, MOST_CPU, forecast_able, rounded_s
from ..errors import InputError
from ..estimates.errors import Belief, RunTimeErrors
from ..forecast.course import Question
from .handover import Pass
from .objects import Workload

MOST_WRITTEN = 50
"""So many annotations are written in one pass, those that start first."""


class Starts:
    """Forecasts beside the passes, in at most `MOST_CPU` of one core, and has annotations written
    that are others than before: `write` takes a Workload and the text, None for none."""

    def __init__(self, objective: str, write: Callable[[Workload, str | None], None]) -> None:
        self._objective, self._write = objective, write
        self._beside = Beside()
        self._next_s = -math.inf

    def tell(self, decided: Pass) -> None:
        """Write when the Workloads of a pass start. Raises NoAnswerError."""
        if decided.instance is None or time.monotonic() < self._next_s:
            return
        texts = self._texts(decided)
        self._next_s = time.monotonic() + self._beside.cpu_s / MOST_CPU
        workloads = [ranked.workload for ranked in decided.order]
        workloads.sort(key=lambda workload: texts.get(workload.id) or "")
        changed = [own for own in workloads if own.starts != texts.get(own.id)]
        for workload in changed[:MOST_WRITTEN]:
            self._write(workload, texts.get(workload.id))

    def _texts(self, decided: Pass) -> Mapping[str, str]:
        """Return the median and the 90 % quantile of each start that is to come, as an interval of
        ISO 8601; of nobody where there is no forecast."""
        instance = decided.instance
        assert instance is not None
        question = Question(
            instance=instance,
            beliefs={job.id: Belief(job.work_s) for job in instance.jobs},
            errors=RunTimeErrors(),
            objective=self._objective,
        )
        try:
            quantiles, _ = self._beside.call(LIMIT_S, forecast_able, question)
        except (NoForecastError, InputError):
            return {}

        def text(wait_s: float) -> str:
            at_s = rounded_s(decided.at_s + wait_s, decided.at_s)
            return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%MZ}"

        return {
            name: f"{text(own.start_p50_s)}/{text(own.start_p90_s)}"
            for name, own in quantiles.items()
            if name not in instance.running_job and own.start_p90_s < math.inf
        }
