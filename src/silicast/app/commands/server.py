"""`silicast server`."""

from __future__ import annotations

import os
from contextlib import suppress
from errno import EADDRINUSE
from socket import AF_INET, AF_INET6, IPPROTO_TCP, TCP_NODELAY, create_server, socket

from silicast.app import status
from silicast.app.console import warn
from silicast.core.errors import SilicastError
from silicast.core.packages import missing_package


def server(
    *,
    host: str = "127.0.0.1",
    port: int = 8421,
    processes: int = 2,
    waiting: int = 32,
    seconds: float = 20.0,
    points: int = 1000,
    sweep_points: int = 10_000,
) -> int:
    """Answer over HTTP, with a page for a browser, until it is interrupted.

    Predictions, batches, sweeps, reports, the catalog and /openapi.json; files are neither read nor
    written for a request. Elsewhere than on this machine it asks for the token in SILICAST_TOKEN.

    Args:
        host: the address to listen on.
        port: the port to listen on.
        processes: that answer at the same time.
        waiting: requests that may wait for one of them.
        seconds: that a request may take.
        points: scenarios that a batch may hold.
        sweep_points: that the space of a sweep may hold.
    """
    from silicast.app.server.settings import TOKEN, ServerSettings
    from silicast.runner.sweep_jobs import SweepLimits

    settings = ServerSettings(
        host=host,
        port=port,
        token=os.environ.get(TOKEN, ""),
        processes=processes,
        waiting=waiting,
        seconds=seconds,
        points=points,
        sweeps=SweepLimits(points=sweep_points),
    )
    try:
        import uvicorn

        from silicast.app.server.connections import bounded_connections
        from silicast.app.server.routes import build_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("uvicorn", "starlette", "anyio"):
            raise
        raise missing_package(error.name or "", "the server") from None
    with _listening(host, port) as listener:
        warn(f"http://{host}:{listener.getsockname()[1]} (end it with Ctrl-C)")
        config = uvicorn.Config(
            build_server(settings),
            http=bounded_connections(settings),
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_keep_alive=5,
            h11_max_incomplete_event_size=1 << 14,
        )
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])
    return status.ANSWERED


def _listening(host: str, port: int) -> socket:
    """A socket that is bound to an address.

    Its connections send at once what they are given: replies are written head and body apart, and
    a kernel that waits for the acknowledgement of the head adds 40 ms to each.

    Raises:
        SilicastError: there is no such address here, or another program has the port.
    """
    try:
        listener = create_server((host, port), family=AF_INET6 if ":" in host else AF_INET)
    except OSError as error:
        raise SilicastError(
            f"cannot listen on {host}, port {port}: {error.strerror}",
            kind="io",
            field="--port" if error.errno == EADDRINUSE else "--host",
            hint="another port, or an address of this machine",
        ) from None
    listener.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
    return listener
