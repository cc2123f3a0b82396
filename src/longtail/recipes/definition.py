"""The definition of a recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from longtail.learners import Learner
    from longtail.propensity import Propensity

PropensityLike: TypeAlias = "Propensity | str | None"
Build: TypeAlias = Callable[["PropensityLike"], "Learner"]

PW_PAPER = (
    "Qaraei, Schultheis, Gupta and Babbar: Convex Surrogates for Unbiased Loss Functions in Extreme Classification "
    "With Missing Labels. WWW 2021."
)


@dataclass(frozen=True)
class Recipe:
    """A system with a name.

    Parameters
    ----------
    name : str
    summary : str
        One sentence on what it does.
    paper : str or None
        Where it was published.
    build : callable
        ``build(propensity)`` returns the unfitted learner.

    Examples
    --------
    >>> from longtail.recipes import find
    >>> parabel = find("parabel")
    >>> parabel.build(None).n_trees, parabel.paper[:16]
    (3, 'Prabhu, Kag, Har')
    """

    name: str
    summary: str
    paper: str | None
    build: Build
