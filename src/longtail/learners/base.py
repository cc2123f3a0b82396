"""Base class of the learners: scikit-learn's interface and ranked prediction."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils import ClassifierTags
from sklearn.utils.validation import check_is_fitted, validate_data

from longtail.config import WithJobs
from longtail.data.label_index import LabelIndex
from longtail.data.sparse import as_indicator, as_rows, column_counts, for_kernels, with_columns
from longtail.errors import InputError, ModelError
from longtail.kernels.augmentation import Augmentation, with_copies
from longtail.kernels.types import Flags, Float32, Float64, Floating, Int32, Int64
from longtail.learners.cost import TrainingCost
from longtail.learners.explanation import Explanation
from longtail.learners.nesting import NestedMixin
from longtail.learners.prediction import PredictionMixin, checked_k
from longtail.learners.updates import UpdateBatch
from longtail.propensity import Propensity, get_propensity
from longtail.topk import TopK
from longtail.validation import TAIL, Validated, check, parameters_of
from longtail.weighting import get_weighting

Allowed = Flags | None
"""Which labels may be ranked; None for all."""
Factors = Float32 | None
"""A factor per label for its score; None for none."""
CANDIDATES = 100
"""Labels per row that are ranked again by a learner that can't search with factors."""

_KEPT_FACTORS = 2  # per learner: a dial may have one position for the first label and one for the others
_LARGEST_FACTOR = 1e30  # products with it stay finite in single precision


class Learner(Validated, NestedMixin, PredictionMixin, WithJobs, BaseEstimator):
    """An estimator that ranks labels: ``fit(X, y)``, ``predict_topk(X, k)``, ``predict(X)``.

    A subclass stores its parameters verbatim in ``__init__``, lists their constraints in `_constraints`, implements
    `_fit` and `_topk`, and lists in `_stored` the fitted attributes that a saved model keeps in addition to those of
    its base classes (arrays, sparse matrices, numbers, text, or other learners).

    Attributes
    ----------
    n_features_in_ : int
        Columns of X seen in `fit`.
    feature_names_in_ : ndarray of str
        Names of these columns, only if X was a data frame with text as column names; other rows must have the same.
    n_labels_ : int
        Columns of y seen in `fit`; label ids are these columns.
    n_rows_ : int
        Training rows, those without labels included.
    label_counts_ : ndarray of int64, shape (n_labels_,)
        Training rows of each label.

    Examples
    --------
    >>> from longtail import OneVsRest
    >>> learner = OneVsRest().fit([[1, 0], [0, 1], [1, 1]], [[1, 0], [0, 1], [1, 1]])
    >>> learner.predict_topk([[1, 0]], k=2).labels, learner.label_counts_
    (array([[0, 1]], dtype=int32), array([2, 2]))
    """

    _stored: ClassVar[tuple[str, ...]] = (
        "n_features_in_",
        "feature_names_in_",
        "n_labels_",
        "n_rows_",
        "label_counts_",
    )

    _log_odds_slope: float | None = None  # scores times this are log-odds; None where they are 0 or above
    _working: ClassVar[frozenset[str]] = frozenset(
        {"_fit", "_fit_augmented", "_topk", "_weighted_topk", "_weighted_topks", "_explain", "_estimate"}
        | {"_grown", "add_labels", "add_trees", "embed", "leaves", "predict_weighted_topk"}
    )
    _data_propensity: Propensity | None = None  # that of the data; a model sets it

    n_features_in_: int
    feature_names_in_: Any
    n_labels_: int
    n_rows_: int
    label_counts_: Int64

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to rows `X` (n by features) and their labels `y` (n by labels, 0/1), dense or sparse.

        When it fails or is interrupted, the learner stays as it was before.

        Returns
        -------
        self
        """
        self._check_parameters()
        return self._fit_unchecked(X, y)

    def _fit_unchecked(self, X: Any, y: Any) -> Self:
        """Fit with parameters that were checked, to rows and labels that were not."""
        rows, labels = self._check_rows_and_labels(X, y)
        for axis, what in enumerate(("sample", "feature")):
            if rows.shape[axis] == 0:
                raise InputError(
                    f"X has 0 {what}(s) (shape={rows.shape}) while a minimum of 1 is required: nothing to learn from."
                )
        with self._whole_or_unchanged():
            self._check_feature_names(X, reset=True)
            return self._fit_checked(rows, labels)

    def _fit_checked(self, X: sp.csr_array, Y: sp.csr_array) -> Self:
        """Fit to rows and labels in canonical form; the parameters were checked."""
        with self._whole_or_unchanged():
            self.n_features_in_ = int(X.shape[1])
            self._remember_labels(Y)
            self._fit(X, Y)
        return self

    def update(self, X: Any, y: Any, *, train: Any = None) -> Self:
        """Update the fitted learner with new rows and new labels.

        When it fails or is interrupted, the learner stays as it was before.

        Parameters
        ----------
        X : matrix, shape (n, n_features_in_)
        y : matrix, shape (n, n_labels_ or more)
            Columns beyond the old `n_labels_` are new labels.
        train : (X, y), optional
            The earlier training rows, without those that the new ones replace. If given, new labels and labels that
            change much are trained on all rows; the others are updated in proportion to their share of new rows.

        Returns
        -------
        self
        """
        check_is_fitted(self, "n_labels_")
        self._check_parameters()
        if type(self)._update is Learner._update:
            Learner._update(self, None)  # type: ignore[arg-type]  # refuses, before any work
        rows, labels = self._check_batch(X, y)
        if rows.shape[0] == 0:
            raise InputError("X has no rows: there is nothing to learn from.")
        earlier = None
        if train is not None:
            before, known = self._check_batch(*train)
            width = max(labels.shape[1], known.shape[1])
            labels, known = with_columns(labels, width), with_columns(known, width)
            earlier = before, known
        self._learn_batch(UpdateBatch.of(rows, labels, earlier, self.label_counts_, self.n_rows_))
        return self

    def predict_topk(
        self, X: Any, k: int = 5, *, tail: float | None = None, only: Any = None, exclude: Any = None
    ) -> TopK:
        """Rank the k best labels of each row, best first; equal scores go by the lower label id.

        Parameters
        ----------
        X : matrix, shape (n, n_features_in_)
        k : int
            Labels per row; rows with fewer are padded with label -1 and score -inf.
        tail : float, optional
            The tail dial, from 0 to 1: labels are ranked by their score times their inverse propensity to this power,
            which favours rare labels. 0 ranks by the learner's own scores, the default of most learners. Scores that
            may be negative, such as margins, are first mapped to numbers from 0 to 1.
        only, exclude : sequence of label ids, optional
            Labels to rank (`only`), or to leave out (`exclude`).

        Returns
        -------
        TopK
        """
        if "n_labels_" not in vars(self):  # the check itself takes a fifth of the time of a single row
            check_is_fitted(self, "n_labels_")
        rows, allowed = self._check_rows(X), self._allowed(only, exclude)
        if tail is not None:
            check("tail", tail, TAIL)
        factors = self._tail_factors(float(tail)) if tail else None
        if tail is None:
            return self._topk(rows, checked_k(k), allowed)
        return self._weighted_topk(rows, checked_k(k), allowed, factors)

    def explain(self, X: Any, labels: Any = None, *, k: int = 5) -> list[Explanation]:
        """Explain the scores of some labels for one row.

        Parameters
        ----------
        X : matrix, shape (1, n_features_in_)
            One row.
        labels : sequence of label ids, optional
            Labels to explain; by default the k best of the row.
        k : int

        Returns
        -------
        list of Explanation
            One per label, in the order given, or best first.
        """
        check_is_fitted(self, "n_labels_")
        rows: Any = self._check_rows(X)
        n = len(rows) if isinstance(rows, list) else rows.shape[0]
        if n != 1:
            raise InputError(f"X has {n} rows: explain one row at a time.")
        if labels is None:
            best = self._topk(rows, checked_k(k), None).labels[0]
            chosen = best[best >= 0]
        else:
            chosen = self._label_ids("labels", labels)
            unseen = next((int(label) for label in chosen if self.label_counts_[label] == 0), None)
            if unseen is not None:
                raise InputError(f"Label {unseen} has no training row, so there is no score to explain.")
        return self._explain(rows, chosen)

    def estimate(self, X: Any, y: Any) -> TrainingCost:
        """Estimate the time and memory that `fit` needs, and the size of the model; nothing is trained."""
        self._check_parameters()
        rows, labels = self._check_rows_and_labels(X, y)
        size = sum(part.nbytes for matrix in (rows, labels) for part in (matrix.data, matrix.indices, matrix.indptr))
        return replace(self._estimate(rows, labels), data_mb=size / 1e6)

    def _check_parameters(self) -> None:
        """Raise an error for the first invalid parameter, also of the weighting and the propensities."""
        super()._check_parameters()
        if hasattr(self, "weighting"):
            weighting = get_weighting(self.weighting)
            with parameters_of("weighting"):
                weighting._check_parameters()
        if hasattr(self, "propensity"):
            propensity = get_propensity(self.propensity)
            with parameters_of("propensity"):
                propensity._check_parameters()

    @abstractmethod
    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None: ...

    def _update(self, batch: UpdateBatch) -> None:
        """Learn from more rows; `_learn_batch` sets the counts afterwards."""
        raise InputError(f"{type(self).__name__} does not support incremental updates: refit on all rows.")

    def _learn_batch(self, batch: UpdateBatch) -> None:
        with self._whole_or_unchanged():
            self._update(batch)
            self.n_rows_, self.n_labels_, self.label_counts_ = batch.n_rows, batch.n_labels, batch.label_counts

    def _updated(self, batch: UpdateBatch) -> Self:
        """Return an updated copy."""
        updated = copy.copy(self)
        updated._learn_batch(batch)
        return updated

    def _fit_augmented(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation) -> None:
        """Fit to rows and to augmented copies of those with labels; all counts stay those of the rows.

        Makes all copies first; a learner may override it to make them one by one.
        """
        self._fit(*with_copies(X, Y, augmentation))

    @abstractmethod
    def _topk(self, X: sp.csr_array, k: int, allowed: Allowed) -> TopK: ...

    def _weighted_topk(self, X: sp.csr_array, k: int, allowed: Allowed, factors: Factors) -> TopK:
        """Rank by factor times score, by the plain score where there are no factors.

        Ranks the best labels by the plain score again; a learner that can search with factors overrides it.
        """
        if factors is None or not len(factors):
            return self._topk(X, k, allowed)
        return self._reranked_topks(X, [(k, factors)], allowed)[0]

    def _weighted_topks(self, X: sp.csr_array, wanted: Sequence[tuple[int, Float32]], allowed: Allowed) -> list[TopK]:
        """Rank by several pairs of k and factors, with one search where possible."""
        if type(self)._weighted_topk is not Learner._weighted_topk:
            return [self._weighted_topk(X, k, allowed, factors) for k, factors in wanted]
        return self._reranked_topks(X, wanted, allowed)

    def _reranked_topks(self, X: sp.csr_array, wanted: Sequence[tuple[int, Float32]], allowed: Allowed) -> list[TopK]:
        """Find the best labels by the plain score and rank them again by each set of factors."""
        most = max((k for k, _ in wanted), default=1)
        top = self._topk(X, max(most, min(CANDIDATES, self.n_labels_)), allowed)
        scores = np.exp(self._log_scores(top.scores))
        return [top.ranked_by(scores * factors[top.labels], k) for k, factors in wanted]

    def _tail_factors(self, tail: float) -> Float32:
        """Inverse propensities to the power of `tail`; the last ones are cached."""
        propensity, kept = self._given_propensity(self._data_propensity), _factors.setdefault(self, {})
        asked = (tail, self.n_rows_, propensity if isinstance(propensity, str | None) else str(vars(propensity)))
        found = kept.get(asked)
        if found is None or found.label_counts is not self.label_counts_ or found.propensity is not propensity:
            if len(self.label_counts_) != self.n_labels_:
                raise ModelError(
                    "The counts of the labels don't fit the model: its files were changed; train it again."
                )
            inverse = get_propensity(propensity).inverse(self.label_counts_, self.n_rows_)
            factors = np.minimum(inverse**tail, _LARGEST_FACTOR).astype(np.float32)
            if len(kept) >= _KEPT_FACTORS:
                kept.clear()
            found = kept[asked] = _Factors(self.label_counts_, propensity, factors)
        return found.factors

    def propensity_model(self, default: Propensity | None = None) -> Propensity:
        """Return the propensities given to this learner, its weighting or a nested learner; else `default`.

        Examples
        --------
        >>> from longtail import JainPropensity, OneVsRest
        >>> from longtail.weighting import PW
        >>> OneVsRest(weighting=PW(propensity=JainPropensity(a=0.6, b=2.6))).propensity_model()
        JainPropensity(a=0.6, b=2.6)
        """
        return get_propensity(self._given_propensity(default))

    def _given_propensity(self, default: Propensity | None) -> Propensity | str | None:
        for _, part in self.parts():
            for holder in (part, getattr(part, "weighting", None)):
                known: Propensity | str | None = getattr(holder, "propensity", None)
                if known is not None:
                    return known
        return default

    def _log_scores(self, scores: Floating) -> Floating:
        """Return logarithms of scores, or of the sigmoid of log-odds."""
        if self._log_odds_slope is not None:
            return np.asarray(-np.logaddexp(0, -self._log_odds_slope * scores), scores.dtype)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(scores, 0)))

    def _scores_of(self, X: sp.csr_array, labels: Int32) -> dict[int, float]:
        """Return the scores of labels for one row, without those that can't be ranked."""
        only = np.zeros(self.n_labels_, np.bool_)
        only[labels] = True
        top = self._topk(X, max(len(labels), 1), only)
        return dict(zip(top.labels[0].tolist(), top.scores[0].tolist(), strict=True))

    def _points(self, X: sp.csr_array) -> sp.csr_array:
        """Rows as points in a space where similar rows are close; by default the rows themselves."""
        return X

    def _default_features(self) -> Any:
        """Return the default text features of this learner, unfitted."""
        from longtail.features.tfidf.tfidf import Tfidf

        return Tfidf()

    def _check_features(self, features: Any) -> None:
        """Raise an error for text features that this learner can't use."""

    def _label_norms(self) -> Float64 | None:
        """Norm of each label's weights without the bias, NaN for labels without weights; None if there are none."""
        return None

    def _explain(self, X: sp.csr_array, labels: Int32) -> list[Explanation]:
        raise InputError(f"{type(self).__name__} does not support explanations.")

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> TrainingCost:
        raise InputError(f"{type(self).__name__} does not support estimates of the training cost.")

    @property
    def display_name(self) -> str:
        """Name of the class for results and explanations."""
        return type(self).__name__

    @contextmanager
    def _whole_or_unchanged(self) -> Iterator[None]:
        """Undo all changes of attributes when an error or Ctrl-C ends the block."""
        before = dict(vars(self))
        try:
            with self._run_settings():
                yield
        except BaseException:
            self.__dict__ = before
            raise

    def _remember_labels(self, Y: sp.csr_array) -> None:
        self.n_rows_, self.n_labels_ = (int(size) for size in Y.shape)
        self.label_counts_ = column_counts(Y)

    @staticmethod
    def _check_rows_and_labels(X: Any, y: Any) -> tuple[sp.csr_array, sp.csr_array]:
        return _same_rows(for_kernels(as_rows(X)), for_kernels(as_indicator(y, name="y")))

    def _check_new_labels(self, X: Any, y: Any) -> tuple[sp.csr_array, sp.csr_array]:
        """Check rows and new labels for a fitted learner."""
        check_is_fitted(self, "n_labels_")
        self._check_parameters()
        rows, labels = _same_rows(self._check_rows(X), as_indicator(y, name="y"))
        if rows.shape[0] == 0:
            raise InputError("X has no rows: nothing to learn the new labels from.")
        return rows, labels

    def _check_batch(self, X: Any, y: Any) -> tuple[sp.csr_array, sp.csr_array]:
        """Check new or earlier rows for an update."""
        rows, labels = _same_rows(self._check_rows(X), as_indicator(y, name="y"))
        if labels.shape[1] < self.n_labels_:
            raise InputError(
                f"y has {labels.shape[1]} labels, and the learner knows {self.n_labels_}: keep its columns, and put "
                "new labels after them."
            )
        return rows, labels

    def _remember_new_labels(self, Y: sp.csr_array) -> None:
        """Add the counts of new labels, scaled to the number of training rows."""
        counts = column_counts(Y)
        scaled = np.ceil(counts * (self.n_rows_ / Y.shape[0])).astype(np.int64)
        self.label_counts_ = np.concatenate([self.label_counts_, scaled])
        self.n_labels_ += int(Y.shape[1])

    def _check_feature_names(self, X: Any, *, reset: bool = False) -> None:
        """Compare the column names of a data frame with those seen in `fit`, or with `reset` keep them."""
        if hasattr(X, "columns") or "feature_names_in_" in vars(self):
            try:
                validate_data(self, X, reset=reset, skip_check_array=True, ensure_2d=False)
            except ValueError as error:
                raise InputError(str(error)) from None

    def _check_rows(self, X: Any) -> sp.csr_array:
        self._check_feature_names(X)
        rows = for_kernels(as_rows(X))
        if rows.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {rows.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                f"features as input: use the features it was trained on."
            )
        return rows

    def _allowed(self, only: Any, exclude: Any) -> Allowed:
        if only is None and exclude is None:
            return None
        allowed = np.full(self.n_labels_, only is None)
        for name, ids, value in (("only", only, True), ("exclude", exclude, False)):
            if ids is not None:
                allowed[self._label_ids(name, ids)] = value
        return allowed

    def _label_ids(self, name: str, ids: Any) -> Int32:
        return LabelIndex(n_labels=self.n_labels_).ids_of(ids, name)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "classifier"
        tags.classifier_tags = ClassifierTags(multi_class=False, multi_label=True)
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.input_tags.sparse = True
        return tags


class _Factors(NamedTuple):
    """Factors of all labels, and their inputs."""

    label_counts: Int64
    propensity: Propensity | str | None
    factors: Float32


_factors: WeakKeyDictionary[Learner, dict[tuple[object, ...], _Factors]] = WeakKeyDictionary()


def _same_rows(X: sp.csr_array, Y: sp.csr_array) -> tuple[sp.csr_array, sp.csr_array]:
    if X.shape[0] != Y.shape[0]:
        raise InputError(f"X has {X.shape[0]} rows and y has {Y.shape[0]}: they must be the same rows.")
    return X, Y
