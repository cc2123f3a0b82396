"""The metrics of one ranking under many drawings of its rows.

A metric that is a ratio of sums over rows follows from weighted sums of what each row gives, where a row's weight is
how often it was drawn. Coverage and macro-F1 follow from counts of each label: true rows, predictions and hits are kept
label by label, and the weights of those rows are added up. Both are exact: the result is that of `evaluate` on the
drawn rows.

Rows for ratios of sums are drawn with replacement, as many as there are. That fails for coverage and macro-F1: a
drawing holds 63 % of the rows, so labels with few rows vanish, every value moves to one side and varies too little. For
them each row is kept or not, three quarters of them on average, and how far a drawing is from the mean of the drawings,
times sqrt(3), says how far such a sample is from the whole population (the scaling of the delete-d jackknife, Shao and
Wu, Annals of Statistics 1989).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.pool import StopFlag, run_blocks
from longtail.errors import ParameterError
from longtail.metrics.evaluator import Evaluator
from longtail.metrics.labels import percent
from longtail.metrics.ranking import first_places
from longtail.metrics.resample_kernels import (
    LANES,
    draw_parts,
    draw_rows,
    label_hits,
    label_means,
    sort_by_label,
    weighted_sums,
)
from longtail.metrics.rows import ROW_METRICS, JudgedRows

Matrix = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]
Weights = npt.NDArray[np.uint8]

OVER_LABELS = frozenset({"C", "macroF1"})
"""Metrics that are drawn by parts of the rows, because they are means over labels."""

PART_SCALE = math.sqrt(3)
"""sqrt(q / (1 - q)) with q = 3/4, the share of rows in a part."""

_BLOCK_ROWS = 16384


class RowTable:
    """What each row gives to the sums of every metric that is a ratio of sums.

    Parameters
    ----------
    labels : ndarray of int32, shape (n, places)
        The ranking, -1 for padding.
    truth : csr_array
        True labels in canonical form.
    evaluator : Evaluator
        Gives metrics, ks and propensities.
    """

    def __init__(self, labels: npt.NDArray[np.int32], truth: sp.csr_array, evaluator: Evaluator) -> None:
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

    def _lay_out(self, ratios: list[tuple[Matrix, Matrix]]) -> None:
        """Note the column of each numerator and denominator, or the denominator itself where all rows share it."""
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

    def denominators(self, name: str) -> Matrix:
        """Give what the rows give to the denominators of a metric that not all rows share; rows by ks."""
        first = len(self.parts) // len(self.names) * self.names.index(name)
        columns = self.wholes[first : first + len(self.parts) // len(self.names)]
        return np.ascontiguousarray(self.values[:, columns])

    def metrics(self, sums: Matrix) -> Matrix:
        """Turn sums of the columns (columns by drawings) into metrics (metrics by drawings), in percent."""
        return percent_of(
            sums[self.parts], np.where(self.wholes[:, None] < 0, self.shared * self.n_rows, sums[self.wholes])
        )


class Resampler:
    """A ranking beside its true labels, ready to be scored under any weights of the rows.

    Parameters
    ----------
    top : TopK or array of int
        The ranking.
    truth : csr_array
        True labels in canonical form.
    evaluator : Evaluator
        Has seen these rows.
    """

    def __init__(self, top: Any, truth: sp.csr_array, evaluator: Evaluator) -> None:
        self.evaluator, self.scores = evaluator, evaluator.scores()
        self.keys = [f"{name}@{k}" for name in (*evaluator.row_metrics, "C", "macroF1") for k in evaluator.ks]
        self.n_rows, self.n_ks = int(truth.shape[0]), len(evaluator.ks)
        self.labels = first_places(top, max(evaluator.ks), evaluator.n_labels)
        self.table = RowTable(self.labels, truth, evaluator)
        columns = truth.tocsc()
        self.true_starts, self.true_rows = columns.indptr.astype(np.int64), columns.indices.astype(np.int32)
        counts = np.bincount(self.labels.ravel() + 1, minlength=evaluator.n_labels + 1)[1:]
        self.starts = np.concatenate([[0], np.cumsum(counts)])
        size = int(self.starts[-1])
        self.rows, self.spans, self.hits = np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.uint8)
        span = np.searchsorted(evaluator.ks, np.arange(1, self.labels.shape[1] + 1)).astype(np.int32)
        sort_by_label(self.labels, self.table.hits, span, self.starts, self.rows, self.spans, self.hits)

    def metrics(self, weights: Weights, parts: Weights) -> Matrix:
        """Give every metric in the order of `keys` (metrics by LANES): ratios of sums of the weighted rows, and
        coverage and macro-F1 of the rows in the parts.
        """
        sums = np.empty((self.table.values.shape[1], LANES))
        weighted_sums(self.table.values, weights, sums)
        possible, found, judged, f1 = self.label_means(parts, np.zeros(self.evaluator.n_labels, np.int64), 1)
        return np.concatenate([self.table.metrics(sums), percent_of(found[0], possible), percent_of(f1[0], judged[0])])

    def label_hits(self, weights: Weights, group: Offsets, n_groups: int) -> tuple[Counts, Counts, Matrix]:
        """Add up true labels (groups by LANES), hits and their inverse propensities (groups by ks by LANES)."""
        true, hits = np.empty((n_groups, LANES), np.int32), np.empty((n_groups * self.n_ks, LANES), np.int32)
        gains, worth = np.empty(hits.shape), self.evaluator.inverse_propensity
        if worth is None:
            worth = np.zeros(self.evaluator.n_labels)
        label_hits(weights, *self._by_label, group, worth, true, hits, gains)
        shape = (n_groups, self.n_ks, LANES)
        return true, hits.reshape(shape), gains.reshape(shape)

    def label_means(self, weights: Weights, group: Offsets, n_groups: int) -> tuple[Counts, Counts, Counts, Matrix]:
        """Count labels that any row has (groups by LANES), labels with a hit, labels true or predicted, and add up the
        labels' F1 (groups by ks by LANES)."""
        possible, size = np.empty((n_groups, LANES), np.int32), (n_groups * self.n_ks, LANES)
        found, judged, f1 = np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size)
        label_means(weights, *self._by_label, group, possible, found, judged, f1)
        shape = (n_groups, self.n_ks, LANES)
        return possible, found.reshape(shape), judged.reshape(shape), f1.reshape(shape)

    @property
    def _by_label(self) -> tuple[Offsets, Counts, Offsets, Counts, Counts, Weights]:
        return self.true_starts, self.true_rows, self.starts, self.rows, self.spans, self.hits


def percent_of(parts: npt.ArrayLike, wholes: npt.ArrayLike) -> Matrix:
    """Divide and multiply by 100; 0 where the whole is 0, as `evaluate` has it."""
    return np.nan_to_num(percent(parts, wholes))


def resample(
    score: Callable[[Weights, Weights], Matrix], n_rows: int, resamples: int, *, seed: int, threads: int | None
) -> Matrix:
    """Score drawings with replacement and parts of the rows: ``score(weights, parts)`` gives a column for each lane.

    Every drawing has its own random numbers, which follow from the seed and its place among the drawings alone.
    """

    def work(states: npt.NDArray[np.uint64], stop: StopFlag) -> Matrix:
        if stop[0]:
            return np.empty((0, 0))
        weights, parts = np.empty((n_rows, LANES), np.uint8), np.empty((n_rows, LANES), np.uint8)
        draw_rows(states, weights)
        draw_parts(~states, parts)
        return score(weights, parts)

    blocks = list(random_states(resamples, seed, stream=0))
    drawn = run_blocks(work, blocks, threads=threads, description="resampling", unit="resamples", size=len)
    return np.concatenate(list(drawn), axis=-1)[..., :resamples]


def ends(value: float, drawn: Matrix, level: float, *, parts: bool) -> tuple[float, float]:
    """Give the ends of the interval around a value, from drawings with replacement or from parts of the rows.

    Drawings without a value, such as the recall of labels that none of their rows has, are left out.
    """
    known = drawn[~np.isnan(drawn)]
    if np.isnan(value) or not known.size:
        return float("nan"), float("nan")
    if parts:
        known = value + PART_SCALE * (known - known.mean())
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def random_states(count: int, seed: int, *, stream: int) -> npt.NDArray[np.uint64]:
    """Make a random state for each drawing, in blocks of LANES; more drawings leave the first ones as they are."""
    blocks = -(-count // LANES)
    return np.random.default_rng([seed, stream]).integers(2**64, size=(blocks, LANES), dtype=np.uint64)


def check_drawings(resamples: int, level: float, seed: int) -> None:
    """Refuse numbers that no resampling can work with."""
    check_count("resamples", resamples)
    if isinstance(level, bool) or not isinstance(level, int | float | np.number) or not 0 < level < 1:
        raise ParameterError("level", level, "must be a number between 0 and 1, such as 0.95")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ParameterError("seed", seed, "must be a whole number of at least 0")


def check_count(name: str, count: int) -> None:
    """Refuse what is not a number of drawings."""
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise ParameterError(name, count, "must be a whole number of at least 1")
