"""What Prometheus is told; several processes add up."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

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
    from longtail.app.serve.models import Served

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
        self.requests = Counter("longtail_requests", "Requests answered.", ["path", "status"], registry=own)
        self.seconds = Histogram(
            "longtail_request_seconds",
            "From the head of a request to its answer.",
            ["path"],
            buckets=_SECONDS,
            registry=own,
        )
        self.errors = Counter("longtail_errors", "Answers that are errors, by their code.", ["code"], registry=own)
        self.rows = Counter("longtail_rows", "Rows predicted.", ["model"], registry=own)
        self.predict_seconds = Histogram(
            "longtail_predict_seconds", "Prediction of one batch of rows.", ["model"], buckets=_SECONDS, registry=own
        )
        self.batch_rows = Histogram(
            "longtail_batch_rows", "Rows that were predicted together.", ["model"], buckets=_ROWS, registry=own
        )
        self.reloads = Counter("longtail_reloads", "Models read anew.", ["model", "outcome"], registry=own)
        self.queued = Gauge(
            "longtail_queued_rows", "Rows that wait for a prediction.", registry=own, multiprocess_mode="livesum"
        )
        self.in_progress = Gauge(
            "longtail_requests_in_progress", "Requests not answered yet.", registry=own, multiprocess_mode="livesum"
        )
        self.ready = Gauge(
            "longtail_ready_workers", "Processes with all models loaded.", registry=own, multiprocess_mode="livesum"
        )
        self.model = Gauge(
            "longtail_model_info",
            "Processes that serve this version of the model.",
            ["model", "version", "recipe"],
            registry=own,
            multiprocess_mode="livesum",
        )
        self.loaded = Gauge(
            "longtail_model_loaded_timestamp_seconds",
            "When the version was loaded, in seconds since 1970.",
            ["model"],
            registry=own,
            multiprocess_mode="livemax",
        )
        if DIRECTORY not in os.environ:
            ProcessCollector(registry=own)

    def serves(self, new: Served, old: Served | None) -> None:
        """Tell which version of a model is served."""
        if old is not None:
            self.model.labels(old.name, old.version, old.model.recipe or "").set(0)
        self.model.labels(new.name, new.version, new.model.recipe or "").set(1)
        self.loaded.labels(new.name).set(new.loaded_at)

    def text(self) -> bytes:
        """Everything in Prometheus' format, of all processes where there are several."""
        if DIRECTORY not in os.environ:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
