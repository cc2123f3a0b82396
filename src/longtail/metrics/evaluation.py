"""The metrics of ranked predictions: of a whole test set in one call, or of chunks in any order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from longtail.data.sparse import as_indicator
from longtail.errors import InputError, ParameterError
from longtail.kernels.types import Flags, Float64, Int32, Int64
from longtail.metrics.frequency import BinsOrEdges, FrequencyBin, FrequencyTable, count_range, frequency_bins
from longtail.metrics.kernels import add_up, count_labels
from longtail.metrics.labels import LabelScores, coverage, macro_f1, percentage
from longtail.metrics.ranking import (
    RERANKED_PLACES,
    exactly,
    known_labels,
    ranked_labels,
    rerank_by_inverse_propensity,
    with_labels,
)
from longtail.metrics.rows import PROPENSITY_SCORED, ROW_METRICS, JudgedRows
from longtail.metrics.scores import Scores
from longtail.topk import TopK
from longtail.validation import Integer, Integers, Number, OneOf, Optional, check, numbers_per_label

Rerank = Literal["inv_propensity_top5"]

METRICS = (
    "P", "nDCG", "PSP", "PSnDCG", "PSnDCG_ratio", "R", "C",
    "PSR", "MRR", "ADG", "PSADG", "microF1", "macroF1", "Hamming",
)  # fmt: skip
"""Every metric, in the order of results."""

_BLOCK_ROWS = 16384


def evaluate(
    top: TopK | npt.ArrayLike,
    Y: Any,
    *,
    inverse_propensity: npt.ArrayLike | None = None,
    ks: Iterable[int] = (1, 3, 5),
    rerank: Rerank | None = None,
) -> Scores:
    """Score ranked predictions against the true labels, in percent.

    With p a label's propensity:

    - ``P@k``: hits among the first k labels over k, mean over rows; over k even where there are fewer predictions.
    - ``nDCG@k``: hits discounted by 1/log2(rank + 1), over those of a perfect ranking of min(k, true labels) labels;
      mean over rows.
    - ``PSP@k``: sum over rows of the hits' 1/p, over the same sum for a perfect ranking (each row's k largest 1/p among
      its true labels). A ratio of sums, not a mean of ratios.
    - ``PSnDCG@k``: the same with discounted 1/p, where each row's two sides are first divided by the DCG mass of
      min(k, true labels) ranks.
    - ``PSnDCG_ratio@k``: without that division. Both definitions are in use under the name PSnDCG.
    - ``R@k``: hits over the row's true labels, mean over rows.
    - ``C@k``: coverage, the labels with at least one hit, over the labels that any row has.
    - ``PSR@k``: as PSP, where each row's two sides are first divided by its true labels.
    - ``MRR@k``: one over the rank of the first hit, 0 where there is none; mean over rows.
    - ``ADG@k``: discounted hits over the row's true labels; mean over rows.
    - ``PSADG@k``: as PSnDCG_ratio, where each row's two sides are first divided by its true labels.
    - ``microF1@k``, ``macroF1@k``: F1 of predicting the first k labels, of all rows and labels together; or of each
      label, mean over the labels that are true or predicted in any row.
    - ``Hamming@k``: labels predicted and not true, or true and not predicted, over all columns of Y; mean over rows. A
      loss: less is better.

    A row without labels stays in the means and scores 0. Labels without a training row count like any other.

    Parameters
    ----------
    top : TopK or array of int, shape (n, ranks)
        Label ids of each row, best first. Ids outside the columns of Y, such as the padding -1, are misses, as are
        missing ranks. A label that occurs twice in a row is an error.
    Y : matrix, shape (n, n_labels)
        True labels; non-zero means present.
    inverse_propensity : array of float, shape (n_labels,), optional
        1/p of each label. Without it the propensity-scored metrics are left out.
    ks : iterable of int
        Cutoffs.
    rerank : {"inv_propensity_top5"}, optional
        Compute the propensity-scored metrics on another ranking: the first five labels sorted by decreasing 1/p, where
        only labels with a score above 0 move. Published figures of DiSMEC, PW-DiSMEC and ProXML are computed this way;
        it raises PSP@1 and PSP@3 and leaves PSP@5 unchanged. Needs a TopK whose scores are margins.

    Returns
    -------
    Scores
        A mapping such as ``{"P@1": 81.3, ...}``.

    Examples
    --------
    >>> Y = [[1, 1, 0, 0], [0, 0, 1, 0]]
    >>> scores = evaluate([[0, 3], [0, 2]], Y, inverse_propensity=[1.0, 2.0, 4.0, 8.0], ks=[1, 2])
    >>> scores
    Scores of 2 rows, in percent
                     @1     @2
    P             50.00  50.00
    nDCG          50.00  62.20
    PSP           16.67  71.43
    PSnDCG        16.67  55.88
    PSnDCG_ratio  16.67  53.14
    R             25.00  75.00
    C             33.33  66.67
    PSR           10.00  81.82
    MRR           50.00  75.00
    ADG           25.00  56.55
    PSADG         10.00  56.89
    microF1       40.00  57.14
    macroF1       22.22  41.67
    Hamming       37.50  37.50
    """
    truth = with_labels(Y)
    evaluator = Evaluator(truth.shape[1], inverse_propensity=inverse_propensity, ks=ks, rerank=rerank)
    return evaluator.update(top, truth).scores()


def by_frequency(
    top: TopK | npt.ArrayLike,
    Y: Any,
    label_counts: npt.ArrayLike,
    *,
    bins: BinsOrEdges = "head-torso-tail",
    inverse_propensity: npt.ArrayLike | None = None,
    ks: Iterable[int] = (1, 3, 5),
) -> FrequencyTable:
    """Score ranked predictions by how frequent the labels were in training.

    Parameters
    ----------
    top, Y, inverse_propensity, ks
        As for `evaluate`.
    label_counts : array of int, shape (n_labels,)
        Training rows of each label.
    bins : {"head-torso-tail", "deciles"} or increasing sequence of int
        See `frequency_bins`.

    Returns
    -------
    FrequencyTable
        A sequence of `FrequencyBin`, the most frequent labels first.

    Examples
    --------
    >>> Y = [[1, 1, 0, 0], [0, 0, 1, 0]]
    >>> by_frequency([[0, 3], [0, 2]], Y, label_counts=[60, 30, 4, 0], ks=[2])
    Scores by label frequency, in percent
           labels  training rows  true    P@2  recall@2     C@2
    head        1             60     1  25.00    100.00  100.00
    torso       1             30     1   0.00      0.00    0.00
    tail        2            0-4     1  25.00    100.00  100.00
    """
    truth = with_labels(Y)
    evaluator = Evaluator(truth.shape[1], inverse_propensity=inverse_propensity, ks=ks)
    return evaluator.update(top, truth).by_frequency(label_counts, bins)


def per_label(top: TopK | npt.ArrayLike, Y: Any, k: int = 5) -> LabelScores:
    """Count true rows, predictions and hits of each label at cutoff k.

    Parameters
    ----------
    top, Y
        As for `evaluate`.
    k : int
        Cutoff.

    Returns
    -------
    LabelScores

    Examples
    --------
    >>> scores = per_label([[0, 3], [0, 2]], [[1, 1, 0, 0], [0, 0, 1, 0]], k=2)
    >>> scores.predicted, scores.hits
    (array([2, 0, 1, 1]), array([1, 0, 1, 0]))
    >>> scores.precision
    array([ 50.,  nan, 100.,   0.])
    """
    truth = with_labels(Y)
    return Evaluator(truth.shape[1], ks=[k]).update(top, truth).per_label(k)


class Evaluator:
    """Accumulates chunks of predictions for the metrics; evaluators with the same settings can be merged.

    The same rows give the same scores, to the last digit, in any order and however they are split or merged.

    Parameters
    ----------
    n_labels : int
        Columns of Y.
    inverse_propensity : array of float, shape (n_labels,), optional
        1/p of each label; without it there are no propensity-scored metrics.
    ks : iterable of int
        Cutoffs.
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
        check("n_labels", n_labels, Integer(1))
        ks = tuple(ks) if isinstance(ks, Iterable) else ks
        check("ks", ks, Integers(requirement="one or more positive integers, such as [1, 3, 5]"))
        check("rerank", rerank, Optional(OneOf("inv_propensity_top5")))
        self.n_labels, self.ks = int(n_labels), tuple(sorted({int(k) for k in ks}))
        self.inverse_propensity = check_weights(inverse_propensity, self.n_labels)
        if rerank is not None and self.inverse_propensity is None:
            raise ParameterError("rerank", rerank, "needs inverse_propensity")
        self.rerank = rerank
        self.n_rows = 0
        self._ks = np.array(self.ks, np.int64)
        self.row_metrics = [n for n in ROW_METRICS if self.inverse_propensity is not None or n not in PROPENSITY_SCORED]
        # Sums of each metric's numerators, then denominators, at each k; the second row holds the rounding errors.
        self._totals = np.zeros((2, len(self.row_metrics) * 2 * len(self.ks)))
        # Per label and span of ranks from one k to the next: predictions, hits, and hits of the ranking for the gains.
        self._predicted = np.zeros((self.n_labels, len(self.ks)), np.int64)
        self._hits = np.zeros_like(self._predicted)
        self._gain_hits = self._hits if rerank is None else np.zeros_like(self._hits)
        self._true = np.zeros(self.n_labels, np.int64)

    def update(self, top: TopK | npt.ArrayLike, Y: Any) -> Self:
        """Add rows with their ranked and true labels; see `evaluate`."""
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
        """Add the rows of another evaluator, which must have the same labels, propensities and ks."""
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
        """Return every metric at every k, in percent."""
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

    def by_frequency(self, label_counts: npt.ArrayLike, bins: BinsOrEdges = "head-torso-tail") -> FrequencyTable:
        """Return the scores of each frequency bin; see `longtail.metrics.by_frequency`."""
        self._check_rows()
        counts = np.asarray(label_counts)
        bin_of_label, names = frequency_bins(counts, bins)
        if len(bin_of_label) != self.n_labels:
            raise InputError(
                f"label_counts has {len(bin_of_label)} entries for {self.n_labels} labels: give one for each label."
            )
        table = []
        for index, name in enumerate(names):
            inside = bin_of_label == index
            true = int(self._true[inside].sum())
            table.append(FrequencyBin(name, *count_range(counts[inside]), true, self._bin_scores(inside)))
        return FrequencyTable(table)

    def per_label(self, k: int) -> LabelScores:
        """Return the counts of each label at cutoff k, which must be one of `ks`."""
        check("k", k, OneOf(*self.ks))
        columns = slice(self.ks.index(k) + 1)
        predicted, hits = self._predicted[:, columns].sum(axis=1), self._hits[:, columns].sum(axis=1)
        return LabelScores(k, self._true.copy(), predicted, hits)

    def _add(self, labels: Int32, reranked: Int32 | None, indptr: Int64, indices: Int32) -> None:
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

    def _bin_scores(self, inside: Flags) -> dict[str, float]:
        true = self._true[inside]
        hits = np.cumsum(self._hits[inside], axis=1)
        totals = hits.sum(axis=0)
        columns: dict[str, Float64] = {"P": percentage(totals, self._ks * self.n_rows)}
        if self.inverse_propensity is not None:
            gains = self.inverse_propensity[inside] @ np.cumsum(self._gain_hits[inside], axis=1)
            columns["PSP"] = np.nan_to_num(percentage(gains, self._best_gains()))
        columns["recall"] = percentage(totals, true.sum())
        columns["C"] = percentage((hits > 0).sum(axis=0), (true > 0).sum())
        return {
            f"{name}@{k}": float(v) for name, values in columns.items() for k, v in zip(self.ks, values, strict=True)
        }

    def _best_gains(self) -> Float64:
        totals = self._totals.sum(axis=0).reshape(len(self.row_metrics), 2, len(self.ks))
        best: Float64 = totals[self.row_metrics.index("PSP"), 1]
        return best

    def _check_rows(self) -> None:
        if not self.n_rows:
            raise InputError("There are no rows to score: give predictions and true labels of at least one row.")


def check_weights(inverse_propensity: npt.ArrayLike | None, n_labels: int) -> Float64 | None:
    """Return inverse propensities, one per label, as an array; None stays None."""
    if inverse_propensity is None:
        return None
    return numbers_per_label("inverse_propensity", inverse_propensity, Number(above=0), n_labels)
