"""The requests there are. One more is one more `Route`; the OpenAPI document is made from the same
list."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, get_args, get_origin, get_type_hints

from starlette.responses import Response

from ...frozen import record
from .accounting import account
from .answers import JobView, Names
from .asking import explained, foretold
from .bodies import MOST_BYTES, MOST_BYTES_OF_MANY, ChangeBody
from .calendar import lift_window, set_window, windows
from .dashboard import dashboard
from .history import history
from .metrics import TEXT, metrics
from .peer import Caller
from .place import METRICS_TOKEN, VIEW_TOKEN
from .service import Change, Service
from .usage import usage

TAKEN = ("caller", "name", "query", "body")
"""What a request may give to the function that does it, by the names of its parameters."""


@record
class Route:
    """One request. `does` answers it on a thread where it may wait: it is given the service and, of
    `TAKEN`, what it has parameters for, whose types are those of the query and the body. It returns
    an object of the type of the answer (or a status and such an object), or a response of its own,
    whose `media_type` is named then; `slow` ones only hold up each other. `refusals` are the
    statuses with which it may be refused beyond those of every request. A `public` one tells
    nothing that is anybody's, and needs no caller; the others need the token of the controller's
    user over the port, or one by which they are `opened_by`."""

    path: str
    name: str
    summary: str
    does: Callable[..., Any]
    method: str = "GET"
    statuses: tuple[int, ...] = (200,)
    refusals: tuple[int, ...] = ()
    media_type: str = "application/json"
    most_bytes: int = MOST_BYTES
    slow: bool = False
    public: bool = False
    opened_by: tuple[str, ...] = ()

    @property
    def takes(self) -> dict[str, type]:
        """Return the types of what it takes of `TAKEN`."""
        return {name: kind for name, kind in _hints(self.does).items() if name in TAKEN}

    @property
    def answer(self) -> type | None:
        """Return the type of the answer; None where that is a response of its own."""
        kind = _hints(self.does).get("return", Response)
        kind = get_args(kind)[1] if get_origin(kind) is tuple else kind
        return None if kind is Response else kind


posted = partial(Route, method="POST")
viewed = partial(Route, opened_by=(VIEW_TOKEN,))
"""A request that only looks is opened by that token besides the one of the controller's user."""


@cache
def _hints(does: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(does)


def _openapi(service: Service) -> Response:
    from .openapi import document

    return Response(document(service.routes), media_type="application/json")


def _change(change: Change, summary: str) -> tuple[Route, Route]:
    """Return how one job is changed, and how all that are chosen are."""

    def one(service: Service, caller: Caller, name: str) -> JobView:
        return service.change(caller, name, change)

    def chosen(service: Service, caller: Caller, body: ChangeBody) -> Names:
        return service.change_all(caller, body, change)

    path, every = f"/v1/jobs/{{job}}/{change}", f"{summary} For all jobs that are chosen."
    return (
        posted(path, change, summary, one, refusals=(404, 409)),
        posted(f"/v1/{change}", f"{change}_all", every, chosen),
    )


ROUTES: list[Route] = [
    posted(
        "/v1/jobs", "submit", "Submit a job.", Service.submit, statuses=(201, 200), refusals=(409,)
    ),
    posted(
        "/v1/batch",
        "submit_all",
        "Submit many jobs, all or none.",
        Service.submit_all,
        statuses=(201, 200),
        refusals=(409,),
        most_bytes=MOST_BYTES_OF_MANY,
    ),
    viewed("/v1/jobs", "jobs", "List jobs.", Service.jobs),
    Route("/v1/jobs/{job}", "job", "One job and its attempts.", Service.job, refusals=(404,)),
    *_change("hold", "Keep a job from running; stop it if it runs."),
    *_change("release", "Let a held job run again."),
    *_change("cancel", "Stop a job for good."),
    *_change("requeue", "Run a job again from its last checkpoint."),
    posted(
        "/v1/jobs/{job}/change",
        "change",
        "Change what a job asks for.",
        Service.amend,
        refusals=(404, 409),
    ),
    Route(
        "/v1/jobs/{job}/shell",
        "shell",
        "How to start a shell beside a running job.",
        Service.shell,
        refusals=(404, 409),
    ),
    posted(
        "/v1/jobs/{job}/signal",
        "signal",
        "Send a signal to the command of a running job.",
        Service.signal,
        refusals=(404, 409),
    ),
    posted(
        "/v1/jobs/{job}/clear",
        "clear",
        "Vouch that nothing is left of an attempt that is lost, or that cannot be ended.",
        Service.clear,
        refusals=(404, 409),
    ),
    Route(
        "/v1/jobs/{job}/output",
        "output",
        "What an attempt of a job printed.",
        Service.output,
        refusals=(404,),
    ),
    viewed(
        "/v1/jobs/{job}/explain",
        "explain",
        "Why a job runs, waits, or has ended.",
        explained,
        refusals=(404,),
    ),
    posted(
        "/v1/what-if",
        "what_if",
        "What would become of the present jobs.",
        foretold,
        refusals=(404,),
        slow=True,
    ),
    viewed("/v1/nodes", "nodes", "All nodes and who holds what of them.", Service.nodes),
    viewed(
        "/v1/shares",
        "shares",
        "What tenants and users are entitled to, and have used.",
        Service.shares,
    ),
    viewed(
        "/v1/budgets",
        "budgets",
        "What is left of budgets of GPU-hours, and until when.",
        Service.budgets,
    ),
    viewed("/v1/windows", "windows", "Maintenance, reservations and drained nodes.", windows),
    posted(
        "/v1/windows",
        "set_window",
        "Set a window: maintenance, a reservation, a drain.",
        set_window,
        refusals=(409,),
    ),
    posted("/v1/windows/lift", "lift_window", "Take a window back.", lift_window, refusals=(404,)),
    viewed("/v1/rounds", "rounds", "The last rounds.", Service.rounds),
    viewed("/v1/state", "state", "The cluster in short.", Service.state),
    viewed("/v1/history", "history", "What was where in the last hours.", history),
    viewed("/v1/usage", "usage", "GPUs held and jobs waiting over time, by tenant or user.", usage),
    posted("/v1/reload", "reload", "Read cluster.toml again.", Service.reload),
    Route("/v1/account", "account", "What was used, by whom and for what.", account, slow=True),
    Route(
        "/metrics",
        "metrics",
        "Numbers for Prometheus.",
        metrics,
        media_type=TEXT,
        opened_by=(METRICS_TOKEN,),
    ),
    Route(
        "/",
        "dashboard",
        "The dashboard.",
        lambda service: dashboard(),
        media_type="text/html",
        public=True,
    ),
    Route("/v1/openapi.json", "openapi", "This description.", _openapi),
]
