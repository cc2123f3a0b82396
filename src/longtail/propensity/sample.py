"""Propensities from a sample of rows with complete labels."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from longtail.data.sparse import as_indicator, column_counts
from longtail.errors import InputError
from longtail.propensity.models import check_counts
from longtail.propensity.points import Average, PropensityPoints


def estimate_from_sample(
    Y_observed: Any,
    Y_complete: Any,
    *,
    label_counts: npt.ArrayLike | None = None,
    n_rows: int | None = None,
    labels_per_bin: int = 20,
    average: Average = "rows",
) -> PropensityPoints:
    """Estimate propensities from a sample of rows with complete labels.

    The propensity of a label is the share of the rows that have it in `Y_complete` that also have it in `Y_observed`.

    Parameters
    ----------
    Y_observed, Y_complete : matrix, shape (n, n_labels)
        The same rows, as recorded and as completed.
    label_counts : array-like of int, shape (n_labels,), optional
        Training rows of each label; by default those of `Y_observed`, for a sample of all training rows.
    n_rows : int, optional
        Training rows; by default those of `Y_observed`.
    labels_per_bin
        See `estimate_from_hierarchy`.
    average : {"rows", "labels"}
        What has equal weight in a bin: each case or each label. A sample has few cases of a rare label.

    Returns
    -------
    PropensityPoints
        Its `fit` estimates A and B.

    Examples
    --------
    >>> observed, complete = [[1, 0], [0, 0], [1, 1]], [[1, 1], [1, 0], [1, 1]]
    >>> points = estimate_from_sample(observed, complete, label_counts=[60, 10], n_rows=100, labels_per_bin=1)
    >>> points.counts, points.propensities
    (array([10., 60.]), array([0.5       , 0.66666667]))
    """
    observed, complete = as_indicator(Y_observed, name="Y_observed"), as_indicator(Y_complete, name="Y_complete")
    if observed.shape != complete.shape:
        raise InputError(
            f"Y_observed has shape {observed.shape} and Y_complete {complete.shape}: they must be the same rows, with "
            "the same columns for the same labels."
        )
    n_labels = observed.shape[1]
    if (label_counts is None) != (n_rows is None):
        raise InputError("label_counts and n_rows go together: give both, or neither for a sample of all rows.")
    rows = observed.shape[0] if n_rows is None else n_rows
    counts = column_counts(observed) if label_counts is None else label_counts
    checked = check_counts(counts, rows, n_labels)
    both = observed.multiply(complete).tocsr()
    return PropensityPoints.from_labels(
        checked,
        hits=column_counts(both),
        support=column_counts(complete),
        n_rows=rows,
        labels_per_bin=labels_per_bin,
        average=average,
    )
