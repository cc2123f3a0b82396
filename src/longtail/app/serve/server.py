"""One process of the server: uvicorn around the application, signals, and an end that finishes what was accepted."""

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

import uvicorn

from longtail.app.serve.app import make_app
from longtail.app.serve.protocol import GuardedProtocol
from longtail.app.serve.service import Service
from longtail.app.serve.settings import Settings
from longtail.app.serve.sockets import BACKLOG

_SWITCH_SECONDS = 0.001  # at most until a thread that explains lets the others go on; Python's own is 0.005
_LAST_SECONDS = 1.0  # for threads, once everything is answered or cut off


class Server(uvicorn.Server):
    """Uvicorn that reloads models on SIGHUP and ends without an error when it is told to."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._signals = 0
        service.on_failure = self._fail

    def end(self) -> None:
        """Stop when what was accepted is answered; a second time, at once."""
        self._signals += 1
        self.should_exit = True
        if self._signals > 1:
            self.force_exit = True
            logging.getLogger("uvicorn.error").disabled = True  # which would list all that is cut off

    def _fail(self) -> None:
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while the server runs, which only the main thread can."""
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


def make_server(settings: Settings, service: Service) -> Server:
    """Uvicorn with the settings of longtail."""
    limits = settings.limits
    config = uvicorn.Config(
        make_app(service),
        http=GuardedProtocol.with_limits(limits),
        loop="uvloop" if _has_uvloop() else "asyncio",
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


def serve(settings: Settings, listening: socket.socket, when_made: Callable[[Service], None] | None = None) -> None:
    """Serve in this process until a signal says to stop; raises what kept the models from being loaded."""
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
    """End the process here if threads still work on what nobody waits for; Python itself would wait for them."""
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
    """Write what the server has to say as lines on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for name in ("longtail.serve", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
    logging.getLogger("longtail.serve").setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


def _has_uvloop() -> bool:
    from importlib.util import find_spec

    return find_spec("uvloop") is not None
