"""What the losses that correct for missing labels share: a plain loss, propensities, and two factors."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from longtail.errors import InputError, ParameterError
from longtail.losses.base import Floats, Loss, floats
from longtail.losses.names import get_loss


class Factors(NamedTuple):
    """A recorded label costs `positive` l+ less `negative` l-, with l+ and l- the parts of the plain loss.

    Both are numbers (arrays without axes) or have one value per label.
    """

    positive: Floats
    negative: Floats


class Corrected(Loss):
    """A plain loss whose part for recorded labels is corrected by their propensity p.

    A recorded label costs a l+(s) - b l-(s), with `factors` a and b that depend on p; a label that is not recorded
    costs l-(s), as before. From that follows

    - it is convex if the plain loss is and b = 0, or if l+ - l- is a straight line and a >= b;
    - it is bounded below if the plain loss is and b = 0, or if the plain loss is bounded above too.

    Parameters
    ----------
    base : Loss or str
        The plain loss, or its name.
    propensity : float or array-like, shape (L,)
        p, above 0 and at most 1: one for all, or one per label. With one per label, the last axis of the scores must
        be the labels.
    """

    citation: ClassVar[str] = (
        "Qaraei, Schultheis, Gupta, Babbar: Convex Surrogates for Unbiased Loss Functions in Extreme Classification "
        "With Missing Labels. WWW 2021, section 2."
    )

    def __init__(self, base: Loss | str, *, propensity: npt.ArrayLike) -> None:
        self.base = base
        self.propensity = propensity

    @property
    def plain(self) -> Loss:
        """The loss that is corrected."""
        found = get_loss(self.base)
        if isinstance(found, Corrected):
            raise ParameterError("base", self.base, "must be a loss that is not corrected yet")
        return found

    @property
    @abstractmethod
    def factors(self) -> Factors:
        """The factors of l+ and l- where the label is recorded."""

    @property
    def convex(self) -> bool:
        """Whether both parts are convex in the score, for every label."""
        plain, (on, off) = self.plain, self.factors
        return plain.convex and (not off.any() or (plain.linear_difference and bool((on >= off).all())))

    @property
    def lower_bounded(self) -> bool:
        """Whether neither part falls below every number, for every label."""
        plain = self.plain
        return plain.lower_bounded and (plain.upper_bounded or not self.factors.negative.any())

    @property
    def upper_bounded(self) -> bool:
        """Whether neither part rises above every number."""
        plain = self.plain
        return plain.upper_bounded and plain.lower_bounded

    def positive(self, score: npt.ArrayLike) -> Floats:
        """Loss of a score where the label is recorded: a l+(s) - b l-(s)."""
        s, (on, off) = self._aligned(score)
        value = on * self.plain.positive(s)
        return value - off * self.plain.negative(s) if off.any() else value

    def negative(self, score: npt.ArrayLike) -> Floats:
        """Loss of a score where the label is not recorded: that of the plain loss."""
        return self.plain.negative(self._aligned(score)[0])

    def positive_gradient(self, score: npt.ArrayLike) -> Floats:
        """Derivative of `positive` by the score."""
        s, (on, off) = self._aligned(score)
        slope = on * self.plain.positive_gradient(s)
        return slope - off * self.plain.negative_gradient(s) if off.any() else slope

    def negative_gradient(self, score: npt.ArrayLike) -> Floats:
        """Derivative of `negative` by the score."""
        return self.plain.negative_gradient(self._aligned(score)[0])

    def _inverse(self) -> Floats:
        """1 / p."""
        return 1.0 / per_label("propensity", self.propensity, most=1.0)

    def _aligned(self, score: npt.ArrayLike) -> tuple[Floats, Factors]:
        s, factors = floats(score), self.factors
        n_labels = factors.positive.shape
        if n_labels and s.shape[-1:] != n_labels:
            raise InputError(
                f"scores has shape {s.shape} and the loss is for {n_labels[0]} labels: they must be the last axis."
            )
        return s, factors


def per_label(name: str, values: npt.ArrayLike, *, most: float = np.inf) -> Floats:
    """Return one number, or one per label, as float64; refuse what is not finite, above 0 and at most `most`.

    Examples
    --------
    >>> per_label("propensity", [0.5, 1], most=1)
    array([0.5, 1. ])
    >>> per_label("propensity", [0.5, 0], most=1)
    Traceback (most recent call last):
    ...
    longtail.errors.ParameterError: propensity[1] must be above 0 and at most 1, got 0.0.
    """
    found = np.asarray(values)
    if found.ndim > 1 or found.dtype.kind not in "iuf":
        raise ParameterError(name, values, "must be a number or a flat array with one per label")
    checked = found.astype(np.float64)
    with np.errstate(divide="ignore", over="ignore"):
        wrong = np.atleast_1d(~((checked > 0) & (checked <= most) & np.isfinite(checked) & np.isfinite(2.0 / checked)))
    if wrong.any():
        label = int(wrong.argmax())
        place = f"{name}[{label}]" if checked.ndim else name
        wanted = "must be above 0" + (f" and at most {most:g}" if np.isfinite(most) else " and finite")
        raise ParameterError(place, float(checked.flat[label]), wanted)
    return checked
