"""Prediction in shards of rows, in bounded memory, on this machine or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.data.sparse import some_rows
from longtail.learners import Learner
from longtail.runtime.pool import StopFlag, run_blocks
from longtail.runtime.progress import progress_bar, show_progress
from longtail.runtime.task import RemoteTask, current_engine, inheriting
from longtail.topk import TopK

SHARD_ROWS = 8192
_SHARD_VALUES = 1 << 20


def topk_in_shards(learner: Learner, rows: Any, **how: Any) -> Iterator[TopK]:
    """Rank the labels of texts or matrix rows in shards of a few thousand rows, with one progress bar."""
    parts = _parts(rows)
    if current_engine() is not None:
        work = RemoteTask(_Ranking(learner, how), "rank", pack=lambda part: _taken(rows, *part))
        return run_blocks(work, parts, description="predicting", unit="rows", size=lambda part: int(part[1] - part[0]))
    return _on_this_machine(inheriting(partial(learner.predict_topk, **how)), rows, parts)


def _on_this_machine(rank: Callable[[Any], TopK], rows: Any, parts: list[tuple[int, int]]) -> Iterator[TopK]:
    with progress_bar("predicting", parts[-1][1] if parts else 0, "rows") as advance:
        for part in parts:
            with show_progress(False):
                top = rank(_taken(rows, *part))
            advance(len(top))
            yield top


@dataclass(eq=False)
class _Ranking:
    """Ranks shards of rows, possibly on another machine."""

    learner: Learner
    how: dict[str, Any]

    def rank(self, rows: Any, stop: StopFlag) -> TopK:
        return self.learner.predict_topk(rows, **self.how)


def _parts(rows: Any) -> list[tuple[int, int]]:
    """Return first and last row of each shard; there are fewer rows in a shard if they have many features."""
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
