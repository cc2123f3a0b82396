"""What every learner owes: scikit-learn's contract plus ranked prediction."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import isnan
from numbers import Real
from typing import Any, ClassVar, NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils import ClassifierTags
from sklearn.utils.validation import check_is_fitted

from longtail.corpus.sparse import as_indicator, as_rows, for_kernels
from longtail.engine.augmentation import Augmentation, with_copies
from longtail.engine.memory import parse_memory
from longtail.engine.topk import TopK
from longtail.errors import InputError, ModelError, ParameterError
from longtail.learners.dial import CANDIDATES, checked_tail, given_propensity
from longtail.learners.estimate import Estimate
from longtail.learners.explanation import Explanation
from longtail.learners.updates import MoreRows
from longtail.metrics import evaluate
from longtail.propensity import Propensity, get_propensity

_KEPT_FACTORS = 2  # of each learner: a dial may have one position for the first place and one for the others
_LARGEST_FACTOR = 1e30  # products with it stay finite in single precision


class Learner(BaseEstimator):
    """An estimator that ranks labels: ``fit(X, Y)``, ``predict_topk(X, k)``, ``predict(X)``.

    A subclass stores its parameters verbatim in ``__init__`` and checks them in `_check_parameters`, implements `_fit`
    and `_topk`, and lists in `_stored` the fitted attributes that a saved model keeps besides those of its base classes
    (arrays, sparse matrices, numbers, text, or other learners).

    Attributes
    ----------
    n_features_in_ : int
        Columns of X seen in `fit`.
    n_labels_ : int
        Columns of Y seen in `fit`; label ids are these columns.
    n_rows_ : int
        Training rows, those without labels included.
    label_counts_ : ndarray of int64, shape (n_labels_,)
        Training rows of each label.
    """

    _stored: ClassVar[tuple[str, ...]] = ("n_features_in_", "n_labels_", "n_rows_", "label_counts_")
    _decision_threshold: ClassVar[float] = 0.0

    _data_propensity: Propensity | None = None  # known of the data besides; a model sets it

    n_features_in_: int
    n_labels_: int
    n_rows_: int
    label_counts_: npt.NDArray[np.int64]

    def fit(self, X: Any, Y: Any) -> Self:
        """Learn from rows `X` (n by features) and labels `Y` (n by labels, 0/1), dense or sparse.

        When it fails or is interrupted, the learner stays as it was before.

        Returns
        -------
        self
        """
        self._check_parameters()
        rows, labels = for_kernels(as_rows(X)), for_kernels(as_indicator(Y))
        if rows.shape[0] != labels.shape[0]:
            raise InputError(f"X has {rows.shape[0]} rows and Y has {labels.shape[0]}: they must be the same rows.")
        if rows.shape[0] == 0 or rows.shape[1] == 0:
            raise InputError(f"X has {rows.shape[0]} rows and {rows.shape[1]} features: nothing to learn from.")
        with self._whole_or_unchanged():
            self.n_features_in_ = int(rows.shape[1])
            self._remember_labels(labels)
            self._fit(rows, labels)
        return self

    def update(self, X: Any, Y: Any, *, train: Any = None) -> Self:
        """Learn from rows that came later, and the labels that they bring, without starting over.

        When it fails or is interrupted, the learner stays as it was before.

        Parameters
        ----------
        X : matrix, shape (n, n_features_in_)
        Y : matrix, shape (n, n_labels_ or more)
            Columns beyond the old `n_labels_` are new labels.
        train : (X, Y), optional
            The rows that the learner was trained on, without those that the new ones replace. With them, new labels,
            and those that change much, are trained on all rows; others follow the new rows by as much as these are
            worth.

        Returns
        -------
        self
        """
        check_is_fitted(self, "n_labels_")
        self._check_parameters()
        if type(self)._update is Learner._update:
            raise self._no_more()
        rows, labels = self._check_more(X, Y)
        if rows.shape[0] == 0:
            raise InputError("X has no rows: there is nothing to learn from.")
        earlier = None
        if train is not None:
            before, known = self._check_more(*train)
            width = max(labels.shape[1], known.shape[1])
            labels, known = _widened(labels, width), _widened(known, width)
            earlier = before, known
        self._learn_more(MoreRows.of(rows, labels, earlier, self.label_counts_, self.n_rows_))
        return self

    def predict_topk(
        self, X: Any, k: int = 5, *, tail: float | None = None, only: Any = None, exclude: Any = None
    ) -> TopK:
        """Rank the k best labels of each row, best first; equal scores go by the lower label id.

        Parameters
        ----------
        X : matrix, shape (n, n_features_in_)
        k : int
            Labels a row; rows with fewer are padded with label -1 and score -inf.
        tail : float, optional
            The tail dial, from 0 to 1: labels are ranked by their score times their inverse propensity to this power,
            so that rare ones come up. 0 ranks by the learner's own scores, which is what most learners do when it is
            left out. Scores that may be negative, as margins, are turned into numbers from 0 to 1 first.
        only, exclude : sequence of label ids, optional
            Rank these labels alone, or all but these.

        Returns
        -------
        TopK
        """
        if "n_labels_" not in vars(self):  # asking first: the check takes a fifth of the time of a single row
            check_is_fitted(self, "n_labels_")
        rows, allowed = self._check_rows(X), self._allowed(only, exclude)
        factors = None if tail is None or checked_tail(tail) == 0 else self._tail_factors(float(tail))
        if tail is None:
            return self._topk(rows, checked_k(k), allowed)
        return self._weighted_topk(rows, checked_k(k), allowed, factors)

    def predict(self, X: Any, *, k: int = 100, min_score: float | None = None) -> sp.csr_array:
        """Decide on labels: a sparse 0/1 matrix with at most k labels a row, those that score above `min_score`.

        Without `min_score` the learner's own decision threshold is used.
        """
        check_is_fitted(self, "n_labels_")
        threshold = self._decision_threshold if min_score is None else min_score
        if isinstance(threshold, bool) or not isinstance(threshold, Real) or isnan(threshold):
            raise ParameterError("min_score", min_score, "must be a number or None")
        top = self.predict_topk(X, min(checked_k(k), max(self.n_labels_, 1)))
        return top.at_least(np.nextafter(np.float32(threshold), np.float32(np.inf))).indicator(self.n_labels_)

    @property
    def classes_(self) -> npt.NDArray[np.int64]:
        """Label ids, 0 to n_labels_ - 1; an AttributeError while the learner is not fitted."""
        check_is_fitted(self, "n_labels_")
        return np.arange(self.n_labels_, dtype=np.int64)

    def score(self, X: Any, Y: Any) -> float:
        """Precision at 1: the share of rows, from 0 to 1, whose best label is among those that `Y` gives them."""
        check_is_fitted(self, "n_labels_")
        truth = as_indicator(Y)
        if truth.shape[1] != self.n_labels_:
            raise InputError(
                f"Y has {truth.shape[1]} labels, but {type(self).__name__} was fitted with {self.n_labels_}: "
                "use the same columns."
            )
        return evaluate(self.predict_topk(X, 1), truth, ks=(1,))["P@1"] / 100

    def explain(self, X: Any, labels: Any = None, *, k: int = 5) -> list[Explanation]:
        """Say what made up the scores of some labels for one row.

        Parameters
        ----------
        X : matrix, shape (1, n_features_in_)
            One row.
        labels : sequence of label ids, optional
            Which labels; the k best of the row when left out.
        k : int

        Returns
        -------
        list of Explanation
            One a label, in the order given, or best first.
        """
        check_is_fitted(self, "n_labels_")
        rows = self._check_rows(X)
        if rows.shape[0] != 1:
            raise InputError(f"X has {rows.shape[0]} rows: explain one row at a time.")
        if labels is None:
            best = self._topk(rows, checked_k(k), None).labels[0]
            chosen = best[best >= 0]
        else:
            chosen = self._label_ids("labels", labels)
            unseen = next((int(label) for label in chosen if self.label_counts_[label] == 0), None)
            if unseen is not None:
                raise InputError(f"Label {unseen} has no training row, so there is no score to explain.")
        return self._explain(rows, chosen)

    def estimate(self, X: Any, Y: Any) -> Estimate:
        """Tell what `fit` would take, in time, memory and size of the model; the learner stays as it is."""
        self._check_parameters()
        rows, labels = for_kernels(as_rows(X)), for_kernels(as_indicator(Y))
        if rows.shape[0] != labels.shape[0]:
            raise InputError(f"X has {rows.shape[0]} rows and Y has {labels.shape[0]}: they must be the same rows.")
        size = sum(part.nbytes for matrix in (rows, labels) for part in (matrix.data, matrix.indices, matrix.indptr))
        return replace(self._estimate(rows, labels), data_mb=size / 1e6)

    def _check_parameters(self) -> None:
        """Refuse parameters that make no sense; called before any work starts."""

    @abstractmethod
    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None: ...

    def _update(self, more: MoreRows) -> None:
        """Learn from more rows; what is counted is set afterwards."""
        raise self._no_more()

    def _no_more(self) -> InputError:
        return InputError(f"{type(self).__name__} can't learn from rows that come later: train it anew on all rows.")

    def _learn_more(self, more: MoreRows) -> None:
        with self._whole_or_unchanged():
            self._update(more)
            self.n_rows_, self.n_labels_, self.label_counts_ = more.n_rows, more.n_labels, more.label_counts

    def _updated(self, more: MoreRows) -> Self:
        """Copy of the learner that has learned from more rows."""
        grown = copy.copy(self)
        grown._learn_more(more)
        return grown

    def _fit_augmented(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation) -> None:
        """Learn from rows and from augmented copies of those with labels; all counts stay those of the rows.

        Makes all copies beforehand; a learner that can make them as it goes does so.
        """
        self._fit(*with_copies(X, Y, augmentation))

    @abstractmethod
    def _topk(self, X: sp.csr_array, k: int, allowed: npt.NDArray[np.bool_] | None) -> TopK: ...

    def _weighted_topk(
        self,
        X: sp.csr_array,
        k: int,
        allowed: npt.NDArray[np.bool_] | None,
        factors: npt.NDArray[np.float32] | None,
    ) -> TopK:
        """Rank by factor times score, by the plain score where there are no factors.

        Looks at the best labels by the plain score alone; a learner that can search with factors does so.
        """
        if factors is None or not len(factors):
            return self._topk(X, k, allowed)
        return self._reranked_topks(X, [(k, factors)], allowed)[0]

    def _weighted_topks(
        self,
        X: sp.csr_array,
        wanted: Sequence[tuple[int, npt.NDArray[np.float32]]],
        allowed: npt.NDArray[np.bool_] | None,
    ) -> list[TopK]:
        """Rank by several sets of factors, each with its number of places; one search serves them where it can."""
        if type(self)._weighted_topk is not Learner._weighted_topk:
            return [self._weighted_topk(X, k, allowed, factors) for k, factors in wanted]
        return self._reranked_topks(X, wanted, allowed)

    def _reranked_topks(
        self,
        X: sp.csr_array,
        wanted: Sequence[tuple[int, npt.NDArray[np.float32]]],
        allowed: npt.NDArray[np.bool_] | None,
    ) -> list[TopK]:
        """Rank the best labels by the plain score anew, by each set of factors."""
        most = max((k for k, _ in wanted), default=1)
        top = self._topk(X, max(most, min(CANDIDATES, self.n_labels_)), allowed)
        strengths = np.exp(self._log_scores(top.scores))
        return [top.ranked_by(strengths * factors[top.labels], k) for k, factors in wanted]

    def _tail_factors(self, tail: float) -> npt.NDArray[np.float32]:
        """Inverse propensities to the power of `tail`; the last ones asked for are kept."""
        propensity, kept = given_propensity(self, self._data_propensity), _factors.setdefault(self, {})
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

    def _log_scores(self, scores: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
        """Logarithms of scores, for what multiplies them; a learner whose scores may be negative gives a link here."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(scores, 0)))

    def _points(self, X: sp.csr_array) -> sp.csr_array:
        """Rows as points of which those that are alike lie close: the rows themselves, unless a learner says more."""
        return X

    def _default_features(self) -> Any:
        """What makes rows of texts for this learner, unfitted."""
        from longtail.corpus.text import Tfidf

        return Tfidf()

    def _check_features(self, features: Any) -> None:
        """Refuse features that this learner can't make sense of."""

    def _label_norms(self) -> npt.NDArray[np.float64] | None:
        """Norm of each label's classifier without the bias, NaN where there is none; None for a learner without any."""
        return None

    def _explain(self, X: sp.csr_array, labels: npt.NDArray[np.int32]) -> list[Explanation]:
        raise InputError(f"{type(self).__name__} can't say what its scores are made of.")

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> Estimate:
        raise InputError(f"{type(self).__name__} can't tell what training will take.")

    @contextmanager
    def _whole_or_unchanged(self) -> Iterator[None]:
        """Take back every attribute that was set inside when an error or Ctrl-C ends the block."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def _remember_labels(self, Y: sp.csr_array) -> None:
        self.n_rows_, self.n_labels_ = (int(size) for size in Y.shape)
        self.label_counts_ = np.bincount(Y.indices, minlength=self.n_labels_).astype(np.int64)

    def _check_new_labels(self, X: Any, Y: Any) -> tuple[sp.csr_array, sp.csr_array]:
        """Rows and new labels that a fitted learner is to learn besides those it knows, checked."""
        check_is_fitted(self, "n_labels_")
        self._check_parameters()
        rows, labels = self._check_rows(X), as_indicator(Y)
        if rows.shape[0] != labels.shape[0]:
            raise InputError(f"X has {rows.shape[0]} rows and Y has {labels.shape[0]}: they must be the same rows.")
        if rows.shape[0] == 0:
            raise InputError("X has no rows: nothing to learn the new labels from.")
        return rows, labels

    def _check_more(self, X: Any, Y: Any) -> tuple[sp.csr_array, sp.csr_array]:
        """Rows that come later, or the earlier ones, checked."""
        rows, labels = self._check_rows(X), as_indicator(Y)
        if rows.shape[0] != labels.shape[0]:
            raise InputError(f"X has {rows.shape[0]} rows and Y has {labels.shape[0]}: they must be the same rows.")
        if labels.shape[1] < self.n_labels_:
            raise InputError(
                f"Y has {labels.shape[1]} labels, and the learner knows {self.n_labels_}: keep its columns, and put "
                "new labels after them."
            )
        return rows, labels

    def _remember_new_labels(self, Y: sp.csr_array) -> None:
        """Count new labels in, as many rows as they would have had among those of the first training."""
        counts = np.bincount(Y.indices, minlength=Y.shape[1])
        scaled = np.ceil(counts * (self.n_rows_ / Y.shape[0])).astype(np.int64)
        self.label_counts_ = np.concatenate([self.label_counts_, scaled])
        self.n_labels_ += int(Y.shape[1])

    def _check_rows(self, X: Any) -> sp.csr_array:
        rows = for_kernels(as_rows(X))
        if rows.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {rows.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                f"features as input: use the features it was trained on."
            )
        return rows

    def _allowed(self, only: Any, exclude: Any) -> npt.NDArray[np.bool_] | None:
        if only is None and exclude is None:
            return None
        allowed = np.full(self.n_labels_, only is None)
        for name, ids, value in (("only", only, True), ("exclude", exclude, False)):
            if ids is not None:
                allowed[self._label_ids(name, ids)] = value
        return allowed

    def _label_ids(self, name: str, ids: Any) -> npt.NDArray[np.int32]:
        requirement = f"must be a flat sequence of label ids from 0 to {self.n_labels_ - 1}"
        try:
            labels = np.asarray(ids)
        except ValueError:  # lists of different lengths
            raise ParameterError(name, ids, requirement) from None
        if labels.ndim == 1 and labels.size == 0:
            return np.empty(0, np.int32)
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= self.n_labels_:
            raise ParameterError(name, labels.tolist(), requirement)
        return labels.astype(np.int32)

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
    """Factors of all labels, and what they were worked out from."""

    label_counts: npt.NDArray[np.int64]
    propensity: Propensity | str | None
    factors: npt.NDArray[np.float32]


_factors: WeakKeyDictionary[Learner, dict[tuple[object, ...], _Factors]] = WeakKeyDictionary()


def nested(learner: Learner) -> Iterator[tuple[str, Learner]]:
    """Give a learner and those that it wraps, from the outermost on, each with the path to its parameters.

    Examples
    --------
    >>> from longtail import CentroidReranker, Popularity
    >>> [(path, type(part).__name__) for path, part in nested(CentroidReranker(learner=Popularity()))]
    [('', 'CentroidReranker'), ('learner__', 'Popularity')]
    """
    yield "", learner
    params = learner.get_params(deep=False)
    for name in sorted(params, key=lambda name: (name != "learner", name)):
        if isinstance(params[name], Learner):
            for path, part in nested(params[name]):
                yield f"{name}__{path}", part


def memory_limit_of(learner: Learner) -> int | None:
    """Smallest memory limit of a learner and those that it wraps, in bytes; None where there is none.

    Examples
    --------
    >>> from longtail import OneVsRest, Stacked
    >>> memory_limit_of(Stacked(learner=OneVsRest(memory_limit="2GB")))
    2000000000
    """
    limits = [getattr(part, "memory_limit", None) for _, part in nested(learner)]
    return min((parse_memory(limit) for limit in limits if limit is not None), default=None)


def _widened(Y: sp.csr_array, width: int) -> sp.csr_array:
    return sp.csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], width))


def checked_k(k: Any, name: str = "k") -> int:
    """Number of labels to rank, checked."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k < 2**31:
        raise ParameterError(name, k, f"must be a whole number from 1 to {2**31 - 1}")
    return int(k)
