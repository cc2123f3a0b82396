"""Requests about labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.serve.explaining import label_path, strongest
from longtail.serve.models import Served
from longtail.serve.problems import ProblemDetails, seven_digits


def find_labels(
    served: Served, text: str, near: int | None, search: dict[str, Any], limit: int, offset: int
) -> dict[str, Any]:
    """Handle `/v1/labels`."""
    if near is None:
        total, labels = served.labels.search(text, limit=limit, offset=offset, **search)
    else:
        filters = (search["bin"], search["min_rows"], search["max_rows"], search["order"])
        if text or offset or filters != (None, 0, None, "frequency"):
            raise ProblemDetails(
                "invalid", "near can be combined with limit only: leave q, offset, order and all filters out."
            )
        labels = served.nearest(_known(served, near), limit)
        total = len(labels)
    return {"model": served.name, "version": served.version, "total": total, "labels": labels}


def describe_label(served: Served, label: int, nearest: int, words: int) -> dict[str, Any]:
    """Handle `/v1/labels/{label}`."""
    counts = served.labels.counts
    return {
        "model": served.name,
        "version": served.version,
        **served.labels.entry(_known(served, label)),
        "share_of_rows": seven_digits(counts[label] / max(1, served.model.n_rows)),
        "rank": int(np.count_nonzero(counts > counts[label])) + 1,
        "nearest": served.nearest(label, nearest) if nearest else [],
        "nearest_by": None if served.space is None else served.space.by,
        "words": strongest(served, label, words),
        "path": label_path(served, label),
    }


def _known(served: Served, label: int) -> int:
    if label >= served.labels.n:
        raise ProblemDetails("not_found", f"There is no label {label}: ids go from 0 to {served.labels.n - 1:,}.")
    return label
