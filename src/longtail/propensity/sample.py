"""Propensities from rows that were annotated twice, the second time more completely."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.corpus.sparse import as_indicator
from longtail.errors import InputError
from longtail.propensity.base import check_counts
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
    """Estimate propensities from a sample of rows whose labels were completed.

    A label's propensity is the share of the rows that have it in the complete annotation that also have it in the
    observed one. Labels that only the observed annotation has don't count.

    Parameters
    ----------
    Y_observed, Y_complete : matrix, shape (n, n_labels)
        The same rows, as recorded and as completed.
    label_counts : array-like of int, shape (n_labels,), optional
        Training rows of each label; those of `Y_observed` by default, which is right if it holds all training rows.
    n_rows : int, optional
        Training rows; those of `Y_observed` by default.
    labels_per_bin : int
        Labels of similar training count that are averaged over.
    average : {"rows", "labels"}
        Whether each case counts the same, or each label: a sample has few cases of a rare label, often a single one.

    Returns
    -------
    PropensityPoints
        `PropensityPoints.fit` fits A and B to them.

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
        raise InputError("label_counts and n_rows belong together: give both, or neither for a sample of all rows.")
    rows = observed.shape[0] if n_rows is None else n_rows
    counts = np.bincount(observed.indices, minlength=n_labels) if label_counts is None else label_counts
    checked = check_counts(counts, rows)
    if len(checked) != n_labels:
        raise InputError(f"label_counts has {len(checked)} entries for {n_labels} labels: give one for each label.")
    both = observed.multiply(complete).tocsr()
    return PropensityPoints.from_labels(
        checked,
        hits=np.bincount(both.indices, minlength=n_labels),
        support=np.bincount(complete.indices, minlength=n_labels),
        n_rows=rows,
        labels_per_bin=labels_per_bin,
        average=average,
    )
