"""The OpenAPI 3.1 description of the API, made from its routes and the types they name."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...files import adapter
from .answers import Fault
from .bodies import MOST_BYTES, Name

if TYPE_CHECKING:
    from .routes import Route

ANY_REQUEST = {
    400: "it is not an HTTP request, or its body is not JSON",
    401: "over the port: the token is missing or wrong",
    403: "the caller may not do this",
    408: "the request took too long to come",
    413: f"the body is larger than {MOST_BYTES} bytes",
    422: "a field is unknown, missing, out of range, or asks for what this cluster can never do",
    503: "the controller is busy, stopping, or cannot write its journal: nothing was done; "
    "Retry-After says when to ask again",
}
REFUSALS = {
    404: "there is no such thing that the caller may see",
    409: "what is there already is against it",
    415: "the body is of another type",
}
GOOD = {200: "done", 201: "made"}


@cache
def document(routes: tuple["Route", ...]) -> str:
    """Return the description as JSON text."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    fault = _schema(Fault, schemas)
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, fault, schemas)
    return json.dumps(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "optsched controller",
                "version": __version__,
                "description": "Jobs, nodes and rounds of a live cluster. Over the unix socket a "
                "caller is the user of its process; over the port it is the controller's own, and "
                "needs the token. Every refusal carries one sentence.",
            },
            "servers": [{"url": "/"}],
            "security": [{"token": []}, {}],
            "paths": paths,
            "components": {
                "schemas": dict(sorted(schemas.items())),
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
        },
        indent=1,
    )


def _operation(route: "Route", fault: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"schema": {}}
    if route.answer is not None:
        good = {"schema": _schema(route.answer, schemas)}
    elif route.media_type == "application/json":
        good = {"schema": {"type": "object"}}
    refusals = {**ANY_REQUEST, **{status: REFUSALS[status] for status in route.refusals}}
    if "body" in route.takes:
        refusals[415] = REFUSALS[415]
    answers = [(status, GOOD[status], route.media_type, good) for status in route.statuses]
    answers += [
        (status, why, "application/json", {"schema": fault})
        for status, why in sorted(refusals.items())
    ]
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "responses": {
            str(status): {"description": what, "content": {media_type: content}}
            for status, what, media_type, content in answers
        },
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _schema(Name, schemas)}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    parameters += _query_parameters(route.takes["query"]) if "query" in route.takes else []
    if parameters:
        operation["parameters"] = parameters
    if "body" in route.takes:
        schema = _schema(route.takes["body"], schemas)
        content = {"application/json": {"schema": schema}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _query_parameters(kind: type) -> Iterator[dict[str, Any]]:
    whole = adapter(kind).json_schema()
    required = whole.get("required", [])
    for name, schema in whole["properties"].items():
        own = [inner for inner in schema.get("anyOf", []) if inner != {"type": "null"}]
        if len(own) == 1:
            schema = {**own[0], "title": schema["title"]}
        yield {"name": name, "in": "query", "required": name in required, "schema": schema}


def _schema(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return a reference to the schema of a type, which is put into `schemas` with all it refers
    to; other types in place."""
    schema: dict[str, Any] = adapter(kind).json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(schema.pop("$defs", {}))
    if not isinstance(kind, type):
        return schema
    schemas[kind.__name__] = schema
    return {"$ref": f"#/components/schemas/{kind.__name__}"}
