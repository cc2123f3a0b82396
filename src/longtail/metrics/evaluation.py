"""The metrics of a whole test set in one call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy.typing as npt

from longtail.corpus.sparse import as_indicator
from longtail.engine.topk import TopK
from longtail.errors import InputError
from longtail.metrics.evaluator import Evaluator, Rerank
from longtail.metrics.frequency import Bins, FrequencyTable
from longtail.metrics.labels import LabelScores
from longtail.metrics.scores import Scores


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

    - ``P@k``: hits in the first k places over k, mean over rows; over k even where there are fewer predictions.
    - ``nDCG@k``: hits discounted by 1/log2(place + 1), over those of a perfect ranking of min(k, true labels) places;
      mean over rows.
    - ``PSP@k``: sum over rows of the hits' 1/p, over the same sum for a perfect ranking (each row's k largest 1/p among
      its true labels). A ratio of sums, not a mean of ratios.
    - ``PSnDCG@k``: the same with discounted 1/p, where each row's two sides are first divided by the DCG mass of
      min(k, true labels) places.
    - ``PSnDCG_ratio@k``: without that division. Both definitions are in use under the name PSnDCG.
    - ``R@k``: hits over the row's true labels, mean over rows.
    - ``C@k``: coverage, the distinct labels that are hit at least once, over the distinct labels that any row has.
    - ``PSR@k``: as PSP, where each row's two sides are first divided by its true labels.
    - ``MRR@k``: one over the place of the first hit, 0 where there is none; mean over rows.
    - ``ADG@k``: discounted hits over the row's true labels; mean over rows.
    - ``PSADG@k``: as PSnDCG_ratio, where each row's two sides are first divided by its true labels.
    - ``microF1@k``, ``macroF1@k``: F1 of deciding for the first k places, of all rows and labels together; or of each
      label, mean over the labels that are true or predicted in any row.
    - ``Hamming@k``: labels decided for and not true, or true and not decided for, over all columns of Y; mean over
      rows. A loss: less is better.

    A row without labels stays in the means and scores 0. Labels that the training rows never had count like any other.

    Parameters
    ----------
    top : TopK or array of int, shape (n, places)
        Label ids of each row, best first. Ids outside the columns of Y, such as the padding -1, are misses, and so are
        places that are not there. A label that stands twice in a row is refused.
    Y : matrix, shape (n, n_labels)
        True labels; non-zero means present.
    inverse_propensity : array of float, shape (n_labels,), optional
        1/p of each label. Without it the propensity-scored metrics are left out.
    ks : iterable of int
        The places at which metrics are taken.
    rerank : {"inv_propensity_top5"}, optional
        Compute the propensity-scored metrics on another ranking than the rest: the first five labels ordered by falling
        1/p, where only labels with a score above 0 move. Published figures of DiSMEC, PW-DiSMEC and ProXML are computed
        so; it raises PSP@1 and PSP@3 and leaves PSP@5 as it is. Needs a TopK whose scores are margins.

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
    bins: Bins = "head-torso-tail",
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
        A sequence of `FrequencyBin`, the most frequent labels first. In each, ``P@k`` and ``PSP@k`` are the part of the
        whole that the bin's labels contribute, ``recall@k`` is the share of the bin's true labels that were found, and
        ``C@k`` is coverage within the bin.

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
    """Count for each label its true rows, predictions and hits within the first k places.

    Parameters
    ----------
    top, Y
        As for `evaluate`.
    k : int
        Places that count.

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


def with_labels(Y: Any) -> Any:
    """Bring true labels into canonical form; refuse a matrix without columns."""
    truth = as_indicator(Y)
    if not truth.shape[1]:
        raise InputError("Y has no columns: give a column for each label.")
    return truth
