"""What every request passes on its way in and out: keys, sizes, times, counts and headers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from longtail.app.serve.keys import Keys
from longtail.app.serve.metrics import Metrics
from longtail.app.serve.problems import Problem, as_problem, busy
from longtail.app.serve.settings import LOOPBACK, Limits

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
"""Where in the scope of a request the code of its problem stands, if it has one."""
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
_ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", POLICY.encode()),
]
_NOT_KEPT = (b"cache-control", b"no-store")
_LEAVE = {"Connection": "close"}
_OWN = frozenset([*LOOPBACK, "[::1]"])  # on other ports other servers may listen
_GONE = 499  # in metrics: the client has left


class _GoneError(Exception):
    """The client has left before its request was whole."""


class Guard:
    """The outermost part of the application.

    Parameters
    ----------
    app : ASGI application
        Answers what `direct` doesn't.
    limits : Limits
    keys : Keys
    metrics : Metrics
    open_paths : collection of str
        Answered without a key.
    direct : dict of (str, str) to function
        By method and path, functions from headers and body to an answer in JSON: the way around the framework for what
        must be fast.
    known_paths : collection of str
        Paths that metrics name; parts that vary stand in braces there.
    hosts : set of str, optional
        Names that a request may ask for, without a port; any when left out.
    """

    def __init__(
        self,
        app: App,
        *,
        limits: Limits,
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
        """Answer one request."""
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
            if problem.code == "internal" and not isinstance(error, Problem):
                logger.error("%s %s", scope["method"], self._named(scope["path"]), exc_info=error)
            scope[CODE] = problem.code
            await exchange.refuse(problem)
        finally:
            self._in_progress -= 1
            self._held -= exchange.held
            self._count(self._named(scope["path"]), exchange.status, scope.get(CODE), time.perf_counter() - begin)

    async def _answer(self, scope: Scope, receive: Receive, exchange: _Exchange) -> None:
        path, headers = scope["path"], scope["headers"]
        method = "GET" if scope["method"] == "HEAD" else scope["method"]  # the body is left out when it is sent
        has_body = _has_body(headers)
        if path not in HEALTH:
            try:
                self._check(path, method, headers)
            except Problem as problem:
                if has_body:  # unread, so that no other request can follow
                    problem.headers.update(_LEAVE)
                raise
        elif method != "GET":
            raise Problem(
                "method_not_allowed",
                "This path has other methods: /openapi.json lists them.",
                {"Allow": "GET, HEAD", **_LEAVE},
            )
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
        """Refuse what a page of another site asks, also where its name was made to lead to this machine."""
        host = origin = None
        for name, value in headers:
            if name == b"host":
                host = value.decode("latin-1").lower()
                if self._hosts is not None and _without_port(host) not in self._hosts:
                    raise Problem("forbidden", "This server goes by another name: --allowed-host adds one.")
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
            raise Problem(
                "unauthorised",
                "An API key is needed: send it as Authorization: Bearer KEY or as X-API-Key.",
                {"WWW-Authenticate": "Bearer"},
            )
        if self._in_progress > self._limits.requests:
            raise busy(f"{self._limits.requests:,} requests are in progress, the most: try again later.")

    async def _body(self, headers: Headers, receive: Receive, exchange: _Exchange) -> bytes:
        most = self._limits.body_bytes
        for name, value in headers:
            if name == b"content-length" and (len(value) > 12 or not value.isdigit() or int(value) > most):
                raise self._too_large()
        message = await self._next(receive, self._limits.body_seconds)
        body: bytes = message.get("body", b"")
        self._hold(exchange, len(body))
        if not message.get("more_body", False):
            if len(body) > most:
                raise self._too_large()
            return body
        parts, size = [body], len(body)
        end = time.monotonic() + self._limits.body_seconds
        while message.get("more_body", False):
            if size > most:
                raise self._too_large()
            message = await self._next(receive, end - time.monotonic())
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            self._hold(exchange, len(parts[-1]))
        if size > most:
            raise self._too_large()
        return b"".join(parts)

    def _hold(self, exchange: _Exchange, size: int) -> None:
        """Count bytes of bodies that are in memory until they are answered."""
        exchange.held += size
        self._held += size
        if self._held > self._limits.held_bytes:
            problem = busy(f"Bodies of {self._limits.held_bytes:,} bytes are in progress, the most: try again later.")
            problem.headers.update(_LEAVE)
            raise problem

    async def _next(self, receive: Receive, seconds: float) -> Message:
        try:
            async with asyncio.timeout(max(seconds, 0)):
                message = await receive()
        except TimeoutError:
            raise Problem(
                "body_timeout",
                f"The body did not come within {self._limits.body_seconds:g} seconds: send it faster.",
                _LEAVE,
            ) from None
        if message["type"] == "http.disconnect":
            raise _GoneError
        return message

    def _too_large(self) -> Problem:
        return Problem(
            "too_large", f"The body may have {self._limits.body_bytes:,} bytes: send fewer rows in a request.", _LEAVE
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
    """The answer to one request: its status, its headers, and that it is sent once."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.held = 0

    async def send(self, message: Message) -> None:
        """Pass a message of the framework on, with the headers that all answers have."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), *_ALWAYS]
            if not any(name == b"cache-control" for name, _ in headers):
                headers.append(_NOT_KEPT)
            message = {**message, "headers": headers}
        await self._send(message)

    async def answer(self, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Send JSON."""
        await self.send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [
                    (b"content-type", b"application/json"),
                    (b"content-length", b"%d" % len(body)),
                    *headers,
                ],
            }
        )
        await self.send({"type": "http.response.body", "body": body})

    async def refuse(self, problem: Problem) -> None:
        """Send a problem, unless an answer has begun already."""
        if self.status:
            return
        headers = [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
        await self.answer(problem.status, problem.body(), headers)


def _other_site() -> Problem:
    return Problem("forbidden", "A page of another site may not ask this server to do something.")


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and not name.endswith(":") else host


def _has_body(headers: Headers) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0")) for name, value in headers
    )


def _replay(body: bytes) -> Receive:
    """A body that was read already, as the framework wants to read it."""
    sent = False

    async def receive() -> Message:
        nonlocal sent
        if sent:
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
