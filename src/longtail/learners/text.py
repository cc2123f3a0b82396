"""A learner over texts: text features and a learner on top of them, as one estimator."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from longtail.data.sparse import as_indicator
from longtail.errors import InputError, ParameterError
from longtail.features.text_embedding import TfidfEmbedding
from longtail.features.texts import as_texts, tagged_as_texts
from longtail.features.tfidf.tfidf import Tfidf
from longtail.features.tokenizer import Tokens
from longtail.kernels.types import Floating, Int32
from longtail.learners.base import Allowed, Factors, Learner
from longtail.learners.composite import GrowsLabels, MetaLearner
from longtail.learners.cost import TrainingCost
from longtail.learners.explanation import Explanation
from longtail.learners.linear import OneVsRest
from longtail.topk import TopK
from longtail.validation import OneOf, check, parameters_of

_ARRAYS = ("term_bytes_", "term_offsets_", "idf_", "tokenizer_bytes_")

Features = Tfidf | TfidfEmbedding | Tokens
_FEATURES: dict[str, type[Features]] = {"tfidf": Tfidf, "tfidf+embedding": TfidfEmbedding, "tokens": Tokens}


class TextLearner(MetaLearner, GrowsLabels):
    """Turn texts into features and train any learner on them; X is a list of texts instead of a matrix.

    Parameters of both parts have paths: ``set_params(features__min_df=3)``, ``set_params(learner__C=0.5)``.

    Parameters
    ----------
    features : Tfidf, TfidfEmbedding, Tokens or str, optional
        Text features, or their name: "tfidf", "tfidf+embedding" or "tokens". By default `Tokens` for neural learners,
        else ``Tfidf()``.
    learner : Learner, optional
        ``OneVsRest()`` by default.

    Attributes
    ----------
    features_ : Tfidf, TfidfEmbedding or Tokens
        The fitted text features.
    learner_ : Learner
        The fitted learner.
    n_features_in_ : int
        Number of features of the training texts.

    Examples
    --------
    >>> from longtail import Popularity, Tfidf, TextLearner
    >>> learner = TextLearner(features=Tfidf(min_df=1), learner=Popularity())
    >>> learner.fit(["a red car", "a red bus"], [[1, 0], [1, 1]]).predict_topk(["a car"], k=2).labels
    array([[0, 1]], dtype=int32)
    """

    _stored: ClassVar[tuple[str, ...]] = ("features_", "learner_")

    features_: Features
    learner_: Learner

    @property
    def _gives_probabilities(self) -> bool:  # type: ignore[override]
        return self._wrapped()._gives_probabilities

    def __init__(self, *, features: Features | str | None = None, learner: Learner | None = None) -> None:
        self.features = features
        self.learner = learner

    def fit(self, X: Sequence[str], y: Any) -> Self:
        """Fit to texts `X` and labels `y` (texts by labels, 0/1), dense or sparse.

        When it fails or is interrupted, the learner stays as it was before.

        Returns
        -------
        self
        """
        return super().fit(X, y)

    def _fit_unchecked(self, X: Any, y: Any) -> Self:
        texts, labels = as_texts(X, name="X"), as_indicator(y, name="y")
        if len(texts) != labels.shape[0]:
            raise InputError(f"There are {len(texts)} texts and y has {labels.shape[0]} rows: they must be the same.")
        if not texts:
            raise InputError("There are no texts: nothing to learn from.")
        features = self._made_features()
        rows = features._fit_transform(texts)
        with self._whole_or_unchanged():
            super()._fit_unchecked(rows, labels)
            self.features_ = features
        return self

    def predict(self, X: Sequence[str], *, k: int = 100, min_score: float | None = None) -> sp.csr_array:
        """Decide on labels for each text; see `Learner.predict`."""
        check_is_fitted(self, "n_labels_")
        return self.learner_.predict(self._check_rows(X), k=k, min_score=min_score)

    def estimate(self, X: Any, y: Any) -> TrainingCost:
        """Estimate the cost of `fit`, including the measured time of turning the texts into features."""
        self._check_parameters()
        start = time.perf_counter()
        features = self._made_features()
        rows = features._fit_transform(as_texts(X, name="X"))
        seconds = time.perf_counter() - start
        vocabulary = sum(getattr(features, name).nbytes for name in _ARRAYS if hasattr(features, name)) / 1e6
        wrapped = self._base().estimate(rows, y)
        return replace(wrapped.times(1, alone=seconds), model_mb=wrapped.model_mb + vocabulary)

    def predict_weighted_topk(self, X: Sequence[str], label_weights: Any, k: int = 5) -> TopK:
        """Rank exactly the k labels with the largest weight times score; see `LabelTree.predict_weighted_topk`."""
        check_is_fitted(self, "n_labels_")
        learner: Any = self.learner_
        if not hasattr(learner, "predict_weighted_topk"):
            raise InputError(f"{type(learner).__name__} has no exact weighted search: a label tree has.")
        top: TopK = learner.predict_weighted_topk(self._check_rows(X), label_weights, k)
        return top

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; those of a part can be set even while the part is the default None."""
        if isinstance(self.features, str) and any(name.startswith("features__") for name in params):
            self.features = get_features(self.features)
        elif self.features is None and "features" not in params and any(p.startswith("features__") for p in params):
            self.features = self._default_features()
        return super().set_params(**params)

    def _wrapped(self) -> Learner:
        """The wrapped learner, fitted if it is."""
        return self.learner_ if hasattr(self, "learner_") else self._base()

    def _default(self) -> Learner:
        return OneVsRest()

    def _made_features(self) -> Features:
        """Return a new unfitted copy of the features."""
        if isinstance(self.features, str):
            return get_features(self.features)
        made: Features = self._default_features() if self.features is None else clone(self.features)
        return made

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_features_with_learner()

    def _check_features_with_learner(self) -> None:
        """Check the features, also against the learner, whose own parameters were checked."""
        if not isinstance(self.features, Features | str | None):
            known = "Tfidf, TfidfEmbedding, Tokens, or the name of one"
            raise ParameterError("features", self.features, f"must be {known} ({', '.join(_FEATURES)})")
        features = self._made_features()
        with parameters_of("features"):
            features._check_parameters()
        for _, part in self._base().parts():
            part._check_features(features)

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        self.learner_ = self._base()._fit_checked(X, Y)

    def _topk(self, X: sp.csr_array, k: int, allowed: Allowed) -> TopK:
        return self.learner_._topk(X, k, allowed)

    def _weighted_topk(self, X: sp.csr_array, k: int, allowed: Allowed, factors: Factors) -> TopK:
        return self.learner_._weighted_topk(X, k, allowed, factors)

    def _explain(self, X: sp.csr_array, labels: Int32) -> list[Explanation]:
        names = self.features_.names_of(X)
        return [explanation.renamed(features=names) for explanation in self.learner_._explain(X, labels)]

    @property
    def display_name(self) -> str:
        """Name of the class of the wrapped learner."""
        return type(self._wrapped()).__name__

    def _log_scores(self, scores: Floating) -> Floating:
        return self.learner_._log_scores(scores)

    def _check_rows(self, X: Any) -> sp.csr_array:
        return super()._check_rows(self.features_.transform(as_texts(X, name="X")))

    def __sklearn_tags__(self) -> Any:
        return tagged_as_texts(super().__sklearn_tags__())


def get_features(name: str) -> Features:
    """Return unfitted features by name."""
    check("features", name, OneOf(*_FEATURES))
    return _FEATURES[name]()
