"""The routes of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, final

import anyio
from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from silicast.app.server.assets import asset
from silicast.app.server.guard import Guard
from silicast.app.server.metrics import RequestCounts
from silicast.app.server.openapi import openapi
from silicast.app.server.replies import (
    JSON,
    LINES,
    STATUS,
    error_response,
    json_response,
    refusal_response,
)
from silicast.app.server.settings import ServerSettings
from silicast.app.server.setups import PageSetup, scenarios_of
from silicast.core.decode import decode_json
from silicast.core.errors import SilicastError
from silicast.core.metrics import METRICS
from silicast.runner.lines import Line
from silicast.runner.pool import AnswerPool, TooBusyError, TooSlowError
from silicast.runner.replies import Replied

Handler = Callable[[Request], Awaitable[Response]]

ASSETS = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
MOST_TEXT = 100


class RefusedRequestError(Exception):
    """A request that gets no answer; what it gets instead."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


@final
class PredictionServer:
    """Handlers of requests; the pool answers them."""

    def __init__(self, settings: ServerSettings, pool: AnswerPool) -> None:
        self._settings, self._pool = settings, pool
        self._counts = RequestCounts()
        callers = sum((settings.processes, settings.waiting, 1))
        self._threads = anyio.CapacityLimiter(callers)

    async def predict(self, request: Request) -> Response:
        """One scenario, as an object of JSON."""
        content = await self._body(request)
        (reply,) = await self._answers([(1, content)])
        if reply.ok:
            return Response(reply.line, media_type=JSON)
        return Response(reply.line, _status_of(reply), media_type=JSON)

    async def batch(self, request: Request) -> Response:
        """Several, one a line; each gets an answer or a refusal, in order."""
        content = await self._body(request)
        lines = [
            (number, line.rstrip(b"\r"))
            for number, line in enumerate(content.split(b"\n"), 1)
            if line.strip()
        ]
        if not lines:
            raise RefusedRequestError(refusal_response(422, "holds no scenario", "one a line"))
        if len(lines) > self._settings.points:
            message = f"{len(lines)} scenarios; at most {self._settings.points} are answered"
            raise RefusedRequestError(refusal_response(413, message, "send several requests"))
        rows = await self._answers(lines)
        return Response(b"".join(row.line for row in rows), media_type=LINES)

    async def setup(self, request: Request) -> Response:
        """The scenarios that the page asks of a setup."""
        setup = decode_json(await self._body(request), PageSetup)
        return json_response(scenarios_of(setup))

    async def catalog(self, request: Request) -> Response:
        """Names of devices, models or engines."""
        text = request.query_params.get("contains", "")
        if len(text) > MOST_TEXT:
            raise RefusedRequestError(refusal_response(422, "is too long", field="contains"))
        kind = request.path_params["kind"]
        if kind not in CATALOGS:
            known = ", ".join(CATALOGS)
            raise RefusedRequestError(refusal_response(404, f"no catalog of that name: {known}"))
        return json_response([name for name in CATALOGS[kind]() if _contains(name, text)])

    async def meanings(self, _request: Request) -> Response:
        """What each metric means."""
        rows = {
            name: {"unit": metric.unit, "kind": metric.kind, "text": metric.text}
            for name, metric in METRICS.items()
        }
        return json_response(rows)

    async def counters(self, _request: Request) -> Response:
        """Counters, for Prometheus."""
        return Response(self._counts.text(), media_type="text/plain; version=0.0.4")

    async def health(self, _request: Request) -> Response:
        """That it is there."""
        return json_response({"ok": True})

    async def description(self, _request: Request) -> Response:
        """Itself by OpenAPI."""
        return json_response(openapi())

    async def asset(self, request: Request) -> Response:
        """A file of the page; which ones there are is fixed."""
        name, kind = ASSETS[request.url.path]
        return Response(asset(name), media_type=kind)

    def counted(self, route: str, handler: Handler) -> Handler:
        """A handler whose replies are counted, and whose refusals are replies."""

        async def handle(request: Request) -> Response:
            try:
                response = await handler(request)
            except RefusedRequestError as error:
                response = error.response
            except SilicastError as error:
                response = error_response(error)
            except ClientDisconnect:
                response = Response(status_code=400)
            self._counts.add(route, response.status_code)
            return response

        return handle

    async def _body(self, request: Request) -> bytes:
        """A request's body, within size and time."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().casefold()
        if kind not in (JSON, LINES):
            message = f"expected a body of {JSON} or {LINES}"
            raise RefusedRequestError(refusal_response(415, message, field="content-type"))
        content = bytearray()
        try:
            with anyio.fail_after(self._settings.seconds):
                async for chunk in request.stream():
                    content.extend(chunk)
                    if len(content) > self._settings.body_bytes:
                        message = f"more than {self._settings.body_bytes} bytes"
                        raise RefusedRequestError(refusal_response(413, message))
        except TimeoutError:
            message = "the body took too long to come"
            raise RefusedRequestError(refusal_response(408, message)) from None
        return bytes(content)

    async def _answers(self, lines: Sequence[Line]) -> list[Replied]:
        try:
            rows: list[Replied] = await to_thread.run_sync(
                self._pool.answer, lines, limiter=self._threads
            )
            return rows
        except TooBusyError:
            message = "as many requests wait as may"
            raise RefusedRequestError(refusal_response(429, message, "ask again later")) from None
        except TooSlowError:
            message = f"took longer than {self._settings.seconds:g} s, and was ended"
            hint = "ask for fewer requests, devices or plans"
            raise RefusedRequestError(refusal_response(408, message, hint)) from None


def build_server(settings: ServerSettings) -> Starlette:
    """The application, whose processes start with it and end with it."""
    pool = AnswerPool(settings.processes, settings.waiting, settings.seconds, settings.memory_bytes)
    here = PredictionServer(settings, pool)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            pool.end()

    posts: dict[str, Handler] = {
        "/v1/predict": here.predict,
        "/v1/batch": here.batch,
        "/v1/setup": here.setup,
    }
    gets: dict[str, Handler] = {
        "/v1/catalog/{kind}": here.catalog,
        "/v1/metrics": here.meanings,
        "/metrics": here.counters,
        "/health": here.health,
        "/openapi.json": here.description,
        **dict.fromkeys(ASSETS, here.asset),
    }
    routes = [
        Route(path, here.counted(path, handler), methods=[method])
        for method, table in (("POST", posts), ("GET", gets))
        for path, handler in table.items()
    ]
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(Guard, settings=settings)],
        exception_handlers={HTTPException: _not_routed},
    )


async def _not_routed(_request: Request, error: Exception) -> Response:
    """No such path or method."""
    assert isinstance(error, HTTPException)
    return refusal_response(error.status_code, str(error.detail), "see /openapi.json")


def _devices() -> Sequence[str]:
    from silicast.hardware.index import device_names

    index = device_names()
    return [name for name in index.names if not index.get(name).missing]


def _models() -> Sequence[str]:
    from silicast.workload.models.lookup import model_names

    return model_names()


def _engines() -> Sequence[str]:
    from silicast.composition.engines.engine import engine_names

    return list(engine_names().names)


CATALOGS: dict[str, Callable[[], Sequence[str]]] = {
    "devices": _devices,
    "models": _models,
    "engines": _engines,
}


def _contains(name: str, text: str) -> bool:
    from silicast.core.naming import normalise

    return normalise(text) in normalise(name)


def _status_of(reply: Replied) -> int:
    import msgspec

    problem: Any = msgspec.json.decode(reply.line)["error"]
    return STATUS.get(problem["kind"], 422)
