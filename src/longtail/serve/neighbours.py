"""Similar labels of a model, and the features with the largest weights for a label.

With label embeddings, the similarity of two labels is the inner product of these. Otherwise it depends on the learner:

- one-vs-rest: cosine of the labels' weights. The weights of a label are ranked like a row, by the same kernel, so
  nothing is stored besides the model.
- label trees: cosine of the weights among the labels of a leaf, averaged over the trees.
- instance trees: cosine of the labels' values in all leaves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.data.sparse import canonical_rows
from longtail.kernels.lanes import LANES, widened
from longtail.kernels.types import Float64, Int32, Int64
from longtail.learners import InstanceForest, LabelTree, Learner, OneVsRest
from longtail.learners.label_trees.block_lanes import label_rows
from longtail.rerank import TAug
from longtail.store import Model

Similarities = list[tuple[int, float]]
FeatureWeights = tuple[Int64, Float64]

_RANKED = 20_000  # labels with the largest inner products, of which those with the largest cosines are chosen


class Space(ABC):
    """Similarity between labels."""

    by: str

    @abstractmethod
    def nearest(self, label: int, k: int) -> Similarities:
        """Return the k most similar other labels with similarities of at most 1; empty if the label has none."""

    def weights(self, label: int) -> FeatureWeights | None:
        """Return the features and weights of a label, None if the learner has no such weights."""
        return None


def space_of(model: Model) -> Space | None:
    """Return the label similarity of a model, None if its learner has none.

    Examples
    --------
    >>> from longtail import Model, OneVsRest
    >>> X, Y = [[1, 0, 0], [1, 0, 1], [0, 1, 0]], [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    >>> space = space_of(Model(OneVsRest(n_jobs=1).fit(X, Y)))
    >>> space.by, [label for label, _ in space.nearest(0, 1)]
    ('weights', [1])
    """
    if model.label_embeddings is not None:
        return _Embeddings(model)
    return _within(model.learner)


def _within(learner: Learner) -> Space | None:
    """Return the similarity of the outermost learner that has one."""
    for _, part in learner.parts(fitted=True):
        for kind, space in _SPACES:
            if isinstance(part, kind):
                return space(part)
    return None


class _Embeddings(Space):
    by = "embeddings"

    def __init__(self, model: Model) -> None:
        self._model = model

    def nearest(self, label: int, k: int) -> Similarities:
        if self._model.label_counts[label] == 0:
            return []
        top = self._model.similar_topk(label, k)
        return list(zip(top.labels[0].tolist(), top.scores[0].tolist(), strict=True))


class _Blocks(Space):
    """Cosine of one-vs-rest weights."""

    by = "weights"

    def __init__(self, learner: OneVsRest) -> None:
        self._learner = learner

    def nearest(self, label: int, k: int) -> Similarities:
        weights = self.weights(label)
        if weights is None or not len(weights[0]):
            return []
        features, values = weights
        row = canonical_rows(
            values.astype(np.float32), features.astype(np.int32), np.array([0, len(features)], np.int32),
            (1, self._learner.n_features_in_),
        )  # fmt: skip
        most = min(self._learner.n_labels_, max(_RANKED, k + 1))
        top = self._learner.weights_.rank(row, np.ones(1), 0.0, most, None)
        there = (top.labels[0] >= 0) & (top.labels[0] != label)
        labels = top.labels[0][there]
        lengths = self._norms[labels] * np.sqrt(np.square(values).sum())
        cosines = np.divide(top.scores[0][there], lengths, out=np.zeros(len(labels)), where=lengths > 0)
        return _best(labels, cosines, k)

    def weights(self, label: int) -> FeatureWeights | None:
        kept = self._learner.weights_
        lanes = np.flatnonzero(kept.lane_labels_ == label)
        if not len(lanes):
            return None
        arrays, lane = kept._arrays, int(lanes[0])
        block = lane // LANES
        panel = widened(arrays.panels[arrays.starts[block] : arrays.starts[block + 1], lane % LANES])
        slots = np.flatnonzero(panel)
        entries = np.flatnonzero(arrays.lanes == lane)
        features = np.concatenate(
            [self._feature_of_slot[slots], np.searchsorted(arrays.offsets, entries, side="right") - 1]
        )
        values = np.concatenate([panel[slots], widened(arrays.values[entries])]).astype(np.float64)
        order = np.argsort(features)
        return features[order], values[order]

    @cached_property
    def _feature_of_slot(self) -> Int64:
        return self._learner.weights_._feature_of_slot().astype(np.int64)

    @cached_property
    def _norms(self) -> Float64:
        return np.nan_to_num(self._learner._label_norms())


class _Leaves(Space):
    """Cosine of weights in the leaves of label trees."""

    by = "leaves"

    def __init__(self, learner: LabelTree) -> None:
        self._learner = learner

    def nearest(self, label: int, k: int) -> Similarities:
        sums: dict[int, float] = {}
        meetings: dict[int, int] = {}
        for node in self._holders(label):
            members, matrix = self._leaf(node)
            own = matrix[np.flatnonzero(members == label)]
            lengths = np.sqrt(matrix.power(2).sum(axis=1))
            products = (matrix @ own.T).toarray().ravel() if own.shape[0] else np.zeros(len(members))
            scale = lengths * (float(np.sqrt(own.power(2).sum())) or 1.0)
            cosines = np.divide(products, scale, out=np.zeros(len(members)), where=scale > 0)
            for other, cosine in zip(members.tolist(), cosines.tolist(), strict=True):
                if other != label:
                    sums[other] = sums.get(other, 0.0) + cosine
                    meetings[other] = meetings.get(other, 0) + 1
        trees = max(1, self._learner.forest_.n_trees_)
        labels = np.array(list(sums), np.int64)
        return _best(labels, np.array([sums[other] / max(meetings[other], trees) for other in sums]), k)

    def weights(self, label: int) -> FeatureWeights | None:
        holders = self._holders(label)
        if not holders:
            return None
        total = np.zeros(self._learner.n_features_in_)
        for node in holders:
            members, matrix = self._leaf(node)
            total += np.asarray(matrix[np.flatnonzero(members == label)].sum(axis=0)) / len(holders)
        features = np.flatnonzero(total)
        return features, total[features]

    def _holders(self, label: int) -> list[int]:
        forest = self._learner.forest_
        return [int(node) for node in forest.holders[forest.labels_ == label]]

    def _leaf(self, node: int) -> tuple[Int32, sp.csr_array]:
        """Return the labels of a leaf, and their weights as a matrix of labels by features."""
        weights = self._learner.weights_
        blocks = [weights.block(number) for number in range(*weights.block_starts_[node : node + 2].tolist())]
        members = np.concatenate([block.members for block in blocks])
        return members[members >= 0], label_rows(blocks, weights.n_features_)


class _RowLeaves(Space):
    """Cosine of label values in the leaves of instance trees."""

    by = "leaves"

    def __init__(self, learner: InstanceForest) -> None:
        self._learner = learner

    def nearest(self, label: int, k: int) -> Similarities:
        values = self._values
        own = values[:, [label]]
        norm = float(np.sqrt(own.power(2).sum()))
        if not norm:
            return []
        products = np.asarray(self._by_leaf[own.indices].T @ own.data).ravel()
        scale = self._norms * norm
        cosines = np.divide(products, scale, out=np.zeros(len(scale)), where=scale > 0)
        labels = np.flatnonzero(cosines)
        labels = labels[labels != label]
        return _best(labels, cosines[labels], k)

    @cached_property
    def _by_leaf(self) -> sp.csr_array:
        trees = self._learner.trees_
        shape = (len(trees.label_starts_) - 1, self._learner.n_labels_)
        return sp.csr_array((np.asarray(trees.values_), trees.labels_, trees.label_starts_), shape=shape)

    @cached_property
    def _values(self) -> sp.csc_array:
        return sp.csc_array(self._by_leaf)

    @cached_property
    def _norms(self) -> Float64:
        return np.sqrt(np.asarray(self._values.power(2).sum(axis=0), np.float64)).ravel()


class _Sides(Space):
    """Separate learners for frequent and rare labels: similarities among each."""

    def __init__(self, learner: TAug) -> None:
        sides = ((labels, _within(inside)) for _, inside, labels in learner._sides())
        self._sides = [(labels, space) for labels, space in sides if space is not None]
        self.by = self._sides[0][1].by if self._sides else "weights"

    def nearest(self, label: int, k: int) -> Similarities:
        for labels, space, at in self._found(label):
            return [(int(labels[near]), value) for near, value in space.nearest(at, k)]
        return []

    def weights(self, label: int) -> FeatureWeights | None:
        return next((space.weights(at) for _, space, at in self._found(label)), None)

    def _found(self, label: int) -> Iterator[tuple[npt.NDArray[Any], Space, int]]:
        """Yield the side of a label, if any: its labels, their similarity, and the label's position among them."""
        for labels, space in self._sides:
            yield from ((labels, space, int(at)) for at in np.flatnonzero(labels == label))


def _best(labels: npt.NDArray[Any], values: npt.NDArray[Any], k: int) -> Similarities:
    order = np.lexsort((labels, -values))[:k]
    return [(int(labels[at]), float(values[at])) for at in order if values[at] > 0]


_SPACES: tuple[tuple[type[Learner], Callable[[Any], Space]], ...] = (
    (OneVsRest, _Blocks),
    (LabelTree, _Leaves),
    (InstanceForest, _RowLeaves),
    (TAug, _Sides),
)
