"""Labels that are alike for a model, and the words that a label listens to.

Where a model has label embeddings, labels are as alike as the inner product of these says. Else the classifiers tell:

- one-vs-rest: the cosine of the angle between two labels' weights. The weights of a label are ranked as if they were a
  row, by the kernel that ranks rows, so nothing is kept besides the model.
- label trees: the cosine of the weights in the leaf, among the labels of that leaf, the mean over all trees.
- trees over rows: the cosine of the labels' values in all leaves: labels are alike that stand in the same leaves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.chunks import DENSE_FROM
from longtail.engine.lanes import LANES
from longtail.learners import InstanceForest, LabelTree, OneVsRest
from longtail.learners.norms import widened
from longtail.store import Model

Near = list[tuple[int, float]]
Weights = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]

_RANKED = 20_000  # labels with the largest inner products, among which the cosine decides


class Space(ABC):
    """Where labels are near to one another."""

    by: str

    @abstractmethod
    def nearest(self, label: int, k: int) -> Near:
        """The k nearest other labels and how near they are, 1 at most; empty for a label that has no place."""

    def weights(self, label: int) -> Weights | None:
        """Features and their weights for a label; None where the learner has no such thing."""
        return None


def space_of(model: Model) -> Space | None:
    """Find the space of a model; None for a model whose learner has none.

    Examples
    --------
    >>> from longtail import Model, OneVsRest
    >>> X, Y = [[1, 0, 0], [1, 0, 1], [0, 1, 0]], [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    >>> space = space_of(Model(OneVsRest(threads=1).fit(X, Y)))
    >>> space.by, [label for label, _ in space.nearest(0, 1)]
    ('weights', [1])
    """
    if model.label_embeddings is not None:
        return _Embeddings(model)
    return _within(model.learner)


def _within(learner: Any) -> Space | None:
    if isinstance(learner, OneVsRest):
        return _Blocks(learner)
    if isinstance(learner, LabelTree):
        return _Leaves(learner)
    if isinstance(learner, InstanceForest):
        return _RowLeaves(learner)
    if hasattr(learner, "head_labels_"):
        return _Sides(learner)
    for inside in (getattr(learner, "learner_", None), *getattr(learner, "learners_", ())):
        found = None if inside is None else _within(inside)
        if found is not None:
            return found
    return None


class _Embeddings(Space):
    by = "embeddings"

    def __init__(self, model: Model) -> None:
        self._model = model

    def nearest(self, label: int, k: int) -> Near:
        if self._model.label_counts[label] == 0:
            return []
        top = self._model.similar_topk(label, k)
        return [(near, value) for near, value in zip(top.labels[0].tolist(), top.scores[0].tolist(), strict=True)]


class _Blocks(Space):
    """Weights of one-vs-rest."""

    by = "weights"

    def __init__(self, learner: OneVsRest) -> None:
        self._learner = learner

    def nearest(self, label: int, k: int) -> Near:
        weights = self.weights(label)
        if weights is None or not len(weights[0]):
            return []
        features, values = weights
        n_labels = self._learner.n_labels_
        row = sp.csr_array(
            (values.astype(np.float32), features.astype(np.int32), np.array([0, len(features)], np.int32)),
            shape=(1, self._learner.n_features_in_),
        )
        top = self._learner.weights_.rank(row, np.ones(1), 0.0, min(n_labels, max(_RANKED, k + 1)), None, 1)
        there = (top.labels[0] >= 0) & (top.labels[0] != label)
        labels = top.labels[0][there]
        lengths = self._norms[labels] * np.sqrt(np.square(values).sum())
        cosines = np.divide(top.scores[0][there], lengths, out=np.zeros(len(labels)), where=lengths > 0)
        return _best(labels, cosines, k)

    def weights(self, label: int) -> Weights | None:
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
    def _feature_of_slot(self) -> npt.NDArray[np.int64]:
        return self._learner.weights_._feature_of_slot().astype(np.int64)

    @cached_property
    def _norms(self) -> npt.NDArray[np.float64]:
        return np.nan_to_num(self._learner._label_norms())


class _Leaves(Space):
    """Weights of the labels in the leaves of label trees."""

    by = "leaves"

    def __init__(self, learner: LabelTree) -> None:
        self._learner = learner

    def nearest(self, label: int, k: int) -> Near:
        sums: dict[int, float] = {}
        meetings: dict[int, int] = {}
        for node in self._holders(label):
            members, matrix = self._leaf(node)
            own = matrix[:, np.flatnonzero(members == label)]
            lengths = np.sqrt(matrix.power(2).sum(axis=0))
            products = (matrix.T @ own).toarray().ravel() if own.shape[1] else np.zeros(len(members))
            scale = lengths * (float(np.sqrt(own.power(2).sum())) or 1.0)
            cosines = np.divide(products, scale, out=np.zeros(len(members)), where=scale > 0)
            for other, cosine in zip(members.tolist(), cosines.tolist(), strict=True):
                if other >= 0 and other != label:
                    sums[other] = sums.get(other, 0.0) + cosine
                    meetings[other] = meetings.get(other, 0) + 1
        trees = max(1, self._learner.forest_.n_trees_)
        labels = np.array(list(sums), np.int64)
        return _best(labels, np.array([sums[other] / max(meetings[other], trees) for other in sums]), k)

    def weights(self, label: int) -> Weights | None:
        holders = self._holders(label)
        if not holders:
            return None
        total = np.zeros(self._learner.n_features_in_)
        for node in holders:
            members, matrix = self._leaf(node)
            total += np.asarray(matrix[:, np.flatnonzero(members == label)].sum(axis=1)).ravel() / len(holders)
        features = np.flatnonzero(total)
        return features, total[features]

    def _holders(self, label: int) -> list[int]:
        forest = self._learner.forest_
        return [int(node) for node in forest.holders[forest.labels_ == label]]

    def _leaf(self, node: int) -> tuple[npt.NDArray[np.int32], sp.csc_array]:
        """Members of a node, and their weights as a matrix of features by members."""
        chunks, starts = self._learner.weights_.chunks, self._learner.weights_.block_starts_
        parts = [self._block(block) for block in range(int(starts[node]), int(starts[node + 1]))]
        members = chunks.members[int(starts[node]) * LANES : int(starts[node + 1]) * LANES]
        return members, sp.csc_array(sp.hstack(parts))

    def _block(self, block: int) -> sp.csc_array:
        chunks = self._learner.weights_.chunks
        pairs = slice(chunks.pair_starts[block], chunks.pair_starts[block + 1])
        keys, kept = chunks.keys[pairs].astype(np.int64), chunks.kept[pairs].astype(np.int64)
        entries = slice(chunks.entry_starts[block], chunks.entry_starts[block + 1])
        dense = widened(chunks.dense[chunks.dense_starts[block] : chunks.dense_starts[block + 1]])
        in_dense = kept > DENSE_FROM
        row, lane = np.nonzero(dense)
        features = np.concatenate([np.repeat(keys[~in_dense], kept[~in_dense]), keys[in_dense][row]])
        lanes = np.concatenate([chunks.lanes[entries].astype(np.int64), lane])
        values = np.concatenate([widened(chunks.values[entries]), dense[row, lane]])
        values = values * chunks.scales[block * LANES + lanes]
        return sp.csc_array((values, (features, lanes)), shape=(self._learner.n_features_in_, LANES))


class _RowLeaves(Space):
    """Values of the labels in the leaves of trees over rows."""

    by = "leaves"

    def __init__(self, learner: InstanceForest) -> None:
        self._learner = learner

    def nearest(self, label: int, k: int) -> Near:
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
    def _norms(self) -> npt.NDArray[np.float64]:
        return np.sqrt(np.asarray(self._values.power(2).sum(axis=0), np.float64)).ravel()


class _Sides(Space):
    """Learners of their own for frequent and rare labels, which are near among themselves."""

    def __init__(self, learner: Any) -> None:
        self._sides = []
        for side in ("head", "tail"):
            inside = getattr(learner, f"{side}_learner_")
            space = None if inside is None else _within(inside)
            if space is not None:
                self._sides.append((np.asarray(getattr(learner, f"{side}_labels_")), space))
        self.by = self._sides[0][1].by if self._sides else "weights"

    def nearest(self, label: int, k: int) -> Near:
        for labels, space in self._sides:
            at = np.flatnonzero(labels == label)
            if len(at):
                return [(int(labels[near]), value) for near, value in space.nearest(int(at[0]), k)]
        return []

    def weights(self, label: int) -> Weights | None:
        for labels, space in self._sides:
            at = np.flatnonzero(labels == label)
            if len(at):
                return space.weights(int(at[0]))
        return None


def _best(labels: npt.NDArray[Any], values: npt.NDArray[Any], k: int) -> Near:
    order = np.lexsort((labels, -values))[:k]
    return [(int(labels[at]), float(values[at])) for at in order if values[at] > 0]
