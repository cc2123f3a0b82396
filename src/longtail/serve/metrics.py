"""Prometheus metrics, summed over worker processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

if TYPE_CHECKING:
    from longtail.serve.models import Served

GaugeMode = Literal["livesum", "livemax"]
DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters, gauges and histograms of one process."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        own = self._registry

        def gauge(name: str, about: str, labels: Sequence[str] = (), mode: GaugeMode = "livesum") -> Gauge:
            return Gauge(f"longtail_{name}", about, labels, registry=own, multiprocess_mode=mode)

        def histogram(name: str, about: str, label: str, buckets: Sequence[float] = _SECONDS) -> Histogram:
            return Histogram(f"longtail_{name}", about, [label], registry=own, buckets=buckets)

        self.requests = Counter("longtail_requests", "Requests with a response.", ["path", "status"], registry=own)
        self.errors = Counter("longtail_errors", "Error responses by code.", ["code"], registry=own)
        self.rows = Counter("longtail_rows", "Rows predicted.", ["model"], registry=own)
        self.reloads = Counter("longtail_reloads", "Reloads of models.", ["model", "outcome"], registry=own)
        self.seconds = histogram("request_seconds", "Time from the head of a request to its response.", "path")
        self.predict_seconds = histogram("predict_seconds", "Time to predict one batch of rows.", "model")
        self.batch_rows = histogram("batch_rows", "Rows per batch.", "model", _ROWS)
        self.queued = gauge("queued_rows", "Rows in the queue.")
        self.in_progress = gauge("requests_in_progress", "Requests in progress.")
        self.ready = gauge("ready_workers", "Worker processes with all models loaded.")
        version = ["model", "version", "recipe"]
        self.model = gauge("model_info", "Worker processes that serve this version of the model.", version)
        about = "Time at which the version was loaded, in seconds since 1970."
        self.loaded = gauge("model_loaded_timestamp_seconds", about, ["model"], "livemax")
        if DIRECTORY not in os.environ:
            ProcessCollector(registry=own)

    def serves(self, new: Served, old: Served | None) -> None:
        """Record which version of a model is served."""
        if old is not None:
            self.model.labels(old.name, old.version, old.model.recipe or "").set(0)
        self.model.labels(new.name, new.version, new.model.recipe or "").set(1)
        self.loaded.labels(new.name).set(new.loaded_at)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format, summed over processes."""
        if DIRECTORY not in os.environ:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
