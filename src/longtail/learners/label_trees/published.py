"""Label trees as published, with the constants of the authors' code."""

from __future__ import annotations

from typing import Any

from longtail.learners.label_trees.label_tree import LabelTree
from longtail.weighting import Weighting


def parabel_trees(weighting: Weighting | None = None) -> LabelTree:
    """Parabel: three balanced binary trees.

    Examples
    --------
    >>> parabel_trees().arity
    2
    """
    return _published(weighting, n_trees=3, arity=2, discount=1.0, prune_below=0.1, max_iter=20)


def bonsai_trees(weighting: Weighting | None = None) -> LabelTree:
    """Bonsai: three shallow trees of unbalanced k-means.

    Examples
    --------
    >>> bonsai_trees().arity
    100
    """
    return _published(
        weighting, n_trees=3, arity=100, balanced=False, max_depth=2, discount=0.98, prune_below=0.01, max_iter=20
    )


def plt_tree() -> LabelTree:
    """PLT: one binary tree of logistic classifiers, searched exactly.

    Examples
    --------
    >>> plt_tree().search
    'best-first'
    """
    return _published(None, loss="logistic", C=10.0, arity=2, discount=1.0, search="best-first", prune_below=0.1)


def _published(weighting: Weighting | None, **parameters: Any) -> LabelTree:
    return LabelTree(
        leaf_size=100, n_components=None, n_hard_negatives=0, beam=10, bias_centre=0.0, tol=0.1, precision="float32",
        weighting=weighting, **parameters,
    )  # fmt: skip
