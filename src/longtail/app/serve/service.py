"""The parts of one process of the server, put together, and what they do over its life."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from longtail.app.serve.batching import Batcher, Lane
from longtail.app.serve.keys import Keys, read_keys
from longtail.app.serve.metrics import Metrics
from longtail.app.serve.models import Registry, Served
from longtail.app.serve.predicting import Predictor
from longtail.app.serve.settings import Settings

logger = logging.getLogger("longtail.serve")

Spread = Callable[[str], Awaitable[int]]
Loaded = tuple[Served, Served | None]


class Service:
    """Models, the queue in front of them, and what counts and checks.

    Parameters
    ----------
    settings : Settings
    keys : Keys, optional
        Read as the settings say when left out.
    """

    def __init__(self, settings: Settings, keys: Keys | None = None) -> None:
        self.settings = settings
        self.keys = read_keys(settings.key_file) if keys is None else keys
        self.metrics = Metrics()
        self.registry = Registry(settings.models)
        limits = settings.limits
        self.batcher = Batcher(
            threads=settings.threads,
            batch_rows=settings.batch_rows,
            queued_rows=limits.queued_rows,
            observe=self._observe,
        )
        self.lane = Lane(waiting=limits.waiting_questions, deadline=limits.deadline)
        self.reading = Lane(waiting=limits.requests, deadline=limits.deadline, name="read")
        self.predictor = Predictor(self.registry, self.batcher, self.lane, self.reading, limits)
        self._loading = ThreadPoolExecutor(4, thread_name_prefix="load")
        self.spread: Spread | None = None
        """Has other processes reload a model too, and says how many did."""
        self.failure: BaseException | None = None
        """Why models could not be loaded at the start."""
        self.on_failure: Callable[[], None] = lambda: None
        self.on_ready: Callable[[], None] = lambda: None
        self.beside: list[Callable[[], Coroutine[Any, Any, None]]] = []
        """What runs beside the requests."""
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_ready(self) -> bool:
        """Whether all models are loaded and warm."""
        return self.registry.is_ready

    async def start(self) -> None:
        """Begin to load the models; the server answers meanwhile.

        One of several processes waits until it has them: the others take the connections till then.
        """
        loop = asyncio.get_running_loop()
        for work in self.beside:
            self._keep(loop.create_task(work()))
        loading = loop.create_task(self._load_all())
        self._keep(loading)
        if self.settings.workers > 1:
            await loading

    async def stop(self) -> None:
        """Let tasks and threads go."""
        for task in list(self._tasks):
            task.cancel()
        self.close()

    def close(self) -> None:
        """Let the threads go, without waiting for what they do: nobody is left to be answered."""
        self.batcher.close()
        self.lane.close()
        self.reading.close()
        self._loading.shutdown(wait=False, cancel_futures=True)

    async def reload(self, name: str, *, spread: bool = True) -> tuple[Served, bool, int]:
        """Load a model anew here and in other processes: the version, whether it is another one, and the processes."""
        try:
            new, old = await self._in_thread(self.registry.reload, name)
        except Exception:
            self.metrics.reloads.labels(name if name in self.registry.names else "", "failed").inc()
            raise
        self._swapped(new, old)
        others = await self.spread(name) if spread and self.spread is not None else 0
        return new, old is None or new.checksum != old.checksum, 1 + others

    def reload_all(self) -> None:
        """Load all models anew, as after SIGHUP; those that fail stay as they are, and the log says why."""
        for name in self.registry.names:
            self._keep(asyncio.get_running_loop().create_task(self._reload_quietly(name)))

    async def _reload_quietly(self, name: str) -> None:
        try:
            new, changed, _ = await self.reload(name, spread=False)
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
