"""What all learners around another one share: how it is made, set and checked."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils import get_tags

from longtail.errors import ParameterError
from longtail.learners import Learner


class Around(Learner):
    """A learner around another one, which is its parameter `learner`; a subclass says what stands for None."""

    learner: Learner | None

    @abstractmethod
    def _default(self) -> Learner:
        """Give the learner that is meant by None."""

    def _base(self) -> Learner:
        """Give the learner inside, unfitted and nobody else's."""
        made: Learner = self._default() if self.learner is None else clone(self.learner)
        return made

    def _default_features(self) -> Any:
        return self._base()._default_features()

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; those of the learner can be set even while it is the default None."""
        if self.learner is None and "learner" not in params and any(name.startswith("learner__") for name in params):
            self.learner = self._default()
        super().set_params(**params)
        return self

    def _check_learner(self, name: str = "learner") -> None:
        learner = getattr(self, name)
        if learner is not None and not isinstance(learner, Learner):
            found = type(learner).__name__
            of_model = (
                ": give the learner of the model" if isinstance(getattr(learner, "learner", None), Learner) else ""
            )
            raise ParameterError(name, found, f"must be a learner or None{of_model}")
        if learner is not None and get_tags(learner).input_tags.string:
            wrapper = type(self).__name__
            raise ParameterError(name, learner, f"must take a matrix: put {wrapper} into the learner over texts")


def linked_threshold(learner: Learner) -> float:
    """Decision threshold of a learner, as a number that can be multiplied."""
    return math.exp(float(learner._log_scores(np.array([learner._decision_threshold]))[0]))
