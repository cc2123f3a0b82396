"""The label trees of Bonsai, with the constants of its published code."""

from __future__ import annotations

from longtail.learners.label_trees.label_tree import LabelTree
from longtail.weighting import Weighting


def bonsai_trees(weighting: Weighting | None = None, threads: int | None = None) -> LabelTree:
    """Three shallow trees of unbalanced k-means; a node's score counts 0.98 for what is under it.

    Examples
    --------
    >>> bonsai_trees().arity
    100
    """
    return LabelTree(
        trees=3, arity=100, leaf_size=100, balanced=False, max_depth=2, dimensions=None, negatives=0, discount=0.98,
        beam=10, bias_centre=0.0, prune_below=0.01, tolerance=0.1, max_passes=20, precision="float32",
        weighting=weighting, threads=threads,
    )  # fmt: skip
