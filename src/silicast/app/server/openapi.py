"""The description of a server by OpenAPI 3.1, made from the types that are decoded and encoded."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from silicast import __version__
from silicast.app.server.setups import PageSetup
from silicast.scenario.answer import Answer, Refusal
from silicast.scenario.schema import RawScenario

REFUSED = ("401", "403", "408", "413", "421", "422", "429")


@cache
def openapi() -> dict[str, Any]:
    """The whole document."""
    template = "#/components/schemas/{name}"
    (scenario, answer, refused, setup), components = msgspec.json.schema_components(
        (RawScenario, Answer, Refusal, PageSetup), ref_template=template
    )
    predict = _post("Predict one scenario", "application/json", scenario, answer, refused)
    line = "one scenario a line; answers come in the same order"
    batch = _post(line, "application/x-ndjson", {"type": "string"}, {"type": "string"}, refused)
    listed = {"type": "array", "items": scenario}
    setup_route = _post("What the page asks of a setup", "application/json", setup, listed, refused)
    names = _get("Names of the catalog that contain a text", _contains())
    return {
        "openapi": "3.1.0",
        "info": {"title": "Silicast", "version": __version__},
        "paths": {
            "/v1/predict": {"post": predict},
            "/v1/batch": {"post": batch},
            "/v1/setup": {"post": setup_route},
            "/v1/catalog/{kind}": {"get": names},
            "/v1/metrics": {"get": _get("What each metric of an answer means")},
            "/metrics": {"get": _get("Counters of the server, for Prometheus")},
            "/health": {"get": _get("Whether the server answers")},
        },
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _post(
    summary: str, kind: str, body: dict[str, Any], answer: dict[str, Any], refused: dict[str, Any]
) -> dict[str, Any]:
    problem = {"description": "refused", "content": {"application/json": {"schema": refused}}}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {kind: {"schema": body}}},
        "responses": {
            "200": {"description": "answered", "content": {kind: {"schema": answer}}},
            **dict.fromkeys(REFUSED, problem),
        },
    }


def _get(summary: str, parameters: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    responses = {"description": "answered"}
    refused = {code: {"description": "refused"} for code in ("401", "403", "404", "421", "422")}
    stated = {"parameters": parameters} if parameters else {}
    return {"summary": summary, **stated, "responses": {"200": responses, **refused}}


def _contains() -> list[dict[str, Any]]:
    kind = {"type": "string", "enum": ["devices", "models", "engines"]}
    text = {"type": "string", "maxLength": 100}
    return [
        {"name": "kind", "in": "path", "required": True, "schema": kind},
        {"name": "contains", "in": "query", "required": False, "schema": text},
    ]
