"""The OpenAPI 3.1 description of the API, made from its routes and the types they name."""

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...files import adapter
from .bodies import BODIES, MOST_BYTES, QUERIES, Name
from .views import VIEWS, Fault

if TYPE_CHECKING:
    from .routes import Route

ANY_REQUEST = {
    400: "it is no HTTP request, or its body no JSON",
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
    """The description as JSON text."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    fault = _schema(Fault, VIEWS, schemas)
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
    good: dict[str, Any] = {
        "schema": {"type": "object"} if route.media_type == "application/json" else {}
    }
    if route.answer is not None:
        good = {"schema": _schema(route.answer, VIEWS, schemas)}
    responses: dict[str, Any] = {
        str(status): {"description": GOOD[status], "content": {route.media_type: good}}
        for status in route.statuses
    }
    refusals = {**ANY_REQUEST, **{status: REFUSALS[status] for status in route.refusals}}
    if route.body is not None:
        refusals[415] = REFUSALS[415]
    for status, why in sorted(refusals.items()):
        responses[str(status)] = {
            "description": why,
            "content": {"application/json": {"schema": fault}},
        }
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "responses": responses,
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _schema(Name, VIEWS, schemas)}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    if route.query is not None:
        parameters += _query_parameters(route.query, schemas)
    if parameters:
        found["parameters"] = parameters
    if route.body is not None:
        schema = _schema(route.body, BODIES, schemas)
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    return found


def _query_parameters(kind: type, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    whole = adapter(kind, QUERIES).json_schema()
    required = whole.get("required", [])
    found = []
    for name, schema in whole["properties"].items():
        alternatives = [one for one in schema.get("anyOf", []) if one != {"type": "null"}]
        if len(alternatives) == 1:
            schema = {**alternatives[0], "title": schema["title"]}
        found.append({"name": name, "in": "query", "required": name in required, "schema": schema})
    return found


def _schema(kind: Any, nouns: tuple[type, ...], schemas: dict[str, Any]) -> dict[str, Any]:
    """A reference to the schema of a type, which is put into `schemas` with all it refers to; other
    types in place."""
    found: dict[str, Any] = adapter(kind, nouns).json_schema(
        ref_template="#/components/schemas/{model}"
    )
    schemas.update(found.pop("$defs", {}))
    if not isinstance(kind, type):
        return found
    schemas[kind.__name__] = found
    return {"$ref": f"#/components/schemas/{kind.__name__}"}
