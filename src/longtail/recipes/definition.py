"""The definition of a recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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


def weighted_forms(name: str, build: Callable[..., Learner], where: str) -> tuple[Recipe, Recipe]:
    """Return the forms of a recipe weighted by PW and by PW-cb; `where` ends the sentence on the costs of PW.

    Examples
    --------
    >>> [form.name for form in weighted_forms("dismec", lambda propensity, weighting: None, "for positive rows")]
    ['pw-dismec', 'pw-cb-dismec']
    """
    plain, balanced = f"{name} with costs 2/p - 1 {where}.", "with class-balanced costs, beta = 0.9, for rare labels."
    return (
        Recipe(f"pw-{name}", plain, PW_PAPER, partial(build, weighting="pw")),
        Recipe(f"pw-cb-{name}", f"pw-{name} {balanced}", PW_PAPER, partial(build, weighting="pw-cb")),
    )
