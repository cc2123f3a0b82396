"""Base classes of the weightings, and the costs of labels that they return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from longtail.errors import ParameterError
from longtail.kernels.types import Float32, Float64
from longtail.propensity import Propensity, check_counts, get_propensity
from longtail.validation import Boolean, Constraint, Number, Validated, numbers_per_label, parameters_of


@dataclass(frozen=True, eq=False)
class Costs:
    """Costs of each label: `positive` for rows where the label is recorded, `negative` for all others.

    They multiply the regularisation constant: a positive row of label l weighs C * positive[l] and a negative row
    C * negative[l], so that C means the same whatever the weighting. The published code of PW-DiSMEC replaces C by the
    cost for positive rows and leaves C for negative ones; at C = 1, which all its figures use, the two agree, and
    elsewhere dividing `positive` by C gives the published meaning.

    Parameters
    ----------
    positive, negative : array, shape (L,)
        Finite and above 0; kept as float32.

    Examples
    --------
    >>> costs = Costs([6.0, 2.0, 1.0], [1.0, 1.0, 1.0])
    >>> costs.rescaled().positive
    array([2.        , 0.6666667 , 0.33333334], dtype=float32)
    >>> costs.take([2, 0]).positive
    array([1., 6.], dtype=float32)
    """

    positive: Float32
    negative: Float32

    def __post_init__(self) -> None:
        for side in ("positive", "negative"):
            costs = numbers_per_label(f"{side} cost", getattr(self, side), Number(above=0), dtype=np.float32)
            object.__setattr__(self, side, costs)
        if len(self.positive) != len(self.negative):
            raise ParameterError(
                "len(negative)", len(self.negative), f"must equal len(positive) ({len(self.positive)})"
            )

    def __len__(self) -> int:
        return len(self.positive)

    def take(self, labels: npt.ArrayLike) -> Costs:
        """Costs of some labels, in the order given: a solver's block, or a row's candidates."""
        return Costs(self.positive[np.asarray(labels)], self.negative[np.asarray(labels)])

    def rescaled(self) -> Costs:
        """Scale the positive costs to mean 1, w_l L / sum of w; the negative ones stay.

        Equation 24 of Qaraei et al. 2021, for learners whose labels share parameters: there the large costs of rare
        labels upset the learning of what is shared. The mean is over all the labels in these costs, so where a model
        learns levels or clusters apart, rescale each one's own. Rescaling again changes nothing.
        """
        if not len(self):
            return self
        wide = self.positive.astype(np.float64)
        return Costs((wide / wide.mean()).astype(np.float32), self.negative)


class Weighting(Validated, BaseEstimator, ABC):
    """A rule for the costs of each label: the correction for the tail that a learner takes as a parameter.

    One object serves every learner. A linear solver asks for `costs` once, with the counts of all labels; a tree asks
    with the counts of a level's clusters and the same `n_rows`; a torch loss takes ``costs(...).rescaled().positive``
    as the weight of its positive part.

    A subclass stores its parameters verbatim in ``__init__``, lists them in `_constraints`, and implements `_positive`.
    Negative costs are 1.

    Parameters
    ----------
    rescale : bool
        Scale the positive costs to mean 1 (`Costs.rescaled`).

    Attributes
    ----------
    name : str
        Name for `get_weighting`.

    Examples
    --------
    >>> from longtail.weighting import ClassBalanced
    >>> ClassBalanced(beta=0.9).costs([1, 10, 100], n_rows=1000).positive.round(2)
    array([1.  , 0.15, 0.1 ], dtype=float32)
    """

    name: ClassVar[str]
    _constraints: ClassVar[Mapping[str, Constraint]] = {"rescale": Boolean()}

    def __init__(self, *, rescale: bool = False) -> None:
        self.rescale = rescale

    def costs(self, label_counts: npt.ArrayLike, n_rows: int) -> Costs:
        """Costs of each label (or of each cluster of labels).

        Parameters
        ----------
        label_counts : array-like, shape (L,)
            Training rows of each label; 0 for labels without any.
        n_rows : int
            Training rows, those without labels included.

        Returns
        -------
        Costs
            Finite and above 0 for every count from 0 to `n_rows`.
        """
        self._check_parameters()
        return self._costs(label_counts, n_rows)

    def _costs(self, label_counts: npt.ArrayLike, n_rows: int) -> Costs:
        """Costs as by `costs`, for parameters that were checked."""
        counts = check_counts(label_counts, n_rows)
        positive = self._positive(counts, int(n_rows))
        with np.errstate(over="ignore", under="ignore"):
            costs = Costs(positive.astype(np.float32), np.ones(len(counts), np.float32))
        return costs.rescaled() if self.rescale else costs

    @abstractmethod
    def _positive(self, counts: Float64, n_rows: int) -> Float64: ...


class PropensityWeighting(Weighting):
    """A weighting by propensities.

    Parameters
    ----------
    propensity : Propensity or str, optional
        The model of p, or a data set's name for its preset; None is ``JainPropensity()``.
    rescale : bool
        Scale the positive costs to mean 1 (`Costs.rescaled`); the published neural models do, DiSMEC doesn't.

    Examples
    --------
    >>> from longtail.weighting import PW
    >>> PW(propensity="Bibtex").costs([1, 100], n_rows=4880).positive.round(1)
    array([16.,  3.], dtype=float32)
    """

    def __init__(self, *, propensity: Propensity | str | None = None, rescale: bool = False) -> None:
        super().__init__(rescale=rescale)
        self.propensity = propensity

    def _inverse(self, counts: Float64, n_rows: int) -> Float64:
        return get_propensity(self.propensity).inverse(counts, n_rows)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        propensity = get_propensity(self.propensity)
        with parameters_of("propensity"):
            propensity._check_parameters()

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; ``propensity__a`` works even where `propensity` is None or a data set's name."""
        if any(name.startswith("propensity__") for name in params):
            self.propensity = get_propensity(params.pop("propensity", self.propensity))
        super().set_params(**params)
        return self
