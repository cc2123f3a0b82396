"""An HTTP load generator in its own process: as fast as answers arrive (closed loop), or at a fixed rate (open loop).

At a fixed rate, requests are sent when they are due, not when the previous one is answered, and latency counts from
that time, so that a server that stalls can't hide it. Reads a job as JSON from standard input and prints the outcome as
JSON: `python http_load.py < job.json`. A job has host, port, path, bodies (strings, sent in turn), seconds, connections
and rate (requests per second, or null for a closed loop); content_type is application/json by default.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter, deque
from typing import Any

MOST_PENDING = 20_000
LATE = 30.0


class Connection(asyncio.Protocol):
    """One connection: requests and answers in turn."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.due = self.sent = 0.0
        self.busy = False
        self.buffer = b""

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self.transport = transport

    def ask(self, request: bytes, due: float) -> None:
        """Send a request that was due at some time."""
        self.due, self.sent, self.busy = due, time.perf_counter(), True
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Read until the answer is complete."""
        self.buffer += data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        lower = self.buffer[:head].lower()
        at = lower.index(b"content-length:") + 15
        end = lower.find(b"\r\n", at)
        size = int(lower[at : end if end >= 0 else head])
        if len(self.buffer) < head + 4 + size:
            return
        status = self.buffer[9:12].decode()
        self.buffer = b""
        self.busy = False
        self.load.answered(self, status, b"connection: close" in lower)

    def connection_lost(self, error: Exception | None) -> None:
        """Note that the connection has ended."""
        self.load.lost(self)


class Load:
    """A job and its outcome."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.requests = [_request(job, body) for body in job["bodies"]]
        self.free: deque[Connection] = deque()
        self.open = 0
        self.pending: deque[tuple[bytes, float]] = deque()
        self.latencies: list[float] = []
        self.from_sent: list[float] = []
        self.statuses: Counter[str] = Counter()
        self.asked = self.dropped = self.refused_here = 0
        self.ending = False

    async def run(self) -> dict[str, Any]:
        """Send all requests, wait for the last answers, and return the outcome."""
        begin = time.perf_counter()
        end = begin + self.job["seconds"]
        if self.job["rate"] is None:
            await self._closed(end)
        else:
            await self._open(begin, end)
        elapsed = time.perf_counter() - begin
        late = time.perf_counter() + LATE
        while self.asked > sum(self.statuses.values()) + self.dropped and time.perf_counter() < late:
            await asyncio.sleep(0.01)
        self.ending = True
        return self._outcome(elapsed)

    async def _closed(self, end: float) -> None:
        for _ in range(self.job["connections"]):
            await self._connect()
        while time.perf_counter() < end:
            await asyncio.sleep(0.02)
            while self.free:
                self._ask(self.requests[self.asked % len(self.requests)], time.perf_counter())
        self.ending = True

    async def _open(self, begin: float, end: float) -> None:
        number, opening = 0, set[asyncio.Task[None]]()
        await self._connect()
        while (now := time.perf_counter()) < end:
            while begin + number / self.job["rate"] <= now:
                due = begin + number / self.job["rate"]
                request = self.requests[number % len(self.requests)]
                number += 1
                if self.free:
                    self._ask(request, due)
                elif len(self.pending) < MOST_PENDING:
                    self.pending.append((request, due))
                else:
                    self.refused_here += 1
            while len(self.pending) > len(opening) and self.open + len(opening) < self.job["connections"]:
                task = asyncio.create_task(self._connect())
                opening.add(task)
                task.add_done_callback(opening.discard)
            await asyncio.sleep(max(0.0, begin + number / self.job["rate"] - time.perf_counter()))

    async def _connect(self) -> None:
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(self), self.job["host"], self.job["port"]
            )
        except OSError:
            return
        self.open += 1
        self._next(connection)

    def _ask(self, request: bytes, due: float) -> None:
        self.asked += 1
        self.free.popleft().ask(request, due)

    def _next(self, connection: Connection) -> None:
        if self.pending:
            self.asked += 1
            connection.ask(*self.pending.popleft())
        elif self.job["rate"] is None and self.latencies and not self.ending:
            self.asked += 1
            connection.ask(self.requests[self.asked % len(self.requests)], time.perf_counter())
        else:
            self.free.append(connection)

    def answered(self, connection: Connection, status: str, closing: bool) -> None:
        """Note an answer, and use the connection again."""
        self.statuses[status] += 1
        if status == "200":
            now = time.perf_counter()
            self.latencies.append(now - connection.due)
            self.from_sent.append(now - connection.sent)
        if not closing:
            self._next(connection)

    def lost(self, connection: Connection) -> None:
        """Note a connection that has ended; a request on it is lost."""
        self.open -= 1
        if connection.busy and not self.ending:
            self.dropped += 1
        if connection in self.free:
            self.free.remove(connection)

    def _outcome(self, elapsed: float) -> dict[str, Any]:
        return {
            "seconds": elapsed,
            "asked": self.asked,
            "statuses": dict(self.statuses),
            "lost": self.dropped,
            "unanswered": self.asked - sum(self.statuses.values()) - self.dropped,
            "never_sent": self.refused_here + len(self.pending),
            "connections": self.open,
            "answers_a_second": sum(self.statuses.values()) / elapsed,
            "ok_a_second": self.statuses["200"] / elapsed,
            **_quantiles("", self.latencies),
            **_quantiles("sent_", self.from_sent),
        }


def _quantiles(prefix: str, seconds: list[float]) -> dict[str, float | None]:
    """Return quantiles of the latency in milliseconds."""
    ordered, shares = sorted(seconds), {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "worst": 1.0}
    last = len(ordered) - 1
    return {
        f"{prefix}{name}_ms": 1000 * ordered[min(last, int(share * len(ordered)))] if ordered else None
        for name, share in shares.items()
    }


def _request(job: dict[str, Any], body: str) -> bytes:
    content = body.encode()
    head = (
        f"POST {job['path']} HTTP/1.1\r\nhost: localhost\r\n"
        f"content-type: {job.get('content_type', 'application/json')}\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def main() -> None:
    """Read the job and print its outcome."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    job = json.load(sys.stdin)
    try:
        import uvloop

        outcome = uvloop.run(Load(job).run())
    except ImportError:
        outcome = asyncio.run(Load(job).run())
    json.dump(outcome, sys.stdout)


if __name__ == "__main__":
    main()
