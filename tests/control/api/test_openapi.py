"""The published description: sound, complete, and true of the answers."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from optsched.control.api.routes import ROUTES

from .live import Live

SELDOM = (("GET", "/v1/openapi.json"), ("POST", "/v1/what-if"))
"""What takes long, or no arguments."""
OPERATIONS = [(route.method, route.path) for route in ROUTES]
JSON_OPERATIONS = [
    (route.method, route.path) for route in ROUTES if route.media_type == "application/json"
]


@pytest.fixture(scope="module")
def published(live: Live) -> Any:
    status, document = live.ask("GET", "/v1/openapi.json")
    assert status == 200
    return document


def resolved(document: Any, schema: Any) -> dict[str, Any]:
    return {**schema, "components": document["components"]}


def check(document: Any, method: str, path: str, status: int, answer: Any) -> None:
    """The answer is one that the description promises."""
    responses = document["paths"][path][method.lower()]["responses"]
    assert str(status) in responses, (method, path, status, answer)
    schema = responses[str(status)]["content"]["application/json"]["schema"]
    Draft202012Validator(resolved(document, schema)).validate(answer)


def test_it_is_sound_and_names_every_route(published: Any) -> None:
    assert published["openapi"] == "3.1.0"
    assert {
        (method.upper(), path) for path, item in published["paths"].items() for method in item
    } == set(OPERATIONS)
    names = [
        operation["operationId"]
        for item in published["paths"].values()
        for operation in item.values()
    ]
    assert len(set(names)) == len(names)
    text = json.dumps(published)
    for reference in re.findall(r'"\$ref": "#/components/schemas/(\w+)"', text):
        assert reference in published["components"]["schemas"]
    for schema in published["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for path, item in published["paths"].items():
        for operation in item.values():
            inside = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"}
            assert inside == set(re.findall(r"\{(\w+)\}", path))
            assert {"400", "401", "403", "422", "503"} <= set(operation["responses"])


def test_every_answer_is_as_described(live: Live, published: Any) -> None:
    live.submit(1000.0, name="described", gpus=2)
    live.wait("described", "running")
    job = {"{job}": "described"}
    for method, path in JSON_OPERATIONS:
        at = path.replace("{job}", job["{job}"])
        status, answer = live.ask(method, at)
        check(published, method, path, status, answer)
        check(published, method, path, 401, live.ask(method, at, port=True)[1])
        if "{job}" in path:
            status, answer = live.ask(method, path.replace("{job}", "absent"))
            needs_body = "requestBody" in published["paths"][path][method.lower()]
            assert status == (400 if needs_body else 404)  # the body is looked at first
            check(published, method, path, status, answer)
    live.ask("POST", "/v1/jobs/described/cancel")  # it may have been requeued
    live.wait("described", "cancelled")
    for query in ("?finished", "?all", "?finished&all&limit=1"):
        status, answer = live.ask("GET", f"/v1/jobs{query}")
        assert status == 200
        check(published, "GET", "/v1/jobs", status, answer)


def values(document: Any, schema: Any) -> st.SearchStrategy[Any]:
    """Values of a schema, as far as the description uses it; now and then of another type."""
    if "$ref" in schema:
        return values(
            document, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        )
    for many in ("anyOf", "oneOf"):
        if many in schema:
            return st.one_of(*(values(document, one) for one in schema[many]))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    kind = schema.get("type")
    if kind == "null":
        return st.none()
    if kind == "boolean":
        return st.booleans()
    if kind == "integer":
        return st.integers(schema.get("minimum"), schema.get("maximum"))
    if kind == "number":
        least, most = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
        return st.floats(least, most, allow_nan=False, exclude_min="exclusiveMinimum" in schema)
    if kind == "string":
        if "pattern" in schema:
            return st.from_regex(schema["pattern"].removesuffix("$") + r"\Z").filter(
                lambda text: len(text) <= schema.get("maxLength", 100)
            )
        return st.text(
            min_size=schema.get("minLength", 0), max_size=min(20, schema.get("maxLength", 20))
        )
    if kind == "array":
        return st.lists(
            values(document, schema["items"]), min_size=schema.get("minItems", 0), max_size=3
        )
    if "properties" in schema:
        needed = set(schema.get("required", ()))
        parts = {name: values(document, one) for name, one in schema["properties"].items()}
        return st.fixed_dictionaries(
            {name: one for name, one in parts.items() if name in needed},
            optional={name: one for name, one in parts.items() if name not in needed},
        )
    inner = schema.get("additionalProperties") or next(
        iter(schema.get("patternProperties", {}).values()), {}
    )
    names = schema.get("propertyNames") or {"type": "string"}
    keys = next(iter(schema.get("patternProperties", {})), None)
    names = {"type": "string", "pattern": keys} if keys else {"type": "string", **names}
    if inner is True or not inner:
        return st.just({})
    return st.dictionaries(values(document, names), values(document, inner), max_size=3)


@given(data=st.data())
@settings(max_examples=30)
def test_what_the_description_allows_is_answered_as_it_says(
    live: Live, published: Any, data: st.DataObject
) -> None:
    method, path = data.draw(st.sampled_from([one for one in JSON_OPERATIONS if one not in SELDOM]))
    operation = published["paths"][path][method.lower()]
    at, pairs = path, []
    for parameter in operation.get("parameters", ()):
        value = data.draw(values(published, parameter["schema"]) | st.text(max_size=8))
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if parameter["in"] == "path":
            at = at.replace("{job}", quoted(text) or "x")
        elif data.draw(st.booleans()):
            pairs.append(f"{parameter['name']}={quoted(text)}")
    body = None
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        drawn = data.draw(values(published, schema))
        body = json.dumps({**drawn, "hold": True} if path == "/v1/jobs" else drawn).encode()
    status, answer = live.ask(method, at + ("?" + "&".join(pairs) if pairs else ""), body)
    assert status < 500 and live.failed is None
    if "%2F" not in at and at.rpartition("/")[2] not in (".", ".."):
        check(published, method, path, status, answer)


def quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="", errors="replace")
