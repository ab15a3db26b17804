"""Answers and refusals as replies of HTTP."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.responses import Response

from silicast.core.errors import ErrorKind, SilicastError
from silicast.scenario.answer import Problem, Refusal, refusal

JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"
STATUS: Final[dict[ErrorKind, int]] = {
    "invalid_input": 422,
    "unknown_name": 422,
    "not_yet": 422,
    "unsupported": 422,
    "limit": 413,
    "io": 422,
    "internal": 500,
}
"""Kind of refusal -> status of HTTP; a defect of Silicast alone is a 500."""
KINDS: Final[dict[int, ErrorKind]] = {408: "limit", 413: "limit", 429: "limit"}


def refusal_response(status: int, message: str, hint: str = "", field: str = "") -> Response:
    """A refusal in the form of every other one."""
    problem = Problem(KINDS.get(status, "invalid_input"), message, field, hint)
    headers = {"retry-after": "1"} if status == 429 else {}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return json_response(Refusal(None, False, problem), status, headers)


def error_response(error: SilicastError) -> Response:
    """The refusal that an error is."""
    return json_response(refusal(error), STATUS[error.kind])


def json_response(
    value: object, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Anything as JSON."""
    return Response(msgspec.json.encode(value), status, headers, JSON)
