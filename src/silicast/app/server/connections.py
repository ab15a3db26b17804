"""Connections of a server: how many are open, and how long the head of a request may take."""

from __future__ import annotations

import asyncio
from typing import Any, final

from uvicorn.protocols.http.h11_impl import H11Protocol, h11

from silicast.app.server.settings import ServerSettings

FULL = (
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\nretry-after: 1\r\n"
    b"connection: close\r\n\r\n"
)


def bounded_connections(settings: ServerSettings) -> type[H11Protocol]:
    """The protocol of uvicorn, which by itself answers 503 where too many connections are open, and
    waits for the head of a request for as long as it takes.
    """

    @final
    class BoundedConnection(H11Protocol):  # type: ignore[misc]
        """A connection of this server."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self._late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            if len(self.connections) > settings.connections:
                transport.write(FULL)
                transport.close()
                return
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._late is not None:
                self._late.cancel()
            super().connection_lost(exc)

        def _watch(self) -> None:
            """Closes it unless the head is whole in time."""
            if self.conn.their_state is not h11.IDLE:
                if self._late is not None:
                    self._late.cancel()
                    self._late = None
            elif self._late is None:
                self._late = self.loop.call_later(settings.seconds, self.transport.close)

    return BoundedConnection
