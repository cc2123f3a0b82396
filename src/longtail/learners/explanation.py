"""Explanations of scores by the contributions of the features."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from longtail.kernels.types import Float64, Int32


@dataclass(frozen=True)
class Explanation:
    """The score of one label for one row as a sum: ``score = bias + sum of the parts``.

    Parameters
    ----------
    label : int
    name : str
        Name of the label, or its id as text.
    score : float
        The score of `predict_topk`.
    bias : float
        The part of the score that does not depend on the row.
    parts : list of (str, float)
        Name of a feature (a word, or the feature's number as text) and its effect, the largest first; features without
        effect are left out.
    sources : list of (str, float)
        Contributions of the parts of the learner, such as the trees of a forest; empty where there is only one.
    path : list of (str, list of (str, float))
        For instance trees: the path down the tree that contributed most, "left" or "right" at each node with the most
        important features there and their effect on the margin, which is below 0 to the left.
    path_name : str
        The tree and the leaf of `path`.
    path_share : float
        Share of that tree in the score of all trees, from 0 to 1.
    remark : str
        Why the label is not ranked, if it isn't.

    Examples
    --------
    >>> explanation = Explanation(3, "ships", 0.25, -1.0, [("sail", 1.5), ("train", -0.25)])
    >>> explanation.bias + sum(effect for _, effect in explanation.parts) == explanation.score
    True
    """

    label: int
    name: str
    score: float
    bias: float
    parts: list[tuple[str, float]]
    sources: list[tuple[str, float]] = field(default_factory=list)
    path: list[tuple[str, list[tuple[str, float]]]] = field(default_factory=list)
    path_name: str = ""
    path_share: float = 0.0
    remark: str = ""

    @classmethod
    def from_effects(cls, label: int, bias: float, features: Int32, effects: Float64) -> Explanation:
        """Explain a score by the effect of each feature of a row."""
        order = np.argsort(-np.abs(effects), kind="stable")
        parts = [(str(features[at]), float(effects[at])) for at in order if effects[at] != 0]
        return cls(label, str(label), float(bias + effects.sum()), float(bias), parts)

    def rescaled(self, score: float, of_features: float) -> Explanation:
        """Explain another score: the effects of the features are scaled to sum to `of_features`, the rest is bias."""
        effects = sum(effect for _, effect in self.parts)
        scale = of_features / effects if effects else 0.0
        parts = [(feature, effect * scale) for feature, effect in self.parts]
        return replace(self, score=score, bias=score - sum(effect for _, effect in parts), parts=parts)

    def with_sources(self, sources: list[tuple[str, float]]) -> Explanation:
        """Add the contributions of the parts of the learner, the largest first."""
        return replace(self, sources=sorted(sources, key=lambda source: -abs(source[1])))

    def renamed(self, name: str | None = None, features: list[str] | None = None) -> Explanation:
        """Replace numbers by names: the label's, and those of the features."""
        renamed = self if name is None else replace(self, name=name)
        if features is None:
            return renamed

        def named(parts: list[tuple[str, float]]) -> list[tuple[str, float]]:
            return [(features[int(feature)], effect) for feature, effect in parts]

        return replace(renamed, parts=named(self.parts), path=[(step, named(parts)) for step, parts in self.path])
