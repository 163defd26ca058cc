"""Requests in, answers out: what every request has in common."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from ...files import adapter
from .answers import Fault
from .bodies import parse_body, parse_query
from .peer import NOBODY
from .refusal import HttpError
from .routes import ROUTES, Route
from .service import Service

THREADS, SLOW_THREADS = 64, 8
"""So many requests wait for the controller at once, or compute; further ones wait for these."""
SENTENCES = {404: "there is nothing at this address; /v1/openapi.json lists what there is"}


def make_app(service: Service, routes: Sequence[Route] = ROUTES) -> Starlette:
    """Return the application that answers `routes`."""
    limiters: dict[bool, CapacityLimiter] = {}
    service.routes = tuple(routes)
    paths: dict[str, dict[str, Route]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method] = route

    def endpoint(methods: dict[str, Route]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            route = methods["GET" if request.method == "HEAD" else request.method]
            if route.slow not in limiters:  # they belong to the event loop, which runs only now
                limiters[route.slow] = CapacityLimiter(SLOW_THREADS if route.slow else THREADS)
            data = await _body(request, route.most_bytes)
            return await to_thread.run_sync(
                _done, service, route, request, data, limiter=limiters[route.slow]
            )

        return answer

    app = Starlette(
        routes=[
            HttpRoute(path, endpoint(methods), methods=[*methods])
            for path, methods in paths.items()
        ],
        exception_handlers=dict.fromkeys(
            (HttpError, HTTPException, ClientDisconnect, Exception), _refused
        ),
    )
    app.router.redirect_slashes = False
    return app


def _done(service: Service, route: Route, request: Request, data: bytes) -> Response:
    caller = NOBODY
    if not route.public:
        uid = request.scope["state"].get("uid")
        caller = service.access.of_request(uid, request.headers, route.opened_by)
    given: dict[str, Any] = {"caller": caller, "name": request.path_params.get("job")}
    takes, pairs = route.takes, request.query_params.multi_items()
    if "query" in takes:
        given["query"] = parse_query(takes["query"], pairs)
    elif pairs:
        raise HttpError(422, f"{pairs[0][0][:64]}: this request takes no query; leave it out")
    if "body" in takes:
        kind = request.headers.get("content-type", "application/json").partition(";")[0]
        if kind.strip().lower() != "application/json":
            raise HttpError(415, "the body must be JSON: Content-Type: application/json")
        given["body"] = parse_body(takes["body"], data)
    elif data.strip() not in (b"", b"{}"):
        raise HttpError(422, "this request takes no body; leave it out")
    answer = route.does(service, **{name: given[name] for name in takes})
    if isinstance(answer, Response):
        return answer
    return as_json(*(answer if isinstance(answer, tuple) else (route.statuses[0], answer)))


def as_json(status: int, view: Any, headers: dict[str, str] | None = None) -> Response:
    """Return a view as the body of a response."""
    kind: type = type(view)
    return Response(adapter(kind).dump_json(view), status, headers, "application/json")


async def _body(request: Request, most_bytes: int) -> bytes:
    """Return the body, refused as soon as it is known to be too large."""
    stated = request.headers.get("content-length", "")
    too_large = HttpError(413, f"the body is larger than {most_bytes} bytes")
    if stated.isdecimal() and (len(stated) > 18 or int(stated) > most_bytes):
        raise too_large
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most_bytes:
            raise too_large
    return bytes(body)


def _refused(request: Request, error: Exception) -> Response:
    """Say in one sentence why a request was not done."""
    headers = None
    match error:
        case HttpError(status=status):
            why = str(error)
            headers = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "1"}}.get(status)
        case HTTPException(status_code=status):
            default = f"{request.method} is not done here: {error.detail}"
            why, headers = SENTENCES.get(status, default), dict(error.headers or {})
        case ClientDisconnect():
            status, why = 400, "the request ended early"  # nobody reads it
        case _:
            kind = type(error).__name__
            status, why = 500, f"a bug in optsched, not in your request: {kind}"
    return as_json(status, Fault(error=why), headers)
