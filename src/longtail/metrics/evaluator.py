"""One pass over ranked predictions that feeds every metric, in chunks that may come in any order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from longtail.corpus.sparse import as_indicator
from longtail.engine.topk import TopK
from longtail.errors import InputError, ParameterError
from longtail.metrics.frequency import Bins, FrequencyBin, FrequencyTable, frequency_bins
from longtail.metrics.kernels import add_up, count_labels
from longtail.metrics.labels import LabelScores, coverage, macro_f1, percent
from longtail.metrics.ranking import (
    RERANKED_PLACES,
    exactly,
    known_labels,
    ranked_labels,
    rerank_by_inverse_propensity,
)
from longtail.metrics.rows import PROPENSITY_SCORED, ROW_METRICS, JudgedRows
from longtail.metrics.scores import Scores

Rerank = Literal["inv_propensity_top5"]

METRICS = (
    "P", "nDCG", "PSP", "PSnDCG", "PSnDCG_ratio", "R", "C",
    "PSR", "MRR", "ADG", "PSADG", "microF1", "macroF1", "Hamming",
)  # fmt: skip
"""Every metric, in the order of results."""

_BLOCK_ROWS = 16384


class Evaluator:
    """Collects what the metrics need from chunks of predictions; evaluators of the same kind merge.

    The same rows give the same scores, to the last digit, however they are ordered, cut into chunks or merged.

    Parameters
    ----------
    n_labels : int
        Columns of Y.
    inverse_propensity : array of float, shape (n_labels,), optional
        1/p of each label; without it there are no propensity-scored metrics.
    ks : iterable of int
        The places at which metrics are taken.
    rerank : {"inv_propensity_top5"}, optional
        See `evaluate`.

    Examples
    --------
    >>> first, second = Evaluator(3, ks=[1]), Evaluator(3, ks=[1])
    >>> _ = first.update([[0]], [[1, 0, 0]]), second.update([[2]], [[0, 1, 0]])
    >>> first.merge(second).scores()["P@1"]
    50.0
    """

    def __init__(
        self,
        n_labels: int,
        *,
        inverse_propensity: npt.ArrayLike | None = None,
        ks: Iterable[int] = (1, 3, 5),
        rerank: Rerank | None = None,
    ) -> None:
        if isinstance(n_labels, bool) or not isinstance(n_labels, int | np.integer) or n_labels < 1:
            raise ParameterError("n_labels", n_labels, "must be a whole number of at least 1")
        self.n_labels = int(n_labels)
        self.ks = _checked_ks(ks)
        self.inverse_propensity = check_weights(inverse_propensity, self.n_labels)
        if rerank not in (None, "inv_propensity_top5"):
            raise ParameterError("rerank", rerank, 'must be None or "inv_propensity_top5"')
        if rerank is not None and self.inverse_propensity is None:
            raise ParameterError("rerank", rerank, "needs inverse_propensity")
        self.rerank = rerank
        self.n_rows = 0
        self._ks = np.array(self.ks, np.int64)
        self.row_metrics = [n for n in ROW_METRICS if self.inverse_propensity is not None or n not in PROPENSITY_SCORED]
        # Totals of each metric's numerators, then denominators, at each k; the second row is what rounding took away.
        self._totals = np.zeros((2, len(self.row_metrics) * 2 * len(self.ks)))
        # Per label and span of places from one k to the next: predictions, hits, and hits of the ranking for the gains.
        self._predicted = np.zeros((self.n_labels, len(self.ks)), np.int64)
        self._hits = np.zeros_like(self._predicted)
        self._gain_hits = self._hits if rerank is None else np.zeros_like(self._hits)
        self._true = np.zeros(self.n_labels, np.int64)

    def update(self, top: TopK | npt.ArrayLike, Y: Any) -> Self:
        """Add rows: their ranked labels and their true labels; see `evaluate`."""
        labels = ranked_labels(top)
        truth = as_indicator(Y)
        if truth.shape[1] != self.n_labels:
            raise InputError(f"Y has {truth.shape[1]} labels where {self.n_labels} are expected: use the same columns.")
        if len(labels) != truth.shape[0]:
            raise InputError(
                f"The ranking has {len(labels)} rows and Y has {truth.shape[0]}: they must be the same rows."
            )
        places = max(self.ks)
        reranked = None
        if self.rerank is not None and self.inverse_propensity is not None:
            if not isinstance(top, TopK):
                raise InputError(f'rerank="{self.rerank}" needs scores: give a TopK instead of label ids alone.')
            labels = known_labels(labels[:, : max(places, RERANKED_PLACES)], self.n_labels)
            reranked = exactly(places, rerank_by_inverse_propensity(labels, top.scores, self.inverse_propensity))
            labels = exactly(places, labels)
        else:
            labels = exactly(places, known_labels(labels[:, :places], self.n_labels))
        indptr = truth.indptr.astype(np.int64)
        for start in range(0, len(labels), _BLOCK_ROWS):
            stop = min(start + _BLOCK_ROWS, len(labels))
            order = None if reranked is None else reranked[start:stop]
            self._add(labels[start:stop], order, indptr[start : stop + 1], truth.indices)
        np.add.at(self._true, truth.indices, 1)
        self.n_rows += len(labels)
        return self

    def merge(self, other: Evaluator) -> Self:
        """Add the rows that another evaluator has seen; it must have the same labels, propensities and ks."""
        mine, theirs = self.inverse_propensity, other.inverse_propensity
        same_weights = mine is theirs or (mine is not None and theirs is not None and np.array_equal(mine, theirs))
        if not same_weights or (self.n_labels, self.ks, self.rerank) != (other.n_labels, other.ks, other.rerank):
            raise InputError("Evaluators with different labels, propensities, ks or rerank can't be merged.")
        for part in other._totals.copy():
            add_up(part[:, None], *self._totals)
        self._predicted += other._predicted
        self._hits += other._hits
        if self._gain_hits is not self._hits:
            self._gain_hits += other._gain_hits
        self._true += other._true
        self.n_rows += other.n_rows
        return self

    def scores(self) -> Scores:
        """Give every metric at every k, in percent."""
        self._check_rows()
        totals = self._totals.sum(axis=0).reshape(len(self.row_metrics), 2, len(self.ks))
        values = {
            f"{name}@{k}": float(100 * (part / whole)) if whole else 0.0
            for name, (parts, wholes) in zip(self.row_metrics, totals, strict=True)
            for k, part, whole in zip(self.ks, parts, wholes, strict=True)
        }
        predicted, hits = np.cumsum(self._predicted, axis=1), np.cumsum(self._hits, axis=1)
        values |= dict(zip((f"C@{k}" for k in self.ks), coverage(self._true, hits), strict=True))
        values |= dict(zip((f"macroF1@{k}" for k in self.ks), macro_f1(self._true, predicted, hits), strict=True))
        ordered = [f"{name}@{k}" for name in METRICS for k in self.ks]
        values = {name: values[name] for name in ordered if name in values}
        return Scores(values, n_rows=self.n_rows, rerank=self.rerank)

    def by_frequency(self, label_counts: npt.ArrayLike, bins: Bins = "head-torso-tail") -> FrequencyTable:
        """Give the scores of each frequency bin; see `longtail.metrics.by_frequency`."""
        self._check_rows()
        counts = np.asarray(label_counts)
        group, names = frequency_bins(counts, bins)
        if len(group) != self.n_labels:
            raise InputError(
                f"label_counts has {len(group)} entries for {self.n_labels} labels: give one for each label."
            )
        table = []
        for index, name in enumerate(names):
            inside = group == index
            span = (int(counts[inside].min()), int(counts[inside].max())) if inside.any() else (0, 0)
            true = int(self._true[inside].sum())
            table.append(FrequencyBin(name, int(inside.sum()), span, true, self._bin_scores(inside)))
        return FrequencyTable(table)

    def per_label(self, k: int) -> LabelScores:
        """Give the counts of each label within the first k places, for a k among `ks`."""
        if k not in self.ks:
            raise ParameterError("k", k, f"must be one of {', '.join(map(str, self.ks))}")
        columns = slice(self.ks.index(k) + 1)
        predicted, hits = self._predicted[:, columns].sum(axis=1), self._hits[:, columns].sum(axis=1)
        return LabelScores(k, self._true.copy(), predicted, hits)

    def _add(
        self,
        labels: npt.NDArray[np.int32],
        reranked: npt.NDArray[np.int32] | None,
        indptr: npt.NDArray[np.int64],
        indices: npt.NDArray[np.int32],
    ) -> None:
        rows = JudgedRows.from_ranking(labels, indptr, indices, self.inverse_propensity, reranked, self.n_labels)
        at = 0
        for name in self.row_metrics:
            for part in ROW_METRICS[name](rows, self._ks):
                values = part if part.ndim == 2 else part[:, None] * len(labels)
                add_up(values, *self._totals[:, at : at + len(values)])
                at += len(values)
        span = np.searchsorted(self._ks, np.arange(1, labels.shape[1] + 1))
        count_labels(labels, rows.hits, span, self._predicted, self._hits)
        if reranked is not None and rows.gains is not None:
            gained = (rows.gains > 0).view(np.uint8)
            count_labels(reranked, gained, span, np.zeros_like(self._predicted), self._gain_hits)

    def _bin_scores(self, inside: npt.NDArray[np.bool_]) -> dict[str, float]:
        true = self._true[inside]
        hits = np.cumsum(self._hits[inside], axis=1)
        totals = hits.sum(axis=0)
        columns: dict[str, npt.NDArray[np.float64]] = {"P": percent(totals, self._ks * self.n_rows)}
        if self.inverse_propensity is not None:
            gains = self.inverse_propensity[inside] @ np.cumsum(self._gain_hits[inside], axis=1)
            columns["PSP"] = np.nan_to_num(percent(gains, self._best_gains()))
        columns["recall"] = percent(totals, true.sum())
        columns["C"] = percent((hits > 0).sum(axis=0), (true > 0).sum())
        return {
            f"{name}@{k}": float(v) for name, values in columns.items() for k, v in zip(self.ks, values, strict=True)
        }

    def _best_gains(self) -> npt.NDArray[np.float64]:
        totals = self._totals.sum(axis=0).reshape(len(self.row_metrics), 2, len(self.ks))
        best: npt.NDArray[np.float64] = totals[self.row_metrics.index("PSP"), 1]
        return best

    def _check_rows(self) -> None:
        if not self.n_rows:
            raise InputError("There are no rows to score: give predictions and true labels of at least one row.")


def _checked_ks(ks: Iterable[int]) -> tuple[int, ...]:
    try:
        places = tuple(ks)
    except TypeError:
        places = ()
    if not places or any(isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1 for k in places):
        raise ParameterError("ks", ks, "must hold one or more whole numbers of at least 1")
    return tuple(sorted({int(k) for k in places}))


def check_weights(inverse_propensity: npt.ArrayLike | None, n_labels: int) -> npt.NDArray[np.float64] | None:
    """Take inverse propensities, one a label, or None where none are given."""
    if inverse_propensity is None:
        return None
    weights = np.array(inverse_propensity, np.float64)
    if weights.shape != (n_labels,):
        raise InputError(
            f"inverse_propensity has shape {weights.shape} for {n_labels} labels: give one for each label."
        )
    if not (np.isfinite(weights).all() and (weights > 0).all()):
        raise InputError("inverse_propensity must hold finite numbers above 0.")
    return weights
