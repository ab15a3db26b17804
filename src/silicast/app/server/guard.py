"""What every request passes before it is read: who asks, from where, and headers of replies."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, final

from silicast.app.server.settings import LOCAL_NAMES, ServerSettings

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

PUBLIC = ("/", "/page.js", "/page.css", "/health")
"""Paths that hold nothing but the page itself."""
CONTENT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", CONTENT.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


@final
class Guard:
    """Refuses requests without the token, and, of a local server, those that a page of another site
    sends through the user's browser (another host's name, or another origin).
    """

    def __init__(self, app: Application, settings: ServerSettings) -> None:
        self._app, self._settings, self._is_local = app, settings, settings.is_local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or refuses it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = {
            bytes(name).lower(): bytes(value).decode("latin-1") for name, value in scope["headers"]
        }

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *HEADERS]
            await send(message)

        refused = self._refused(scope["path"], headers)
        if refused is None:
            await self._app(scope, receive, with_headers)
            return
        from silicast.app.server.replies import refusal_response

        await refusal_response(*refused)(scope, receive, with_headers)

    def _refused(self, path: str, headers: dict[bytes, str]) -> tuple[int, str, str] | None:
        """Status, what is wrong and what to do; None = it may pass."""
        host = headers.get(b"host", "")
        if self._is_local and _name(host) not in LOCAL_NAMES:
            return 421, "this server answers on its own machine alone", "ask 127.0.0.1"
        origin = headers.get(b"origin")
        if origin is not None and origin.partition("://")[2] != host:
            return 403, "pages of other sites may not ask", "open the page of this server"
        if self._settings.token and path not in PUBLIC:
            token = headers.get(b"authorization", "").removeprefix("Bearer ").encode("latin-1")
            if not hmac.compare_digest(token, self._settings.token.encode()):
                return 401, "no token, or another", "send Authorization: Bearer TOKEN"
        return None


def _name(host: str) -> str:
    """A host's name without its port.

    >>> _name("127.0.0.1:8421"), _name("[::1]:80"), _name("localhost")
    ('127.0.0.1', '[::1]', 'localhost')
    """
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].casefold()
