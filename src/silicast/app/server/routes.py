"""The routes of a server, and its counters as Prometheus reads them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from silicast.app.server.assets import asset
from silicast.app.server.guard import Guard
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
from silicast.core.plain_data import shown
from silicast.runner.lines import Line
from silicast.runner.pool import AnswerPool, TooBusyError, TooSlowError
from silicast.runner.replies import Replied
from silicast.runner.sweep_jobs import SweepJob, SweepJobs, TooManySweepsError

HEAD = (
    "# HELP silicast_requests_total Requests by route and status.\n"
    "# TYPE silicast_requests_total counter\n"
)
SWEEPS = (
    "# HELP silicast_sweeps_running Sweeps that run.\n"
    "# TYPE silicast_sweeps_running gauge\n"
    "silicast_sweeps_running {}\n"
)


@final
class RequestCounts:
    """Requests by route and status, since the server started; all in one thread."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int]] = Counter()

    def add(self, route: str, status: int) -> None:
        """Counts a request."""
        self._counts[route, status] += 1

    def text(self, *, running_sweeps: int) -> str:
        """All counters, in the text format of Prometheus."""
        rows = (
            f'silicast_requests_total{{route="{route}",status="{status}"}} {count}\n'
            for (route, status), count in sorted(self._counts.items())
        )
        return HEAD + "".join(rows) + SWEEPS.format(running_sweeps)


Handler = Callable[[Request], Awaitable[Response]]
Result = TypeVar("Result")

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
        self._sweeps = SweepJobs(pool, settings.sweeps)
        self._counts = RequestCounts()

    async def begin(self) -> None:
        """Starts the processes."""
        await self._pool.begin()

    def end(self) -> None:
        """Cancels sweeps and ends the processes."""
        self._sweeps.end()
        self._pool.end()

    async def predict(self, request: Request) -> Response:
        """One scenario, as an object of JSON."""
        content = await self._body(request)
        (reply,) = await self._answers(request, [(1, content)])
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
        rows = await self._answers(request, lines)
        return Response(b"".join(row.line for row in rows), media_type=LINES)

    async def report(self, request: Request) -> Response:
        """The answer to one scenario as a page of its own, to keep or to print."""
        content = await self._body(request)
        (reply,) = await self._answers(request, [(1, content)])
        if not reply.ok:
            return Response(reply.line, _status_of(reply), media_type=JSON)
        page = await asyncio.to_thread(_report_page, content, reply)
        return Response(page, media_type="text/html; charset=utf-8")

    async def begin_sweep(self, request: Request) -> Response:
        """A space of scenarios, whose points are answered behind all other requests."""
        content = await self._body(request)
        try:
            job = await self._work(request, self._sweeps.begin(content))
        except TooManySweepsError:
            message = f"{self._settings.sweeps.jobs} sweeps run already"
            hint = "wait for one, or cancel it: DELETE /v1/sweeps/ID"
            raise RefusedRequestError(refusal_response(429, message, hint)) from None
        if isinstance(job, Replied):
            return Response(job.line, _status_of(job), media_type=JSON)
        return json_response(job.status, 202, {"location": f"/v1/sweeps/{job.name}"})

    async def sweep(self, request: Request) -> Response:
        """How far a sweep is."""
        return json_response(self._job(request).status)

    async def sweep_rows(self, request: Request) -> Response:
        """Answers of a sweep that are there, one a line, from the number ``after`` on."""
        rows = self._job(request).rows
        after = _parameter(request, "after", "0")
        if not (after.isascii() and after.isdecimal() and len(after) < 10):
            message = f"expected a whole number from 0, found {after[:20]!r}"
            raise RefusedRequestError(refusal_response(422, message, field="after"))
        page = rows[int(after) :][: self._settings.points]
        return Response(b"".join(page), media_type=LINES)

    async def cancel_sweep(self, request: Request) -> Response:
        """Ends a sweep; its answers stay."""
        job = self._job(request)
        job.stop("cancelled")
        return json_response(job.status)

    def _job(self, request: Request) -> SweepJob:
        job = self._sweeps.find(request.path_params["name"])
        if job is None:
            message, hint = "no sweep of that id", "the oldest that ended are forgotten"
            raise RefusedRequestError(refusal_response(404, message, hint))
        return job

    async def setup(self, request: Request) -> Response:
        """The scenarios that the page asks of a setup."""
        setup = decode_json(await self._body(request), PageSetup)
        return json_response(scenarios_of(setup))

    async def catalog(self, request: Request) -> Response:
        """Names of devices, models or engines."""
        text = _parameter(request, "contains", "")
        if len(text) > MOST_TEXT:
            raise RefusedRequestError(refusal_response(422, "is too long", field="contains"))
        kind = request.path_params["kind"]
        if kind not in CATALOGS:
            kinds = ", ".join(CATALOGS)
            raise RefusedRequestError(refusal_response(404, f"no catalog of that name: {kinds}"))
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
        text = self._counts.text(running_sweeps=len(self._sweeps.running))
        return Response(text, media_type="text/plain; version=0.0.4")

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
            async with asyncio.timeout(self._settings.seconds):
                async for chunk in request.stream():
                    content.extend(chunk)
                    if len(content) > self._settings.body_bytes:
                        message = f"more than {self._settings.body_bytes} bytes"
                        raise RefusedRequestError(refusal_response(413, message))
        except TimeoutError:
            message = "the body took too long to come"
            raise RefusedRequestError(refusal_response(408, message)) from None
        return bytes(content)

    async def _answers(self, request: Request, lines: Sequence[Line]) -> list[Replied]:
        return await self._work(request, self._pool.answer(lines))

    async def _work(self, request: Request, work: Coroutine[Any, Any, Result]) -> Result:
        """What the pool makes; the work ends when the one who asked is gone."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_is_gone(request))
        gone.add_done_callback(lambda _: task.cancel())
        try:
            return await task
        except asyncio.CancelledError:
            if gone.done() and not gone.cancelled():
                raise ClientDisconnect from None
            raise
        except TooBusyError:
            message = "as many requests wait as may"
            raise RefusedRequestError(refusal_response(429, message, "ask again later")) from None
        except TooSlowError:
            message = f"took longer than {self._settings.seconds:g} s, and was ended"
            hint = "ask for fewer requests, devices or plans"
            raise RefusedRequestError(refusal_response(408, message, hint)) from None
        finally:
            gone.cancel()
            task.cancel()


def _parameter(request: Request, name: str, default: str) -> str:
    """The one parameter that an address may have after its question mark.

    Raises:
        RefusedRequestError: it stands twice, or another one is there.
    """
    parameters = request.query_params.multi_items()
    if parameters and [key for key, _ in parameters] != [name]:
        other = next((key for key, _ in parameters if key != name), "")
        message = f"unknown parameter {shown(other)}" if other else "stands twice"
        hint = f"this path knows ?{name}="
        raise RefusedRequestError(refusal_response(422, message, hint, field=name))
    return parameters[0][1] if parameters else default


async def _is_gone(request: Request) -> None:
    """Returns when the one who asked has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _report_page(content: bytes, reply: Replied) -> str:
    from silicast.core.plain_data import parse_json
    from silicast.report.answers import title
    from silicast.report.drawing.page import answer_page

    return answer_page(title(parse_json(content)), parse_json(reply.line))


def build_server(settings: ServerSettings) -> Starlette:
    """The application, whose processes start with it and end with it."""
    pool = AnswerPool(
        settings.processes,
        settings.waiting,
        settings.seconds,
        settings.wait_s,
        settings.memory_bytes,
    )
    here = PredictionServer(settings, pool)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        try:
            await here.begin()
            yield
        finally:
            here.end()

    posts: dict[str, Handler] = {
        "/v1/predict": here.predict,
        "/v1/batch": here.batch,
        "/v1/report": here.report,
        "/v1/setup": here.setup,
        "/v1/sweeps": here.begin_sweep,
    }
    deletes: dict[str, Handler] = {"/v1/sweeps/{name}": here.cancel_sweep}
    gets: dict[str, Handler] = {
        "/v1/catalog/{kind}": here.catalog,
        "/v1/metrics": here.meanings,
        "/v1/sweeps/{name}": here.sweep,
        "/v1/sweeps/{name}/answers": here.sweep_rows,
        "/metrics": here.counters,
        "/health": here.health,
        "/openapi.json": here.description,
        **dict.fromkeys(ASSETS, here.asset),
    }
    paths: dict[str, dict[str, Handler]] = {}
    for method, table in (("POST", posts), ("GET", gets), ("DELETE", deletes)):
        for path, handler in table.items():
            paths.setdefault(path, {})[method] = here.counted(path, handler)
    routes = [
        Route(path, _by_method(handlers), methods=[*handlers]) for path, handlers in paths.items()
    ]
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(Guard, settings=settings)],
        exception_handlers={HTTPException: _not_routed},
    )


def _by_method(handlers: Mapping[str, Handler]) -> Handler:
    """One handler of a path, whose methods are then named together where another one is asked."""

    async def handle(request: Request) -> Response:
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return handle


async def _not_routed(_request: Request, error: Exception) -> Response:
    """No such path or method."""
    assert isinstance(error, HTTPException)
    response = refusal_response(error.status_code, str(error.detail), "see /openapi.json")
    response.headers.update(error.headers or {})
    return response


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
