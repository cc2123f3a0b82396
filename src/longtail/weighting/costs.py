"""The costs of each label, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from longtail.errors import ParameterError


@dataclass(frozen=True, eq=False)
class Costs:
    """What a mistake on a row costs, for each label: `positive` where the label is recorded, `negative` elsewhere.

    **How they meet the regularisation constant.** A learner multiplies: a positive row of label l weighs
    C * positive[l] and a negative row C * negative[l], so that C means the same whatever the weighting. The published
    code of PW-DiSMEC puts the cost in the place of C for positive rows and leaves C for negative ones; at C = 1, which
    all its figures use, the two agree, and elsewhere dividing `positive` by C gives the published meaning.

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

    positive: npt.NDArray[np.float32]
    negative: npt.NDArray[np.float32]

    def __post_init__(self) -> None:
        for side in ("positive", "negative"):
            object.__setattr__(self, side, _checked(side, getattr(self, side)))
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


def _checked(side: str, values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore", under="ignore"):
        costs = np.asarray(values, dtype=np.float32)
    if costs.ndim != 1:
        raise ParameterError(side, values, "must be a flat array with one cost per label")
    wrong = ~(np.isfinite(costs) & (costs > 0))
    if wrong.any():
        label = int(wrong.argmax())
        raise ParameterError(f"{side} cost of label {label}", float(costs[label]), "must be finite and above 0")
    return costs
