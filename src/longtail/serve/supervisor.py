"""Several worker processes on one socket: started, reloaded, replaced when they die, and stopped together.

Each worker listens on the inherited socket and maps the same model files, which are in memory once. Supervisor and
workers exchange lines of JSON over a pair of sockets per worker: a worker that reloads a model tells the supervisor,
which has the others reload it and counts how many did.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.multiprocess import mark_process_dead

from longtail.errors import ModelError
from longtail.serve.metrics import DIRECTORY
from longtail.serve.settings import ServerSettings

logger = logging.getLogger("longtail.serve")

USER_MISTAKE = 2
_SHORTEST_LIFE = 5.0  # seconds; a worker that dies sooner is replaced with a delay
_LONGEST_PAUSE = 30.0
_RELOAD_SECONDS = 60.0


@dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    channel: socket.socket
    started: float = field(default_factory=time.monotonic)
    buffer: bytes = b""


@dataclass(eq=False)
class _Reload:
    """A reload that one worker has done and the others are doing."""

    asker: _Worker
    number: int
    waiting: set[_Worker]
    end: float
    done: int = 0


class Supervisor:
    """Starts and monitors worker processes until a signal to stop."""

    def __init__(self, settings: ServerSettings, listening: socket.socket) -> None:
        self._settings = settings
        self._listening = listening
        self._workers: list[_Worker] = []
        self._reloads: dict[int, _Reload] = {}
        self._numbers = 0
        self._selector = selectors.DefaultSelector()
        self._stopping: float | None = None
        self._failed = False
        self._has_served = False
        self._failures = 0  # workers that ended too soon, since one was ready
        self._start_at: list[float] = []
        self._metrics = tempfile.mkdtemp(prefix="longtail-serve-")

    def run(self) -> None:
        """Run until all workers have ended."""
        wake, waker = socket.socketpair()
        for end in (wake, waker):
            end.setblocking(False)
        previous_wakeup = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
        before = {number: signal.signal(number, lambda *_: None) for number in numbers}
        self._selector.register(wake, selectors.EVENT_READ)
        try:
            for _ in range(self._settings.workers):
                self._start()
            while self._workers or (self._start_at and self._stopping is None):
                for key, _ in self._selector.select(timeout=0.5):
                    if key.fileobj is wake:
                        for number in wake.recv(4096):
                            self._signalled(number)
                    else:
                        self._heard(key.data)
                self._reap()
                self._tick()
        finally:
            for worker in self._workers:
                worker.process.kill()
            signal.set_wakeup_fd(previous_wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.close()
            wake.close()
            waker.close()
            shutil.rmtree(self._metrics, ignore_errors=True)
        if self._failed:
            raise ModelError("A worker could not load the models: see its message above.")

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        environment = {**os.environ, DIRECTORY: self._metrics}
        process = subprocess.Popen(
            [sys.executable, "-m", "longtail.serve.worker", str(self._listening.fileno()), str(theirs.fileno())],
            pass_fds=(self._listening.fileno(), theirs.fileno()),
            env=environment,
            stdin=subprocess.DEVNULL,
            process_group=0,  # so that Ctrl-C reaches only the supervisor
        )
        theirs.close()
        worker = _Worker(process, ours)
        self._workers.append(worker)
        self._selector.register(ours, selectors.EVENT_READ, worker)
        self._tell(worker, {"settings": self._settings.to_json()})

    def _signalled(self, number: int) -> None:
        if number in (signal.SIGINT, signal.SIGTERM):
            self._stop()
        elif number == signal.SIGHUP:
            for worker in self._workers:
                worker.process.send_signal(signal.SIGHUP)

    def _stop(self) -> None:
        if self._stopping is None:
            self._stopping = time.monotonic() + self._settings.limits.drain_seconds + 5
            self._listening.close()
        for worker in self._workers:
            worker.process.send_signal(signal.SIGTERM)

    def _heard(self, worker: _Worker) -> None:
        try:
            data = worker.channel.recv(65536)
        except OSError:
            data = b""
        if not data:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(worker.channel)
            return
        *lines, worker.buffer = (worker.buffer + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "ready" in message:
                self._has_served, self._failures = True, 0
            elif "reload" in message:
                self._broadcast(worker, message["reload"], message["number"])
            elif "reloaded" in message:
                self._reloaded(worker, message["reloaded"], bool(message["done"]))

    def _broadcast(self, asker: _Worker, name: str, asked: int) -> None:
        others = {worker for worker in self._workers if worker is not asker}
        self._numbers += 1
        self._reloads[self._numbers] = _Reload(asker, asked, others, time.monotonic() + _RELOAD_SECONDS)
        for worker in others:
            self._tell(worker, {"reload": name, "number": self._numbers})
        self._settle(self._numbers)

    def _reloaded(self, worker: _Worker, number: int, done: bool) -> None:
        reload = self._reloads.get(number)
        if reload is not None and worker in reload.waiting:
            reload.waiting.discard(worker)
            reload.done += done
            self._settle(number)

    def _settle(self, number: int) -> None:
        reload = self._reloads[number]
        if not reload.waiting or time.monotonic() > reload.end:
            del self._reloads[number]
            self._tell(reload.asker, {"broadcast": reload.number, "workers": reload.done})

    def _reap(self) -> None:
        for worker in [one for one in self._workers if one.process.poll() is not None]:
            self._workers.remove(worker)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(worker.channel)
            worker.channel.close()
            mark_process_dead(worker.process.pid, self._metrics)  # type: ignore[no-untyped-call]
            for number, reload in list(self._reloads.items()):
                reload.waiting.discard(worker)
                self._settle(number)
            if self._stopping is not None:
                continue
            code = worker.process.returncode
            if code == USER_MISTAKE and not self._has_served:
                self._failed = True
                self._stop()
                continue
            pause = 0.0
            if code == USER_MISTAKE or time.monotonic() - worker.started < _SHORTEST_LIFE:
                pause = min(_LONGEST_PAUSE, 2.0**self._failures)
                self._failures += 1
            logger.error("worker %d ended with code %d: starting another", worker.process.pid, code)
            self._start_at.append(time.monotonic() + pause)

    def _tick(self) -> None:
        now = time.monotonic()
        for number in list(self._reloads):
            self._settle(number)
        if self._stopping is not None:
            if now > self._stopping:
                for worker in self._workers:
                    worker.process.kill()
            return
        due = [moment for moment in self._start_at if moment <= now]
        self._start_at = [moment for moment in self._start_at if moment > now]
        for _ in due:
            self._start()

    def _tell(self, worker: _Worker, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the worker has died and will be replaced
            worker.channel.sendall(json.dumps(message).encode() + b"\n")
