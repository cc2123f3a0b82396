"""The components of one server process and their life cycle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from longtail.serve.batching import Batcher, WorkerThread
from longtail.serve.keys import Keys, read_keys
from longtail.serve.metrics import Metrics
from longtail.serve.models import Served, ServedModels
from longtail.serve.predicting import Predictor
from longtail.serve.settings import ServerSettings

logger = logging.getLogger("longtail.serve")

Broadcast = Callable[[str], Awaitable[int]]
Loaded = tuple[Served, Served | None]


class Service:
    """Models, queue, metrics and API keys of one server process; by default, keys are read from the settings."""

    def __init__(self, settings: ServerSettings, keys: Keys | None = None) -> None:
        self.settings = settings
        self.keys = read_keys(settings.key_file) if keys is None else keys
        self.metrics = Metrics()
        self.registry = ServedModels(settings.models)
        limits = settings.limits
        self.batcher = Batcher(
            threads=settings.threads,
            batch_rows=settings.batch_rows,
            queued_rows=limits.queued_rows,
            observe=self._observe,
        )
        self.questions = WorkerThread(waiting=limits.waiting_questions, deadline=limits.deadline)
        self.reading = WorkerThread(waiting=limits.requests, deadline=limits.deadline, name="read")
        self.predictor = Predictor(self.registry, self.batcher, self.questions, self.reading, limits)
        self._loading = ThreadPoolExecutor(4, thread_name_prefix="load")
        self.broadcast: Broadcast | None = None
        """Reloads a model in the other processes and returns how many did."""
        self.failure: BaseException | None = None
        """The error with which loading the models failed at start."""
        self.on_failure: Callable[[], None] = lambda: None
        self.on_ready: Callable[[], None] = lambda: None
        self.background: list[Callable[[], Coroutine[Any, Any, None]]] = []
        """Background tasks, started with the server."""
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_ready(self) -> bool:
        """Whether all models are loaded and warmed up."""
        return self.registry.is_ready

    async def start(self) -> None:
        """Start loading the models.

        A single process accepts requests meanwhile. One of several workers waits until its models are loaded, while
        the other workers accept the connections.
        """
        loop = asyncio.get_running_loop()
        for work in self.background:
            self._keep(loop.create_task(work()))
        loading = loop.create_task(self._load_all())
        self._keep(loading)
        if self.settings.workers > 1:
            await loading

    async def stop(self) -> None:
        """Cancel tasks and shut down threads."""
        for task in list(self._tasks):
            task.cancel()
        self.close()

    def close(self) -> None:
        """Shut down the threads without waiting for them."""
        self.batcher.close()
        self.questions.close()
        self.reading.close()
        self._loading.shutdown(wait=False, cancel_futures=True)

    async def reload(self, name: str, *, broadcast: bool = True) -> tuple[Served, bool, int]:
        """Reload a model in all processes; return the version, whether it changed, and the number of processes."""
        try:
            new, old = await self._in_thread(self.registry.reload, name)
        except Exception:
            self.metrics.reloads.labels(name if name in self.registry.names else "", "failed").inc()
            raise
        self._swapped(new, old)
        others = await self.broadcast(name) if broadcast and self.broadcast is not None else 0
        return new, old is None or new.checksum != old.checksum, 1 + others

    def reload_all(self) -> None:
        """Reload all models, as on SIGHUP; models that fail keep their version, and the error is logged."""
        for name in self.registry.names:
            self._keep(asyncio.get_running_loop().create_task(self._reload_quietly(name)))

    async def _reload_quietly(self, name: str) -> None:
        try:
            new, changed, _ = await self.reload(name, broadcast=False)
            logger.info("model %s: version %s%s", name, new.version, "" if changed else ", as before")
        except Exception as error:
            logger.error("model %s was not reloaded: %s", name, error)

    async def _load_all(self) -> None:
        try:
            for name in self.registry.names:
                new, old = await self._in_thread(self.registry.load, name)
                self._swapped(new, old)
            self.metrics.ready.set(1)
            self.on_ready()
        except Exception as error:
            self.failure = error
            self.on_failure()

    async def _in_thread(self, load: Callable[[str], Loaded], name: str) -> Loaded:
        return await asyncio.get_running_loop().run_in_executor(self._loading, load, name)

    def _swapped(self, new: Served, old: Served | None) -> None:
        if new is not old:
            self.metrics.reloads.labels(new.name, "loaded").inc()
            self.metrics.serves(new, old)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _observe(self, key: Hashable, rows: int, seconds: float) -> None:
        name = key[0].name if isinstance(key, tuple) else ""
        metrics = self.metrics
        metrics.rows.labels(name).inc(rows)
        metrics.batch_rows.labels(name).observe(rows)
        metrics.predict_seconds.labels(name).observe(seconds)
        metrics.queued.set(self.batcher.queued)
