"""What every weighting answers: the costs of each label, from the labels' counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from longtail.errors import ParameterError
from longtail.propensity import Propensity, check_counts, get_propensity
from longtail.weighting.costs import Costs


class Weighting(BaseEstimator, ABC):
    """A rule that gives each label its costs: the correction for the tail that a learner takes as a parameter.

    One object serves every learner. A linear solver asks for `costs` once, with the counts of all labels; a tree asks
    with the counts of a level's clusters and the same `n_rows`; a torch loss takes ``costs(...).rescaled().positive``
    as the weight of its positive part.

    A subclass stores its parameters verbatim in ``__init__``, `rescale` among them if it has a positive cost to scale,
    and implements `_positive`. Negative costs are 1.

    Attributes
    ----------
    name : str
        What `get_weighting` calls it.
    """

    name: ClassVar[str]
    rescale: bool = False

    def costs(self, label_counts: npt.ArrayLike, n_rows: int) -> Costs:
        """Costs of each label (or of each cluster of labels).

        Parameters
        ----------
        label_counts : array-like, shape (L,)
            Training rows of each label; 0 for labels never seen.
        n_rows : int
            Training rows, those without labels included.

        Returns
        -------
        Costs
            Finite and above 0 for every count from 0 to `n_rows`.
        """
        counts = check_counts(label_counts, n_rows)
        if not isinstance(self.rescale, bool | np.bool_):
            raise ParameterError("rescale", self.rescale, "must be True or False")
        positive = self._positive(counts, int(n_rows))
        with np.errstate(over="ignore", under="ignore"):
            costs = Costs(positive.astype(np.float32), np.ones(len(counts), np.float32))
        return costs.rescaled() if self.rescale else costs

    @abstractmethod
    def _positive(self, counts: npt.NDArray[np.float64], n_rows: int) -> npt.NDArray[np.float64]: ...


class PropensityWeighting(Weighting):
    """A weighting by `propensity`: a Propensity, the name of a data set for its preset, or None for the default."""

    propensity: Propensity | str | None

    def __init__(self, *, propensity: Propensity | str | None = None, rescale: bool = False) -> None:
        self.propensity = propensity
        self.rescale = rescale

    def _inverse(self, counts: npt.NDArray[np.float64], n_rows: int) -> npt.NDArray[np.float64]:
        return get_propensity(self.propensity).inverse(counts, n_rows)

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; ``propensity__a`` works even where `propensity` is None or a data set's name."""
        if any(name.startswith("propensity__") for name in params):
            self.propensity = get_propensity(params.pop("propensity", self.propensity))
        super().set_params(**params)
        return self
