"""What Prometheus reads at /metrics."""

from collections.abc import Iterator

from starlette.responses import Response

from ...executors.base import AttemptState
from ..controller import Controller
from ..journal.state import FINISHED
from .peer import Caller
from .refusal import HttpError
from .service import Service

TEXT = "text/plain; version=0.0.4; charset=utf-8"


def metrics(service: Service, caller: Caller) -> Response:
    """All numbers as text. Raises HttpError (403) for a caller who may not see all jobs."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

    if not caller.all_jobs:
        raise HttpError(
            403,
            "metrics are of all jobs; they are for the controller's user and its administrators",
        )

    class Numbers:
        def collect(self) -> Iterator[Metric]:
            yield from service.ask(_families)

    def _families(controller: Controller) -> list[Metric]:
        state = controller.state
        gpus = GaugeMetricFamily("optsched_gpus", "GPUs of each node.", labels=["node", "gpu_type"])
        used = GaugeMetricFamily("optsched_gpus_in_use", "GPUs that jobs hold.", labels=["node"])
        usable = GaugeMetricFamily(
            "optsched_node_usable", "1 where a node takes jobs.", labels=["node"]
        )
        held = dict.fromkeys((status.node.name for status in controller.statuses), 0)
        for attempt in state.live_attempts():
            for slot in attempt.placement:
                held[slot.node] = held.get(slot.node, 0) + slot.gpus
        for status in controller.statuses:
            gpus.add_metric([status.node.name, status.node.gpu_type or ""], status.node.gpus)
            usable.add_metric([status.node.name], float(status.usable))
            used.add_metric([status.node.name], held[status.node.name])
        counts = dict.fromkeys(("waiting", "held", "starting", "running", "stopping", "lost"), 0)
        done = dict.fromkeys(FINISHED, 0)
        preemptions = failures = 0
        for job in state.jobs.values():
            into = counts if job.finished is None else done
            into[job.status] = into.get(job.status, 0) + 1
            preemptions += job.preemptions
            failures += job.failures
        jobs = GaugeMetricFamily("optsched_jobs", "Jobs that have not finished.", labels=["status"])
        for status_name, count in counts.items():
            jobs.add_metric([status_name], count)
        finished = CounterMetricFamily(
            "optsched_jobs_finished", "Jobs that have finished.", labels=["status"]
        )
        for status_name, count in done.items():
            finished.add_metric([status_name], count)
        found: list[Metric] = [gpus, used, usable, jobs, finished]
        for name, text, amount in (
            ("optsched_preemptions", "Times a job was preempted.", preemptions),
            ("optsched_failures", "Attempts that failed.", failures),
            ("optsched_rounds", "Rounds that were decided.", state.round),
            ("optsched_journal_events", "Events in the journal.", controller.journal.last),
        ):
            found.append(CounterMetricFamily(name, text, value=amount))
        unreachable = sum(
            one.state == AttemptState.UNREACHABLE for one in controller.observed.values()
        )
        found.append(
            GaugeMetricFamily(
                "optsched_attempts_unreachable", "Attempts nobody answers for.", value=unreachable
            )
        )
        last = controller.last_round
        if last is not None:
            gap = GaugeMetricFamily(
                "optsched_round_gap", "Proven gap of the last round.", value=last.gap
            )
            wall = GaugeMetricFamily(
                "optsched_round_seconds", "Seconds the last round took.", value=controller.round_s
            )
            prices = GaugeMetricFamily(
                "optsched_price", "What one unit of a capacity costs.", labels=["capacity"]
            )
            for row in last.prices:
                prices.add_metric([row.name], row.price)
            found += [gap, wall, prices]
        return found

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Numbers())
    return Response(generate_latest(registry), media_type=TEXT)
