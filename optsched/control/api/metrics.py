"""What Prometheus reads at /metrics."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, get_args

from starlette.responses import Response

from ...driver.blocked import amounts
from ...executors.base import AttemptState
from ..controller import Controller
from ..journal.state import FINISHED, Status
from .peer import Caller
from .refusal import HttpError
from .service import Service

if TYPE_CHECKING:
    from prometheus_client.core import Metric

TEXT = "text/plain; version=0.0.4; charset=utf-8"


def metrics(service: Service, caller: Caller) -> Response:
    """Return all numbers as text. Raises HttpError (403) for a caller who may not see all jobs."""
    from prometheus_client import CollectorRegistry, generate_latest

    if not caller.all_jobs:
        raise HttpError(
            403,
            "metrics are of all jobs; they are for the controller's user and its administrators",
        )

    class Numbers:
        def collect(self) -> "Iterable[Metric]":
            return service.ask(_families)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Numbers())
    return Response(generate_latest(registry), media_type=TEXT)


def _families(controller: Controller) -> "list[Metric]":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    families: list[Metric] = []

    def add(
        name: str,
        help: str,
        *labels: str,
        of: Iterable[tuple[Any, ...]],
        kind: Any = GaugeMetricFamily,
    ) -> None:
        """Add a family with, for each value, that of each label before it."""
        family = kind(f"optsched_{name}", help, labels=labels)
        for *values, amount in of:
            family.add_metric(values, amount)
        families.append(family)

    state, statuses = controller.state, controller.statuses
    nodes = [status.node for status in statuses]
    held = amounts(attempt.placement for attempt in state.live_attempts())
    gpus = ((node.name, node.gpu_type or "", node.gpus) for node in nodes)
    add("gpus", "GPUs of each node.", "node", "gpu_type", of=gpus)
    in_use = ((node.name, held.get(node.name, [0])[0]) for node in nodes)
    add("gpus_in_use", "GPUs that jobs hold.", "node", of=in_use)
    usable = ((status.node.name, float(status.usable)) for status in statuses)
    add("node_usable", "1 where a node takes jobs.", "node", of=usable)
    jobs = state.jobs.values()
    counts = dict.fromkeys(get_args(Status), 0) | Counter(job.status for job in jobs)
    going_on = ((status, many) for status, many in counts.items() if status not in FINISHED)
    add("jobs", "Jobs that have not finished.", "status", of=going_on)
    done = ((status, counts[status]) for status in FINISHED)
    counter = CounterMetricFamily
    add("jobs_finished", "Jobs that have finished.", "status", of=done, kind=counter)
    for name, text, amount in (
        ("preemptions", "Times a job was preempted.", sum(job.preemptions for job in jobs)),
        ("failures", "Attempts that failed.", sum(job.failures for job in jobs)),
        ("rounds", "Rounds that were decided.", state.round),
        ("journal_events", "Events in the journal.", controller.journal.last),
    ):
        add(name, text, of=[(amount,)], kind=counter)
    states = Counter(seen.state for seen in controller.observed.values())
    unreachable = [(states[AttemptState.UNREACHABLE],)]
    add("attempts_unreachable", "Attempts nobody answers for.", of=unreachable)
    foretold = controller.forecast
    if foretold is not None:
        came = (("start", foretold.starts_compared), ("end", foretold.ends_compared))
        add("forecast_compared", "Forecasts compared with what came.", "event", of=came)
        in_time = (("start", foretold.starts_held), ("end", foretold.ends_held))
        add("forecast_held", "Of these, 90 % quantiles that held.", "event", of=in_time)
        add("forecast_made_seconds", "When the last was made (Unix time).", of=[(foretold.made_s,)])
        add("forecast_cpu_seconds", "Processor time it took.", of=[(foretold.cpu_s,)])
    last = controller.last_round
    if last is not None:
        add("round_gap", "Proven gap of the last round.", of=[(last.gap,)])
        add("round_seconds", "Seconds the last round took.", of=[(controller.round_s,)])
        prices = ((row.name, row.price) for row in last.prices)
        add("price", "What one unit of a capacity costs.", "capacity", of=prices)
    return families
