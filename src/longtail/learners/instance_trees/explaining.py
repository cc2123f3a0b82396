"""Explanation of scores of instance trees: the change of the score at each step, attributed to features."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from longtail.kernels.types import Float64, Int32
from longtail.learners.explanation import Explanation
from longtail.learners.instance_trees.trees import InstanceTrees

_SHOWN = 3
_ELSEWHERE = "None of the leaves that the row reached holds this label, so it is not ranked."
_NOWHERE = "No leaf of any tree holds this label, so it is never ranked: a larger leaf_labels keeps more."


def explain_label(trees: InstanceTrees, row: sp.csr_array, leaves: Int32, label: int) -> Explanation:
    """Attribute the score of a label to the features of one row.

    At the root of a tree, the label has its mean value over all leaves, weighted by training rows; each step down
    changes it to the mean over the leaves below. The change is attributed to the features that pulled the row to that
    side, in proportion to their contribution to the margin, and to the bias likewise. The parts add up to the score
    exactly; so do the trees, which are named by the leaf that the row reached.
    """
    mass, rows = _running_sums(trees, label)
    dense = np.zeros(trees.n_features_)
    dense[row.indices] = row.data
    effects, bias, sources = np.zeros(trees.n_features_), 0.0, []
    most, best = 0.0, (0, "")
    for tree, (root, leaf) in enumerate(zip(trees.roots_, leaves, strict=True)):
        node, end = int(root), int(trees.ends[tree])
        value = (mass[end] - mass[node]) / (rows[end] - rows[node])
        bias += value
        while node != leaf:
            right = int(trees.rights_[node])
            features, contributions = _contributions(trees, node, dense)
            goes_right = leaf >= right
            toward = np.append(contributions, trees.bias_[node]) * (1 if goes_right else -1)
            toward[toward < 0] = 0
            node, end = (right, end) if goes_right else (node + 1, right)
            below = (mass[end] - mass[node]) / (rows[end] - rows[node])
            share = (below - value) * (toward / toward.sum() if toward.sum() > 0 else np.eye(len(toward))[-1])
            effects[features] += share[:-1]
            bias += share[-1]
            value = below
        name = f"tree {tree}, leaf {leaf} of {trees.sizes_[leaf]} rows"
        if value > most:
            most, best = value, (tree, name)
        if value:
            sources.append((name, float(value / trees.n_trees)))
    explanation = Explanation.from_effects(
        label, bias / trees.n_trees, row.indices, effects[row.indices] / trees.n_trees
    )
    score = float(sum(share for _, share in sources))  # exactly 0 where no leaf holds the label
    if not sources:
        return replace(explanation, score=score, remark=_ELSEWHERE if mass[-1] else _NOWHERE)
    return replace(
        explanation.with_sources(sources),
        score=score,
        path=_best_path(trees, row, best[0]),
        path_name=best[1],
        path_share=float(most / trees.n_trees / score),
    )


def _best_path(trees: InstanceTrees, row: sp.csr_array, tree: int) -> list[tuple[str, list[tuple[str, float]]]]:
    """Steps of a path: the direction, and the features with the largest contributions."""
    return [
        ("right" if margin >= 0 else "left", [(str(feature), pull) for feature, pull in parts[:_SHOWN]])
        for _, margin, parts in trace_path(trees, row, tree)[:-1]
    ]


def trace_path(trees: InstanceTrees, row: sp.csr_array, tree: int) -> list[tuple[int, float, list[tuple[int, float]]]]:
    """Nodes on the path of a row in one tree, with the margin and the contribution of each feature."""
    dense = np.zeros(trees.n_features_)
    dense[row.indices] = row.data
    node, steps = int(trees.roots_[tree]), []
    while trees.rights_[node] != 0:
        features, contributions = _contributions(trees, node, dense)
        order = np.argsort(-np.abs(contributions), kind="stable")
        parts = [(int(features[at]), float(contributions[at])) for at in order if contributions[at] != 0]
        margin = float(contributions.sum() + trees.bias_[node])
        steps.append((node, margin, parts))
        node = int(trees.rights_[node]) if margin >= 0 else node + 1
    return [*steps, (node, 0.0, [])]


def _contributions(trees: InstanceTrees, node: int, dense: Float64) -> tuple[Int32, Float64]:
    """Features of a node's hyperplane, and their contributions to the margin of a row."""
    part = slice(trees.weight_starts_[node], trees.weight_starts_[node + 1])
    features = trees.features_[part]
    return features, trees.weights_[part] * dense[features]


def _running_sums(trees: InstanceTrees, label: int) -> tuple[Float64, Float64]:
    """Cumulative sums over the leaves before each node: of the label's value times rows, and of rows."""
    entries = np.flatnonzero(trees.labels_ == label)
    holders = np.searchsorted(trees.label_starts_, entries, "right") - 1
    mass, rows = np.zeros(len(trees.rights_) + 1), np.zeros(len(trees.rights_) + 1)
    mass[holders + 1] = trees.values_[entries].astype(np.float64) * trees.sizes_[holders]
    rows[1:] = np.where(trees.rights_ == 0, trees.sizes_, 0)
    return np.cumsum(mass), np.cumsum(rows)
