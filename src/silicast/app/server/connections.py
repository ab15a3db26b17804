"""Connections of a server: how many are open, and how long requests may take to come."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast, final

from uvicorn.protocols.http.h11_impl import H11Protocol, h11

from silicast.app.server.settings import ServerSettings

FULL = (
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\nretry-after: 1\r\n"
    b"connection: close\r\n\r\n"
)
LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
LINGERS_S = 2.0
"""Seconds in which a client can read a reply that it got before its whole body was there."""


@final
class BoundedConnection(H11Protocol):  # type: ignore[misc]
    """A connection of this server. By itself uvicorn answers 503 where too many are open, waits for
    the head of a request for as long as it takes, and reads on what comes after a refusal.
    """

    def __init__(self, settings: ServerSettings, **named: Any) -> None:
        super().__init__(**named)
        self._settings = settings
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Refuses it where too many are open."""
        super().connection_made(transport)
        if len(self.connections) > self._settings.connections:
            transport.write(FULL)
            transport.close()
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Takes what came."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Ends it soon if the body that was refused still comes."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self.loop.call_later(LINGERS_S, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Watches no more."""
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Ends it unless the head is whole in time."""
        if self.conn.their_state is not h11.IDLE:
            if self._late is not None:
                self._late.cancel()
                self._late = None
        elif self._late is None:
            self._late = self.loop.call_later(self._settings.seconds, self._end)

    def _end(self) -> None:
        """Closes it; who has begun to ask is told why."""
        if self.conn.trailing_data[0]:
            self.transport.write(LATE)
        self.transport.close()


def bounded_connections(settings: ServerSettings) -> type[asyncio.Protocol]:
    """What makes connections that keep a server's limits; uvicorn calls it as it calls a class."""
    return cast("type[asyncio.Protocol]", partial(BoundedConnection, settings))
