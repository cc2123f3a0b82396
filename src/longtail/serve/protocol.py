"""uvicorn's HTTP protocol with limits on request heads, timeouts and connections."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from longtail.serve.problems import ProblemDetails
from longtail.serve.settings import ServerLimits


class _TooLargeError(Exception):
    """The head of a request exceeds its limit."""


class _Ending:
    """The transport as uvicorn's responses use it; closing it calls `GuardedProtocol.leave`."""

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, protocol: GuardedProtocol) -> None:
        self.write = protocol.transport.write
        self.is_closing = protocol.transport.is_closing
        self.close = protocol.leave


class GuardedProtocol(HttpToolsProtocol):
    """One connection; `with_limits` returns the class for given limits."""

    limits: ClassVar[ServerLimits] = ServerLimits()
    _leaving: ClassVar[set[GuardedProtocol]] = set()  # connections after their last response

    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _unfinished_bytes = 0
    _has_counted = False
    _write_timer: asyncio.TimerHandle | None = None
    _in_body = False
    _rest_timer: asyncio.TimerHandle | None = None
    _rest_bytes = 0

    @classmethod
    def with_limits(cls, limits: ServerLimits) -> type[GuardedProtocol]:
        """Return a class of connections with these limits."""
        return type("LimitedProtocol", (cls,), {"limits": limits, "_leaving": set()})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or refuse it if there are too many."""
        super().connection_made(transport)
        if len(self.connections) - len(self._leaving) > self.limits.connections:
            self._refuse(
                ProblemDetails(
                    "not_ready", f"There are {self.limits.connections:,} connections, the maximum: try again later."
                )
            )
            return
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timers."""
        self._leaving.discard(self)
        self._stop_timer()
        for timer in (self._write_timer, self._rest_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data; refuse a head that exceeds its limit."""
        if self.transport.is_closing():
            return
        if self._rest_timer is not None:
            self._rest_bytes += len(data)
            if self._rest_bytes > self.limits.rest_bytes:
                self.transport.close()
            return
        self._has_counted = False
        super().data_received(data)
        if self._in_body or self._rest_timer is not None:
            return
        if self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_head()
        if self._head_timer is not None and not self.transport.is_closing():
            if b"\n" in data:
                self._unfinished_bytes = len(data) - data.rindex(b"\n") - 1
            elif not self._has_counted:
                self._unfinished_bytes += len(data)  # of a header that the parser buffers until it is complete
            if self._is_large:
                self._refuse(self._large_head())

    def on_message_begin(self) -> None:
        """Start counting a new head."""
        self._head_bytes = self._unfinished_bytes = 0
        self._expect_head()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        self._count(len(name) + len(value))
        if len(self.headers) >= self.limits.headers:
            raise _TooLargeError
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Stop the timer of the head and start the request."""
        self._stop_timer()
        self._in_body = True
        super().on_headers_complete()
        self.cycle.transport = _Ending(self)  # type: ignore[assignment]

    def on_message_complete(self) -> None:
        """Note that the body is complete."""
        self._in_body = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid HTTP and oversized heads."""
        too_large = self._is_large or len(self.headers or ()) >= self.limits.headers
        self._refuse(
            self._large_head() if too_large else ProblemDetails("bad_request", "This is not a valid HTTP request.")
        )

    def on_response_complete(self) -> None:
        """Continue with the next request, unless the connection is closing."""
        if self._rest_timer is None:
            super().on_response_complete()
        else:
            self.server_state.total_requests += 1

    def leave(self) -> None:
        """Close the connection; if the client is still sending, only after it could read its response.

        Closing a connection with unread bytes resets it, and the client may lose the response. So this side closes its
        half only, and discards incoming data for a while.
        """
        if self.transport.is_closing() or self._rest_timer is not None:
            return
        if self._in_body:
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        """Close this side and discard incoming data for a while; close at once if too many connections do so."""
        if len(self._leaving) >= self.limits.connections:
            self.transport.close()
            return
        self._leaving.add(self)
        self._stop_timer()
        self._rest_timer = self.loop.call_later(self.limits.rest_seconds, self.transport.close)
        self.transport.write_eof()
        self.flow.resume_reading()

    def pause_writing(self) -> None:
        """Start the timeout of a client that doesn't read its response."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self.limits.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop that timeout."""
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        super().resume_writing()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        self._unfinished_bytes, self._has_counted = 0, True
        if self._is_large:
            raise _TooLargeError

    @property
    def _is_large(self) -> bool:
        return self._head_bytes + self._unfinished_bytes > self.limits.head_bytes

    def _large_head(self) -> ProblemDetails:
        return ProblemDetails(
            "head_too_large",
            f"Request line and headers may have at most {self.limits.head_bytes:,} bytes, and there may be "
            f"{self.limits.headers} headers.",
        )

    def _refuse(self, problem: ProblemDetails) -> None:
        self._stop_timer()
        if self._rest_timer is not None:
            return
        if self._in_body or (self.cycle is not None and not self.cycle.response_complete):
            self.transport.close()  # this request has its response, or an earlier one is being sent
            return
        body = problem.body()
        head: list[Any] = [
            f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "x-content-type-options: nosniff",
            "connection: close",
        ]
        self.transport.write("\r\n".join([*head, "", ""]).encode() + body)
        self._linger()

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.limits.head_seconds, self._head_is_late)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()
