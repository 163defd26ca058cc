"""The requests there are. One more is one more `Route`; the OpenAPI document is made from the same
list."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.responses import FileResponse, Response

from .asking import explained, foretold
from .bodies import HistoryQuery, JobsQuery, OutputQuery, RoundsQuery, SubmitBody, WhatIfBody
from .history import history
from .metrics import TEXT, metrics
from .peer import Caller
from .service import Service
from .views import (
    Explained,
    Foretold,
    History,
    JobDetail,
    JobPage,
    JobView,
    Nodes,
    Output,
    Rounds,
    StateView,
)

DASHBOARD = Path(__file__).with_name("dashboard.html")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request whose parts have been checked: `job` is the name in its path, `query` and `body`
    are of the types that its route names, None where it names none."""

    caller: Caller
    job: str
    query: Any
    body: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One request. `does` answers it on a thread where it may wait: by an object of type `answer`
    (or of a status and such an object), or by a response of its own, whose `media_type` is named
    then; `slow` ones only hold up each other. `refusals` are the statuses with which it may be
    refused beyond those of every request. Types of queries and bodies go into bodies.QUERIES and
    bodies.BODIES, those of answers into views.VIEWS. A `public` one tells nothing that is
    anybody's, and needs no caller; one `for_metrics` is open to who has only their token."""

    method: str
    path: str
    name: str
    summary: str
    does: Callable[[Service, Asked], Any]
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


ROUTES: list[Route] = [
    Route(
        method="POST",
        path="/v1/jobs",
        name="submit",
        summary="Submit a job.",
        does=_submit,
        body=SubmitBody,
        answer=JobView,
        statuses=(201, 200),
        refusals=(409,),
    ),
    Route(
        method="GET",
        path="/v1/jobs",
        name="jobs",
        summary="List jobs.",
        query=JobsQuery,
        answer=JobPage,
        does=lambda service, asked: service.jobs(asked.caller, asked.query),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{job}",
        name="job",
        summary="One job and its attempts.",
        answer=JobDetail,
        does=lambda service, asked: service.job(asked.caller, asked.job),
        refusals=(404,),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{job}/hold",
        name="hold",
        summary="Keep a job from running; stop it if it runs.",
        answer=JobView,
        does=lambda service, asked: service.change(asked.caller, asked.job, "hold"),
        refusals=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{job}/release",
        name="release",
        summary="Let a held job run again.",
        answer=JobView,
        does=lambda service, asked: service.change(asked.caller, asked.job, "release"),
        refusals=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{job}/cancel",
        name="cancel",
        summary="Stop a job for good.",
        answer=JobView,
        does=lambda service, asked: service.change(asked.caller, asked.job, "cancel"),
        refusals=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{job}/clear",
        name="clear",
        answer=JobView,
        refusals=(404, 409),
        summary="Vouch that nothing is left of an attempt that is lost, or that cannot be ended.",
        does=lambda service, asked: service.clear(asked.caller, asked.job),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{job}/output",
        name="output",
        summary="What an attempt of a job printed.",
        query=OutputQuery,
        answer=Output,
        refusals=(404,),
        does=lambda service, asked: service.output(asked.caller, asked.job, asked.query),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{job}/explain",
        name="explain",
        summary="Why a job runs, waits, or has ended.",
        answer=Explained,
        does=lambda service, asked: explained(service, asked.caller, asked.job),
        refusals=(404,),
    ),
    Route(
        method="POST",
        path="/v1/what-if",
        name="what_if",
        slow=True,
        summary="What would become of the present jobs.",
        body=WhatIfBody,
        answer=Foretold,
        does=lambda service, asked: foretold(service, asked.caller, asked.body),
        refusals=(404,),
    ),
    Route(
        method="GET",
        path="/v1/nodes",
        name="nodes",
        summary="All nodes and who holds what of them.",
        answer=Nodes,
        does=lambda service, asked: service.nodes(asked.caller),
    ),
    Route(
        method="GET",
        path="/v1/rounds",
        name="rounds",
        summary="The last rounds.",
        query=RoundsQuery,
        answer=Rounds,
        does=lambda service, asked: service.rounds(asked.query),
    ),
    Route(
        method="GET",
        path="/v1/state",
        name="state",
        summary="The cluster in short.",
        answer=StateView,
        does=lambda service, asked: service.state(),
    ),
    Route(
        method="GET",
        path="/v1/history",
        name="history",
        summary="What was where in the last hours.",
        answer=History,
        query=HistoryQuery,
        does=lambda service, asked: history(service, asked.caller, asked.query),
    ),
    Route(
        method="GET",
        path="/metrics",
        name="metrics",
        summary="Numbers for Prometheus.",
        media_type=TEXT,
        for_metrics=True,
        does=lambda service, asked: metrics(service, asked.caller),
    ),
    Route(
        method="GET",
        path="/",
        name="dashboard",
        summary="The dashboard.",
        media_type="text/html",
        public=True,
        does=lambda service, asked: FileResponse(DASHBOARD, media_type="text/html; charset=utf-8"),
    ),
    Route(
        method="GET",
        path="/v1/openapi.json",
        name="openapi",
        summary="This description.",
        does=_openapi,
    ),
]
