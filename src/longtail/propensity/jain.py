"""The propensity model of Jain et al. 2016: a sigmoid in the logarithm of the label's count."""

from __future__ import annotations

from math import log

import numpy as np
import numpy.typing as npt

from longtail.errors import ParameterError
from longtail.propensity.base import Propensity, check_counts, is_number


class JainPropensity(Propensity):
    """Rare labels are recorded less often: p = 1 / (1 + C (n + B)^-A) with C = (ln N - 1)(B + 1)^A.

    n is the label's training count and N the number of training rows. This is equation 1 of Jain et al. 2016 and
    equation 3 of Qaraei et al. 2021. The same formula, with the same N, serves clusters of labels in a tree.

    Two corners that the papers leave open: a label with n = 0 gets the smallest propensity, 1 / (1 + C B^-A); and with
    fewer than three rows, where C would be negative and p above 1, C is 0 and every p is 1.

    Parameters
    ----------
    a : float
        A, how steeply propensity rises with the count; at least 0.
    b : float
        B, the count from which it rises; above 0.

        The defaults are the paper's for data sets without a better estimate. See `preset` for others.

    Examples
    --------
    >>> import numpy as np
    >>> JainPropensity().propensities([1], 50)
    array([0.25562222])
    >>> JainPropensity(a=0.6, b=2.6).inverse([1, 10, 1000], 490_449).round(2)
    array([13.1 ,  6.71,  1.41])

    References
    ----------
    Jain, Prabhu, Varma: Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking & Other Missing Label
    Applications. KDD 2016, section 5.
    """

    def __init__(self, *, a: float = 0.55, b: float = 1.5) -> None:
        self.a = a
        self.b = b

    def inverse(self, label_counts: npt.ArrayLike, n_rows: int) -> npt.NDArray[np.float64]:
        """1 / p of each label, 1 + C (n + B)^-A: finite and at least 1.

        Parameters
        ----------
        label_counts : array-like, shape (L,)
            Training rows of each label; 0 for labels never seen. At a tree node, those of each cluster.
        n_rows : int
            Training rows, those without labels included.
        """
        counts = check_counts(label_counts, n_rows)
        self._check_parameters()
        with np.errstate(over="ignore"):
            odds = max(log(n_rows) - 1.0, 0.0) * ((self.b + 1.0) / (counts + self.b)) ** self.a
        if not np.isfinite(odds).all():
            raise ParameterError("a", self.a, f"is too large with b = {self.b}: some propensities vanish")
        return 1.0 + odds

    def _check_parameters(self) -> None:
        if not is_number(self.a) or self.a < 0:
            raise ParameterError("a", self.a, "must be a number of at least 0")
        if not is_number(self.b) or self.b <= 0:
            raise ParameterError("b", self.b, "must be a number above 0")
