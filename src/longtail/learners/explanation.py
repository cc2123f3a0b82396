"""Why a label got its score: what each feature added."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Explanation:
    """What made up the score of one label for one row: ``score = bias + sum of the parts``.

    Parameters
    ----------
    label : int
    name : str
        Name of the label, its id as text where it has none.
    score : float
        As `predict_topk` gives it.
    bias : float
        What the label scores on its own, whatever the row.
    parts : list of (str, float)
        Name of a feature (a word, or the feature's number as text) and what it added, the largest effect first;
        features without effect are left out.
    sources : list of (str, float)
        Parts of the learner, such as the trees of a forest, and what each of them contributed; empty where there is
        only one.
    path : list of (str, list of (str, float))
        For trees over rows: the way down the tree that contributed most, step by step, "left" or "right" with the
        features that mattered most there and what they added to the margin, which is below 0 to the left.
    path_name : str
        The tree and the leaf of `path`.
    path_share : float
        Which share of what all trees say comes from that tree, from 0 to 1.
    remark : str
        A sentence on why the label is not ranked at all, where it isn't.

    Examples
    --------
    >>> why = Explanation(3, "ships", 0.25, -1.0, [("sail", 1.5), ("train", -0.25)])
    >>> why.bias + sum(effect for _, effect in why.parts) == why.score
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
    def from_effects(
        cls, label: int, bias: float, features: npt.NDArray[np.int32], effects: npt.NDArray[np.float64]
    ) -> Explanation:
        """Explain a score by what each feature of a row added."""
        order = np.argsort(-np.abs(effects), kind="stable")
        parts = [(str(features[at]), float(effects[at])) for at in order if effects[at] != 0]
        return cls(label, str(label), float(bias + effects.sum()), float(bias), parts)

    def with_sources(self, sources: list[tuple[str, float]]) -> Explanation:
        """Name the parts of the learner, the largest contribution first."""
        return replace(self, sources=sorted(sources, key=lambda source: -abs(source[1])))

    def renamed(self, name: str | None = None, features: list[str] | None = None) -> Explanation:
        """Put names in the place of numbers: of the label, and of the features, which are numbers here."""
        renamed = self if name is None else replace(self, name=name)
        if features is None:
            return renamed

        def named(parts: list[tuple[str, float]]) -> list[tuple[str, float]]:
            return [(features[int(feature)], effect) for feature, effect in parts]

        return replace(renamed, parts=named(self.parts), path=[(way, named(parts)) for way, parts in self.path])
