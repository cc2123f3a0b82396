"""scikit-learn's prediction methods on top of `predict_topk`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from longtail.data.sparse import as_indicator
from longtail.errors import InputError
from longtail.kernels.types import Array, Int32, Int64
from longtail.metrics import evaluate
from longtail.topk import TopK
from longtail.validation import Integer, Number, Optional, check

_MOST_LABELS = 100  # that `predict` gives a row


class PredictionMixin:
    """`predict`, `decision_function`, `predict_proba` and `score` on top of `predict_topk`."""

    _decision_threshold: ClassVar[float] = 0.0
    _gives_probabilities: ClassVar[bool] = False  # whether `_log_scores` are those of probabilities

    n_labels_: int

    @property
    def _merged_candidates(self) -> int:
        """Labels per row that a learner can rank whose scores depend on all candidates together; 0 for other learners.

        Columns of scores are then those of one ranking of that length, whichever labels are asked for.
        """
        return 0

    if TYPE_CHECKING:

        def predict_topk(self, X: Any, k: int = 5, *, only: Any = None) -> TopK: ...  # noqa: D102
        def _topk(self, X: sp.csr_array, k: int, allowed: Any) -> TopK: ...
        def _label_ids(self, name: str, ids: Any) -> Int32: ...
        def _log_scores(self, scores: Array) -> Array: ...
        def parts(self, *, fitted: bool = False) -> Iterator[tuple[str, PredictionMixin]]: ...  # noqa: D102

    def predict(self, X: Any, *, k: int = _MOST_LABELS, min_score: float | None = None) -> sp.csr_array:
        """Predict labels: a sparse 0/1 matrix with at most k labels per row, those that score above `min_score`.

        The default of `min_score` is the learner's own decision threshold.
        """
        check_is_fitted(self, "n_labels_")
        check("min_score", min_score, Optional(Number(may_be_infinite=True)))
        threshold = self._decision_threshold if min_score is None else min_score
        return self._decided(self.predict_topk(X, min(checked_k(k), max(self.n_labels_, 1))), float(threshold))

    def _predict_checked(self, X: sp.csr_array) -> sp.csr_array:
        """Predict labels of rows that were checked; see `predict`."""
        return self._decided(self._topk(X, min(_MOST_LABELS, max(self.n_labels_, 1)), None), self._decision_threshold)

    def _decided(self, top: TopK, threshold: float) -> sp.csr_array:
        """Return the labels that score above a threshold, as a 0/1 matrix."""
        return top.at_least(np.nextafter(np.float32(threshold), np.float32(np.inf))).indicator(self.n_labels_)

    @property
    def classes_(self) -> Int64:
        """Label ids, 0 to n_labels_ - 1; an AttributeError while the learner is not fitted."""
        check_is_fitted(self, "n_labels_")
        return np.arange(self.n_labels_, dtype=np.int64)

    def score(self, X: Any, y: Any) -> float:
        """Return precision at 1: the share of rows, from 0 to 1, whose best label is true in `y`."""
        check_is_fitted(self, "n_labels_")
        truth = as_indicator(y, name="y")
        if truth.shape[1] != self.n_labels_:
            raise InputError(
                f"y has {truth.shape[1]} labels, but {type(self).__name__} was fitted with {self.n_labels_}: "
                "use the same columns."
            )
        return evaluate(self.predict_topk(X, 1), truth, ks=(1,))["P@1"] / 100

    def decision_function(self, X: Any, labels: Any = None, *, k: int = 100) -> Any:
        """Return the scores of some labels, or of the k best labels of each row.

        Parameters
        ----------
        X : matrix, shape (n, n_features_in_)
        labels : sequence of label ids, optional
            Labels to score; by default the k best of each row.
        k : int
            Labels per row without `labels`.

        Returns
        -------
        ndarray of float32, shape (n, len(labels)), or sparse array of shape (n, n_labels_)
            A column per label given, -inf where a search did not reach it. Without `labels` a sparse array with the
            scores of the k best labels of each row; the other labels are not stored. They are not 0, as ``toarray()``
            would have it, but below the stored scores, which may be negative.
        """
        return self._columns(X, labels, k, lambda scores: scores, -np.inf)

    @available_if(lambda learner: learner._gives_probabilities)
    def predict_proba(self, X: Any, labels: Any = None, *, k: int = 100) -> Any:
        """Return the probabilities of some labels, or of the k best labels of each row; see `decision_function`.

        Only learners whose scores map to probabilities have it: linear learners and trees with the logistic loss,
        forests without weighting, embeddings, networks, `Popularity`, `Blend`, `Stacked`, and wrapping these
        `TextLearner`, `TAug` with merge="scores" and `TailDial` at 0. For others see `Model.calibrate`.
        """
        return self._columns(X, labels, k, lambda scores: np.exp(self._log_scores(scores)), 0.0)

    def _columns(self, X: Any, labels: Any, k: int, link: Any, missing: float) -> Any:
        check_is_fitted(self, "n_labels_")
        chosen, column = None, None
        if labels is not None:
            chosen, column = np.unique(self._label_ids("labels", labels), return_inverse=True)
        merged = max(part._merged_candidates for _, part in self.parts(fitted=True))
        wanted = checked_k(k) if chosen is None else merged or max(len(chosen), 1)
        top = self.predict_topk(X, min(wanted, max(self.n_labels_, 1)), only=None if merged else chosen)
        used = top.labels >= 0 if chosen is None else np.isin(top.labels, chosen)
        rows, found = np.nonzero(used)[0], top.labels[used]
        scores = link(top.scores[used].astype(np.float32)).astype(np.float32)
        shape = (len(top.labels), self.n_labels_)
        if chosen is None:
            return sp.csr_array((scores, (rows, found)), shape=shape)
        columns = np.full((len(top.labels), len(chosen)), missing, np.float32)
        columns[rows, np.searchsorted(chosen, found)] = scores
        return columns[:, column]


def checked_k(k: Any, name: str = "k") -> int:
    """Return a number of labels as int, or raise a ParameterError."""
    check(name, k, Integer(1))
    return int(k)
