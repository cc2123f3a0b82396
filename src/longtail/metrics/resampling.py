"""The metrics of one ranking under many resamples of its rows.

A metric that is a ratio of sums over rows follows from weighted sums of the rows' values, where the weight of a row is
the number of times it was sampled. Coverage and macro-F1 follow from counts per label: true rows, predictions and hits
are sorted by label, and the weights of those rows are summed. Both are exact: the result is that of `evaluate` on the
sampled rows.

Ratios of sums use the bootstrap: as many rows as there are, with replacement. That fails for coverage and macro-F1: a
bootstrap resample contains 63 % of the rows, so labels with few rows vanish and the values are biased and vary too
little. For them each row is kept with probability three quarters, and the deviation of a subsample from their mean,
times sqrt(3), estimates that of a sample from the population (the scaling of the delete-d jackknife, Shao and Wu,
Annals of Statistics 1989).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.kernels.types import Float64, Int32, Int64, UInt8, UInt64
from longtail.metrics.evaluation import Evaluator
from longtail.metrics.labels import percentage
from longtail.metrics.ranking import first_places
from longtail.metrics.resample_kernels import (
    LANES,
    LabelEntries,
    draw_masks,
    draw_rows,
    label_hits,
    label_means,
    sort_by_label,
    weighted_sums,
)
from longtail.metrics.rows import ROW_METRICS, JudgedRows
from longtail.runtime.pool import StopFlag, run_blocks
from longtail.validation import LEVEL, SEED, Integer, check

OVER_LABELS = frozenset({"C", "macroF1"})
"""Metrics that are means over labels and therefore use subsamples."""

PART_SCALE = math.sqrt(3)
"""sqrt(q / (1 - q)) with q = 3/4, the share of rows in a subsample."""

_BLOCK_ROWS = 16384


class RowTable:
    """The terms of each row in the sums of every metric that is a ratio of sums."""

    def __init__(self, labels: Int32, truth: sp.csr_array, evaluator: Evaluator) -> None:
        self.n_rows, self.names = len(labels), evaluator.row_metrics
        self.hits = np.empty(labels.shape[::-1], np.uint8)
        indptr, ks = truth.indptr.astype(np.int64), np.array(evaluator.ks, np.int64)
        for start in range(0, self.n_rows, _BLOCK_ROWS):
            block = slice(start, min(start + _BLOCK_ROWS, self.n_rows))
            rows = JudgedRows.from_ranking(
                labels[block],
                indptr[start : block.stop + 1],
                truth.indices,
                evaluator.inverse_propensity,
                n_labels=evaluator.n_labels,
            )
            ratios = [ROW_METRICS[name](rows, ks) for name in evaluator.row_metrics]
            columns = np.concatenate([side for ratio in ratios for side in ratio if side.ndim == 2])
            if not start:
                self.values = np.empty((self.n_rows, len(columns)))
                self._lay_out(ratios)
            self.values[block] = columns.T
            self.hits[:, block] = rows.hits

    def _lay_out(self, ratios: list[tuple[Float64, Float64]]) -> None:
        """Find the column of each numerator and denominator, or the denominator itself where all rows share it."""
        parts: list[int] = []
        wholes: list[int] = []
        shared: list[float] = []
        column = 0
        for part, whole in ratios:
            n_ks = len(part)
            parts += range(column, column + n_ks)
            column += n_ks
            if whole.ndim == 2:
                wholes += range(column, column + n_ks)
                shared += [0.0] * n_ks
                column += n_ks
            else:
                wholes += [-1] * n_ks
                shared += whole.tolist()
        self.parts, self.wholes, self.shared = np.array(parts), np.array(wholes), np.array(shared)[:, None]

    def denominators(self, name: str) -> Float64:
        """Return the terms of the rows in the denominators of a metric, shape (rows, ks)."""
        first = len(self.parts) // len(self.names) * self.names.index(name)
        columns = self.wholes[first : first + len(self.parts) // len(self.names)]
        return np.ascontiguousarray(self.values[:, columns])

    def metrics(self, sums: Float64) -> Float64:
        """Return metrics (metrics by resamples) from sums of the columns (columns by resamples), in percent."""
        return percent_of(
            sums[self.parts], np.where(self.wholes[:, None] < 0, self.shared * self.n_rows, sums[self.wholes])
        )


class Resampler:
    """A ranking and its true labels, prepared for scoring under any weights of the rows.

    `truth` must be in canonical form, and the evaluator must have seen these rows.
    """

    def __init__(self, top: Any, truth: sp.csr_array, evaluator: Evaluator) -> None:
        self.evaluator, self.scores = evaluator, evaluator.scores()
        self.keys = [f"{name}@{k}" for name in (*evaluator.row_metrics, "C", "macroF1") for k in evaluator.ks]
        self.n_rows, self.n_ks = int(truth.shape[0]), len(evaluator.ks)
        self.labels = first_places(top, max(evaluator.ks), evaluator.n_labels)
        self.table = RowTable(self.labels, truth, evaluator)
        columns = truth.tocsc()
        counts = np.bincount(self.labels.ravel() + 1, minlength=evaluator.n_labels + 1)[1:]
        starts = np.concatenate([[0], np.cumsum(counts)])
        size = int(starts[-1])
        rows, spans, hits = np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.uint8)
        span = np.searchsorted(evaluator.ks, np.arange(1, self.labels.shape[1] + 1)).astype(np.int32)
        sort_by_label(self.labels, self.table.hits, span, starts, rows, spans, hits)
        true_starts, true_rows = columns.indptr.astype(np.int64), columns.indices.astype(np.int32)
        self.entries = LabelEntries(true_starts, true_rows, starts, rows, spans, hits)

    def metrics(self, weights: UInt8, parts: UInt8) -> Float64:
        """Return every metric in the order of `keys` (metrics by LANES): ratios of sums of the weighted rows, and
        coverage and macro-F1 of the subsamples.
        """
        sums = np.empty((self.table.values.shape[1], LANES))
        weighted_sums(self.table.values, weights, sums)
        possible, found, judged, f1 = self.label_means(parts, np.zeros(self.evaluator.n_labels, np.int64), 1)
        return np.concatenate([self.table.metrics(sums), percent_of(found[0], possible), percent_of(f1[0], judged[0])])

    def label_hits(self, weights: UInt8, bin_of_label: Int64, n_bins: int) -> tuple[Int32, Int32, Float64]:
        """Return sums of true labels (bins by LANES), hits and their inverse propensities (bins by ks by LANES)."""
        true, hits = np.empty((n_bins, LANES), np.int32), np.empty((n_bins * self.n_ks, LANES), np.int32)
        gains, inverse = np.empty(hits.shape), self.evaluator.inverse_propensity
        if inverse is None:
            inverse = np.zeros(self.evaluator.n_labels)
        label_hits(weights, self.entries, bin_of_label, inverse, true, hits, gains)
        shape = (n_bins, self.n_ks, LANES)
        return true, hits.reshape(shape), gains.reshape(shape)

    def label_means(self, weights: UInt8, bin_of_label: Int64, n_bins: int) -> tuple[Int32, Int32, Int32, Float64]:
        """Return counts of labels that any row has (bins by LANES), labels with a hit, labels true or predicted, and
        sums of the labels' F1 (bins by ks by LANES)."""
        possible, size = np.empty((n_bins, LANES), np.int32), (n_bins * self.n_ks, LANES)
        found, judged, f1 = np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size)
        label_means(weights, self.entries, bin_of_label, possible, found, judged, f1)
        shape = (n_bins, self.n_ks, LANES)
        return possible, found.reshape(shape), judged.reshape(shape), f1.reshape(shape)


def percent_of(parts: npt.ArrayLike, wholes: npt.ArrayLike) -> Float64:
    """Return the ratio in percent, 0 where the denominator is 0, as `evaluate` does."""
    return np.nan_to_num(percentage(parts, wholes))


def resample(score: Callable[[UInt8, UInt8], Float64], n_rows: int, resamples: int, *, seed: int) -> Float64:
    """Score bootstrap resamples and subsamples: ``score(weights, parts)`` returns a column per lane.

    The random numbers of a resample depend only on the seed and its index.
    """

    def work(states: UInt64, stop: StopFlag) -> Float64:
        if stop[0]:
            return np.empty((0, 0))
        weights, parts = np.empty((n_rows, LANES), np.uint8), np.empty((n_rows, LANES), np.uint8)
        draw_rows(states, weights)
        draw_masks(~states, 2, parts)
        return score(weights, parts)

    blocks = list(random_states(resamples, seed, stream=0))
    drawn = run_blocks(work, blocks, description="resampling", unit="resamples", size=len)
    return np.concatenate(list(drawn), axis=-1)[..., :resamples]


def interval(name: str, value: float, drawn: Float64, level: float) -> tuple[float, float]:
    """Return the ends of the interval around a value of the metric `name@k` from its values on resamples.

    Resamples without a value, such as the recall of labels that none of their rows has, are left out.
    """
    known = drawn[~np.isnan(drawn)]
    if np.isnan(value) or not known.size:
        return float("nan"), float("nan")
    if name.partition("@")[0] in OVER_LABELS:
        known = value + PART_SCALE * (known - known.mean())
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def random_states(count: int, seed: int, *, stream: int) -> UInt64:
    """Return a random state per resample, in blocks of LANES; more resamples leave the first ones unchanged."""
    blocks = -(-count // LANES)
    return np.random.default_rng([seed, stream]).integers(2**64, size=(blocks, LANES), dtype=np.uint64)


def check_resampling(resamples: int, level: float, seed: int) -> None:
    """Raise a ParameterError for invalid parameters of a resampling."""
    check("resamples", resamples, Integer(1))
    check("level", level, LEVEL)
    check("random_state", seed, SEED)
