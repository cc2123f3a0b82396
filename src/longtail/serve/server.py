"""One server process: uvicorn with the application, signals, and graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import uvicorn

from longtail.serve.app import make_app
from longtail.serve.protocol import GuardedProtocol
from longtail.serve.service import Service
from longtail.serve.settings import ServerSettings
from longtail.serve.sockets import BACKLOG

_SWITCH_SECONDS = 0.001  # so that explanations hold the GIL for less time; the default is 0.005
_LAST_SECONDS = 1.0  # for threads to end, after the last response


class Server(uvicorn.Server):
    """Uvicorn server that reloads models on SIGHUP and stops gracefully on SIGINT and SIGTERM."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._signals = 0
        service.on_failure = self._fail

    def end(self) -> None:
        """Stop after the requests in progress; on the second call, at once."""
        self._signals += 1
        self.should_exit = True
        if self._signals > 1:
            self.force_exit = True
            logging.getLogger("uvicorn.error").disabled = True  # it would list all cancelled requests

    def _fail(self) -> None:
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while the server runs, if this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        handlers: dict[int, Callable[[], None]] = {
            signal.SIGINT: self.end,
            signal.SIGTERM: self.end,
            signal.SIGHUP: self._service.reload_all,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)


def make_server(settings: ServerSettings, service: Service) -> Server:
    """Return a uvicorn server with these settings."""
    limits = settings.limits
    config = uvicorn.Config(
        make_app(service),
        http=GuardedProtocol.with_limits(limits),
        loop="asyncio" if find_spec("uvloop") is None else "uvloop",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=int(limits.idle_seconds),
        timeout_graceful_shutdown=int(limits.drain_seconds),
    )
    return Server(config, service)


def serve(
    settings: ServerSettings, listening: socket.socket, when_made: Callable[[Service], None] | None = None
) -> None:
    """Serve in this process until a signal to stop; raise the error if models can't be loaded."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    service = Service(settings)
    if when_made is not None:
        when_made(service)
    try:
        make_server(settings, service).run(sockets=[listening])
    finally:
        service.close()
    if service.failure is not None:
        raise service.failure


def leave_threads() -> None:
    """Exit if threads are still running, for which Python would wait."""
    end = time.monotonic() + _LAST_SECONDS
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                logging.shutdown()
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)


def log_to_standard_error() -> None:
    """Log to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for name in ("longtail.serve", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
    logging.getLogger("longtail.serve").setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
