"""The requests there are. One more is one more `Route`; the OpenAPI document is made from the same
list."""

from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from ...frozen import record
from ..budgets_left import BudgetsView
from ..explain.explaining import Explained
from ..reloading import Reloaded
from ..shares import SharesView
from ..what_if.words import Foretold
from .accounting import account
from .asking import explained, foretold
from .bodies import (
    MOST_BYTES,
    MOST_BYTES_OF_MANY,
    AccountQuery,
    AmendBody,
    BatchBody,
    ChangeBody,
    HistoryQuery,
    JobsQuery,
    LiftBody,
    OutputQuery,
    RoundsQuery,
    ShellQuery,
    SignalBody,
    SubmitBody,
    UsageQuery,
    WhatIfBody,
    WindowBody,
)
from .calendar import lift_window, set_window, windows
from .dashboard import dashboard
from .history import history
from .metrics import TEXT, metrics
from .peer import Caller
from .place import METRICS_TOKEN, VIEW_TOKEN
from .service import Change, Service
from .usage import usage
from .views import (
    Account,
    History,
    JobDetail,
    JobPage,
    JobView,
    Names,
    Nodes,
    Output,
    Rounds,
    Shell,
    StateView,
    Usage,
    Windows,
)

VIEWS_OPEN = (VIEW_TOKEN,)
"""What opens requests that only look, besides the token of the controller's user."""


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
    anybody's, and needs no caller; the others need the token of the controller's user over
    the port, or one by which they are `opened_by`."""

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
    most_bytes: int = MOST_BYTES
    slow: bool = False
    public: bool = False
    opened_by: tuple[str, ...] = ()


def _submit(service: Service, asked: Asked) -> tuple[int, JobView]:
    job, new = service.submit(asked.caller, asked.body)
    return (201 if new else 200), job


def _submit_all(service: Service, asked: Asked) -> tuple[int, Names]:
    names, new = service.submit_all(asked.caller, asked.body)
    return (201 if new else 200), names


def _openapi(service: Service, asked: Asked) -> Response:
    from .openapi import document

    return Response(document(service.routes), media_type="application/json")


def _change(change: Change, summary: str) -> tuple[Route, Route]:
    """Return how one job is changed, and how all that are chosen are."""
    return (
        Route(
            f"/v1/jobs/{{job}}/{change}",
            change,
            summary,
            lambda service, asked: service.change(asked.caller, asked.job, change),
            method="POST",
            answer=JobView,
            refusals=(404, 409),
        ),
        Route(
            f"/v1/{change}",
            f"{change}_all",
            f"{summary} For all jobs that are chosen.",
            lambda service, asked: service.change_all(asked.caller, asked.body, change),
            method="POST",
            body=ChangeBody,
            answer=Names,
        ),
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
        "/v1/batch",
        "submit_all",
        "Submit many jobs, all or none.",
        _submit_all,
        method="POST",
        body=BatchBody,
        answer=Names,
        statuses=(201, 200),
        refusals=(409,),
        most_bytes=MOST_BYTES_OF_MANY,
    ),
    Route(
        "/v1/jobs",
        "jobs",
        "List jobs.",
        lambda service, asked: service.jobs(asked.caller, asked.query),
        query=JobsQuery,
        answer=JobPage,
        opened_by=VIEWS_OPEN,
    ),
    Route(
        "/v1/jobs/{job}",
        "job",
        "One job and its attempts.",
        lambda service, asked: service.job(asked.caller, asked.job),
        answer=JobDetail,
        refusals=(404,),
    ),
    *_change("hold", "Keep a job from running; stop it if it runs."),
    *_change("release", "Let a held job run again."),
    *_change("cancel", "Stop a job for good."),
    *_change("requeue", "Run a job again from its last checkpoint."),
    Route(
        "/v1/jobs/{job}/change",
        "change",
        "Change what a job asks for.",
        lambda service, asked: service.amend(asked.caller, asked.job, asked.body),
        method="POST",
        body=AmendBody,
        answer=JobView,
        refusals=(404, 409),
    ),
    Route(
        "/v1/jobs/{job}/shell",
        "shell",
        "How to start a shell beside a running job.",
        lambda service, asked: service.shell(asked.caller, asked.job, asked.query),
        query=ShellQuery,
        answer=Shell,
        refusals=(404, 409),
    ),
    Route(
        "/v1/jobs/{job}/signal",
        "signal",
        "Send a signal to the command of a running job.",
        lambda service, asked: service.signal(asked.caller, asked.job, asked.body),
        method="POST",
        body=SignalBody,
        answer=JobView,
        refusals=(404, 409),
    ),
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
        opened_by=VIEWS_OPEN,
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
        opened_by=VIEWS_OPEN,
    ),
    Route(
        "/v1/shares",
        "shares",
        "What tenants and users are entitled to, and have used.",
        lambda service, asked: service.shares(asked.caller),
        answer=SharesView,
        opened_by=VIEWS_OPEN,
    ),
    Route(
        "/v1/budgets",
        "budgets",
        "What is left of budgets of GPU-hours, and until when.",
        lambda service, asked: service.budgets(asked.caller),
        answer=BudgetsView,
        opened_by=VIEWS_OPEN,
    ),
    Route(
        "/v1/windows",
        "windows",
        "Maintenance, reservations and drained nodes.",
        lambda service, asked: windows(service, asked.caller),
        answer=Windows,
        opened_by=VIEWS_OPEN,
    ),
    Route(
        "/v1/windows",
        "set_window",
        "Set a window: maintenance, a reservation, a drain.",
        lambda service, asked: set_window(service, asked.caller, asked.body),
        method="POST",
        body=WindowBody,
        answer=Windows,
        refusals=(409,),
    ),
    Route(
        "/v1/windows/lift",
        "lift_window",
        "Take a window back.",
        lambda service, asked: lift_window(service, asked.caller, asked.body),
        method="POST",
        body=LiftBody,
        answer=Windows,
        refusals=(404,),
    ),
    Route(
        "/v1/rounds",
        "rounds",
        "The last rounds.",
        lambda service, asked: service.rounds(asked.query),
        query=RoundsQuery,
        answer=Rounds,
        opened_by=VIEWS_OPEN,
    ),
    Route(
        "/v1/state",
        "state",
        "The cluster in short.",
        lambda service, asked: service.state(asked.caller),
        answer=StateView,
        opened_by=VIEWS_OPEN,
    ),
    Route(
        "/v1/history",
        "history",
        "What was where in the last hours.",
        lambda service, asked: history(service, asked.caller, asked.query),
        query=HistoryQuery,
        answer=History,
        opened_by=VIEWS_OPEN,
    ),
    Route(
        "/v1/usage",
        "usage",
        "GPUs held and jobs waiting over time, by tenant or user.",
        lambda service, asked: usage(service, asked.caller, asked.query),
        query=UsageQuery,
        answer=Usage,
        opened_by=VIEWS_OPEN,
    ),
    Route(
        "/v1/reload",
        "reload",
        "Read cluster.toml again.",
        lambda service, asked: service.reload(asked.caller),
        method="POST",
        answer=Reloaded,
    ),
    Route(
        "/v1/account",
        "account",
        "What was used, by whom and for what.",
        lambda service, asked: account(service, asked.caller, asked.query),
        query=AccountQuery,
        answer=Account,
        slow=True,
    ),
    Route(
        "/metrics",
        "metrics",
        "Numbers for Prometheus.",
        lambda service, asked: metrics(service, asked.caller),
        media_type=TEXT,
        opened_by=(METRICS_TOKEN,),
    ),
    Route(
        "/",
        "dashboard",
        "The dashboard.",
        lambda service, asked: dashboard(),
        media_type="text/html",
        public=True,
    ),
    Route("/v1/openapi.json", "openapi", "This description.", _openapi),
]
