"""Base classes of the learners that wrap another learner."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from longtail.errors import InputError, ModelError, ParameterError
from longtail.kernels.types import Float64
from longtail.learners.base import Learner
from longtail.learners.norms import label_norms
from longtail.learners.updates import UpdateBatch
from longtail.validation import parameters_of


class GrowsTrees(Learner):
    """A learner that can grow more trees in the forest that it wraps."""

    learner: Learner | None
    learner_: Learner

    def add_trees(self, X: Any, y: Any, n_trees: int) -> Self:
        """Grow more trees in the wrapped learner, and leave the others unchanged; see `InstanceForest.add_trees`.

        When it fails or is interrupted, the learner stays as it was.
        """
        grown = self._grown("add_trees", "instance trees to add to", X, y, n_trees)
        with self._whole_or_unchanged():
            self.learner, self.learner_ = clone(grown), grown
            self.n_rows_, self.label_counts_ = grown.n_rows_, grown.label_counts_
        return self

    def _grown(self, method: str, what: str, X: Any, *arguments: Any) -> Learner:
        """Copy of the wrapped learner after a call of one of its methods."""
        check_is_fitted(self, "n_labels_")
        grown: Any = copy.copy(self.learner_)
        if not hasattr(grown, method):
            raise InputError(f"{type(grown).__name__} has no {what}: refit on all rows.")
        getattr(grown, method)(self._check_rows(X), *arguments)
        return grown  # type: ignore[no-any-return]


class GrowsLabels(GrowsTrees):
    """A learner that can also learn new labels in the learner that it wraps."""

    def add_labels(self, X: Any, y: Any) -> Self:
        """Learn new labels in the wrapped learner, and leave the others unchanged; see `OneVsRest.add_labels`."""
        grown = self._grown("add_labels", "support for new labels", X, y)
        with self._whole_or_unchanged():
            self.learner_, self.n_labels_, self.label_counts_ = grown, grown.n_labels_, grown.label_counts_
        return self


class MetaLearner(Learner):
    """A learner that wraps another one, its parameter `learner`; a subclass defines the default for None."""

    learner: Learner | None
    learner_: Learner

    @abstractmethod
    def _default(self) -> Learner:
        """Return the learner for None."""

    def _base(self) -> Learner:
        """Return a new unfitted copy of the wrapped learner."""
        made: Learner = self._default() if self.learner is None else clone(self.learner)
        return made

    def _update(self, batch: UpdateBatch) -> None:
        """Update the wrapped learner; all else stays unchanged."""
        self.learner_ = self.learner_._updated(batch)

    def _check_labels(self) -> None:
        """Refuse a wrapped learner with other labels, on which kernels rely."""
        if self.learner_.n_labels_ != self.n_labels_:
            raise ModelError(f"The wrapped learner has other labels than {type(self).__name__}: train it again.")

    def _default_features(self) -> Any:
        return self._base()._default_features()

    def _label_norms(self) -> Float64 | None:
        return label_norms(self.learner_)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_learner(self)
        base = self._base()
        with parameters_of("learner"):
            base._check_parameters()

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; those of the learner can be set even while it is the default None."""
        if self.learner is None and "learner" not in params and any(name.startswith("learner__") for name in params):
            self.learner = self._default()
        super().set_params(**params)
        return self


def check_learner(wrapper: Learner, name: str = "learner") -> None:
    """Raise a ParameterError unless a parameter of a learner is a learner over matrices or None."""
    learner = getattr(wrapper, name)
    if learner is not None and not isinstance(learner, Learner):
        hint = ": give the learner of the model" if isinstance(getattr(learner, "learner", None), Learner) else ""
        raise ParameterError(name, type(learner).__name__, f"must be a learner or None{hint}")
    if learner is not None and get_tags(learner).input_tags.string:
        takes_texts = get_tags(wrapper).input_tags.string
        advice = (
            "give the one that it wraps" if takes_texts else f"put {type(wrapper).__name__} into the learner over texts"
        )
        raise ParameterError(name, learner, f"must take a matrix: {advice}")


def unit_scores(learner: Learner, *scores: float) -> list[float]:
    """Return scores of a learner on a scale from 0 to 1."""
    found: list[float] = np.exp(learner._log_scores(np.array(scores, np.float64))).tolist()
    return found


def probability_threshold(learner: Learner) -> float:
    """Return the decision threshold of a learner on a scale from 0 to 1."""
    return unit_scores(learner, learner._decision_threshold)[0]
