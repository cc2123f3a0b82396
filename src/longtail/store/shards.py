"""Prediction a shard of rows at a time, so that memory stays bounded, here or on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.corpus.sparse import some_rows
from longtail.engine.pool import StopFlag, run_blocks
from longtail.engine.portable import Portable, current_engine
from longtail.engine.progress import progress_bar, show_progress
from longtail.engine.topk import TopK
from longtail.learners import Learner

SHARD_ROWS = 8192
_SHARD_VALUES = 1 << 20


def topk_in_shards(learner: Learner, rows: Any, **how: Any) -> Iterator[TopK]:
    """Rank the labels of texts, or of the rows of a matrix, some thousand at a time, under one progress bar."""
    parts = _parts(rows)
    if current_engine() is not None:
        work = Portable(_Ranking(learner, how), "rank", pack=lambda part: _taken(rows, *part))
        yield from run_blocks(
            work, parts, description="predicting", unit="rows", size=lambda part: int(part[1] - part[0])
        )
        return
    with progress_bar("predicting", parts[-1][1] if parts else 0, "rows") as advance:
        for part in parts:
            with show_progress(False):
                top = learner.predict_topk(_taken(rows, *part), **how)
            advance(len(top))
            yield top


@dataclass(eq=False)
class _Ranking:
    """Ranks shards of rows, wherever it is sent to."""

    learner: Learner
    how: dict[str, Any]

    def rank(self, rows: Any, stop: StopFlag) -> TopK:
        return self.learner.predict_topk(rows, **self.how)


def _parts(rows: Any) -> list[tuple[int, int]]:
    """First and last row of each shard; rows with many features go a few at a time."""
    total = int(rows.shape[0]) if isinstance(rows, sp.csr_array) else len(rows)
    parts, start = [], 0
    while start < total:
        end = min(start + SHARD_ROWS, total)
        if isinstance(rows, sp.csr_array):
            most = int(np.searchsorted(rows.indptr, int(rows.indptr[start]) + _SHARD_VALUES, "right")) - 1
            end = max(start + 1, min(end, most))
        parts.append((start, end))
        start = end
    return parts


def _taken(rows: Any, first: int, last: int) -> Any:
    return some_rows(rows, first, last) if isinstance(rows, sp.csr_array) else rows[first:last]
