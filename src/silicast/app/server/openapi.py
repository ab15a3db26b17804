"""The description of a server by OpenAPI 3.1, made from the types that are decoded and encoded."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from silicast import __version__
from silicast.app.server.replies import JSON, LINES
from silicast.app.server.setups import PageSetup
from silicast.exploration.scenario_space import SweepFile
from silicast.runner.sweep_jobs import SweepStatus
from silicast.scenario.answer import Answer, Refusal
from silicast.scenario.schema import RawScenario

REFUSED = ("401", "403", "408", "413", "415", "421", "422", "429")


@cache
def openapi() -> dict[str, Any]:
    """The whole document."""
    template = "#/components/schemas/{name}"
    types = (RawScenario, Answer, Refusal, PageSetup, SweepFile, SweepStatus)
    schemas, components = msgspec.json.schema_components(types, ref_template=template)
    scenario, answer, refused, setup, space, status = schemas
    predict = _post("Predict one scenario", JSON, scenario, answer, refused)
    line = "one scenario a line; answers come in the same order"
    batch = _post(line, LINES, {"type": "string"}, {"type": "string"}, refused)
    listed = {"type": "array", "items": scenario}
    setup_route = _post("What the page asks of a setup", JSON, setup, listed, refused)
    report = _post("Predict one scenario, as a page", JSON, scenario, None, refused)
    sweep = _post("Begin a sweep", JSON, space, status, refused)
    sweep["responses"]["202"] = sweep["responses"].pop("200")
    rows = _get("Answers of a sweep, one a line", [_name(), _after()])
    names = _get("Names of the catalog that contain a text", _contains())
    return {
        "openapi": "3.1.0",
        "info": {"title": "Silicast", "version": __version__},
        "paths": {
            "/v1/predict": {"post": predict},
            "/v1/batch": {"post": batch},
            "/v1/setup": {"post": setup_route},
            "/v1/report": {"post": report},
            "/v1/sweeps": {"post": sweep},
            "/v1/sweeps/{name}": {
                "get": _get("How far a sweep is", [_name()]),
                "delete": _get("Cancel a sweep; its answers stay", [_name()]),
            },
            "/v1/sweeps/{name}/answers": {"get": rows},
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
    summary: str,
    kind: str,
    body: dict[str, Any],
    answer: dict[str, Any] | None,
    refused: dict[str, Any],
) -> dict[str, Any]:
    """A route that takes a body; ``answer``: None = a page."""
    problem = {"description": "refused", "content": {JSON: {"schema": refused}}}
    content = {"text/html": {"schema": {"type": "string"}}}
    if answer is not None:
        content = {kind: {"schema": answer}}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {kind: {"schema": body}}},
        "responses": {
            "200": {"description": "answered", "content": content},
            **dict.fromkeys(REFUSED, problem),
        },
    }


def _get(summary: str, parameters: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    responses = {"description": "answered"}
    refused = {code: {"description": "refused"} for code in ("401", "403", "404", "421", "422")}
    optional = {"parameters": parameters} if parameters else {}
    return {"summary": summary, **optional, "responses": {"200": responses, **refused}}


def _name() -> dict[str, Any]:
    return {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}


def _after() -> dict[str, Any]:
    rows = {"type": "integer", "minimum": 0, "maximum": 999_999_999}
    return {"name": "after", "in": "query", "required": False, "schema": rows}


def _contains() -> list[dict[str, Any]]:
    kind = {"type": "string", "enum": ["devices", "models", "engines"]}
    text = {"type": "string", "maxLength": 100}
    return [
        {"name": "kind", "in": "path", "required": True, "schema": kind},
        {"name": "contains", "in": "query", "required": False, "schema": text},
    ]
