"""Middleware for every request: API keys, limits, timeouts, metrics and headers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from longtail.serve.keys import Keys
from longtail.serve.metrics import Metrics
from longtail.serve.problems import ProblemDetails, as_problem, busy, wrong_method
from longtail.serve.settings import LOOPBACK, ServerLimits

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Direct = Callable[[Headers, bytes], Awaitable[bytes]]

logger = logging.getLogger("longtail.serve")

HEALTH = ("/healthz", "/readyz")
CODE = "longtail.code"
"""Key in the scope of a request for the code of its error, if there is one."""
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
_ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", POLICY.encode()),
]
_NOT_KEPT = (b"cache-control", b"no-store")
_LEAVE = {"Connection": "close"}
_OWN = frozenset([*LOOPBACK, "[::1]"])  # other servers may listen on other ports
_GONE = 499  # status in metrics of requests whose client disconnected


class _GoneError(Exception):
    """The client disconnected before its request was complete."""


class Middleware:
    """ASGI middleware around the application.

    Parameters
    ----------
    app : ASGI application
        Handles the requests that `direct` doesn't.
    limits : ServerLimits
    keys : Keys
    metrics : Metrics
    open_paths : collection of str
        Paths that need no API key.
    direct : dict of (str, str) to function
        By method and path, functions from headers and body to a JSON response, which bypass the framework for speed.
    known_paths : collection of str
        Paths that appear in metrics; variable parts are in braces.
    hosts : set of str, optional
        Accepted host names, without a port; by default any.
    """

    def __init__(
        self,
        app: App,
        *,
        limits: ServerLimits,
        keys: Keys,
        metrics: Metrics,
        open_paths: Iterable[str],
        direct: dict[tuple[str, str], Direct],
        known_paths: Iterable[str],
        hosts: frozenset[str] | None = None,
    ) -> None:
        self._app = app
        self._limits = limits
        self._keys = keys
        self._metrics = metrics
        self._open = frozenset(open_paths)
        self._direct = direct
        self._known = frozenset(known_paths)
        self._hosts = hosts
        self._in_progress = 0
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, exchange = time.perf_counter(), _Exchange(send)
        self._in_progress += 1
        try:
            await self._answer(scope, receive, exchange)
        except _GoneError:
            exchange.status = _GONE
        except Exception as error:
            problem = as_problem(error)
            if problem.code == "internal" and not isinstance(error, ProblemDetails):
                logger.error("%s %s", scope["method"], self._named(scope["path"]), exc_info=error)
            scope[CODE] = problem.code
            await exchange.refuse(problem)
        finally:
            self._in_progress -= 1
            self._held -= exchange.held
            self._count(self._named(scope["path"]), exchange.status, scope.get(CODE), time.perf_counter() - begin)

    async def _answer(self, scope: Scope, receive: Receive, exchange: _Exchange) -> None:
        path, headers = scope["path"], scope["headers"]
        method = "GET" if scope["method"] == "HEAD" else scope["method"]  # the server omits the body
        has_body = _has_body(headers)
        if path not in HEALTH:
            try:
                self._check(path, method, headers)
            except ProblemDetails as problem:
                if has_body:  # it stays unread, so no other request can follow
                    problem.headers.update(_LEAVE)
                raise
        elif method != "GET":
            raise wrong_method({"Allow": "GET, HEAD", **_LEAVE})
        body = await self._body(headers, receive, exchange) if has_body else b""
        direct = self._direct.get((method, path))
        if direct is not None:
            await exchange.answer(200, await direct(headers, body))
            return
        asked = {**scope, "method": method}
        try:
            await self._app(asked, _replay(body), exchange.send)
        finally:
            if CODE in asked:
                scope[CODE] = asked[CODE]

    def _check_site(self, method: str, headers: Headers) -> None:
        """Refuse cross-site requests, DNS rebinding included."""
        host = origin = None
        for name, value in headers:
            if name == b"host":
                host = value.decode("latin-1").lower()
                if self._hosts is not None and _without_port(host) not in self._hosts:
                    raise ProblemDetails(
                        "forbidden", "The Host header names another server: --allowed-host allows a name."
                    )
            elif name == b"origin":
                origin = value.decode("latin-1").lower()
            elif name == b"sec-fetch-site" and method != "GET" and value not in (b"same-origin", b"none"):
                raise _other_site()
        if origin is None or method == "GET":
            return
        asker = origin.partition("://")[2]
        if asker != host and (self._hosts is None or _without_port(asker) not in self._hosts - _OWN):
            raise _other_site()

    def _check(self, path: str, method: str, headers: Headers) -> None:
        self._check_site(method, headers)
        if path not in self._open and not self._keys.accept(headers):
            raise ProblemDetails(
                "unauthorised",
                "An API key is required: send it as Authorization: Bearer KEY or as X-API-Key.",
                {"WWW-Authenticate": "Bearer"},
            )
        if self._in_progress > self._limits.requests:
            raise busy(f"{self._limits.requests:,} requests are in progress, the maximum: try again later.")

    async def _body(self, headers: Headers, receive: Receive, exchange: _Exchange) -> bytes:
        most = self._limits.body_bytes
        for name, value in headers:
            if name == b"content-length" and (len(value) > 12 or not value.isdigit() or int(value) > most):
                raise self._too_large()
        parts: list[bytes] = []
        end, is_complete = time.monotonic() + self._limits.body_seconds, False
        while not is_complete:
            message = await self._next(receive, end - time.monotonic())
            parts.append(message.get("body", b""))
            self._hold(exchange, len(parts[-1]))
            if exchange.held > most:
                raise self._too_large()
            is_complete = not message.get("more_body", False)
        return b"".join(parts)

    def _hold(self, exchange: _Exchange, size: int) -> None:
        """Count the bytes of request bodies in memory."""
        exchange.held += size
        self._held += size
        if self._held > self._limits.held_bytes:
            raise busy(
                f"Bodies of {self._limits.held_bytes:,} bytes are in memory, the maximum: try again later.", **_LEAVE
            )

    async def _next(self, receive: Receive, seconds: float) -> Message:
        try:
            async with asyncio.timeout(max(seconds, 0)):
                message = await receive()
        except TimeoutError:
            raise ProblemDetails(
                "body_timeout",
                f"The body did not arrive within {self._limits.body_seconds:g} seconds: send it faster.",
                _LEAVE,
            ) from None
        if message["type"] == "http.disconnect":
            raise _GoneError
        return message

    def _too_large(self) -> ProblemDetails:
        return ProblemDetails(
            "too_large",
            f"The body may have at most {self._limits.body_bytes:,} bytes: send fewer rows per request.",
            _LEAVE,
        )

    def _named(self, path: str) -> str:
        if path in self._known:
            return path
        for prefix, suffix, name in (
            ("/v1/models/", ":reload", "/v1/models/{name}:reload"),
            ("/v1/models/", "", "/v1/models/{name}"),
            ("/v1/labels/", "", "/v1/labels/{label}"),
        ):
            if path.startswith(prefix) and path.endswith(suffix):
                return name
        return "other"

    def _count(self, path: str, status: int, code: str | None, seconds: float) -> None:
        metrics = self._metrics
        metrics.requests.labels(path, str(status)).inc()
        if code is not None:
            metrics.errors.labels(code).inc()
        metrics.seconds.labels(path).observe(seconds)
        metrics.in_progress.set(self._in_progress)


class _Exchange:
    """The response to one request, which is sent once."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.held = 0

    async def send(self, message: Message) -> None:
        """Forward a message of the framework, with the headers of all responses."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), *_ALWAYS]
            if not any(name == b"cache-control" for name, _ in headers):
                headers.append(_NOT_KEPT)
            message = {**message, "headers": headers}
        await self._send(message)

    async def answer(self, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Send a JSON response."""
        own = (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))
        await self.send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
        await self.send({"type": "http.response.body", "body": body})

    async def refuse(self, problem: ProblemDetails) -> None:
        """Send an error, unless a response has begun."""
        if self.status:
            return
        headers = [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
        await self.answer(problem.status, problem.body(), headers)


def _other_site() -> ProblemDetails:
    return ProblemDetails("forbidden", "Requests from pages of other sites are refused.")


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and not name.endswith(":") else host


def _has_body(headers: Headers) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0")) for name, value in headers
    )


def _replay(body: bytes) -> Receive:
    """Return a body that was read already as an ASGI receive function."""
    sent = False

    async def receive() -> Message:
        nonlocal sent
        if sent:
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
