"""What Prometheus reads at /metrics."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, get_args

from starlette.responses import Response

from ...driver.blocked import amounts
from ...executors.base import AttemptState
from ..controller import Controller
from ..journal.state import FINISHED, Status
from ..measures import Histogram
from ..notices import POSTS
from .peer import Caller
from .refusal import HttpError
from .service import Service

if TYPE_CHECKING:
    from prometheus_client.core import Metric

Rows = Iterable[tuple[Any, ...]]
NO_IDENTIFIER = re.compile(r"[^A-Za-z0-9_.:/-]+")
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


class Families:
    """Families of numbers, one added after the other."""

    def __init__(self) -> None:
        self.all: list[Metric] = []

    def add(self, name: str, help: str, *labels: str, of: Rows, counts: bool = False) -> None:
        """Add a family with, for each value, that of each label before it; `counts`: they only
        grow."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        kind: Any = CounterMetricFamily if counts else GaugeMetricFamily
        family = kind(f"optsched_{name}", help, labels=labels)
        for *values, amount in of:
            family.add_metric(values, amount)
        self.all.append(family)

    def number(self, name: str, help: str, amount: float, counts: bool = False) -> None:
        """Add a family that is one number."""
        self.add(name, help, of=[(amount,)], counts=counts)

    def add_histogram(
        self, name: str, help: str, *labels: str, of: Iterable[tuple[Sequence[str], Histogram]]
    ) -> None:
        """Add a family with the histogram of the values of each label."""
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(f"optsched_{name}", help, labels=labels)
        for values, histogram in of:
            family.add_metric(values, histogram.buckets(), histogram.sum)
        self.all.append(family)


def _families(controller: Controller) -> "list[Metric]":
    families = Families()
    for add in (_add_nodes, _add_jobs, _add_tenants, _add_forecast, _add_rounds, _add_controller):
        add(families, controller)
    return families.all


def _add_nodes(families: Families, controller: Controller) -> None:
    statuses = controller.statuses
    nodes = [status.node for status in statuses]
    held = amounts(attempt.placement for attempt in controller.state.live_attempts())
    gpus = ((node.name, node.gpu_type or "", node.gpus) for node in nodes)
    families.add("gpus", "GPUs of each node.", "node", "gpu_type", of=gpus)
    in_use = ((node.name, held.get(node.name, [0])[0]) for node in nodes)
    families.add("gpus_in_use", "GPUs that jobs hold.", "node", of=in_use)
    usable = ((status.node.name, float(status.usable)) for status in statuses)
    families.add("node_usable", "1 where a node takes jobs.", "node", of=usable)


def _add_jobs(families: Families, controller: Controller) -> None:
    state, now_s = controller.state, controller.clock.now_s()
    counts = dict.fromkeys(get_args(Status), 0) | Counter(job.status for job in state.open.values())
    going_on = ((status, many) for status, many in counts.items() if status not in FINISHED)
    families.add("jobs", "Jobs that have not finished.", "status", of=going_on)
    done = ((status, state.totals[status]) for status in FINISHED)
    families.add("jobs_finished", "Jobs that have finished.", "status", of=done, counts=True)
    for name, text in (
        ("preemptions", "Times a job was preempted."),
        ("failures", "Attempts that failed."),
    ):
        families.number(name, text, state.totals[name], counts=True)
    waits = (state.waited_s(job, now_s) for job in state.open.values() if job.status == "waiting")
    longest = max(waits, default=0.0)
    families.number("longest_wait_seconds", "Longest wait of a waiting job.", longest)
    states = [seen.state for seen in controller.observed.values()]
    unreachable = states.count(AttemptState.UNREACHABLE)
    families.number("attempts_unreachable", "Attempts nobody answers for.", unreachable)


def _add_tenants(families: Families, controller: Controller) -> None:
    measures, jobs = controller.measures, controller.state.open.values()
    gpus = ((job, job.live.mode.gpus) for job in jobs if job.live is not None)
    in_use = measures.by_label(gpus).items()
    families.add("tenant_gpus_in_use", "GPUs that jobs of a tenant hold.", "tenant", of=in_use)
    waiting = measures.by_label((job, 1) for job in jobs if job.status == "waiting").items()
    families.add("tenant_jobs_waiting", "Jobs of a tenant that wait.", "tenant", of=waiting)
    for name, text, by in (
        ("wait", "Seconds that jobs waited before their first start.", measures.waited),
        ("completion", "Seconds from submission to completion of jobs.", measures.completed),
    ):
        seconds = (([tenant], by[tenant]) for tenant in sorted(by))
        families.add_histogram(f"job_{name}_seconds", text, "tenant", of=seconds)


def _add_forecast(families: Families, controller: Controller) -> None:
    foretold = controller.forecast
    if foretold is None:
        return
    came = (("start", foretold.starts_compared), ("end", foretold.ends_compared))
    families.add("forecast_compared", "Forecasts compared with what came.", "event", of=came)
    in_time = (("start", foretold.starts_held), ("end", foretold.ends_held))
    families.add("forecast_held", "Of these, 90 % quantiles that held.", "event", of=in_time)
    made_s = foretold.made_s
    families.number("forecast_made_seconds", "When the last was made (Unix time).", made_s)
    families.number("forecast_cpu_seconds", "Processor time it took.", foretold.cpu_s)


def _add_rounds(families: Families, controller: Controller) -> None:
    total = controller.state.round
    families.number("rounds", "Rounds that were decided.", total, counts=True)
    text = "Seconds of turns that decided a round."
    families.add_histogram("round_duration_seconds", text, of=[((), controller.measures.rounds)])
    last = controller.last_round
    if last is None:
        return
    at_s = controller.decided_s
    families.number("last_round_timestamp_seconds", "When a round was last due.", at_s)
    families.number("round_gap", "Proven gap of the last round.", last.gap)
    families.number("round_seconds", "Seconds the last round took.", controller.round_s)
    prices: dict[str, float] = {}
    for row in last.prices:
        name = NO_IDENTIFIER.sub("_", row.name).strip("_")
        prices[name] = max(row.price, prices.get(name, 0.0))
    families.add("price", "What one unit of a capacity costs.", "capacity", of=prices.items())


def _add_controller(families: Families, controller: Controller) -> None:
    journal = controller.journal
    families.number("journal_events", "Events in the journal.", journal.last, counts=True)
    families.number("journal_bytes", "Size of the journal.", journal.size_bytes())
    short = float(controller.short_of_disk is not None)
    families.number("disk_short", "1 while nothing is started for want of disk.", short)
    families.number("failing_parts", "Parts of a turn that fail.", controller.failing())
    told = controller.notices.counts if controller.notices is not None else Counter()
    ways = [(*key, told[key]) for key in product(POSTS, ("sent", "failed", "dropped"))]
    families.add("notices", "Notices of jobs.", "way", "outcome", of=ways, counts=True)
