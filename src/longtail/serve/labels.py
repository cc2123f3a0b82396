"""The labels of a model for requests: by name, by frequency, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.types import Int64
from longtail.metrics.frequency import BIN_NAMES, frequency_bins
from longtail.store import Model


class Labels:
    """Names, training rows and bins of all labels.

    Examples
    --------
    >>> from longtail import Popularity
    >>> model = Model(Popularity().fit([[1], [1]], [[1, 1], [1, 0]]), label_names=["Ships", "Starships"])
    >>> [entry["name"] for entry in Labels(model).search("SHIP")[1]]
    ['Ships', 'Starships']
    """

    def __init__(self, model: Model) -> None:
        self.names = model.label_names
        self.index = model.labels
        self.counts = np.asarray(model.label_counts)
        self.n = model.n_labels
        self.bins = frequency_bins(self.counts)[0].astype(np.int8)

    def entry(self, label: int) -> dict[str, Any]:
        """Return a label as all responses describe it."""
        return {
            "label": label,
            "name": None if self.names is None else self.names[label],
            "training_rows": int(self.counts[label]),
            "bin": BIN_NAMES[self.bins[label]],
        }

    def summary(self) -> dict[str, Any]:
        """Return summary statistics of the label frequencies."""
        seen = self.counts[self.counts > 0]
        return {
            "most": int(seen.max(initial=0)),
            "median": float(np.median(seen)) if len(seen) else 0.0,
            "with_one_row": int((seen == 1).sum()),
            "without_rows": int(self.n - len(seen)),
            "bins": {name: self._bin(self.counts[self.bins == index]) for index, name in enumerate(BIN_NAMES)},
        }

    def search(
        self,
        text: str = "",
        *,
        bin: str | None = None,
        min_rows: int = 0,
        max_rows: int | None = None,
        order: str = "frequency",
        limit: int = 20,
        offset: int = 0,
    ) -> tuple[int, list[dict[str, Any]]]:
        """Return the number of labels that match, and a page of them; `text` is searched as in `LabelIndex.search`."""
        fits = (self.counts >= min_rows) & (self.counts <= (np.inf if max_rows is None else max_rows))
        if bin is not None:
            fits &= self.bins == BIN_NAMES.index(bin)
        found = self._ordered(np.flatnonzero(fits), order)
        if text:
            found = self.index.search(text, found)
        return len(found), [self.entry(label) for label in found[offset : offset + limit].tolist()]

    def _ordered(self, labels: Int64, order: str) -> Int64:
        if order == "label":
            return labels
        if order == "name" and self.names is not None:
            return labels[np.argsort(self.index.ranks[labels], kind="stable")]
        counts = self.counts[labels]
        return labels[np.argsort(counts if order == "rarest" else -counts, kind="stable")]

    def _bin(self, counts: Int64) -> dict[str, int]:
        return {
            "labels": len(counts),
            "least_rows": int(counts.min()) if len(counts) else 0,
            "most_rows": int(counts.max(initial=0)),
        }
