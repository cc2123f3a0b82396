"""A learner over raw text: the text features and the learner on top of them, as one estimator."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from longtail.corpus.sparse import as_indicator
from longtail.corpus.text import Tfidf
from longtail.corpus.text_embedding import TfidfEmbedding
from longtail.corpus.token_rows import Tokens
from longtail.engine.topk import TopK
from longtail.errors import InputError, ParameterError
from longtail.learners.base import Learner, nested
from longtail.learners.estimate import Estimate
from longtail.learners.explanation import Explanation
from longtail.learners.label_trees import LabelTree
from longtail.learners.linear import OneVsRest
from longtail.learners.updates import MoreRows

_ARRAYS = ("term_bytes_", "term_offsets_", "idf_", "tokenizer_bytes_")

Features = Tfidf | TfidfEmbedding | Tokens
_FEATURES: dict[str, type[Features]] = {"tfidf": Tfidf, "tfidf+embedding": TfidfEmbedding, "tokens": Tokens}


class TextLearner(Learner):
    """Turn texts into features, then learn from them with any learner; takes texts wherever others take a matrix.

    The parameters of both parts can be reached by their path: ``set_params(features__min_rows=3)``,
    ``set_params(learner__regularisation=0.5)``.

    Parameters
    ----------
    features : Tfidf, TfidfEmbedding, Tokens or str, optional
        Makes rows of features from texts, or its name: "tfidf", "tfidf+embedding" or "tokens". What the learner wants
        when left out: `Tokens` for neural learners, else ``Tfidf()``.
    learner : Learner, optional
        Learns from those rows; ``OneVsRest()`` when left out.

    Attributes
    ----------
    features_ : Tfidf, TfidfEmbedding or Tokens
        The fitted text features.
    learner_ : Learner
        The fitted learner.
    n_features_in_ : int
        Features that the training texts gave.

    Examples
    --------
    >>> from longtail import Popularity, Tfidf, TextLearner
    >>> learner = TextLearner(features=Tfidf(min_rows=1), learner=Popularity())
    >>> learner.fit(["a red car", "a red bus"], [[1, 0], [1, 1]]).predict_topk(["a car"], k=2).labels
    array([[0, 1]], dtype=int32)
    """

    _stored: ClassVar[tuple[str, ...]] = ("features_", "learner_")

    features_: Features
    learner_: Learner

    def __init__(self, *, features: Features | str | None = None, learner: Learner | None = None) -> None:
        self.features = features
        self.learner = learner

    def fit(self, X: Sequence[str], Y: Any) -> Self:
        """Learn from texts `X` and labels `Y` (texts by labels, 0/1), dense or sparse.

        When it fails or is interrupted, the learner stays as it was before.

        Returns
        -------
        self
        """
        self._check_parameters()
        texts, labels = as_texts(X), as_indicator(Y)
        if len(texts) != labels.shape[0]:
            raise InputError(f"There are {len(texts)} texts and Y has {labels.shape[0]} rows: they must be the same.")
        if not texts:
            raise InputError("There are no texts: nothing to learn from.")
        features = self._made_features()
        rows = features.fit_transform(texts)
        with self._whole_or_unchanged():
            super().fit(rows, labels)
            self.features_ = features
        return self

    def predict(self, X: Sequence[str], *, k: int = 100, min_score: float | None = None) -> sp.csr_array:
        """Decide on labels for each text; see `Learner.predict`."""
        check_is_fitted(self, "n_labels_")
        return self.learner_.predict(self._check_rows(X), k=k, min_score=min_score)

    def explain(self, X: Any, labels: Any = None, *, k: int = 5) -> list[Explanation]:
        """Say what made up the scores of some labels for one text, word by word; see `Learner.explain`."""
        check_is_fitted(self, "n_labels_")
        rows = self._check_rows(X)
        whys = self.learner_.explain(rows, labels, k=k)
        names = self.features_.names_of(rows)
        return [why.renamed(features=names) for why in whys]

    def estimate(self, X: Any, Y: Any) -> Estimate:
        """Tell what `fit` would take; the texts are turned into features for it, and that time is counted."""
        self._check_parameters()
        start = time.perf_counter()
        features = self._made_features()
        rows = features.fit_transform(as_texts(X))
        seconds = time.perf_counter() - start
        vocabulary = sum(getattr(features, name).nbytes for name in _ARRAYS if hasattr(features, name)) / 1e6
        inner = (OneVsRest() if self.learner is None else self.learner).estimate(rows, Y)
        return replace(inner.times(1, alone=seconds), model_mb=inner.model_mb + vocabulary)

    def add_labels(self, X: Any, Y: Any) -> Self:
        """Learn new labels from texts and leave the others as they are; see `OneVsRest.add_labels`."""
        check_is_fitted(self, "n_labels_")
        if not hasattr(self.learner_, "add_labels"):
            raise InputError(f"{type(self.learner_).__name__} can't learn new labels later: train it anew.")
        grown: Any = copy.copy(self.learner_)
        grown.add_labels(self._check_rows(X), Y)
        with self._whole_or_unchanged():
            self.learner_, self.n_labels_, self.label_counts_ = grown, grown.n_labels_, grown.label_counts_
        return self

    def add_trees(self, X: Any, Y: Any, trees: int) -> Self:
        """Grow more trees over texts and leave the others as they are; see `InstanceForest.add_trees`."""
        check_is_fitted(self, "n_labels_")
        grown: Any = copy.copy(self.learner_)
        if not hasattr(grown, "add_trees"):
            raise InputError(f"{type(grown).__name__} has no trees over rows that more could join: train it anew.")
        grown.add_trees(self._check_rows(X), Y, trees)
        with self._whole_or_unchanged():
            self.learner, self.learner_ = clone(grown), grown
            self.n_rows_, self.label_counts_ = grown.n_rows_, grown.label_counts_
        return self

    def predict_weighted_topk(self, X: Sequence[str], label_weights: Any, k: int = 5) -> TopK:
        """Rank exactly the k labels with the largest weight times score; see `LabelTree.predict_weighted_topk`."""
        check_is_fitted(self, "n_labels_")
        if not isinstance(self.learner_, LabelTree):
            raise InputError(f"{type(self.learner_).__name__} has no exact weighted search: a label tree has.")
        return self.learner_.predict_weighted_topk(self._check_rows(X), label_weights, k)

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; those of a part can be set even while the part is the default None."""
        if isinstance(self.features, str) and any(name.startswith("features__") for name in params):
            self.features = get_features(self.features)
        for part, default in (("learner", OneVsRest), ("features", self._default_features)):
            if getattr(self, part) is None and part not in params and any(p.startswith(f"{part}__") for p in params):
                setattr(self, part, default())
        super().set_params(**params)
        return self

    def _default_features(self) -> Features:
        return Tfidf() if self.learner is None else self.learner._default_features()

    def _made_features(self) -> Features:
        """Features, unfitted and nobody else's."""
        if isinstance(self.features, str):
            return get_features(self.features)
        made: Features = self._default_features() if self.features is None else clone(self.features)
        return made

    def _check_parameters(self) -> None:
        if isinstance(self.features, str):
            get_features(self.features)
        for part in (self.features, self.learner):
            check = getattr(part, "_check_parameters", None)
            if check is not None:
                check()
        if self.learner is not None:
            for _, part in nested(self.learner):
                part._check_features(self._made_features())

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        self.learner_ = (OneVsRest() if self.learner is None else clone(self.learner)).fit(X, Y)

    def _update(self, more: MoreRows) -> None:
        """Features and their weights stay as they are: words that were not there are left out."""
        self.learner_ = self.learner_._updated(more)

    def _topk(self, X: sp.csr_array, k: int, allowed: npt.NDArray[np.bool_] | None) -> TopK:
        return self.learner_._topk(X, k, allowed)

    def _weighted_topk(
        self,
        X: sp.csr_array,
        k: int,
        allowed: npt.NDArray[np.bool_] | None,
        factors: npt.NDArray[np.float32] | None,
    ) -> TopK:
        return self.learner_._weighted_topk(X, k, allowed, factors)

    def _log_scores(self, scores: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
        return self.learner_._log_scores(scores)

    def _check_rows(self, X: Any) -> sp.csr_array:
        return super()._check_rows(self.features_.transform(as_texts(X)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.sparse = False
        return tags


def get_features(name: str) -> Features:
    """Features by their name, unfitted."""
    if name not in _FEATURES:
        raise ParameterError("features", name, f"must be one of {', '.join(_FEATURES)}")
    return _FEATURES[name]()


def as_texts(X: Any) -> list[str]:
    """Bring texts, one a row, into a list; what is one text, or a matrix, is refused.

    Examples
    --------
    >>> as_texts(("one", "two"))
    ['one', 'two']
    """
    if isinstance(X, str):
        raise InputError("X is one text: give a list of texts, one a row.")
    if not isinstance(X, Iterable) or sp.issparse(X) or getattr(X, "ndim", 1) != 1:
        raise InputError(f"X is a {type(X).__name__}, and this learner takes texts: give a list of texts, one a row.")
    texts = X if isinstance(X, list) else list(X)
    wrong = next((row for row, text in enumerate(texts) if not isinstance(text, str)), None)
    if wrong is not None:
        raise InputError(f"X has a {type(texts[wrong]).__name__} in row {wrong}, and this learner takes texts.")
    return texts
