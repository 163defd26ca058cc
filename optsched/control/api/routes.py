"""The requests there are. One more is one more `Route`; the OpenAPI document is made from the same
list."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.responses import FileResponse, Response

from ...frozen import record
from ..explain.explaining import Explained
from ..shares import SharesView
from ..what_if.words import Foretold
from .asking import explained, foretold
from .bodies import HistoryQuery, JobsQuery, OutputQuery, RoundsQuery, SubmitBody, WhatIfBody
from .history import history
from .metrics import TEXT, metrics
from .peer import Caller
from .service import Change, Service
from .views import History, JobDetail, JobPage, JobView, Nodes, Output, Rounds, StateView

DASHBOARD = Path(__file__).with_name("dashboard.html")


@record
class Asked:
    """A request whose parts have been checked: `job` is the name in its path, `query` and `body`
    are of the types that its route names, None where it names none."""

    caller: Caller
    job: str
    query: Any
    body: Any


@record
class Route:
    """One request. `does` answers it on a thread where it may wait: by an object of type `answer`
    (or of a status and such an object), or by a response of its own, whose `media_type` is named
    then; `slow` ones only hold up each other. `refusals` are the statuses with which it may be
    refused beyond those of every request. Types of queries and bodies go into bodies.QUERIES and
    bodies.BODIES, those of answers into views.VIEWS. A `public` one tells nothing that is
    anybody's, and needs no caller; one `for_metrics` is open to who has only their token."""

    path: str
    name: str
    summary: str
    does: Callable[[Service, Asked], Any]
    method: str = "GET"
    answer: type | None = None
    query: type | None = None
    body: type | None = None
    statuses: tuple[int, ...] = (200,)
    refusals: tuple[int, ...] = ()
    media_type: str = "application/json"
    slow: bool = False
    public: bool = False
    for_metrics: bool = False


def _submit(service: Service, asked: Asked) -> tuple[int, JobView]:
    job, new = service.submit(asked.caller, asked.body)
    return (201 if new else 200), job


def _openapi(service: Service, asked: Asked) -> Response:
    from .openapi import document

    return Response(document(service.routes), media_type="application/json")


def _change(change: Change, summary: str) -> Route:
    return Route(
        f"/v1/jobs/{{job}}/{change}",
        change,
        summary,
        lambda service, asked: service.change(asked.caller, asked.job, change),
        method="POST",
        answer=JobView,
        refusals=(404, 409),
    )


ROUTES: list[Route] = [
    Route(
        "/v1/jobs",
        "submit",
        "Submit a job.",
        _submit,
        method="POST",
        body=SubmitBody,
        answer=JobView,
        statuses=(201, 200),
        refusals=(409,),
    ),
    Route(
        "/v1/jobs",
        "jobs",
        "List jobs.",
        lambda service, asked: service.jobs(asked.caller, asked.query),
        query=JobsQuery,
        answer=JobPage,
    ),
    Route(
        "/v1/jobs/{job}",
        "job",
        "One job and its attempts.",
        lambda service, asked: service.job(asked.caller, asked.job),
        answer=JobDetail,
        refusals=(404,),
    ),
    _change("hold", "Keep a job from running; stop it if it runs."),
    _change("release", "Let a held job run again."),
    _change("cancel", "Stop a job for good."),
    Route(
        "/v1/jobs/{job}/clear",
        "clear",
        "Vouch that nothing is left of an attempt that is lost, or that cannot be ended.",
        lambda service, asked: service.clear(asked.caller, asked.job),
        method="POST",
        answer=JobView,
        refusals=(404, 409),
    ),
    Route(
        "/v1/jobs/{job}/output",
        "output",
        "What an attempt of a job printed.",
        lambda service, asked: service.output(asked.caller, asked.job, asked.query),
        query=OutputQuery,
        answer=Output,
        refusals=(404,),
    ),
    Route(
        "/v1/jobs/{job}/explain",
        "explain",
        "Why a job runs, waits, or has ended.",
        lambda service, asked: explained(service, asked.caller, asked.job),
        answer=Explained,
        refusals=(404,),
    ),
    Route(
        "/v1/what-if",
        "what_if",
        "What would become of the present jobs.",
        lambda service, asked: foretold(service, asked.caller, asked.body),
        method="POST",
        body=WhatIfBody,
        answer=Foretold,
        refusals=(404,),
        slow=True,
    ),
    Route(
        "/v1/nodes",
        "nodes",
        "All nodes and who holds what of them.",
        lambda service, asked: service.nodes(asked.caller),
        answer=Nodes,
    ),
    Route(
        "/v1/shares",
        "shares",
        "What tenants and users are entitled to, and have used.",
        lambda service, asked: service.shares(asked.caller),
        answer=SharesView,
    ),
    Route(
        "/v1/rounds",
        "rounds",
        "The last rounds.",
        lambda service, asked: service.rounds(asked.query),
        query=RoundsQuery,
        answer=Rounds,
    ),
    Route(
        "/v1/state",
        "state",
        "The cluster in short.",
        lambda service, asked: service.state(),
        answer=StateView,
    ),
    Route(
        "/v1/history",
        "history",
        "What was where in the last hours.",
        lambda service, asked: history(service, asked.caller, asked.query),
        query=HistoryQuery,
        answer=History,
    ),
    Route(
        "/metrics",
        "metrics",
        "Numbers for Prometheus.",
        lambda service, asked: metrics(service, asked.caller),
        media_type=TEXT,
        for_metrics=True,
    ),
    Route(
        "/",
        "dashboard",
        "The dashboard.",
        lambda service, asked: FileResponse(DASHBOARD, media_type="text/html; charset=utf-8"),
        media_type="text/html",
        public=True,
    ),
    Route("/v1/openapi.json", "openapi", "This description.", _openapi),
]
