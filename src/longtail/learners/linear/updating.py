"""Incremental updates of one-vs-rest: classifiers move toward new rows, or are retrained on all rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.kernels.lanes import to_bfloat16
from longtail.kernels.types import Flags, Float32, Int32, Int64
from longtail.learners.linear.training import BlockTrainer, Centre
from longtail.learners.linear.weights import BlockWeights, Precision, SolvedBlock
from longtail.learners.updates import (
    REFIT_SHARE,
    UpdateBatch,
    bias_scale,
    prototypes_of,
    shares_of,
    steps_of,
    with_prototypes,
)
from longtail.runtime.block_file import BlockFile

if TYPE_CHECKING:
    from longtail.learners.linear.one_vs_rest import OneVsRest

_MAX_WEIGHT = 10.0  # of a negative row that represents many
_EPOCHS = 8  # over the new rows; classifiers move only part of the way anyway


class _Classifiers(NamedTuple):
    """Weights of some labels: label ids, one row of weights per label, and bias weights."""

    labels: Int64
    rows: sp.csr_array
    bias: Float32


def updated_weights(learner: OneVsRest, batch: UpdateBatch) -> BlockWeights:
    """Weights of a learner after an update with more rows.

    Labels that the new rows do not affect stay bitwise unchanged. The others are solved for the new rows,
    regularised toward their present weights, and move part of the way. New labels are trained on all rows; where the
    earlier rows are not given, on the new rows and on prototypes of the old labels.
    """
    known = _classifiers(learner.weights_, learner.n_labels_)
    is_known = np.zeros(batch.n_labels, np.bool_)
    is_known[known.labels] = True
    shares = shares_of(batch.changed(learner._predict_checked(batch.X)), batch.label_counts)
    is_present = batch.label_counts > 0
    is_retrained = is_present & (~is_known | ((shares >= REFIT_SHARE) & (batch.earlier is not None)))
    is_moved = is_present & ~is_retrained & (shares > 0) & (batch.X.shape[0] > 0)
    stays = (is_present & ~is_retrained & ~is_moved)[known.labels]
    parts = [_Classifiers(known.labels[stays], known.rows[stays], known.bias[stays])]
    parts += _moved(learner, batch, known, np.where(is_moved, batch.label_counts, 0), steps_of(shares))
    parts += _retrained(learner, batch, known, np.where(is_retrained, batch.label_counts, 0))
    return _assembled(parts, batch, learner.weights_.precision, learner.n_features_in_)


def _moved(
    learner: OneVsRest, batch: UpdateBatch, known: _Classifiers, counts: Int64, steps: Float32
) -> Iterator[_Classifiers]:
    """Labels that move toward the solution for the new rows."""
    scale_of_bias = bias_scale(batch)
    blocks = BlockTrainer.blocks_by_frequency(counts)
    if not blocks:
        return
    # Solve for the features that occur in the new rows alone: weights of other features can't change.
    place = np.full(batch.n_labels, -1, np.int64)
    place[known.labels] = np.arange(len(known.labels))
    occurring = np.unique(batch.X.indices)
    number = np.full(batch.X.shape[1], -1, np.int32)
    number[occurring] = np.arange(len(occurring), dtype=np.int32)
    X = sp.csr_array((batch.X.data, number[batch.X.indices], batch.X.indptr), shape=(batch.X.shape[0], len(occurring)))
    is_inside = number[known.rows.indices] >= 0
    inside, outside = _picked(known.rows, is_inside), _picked(known.rows, ~is_inside)
    inside = sp.csr_array((inside.data, number[inside.indices], inside.indptr), shape=(inside.shape[0], X.shape[1]))
    centre = Centre(inside, known.bias / np.float32(scale_of_bias), place, steps)
    trainer = learner._trainer(
        X, batch.Y, batch.label_counts, n_rows=batch.n_rows, centre=centre, bias_share=scale_of_bias,
        max_iter=_EPOCHS,
    )  # fmt: skip
    for part in _solved(learner, trainer, blocks):
        rows = sp.csr_array(
            (part.rows.data, occurring[part.rows.indices], part.rows.indptr), shape=(len(part.labels), batch.X.shape[1])
        )
        yield _Classifiers(part.labels, outside[place[part.labels]] + rows, part.bias * np.float32(scale_of_bias))


def _retrained(learner: OneVsRest, batch: UpdateBatch, known: _Classifiers, counts: Int64) -> Iterator[_Classifiers]:
    """Labels that are trained from scratch."""
    blocks, weight = BlockTrainer.blocks_by_frequency(counts), 1.0
    if not blocks:
        return
    X, Y = batch.all_rows
    if batch.earlier is None:
        X, Y = with_prototypes(batch, prototypes_of(known.rows))
        weight = float(np.clip(batch.n_rows / X.shape[0], 1, _MAX_WEIGHT))
    trainer = learner._trainer(X, Y, batch.label_counts, n_rows=batch.n_rows, negative_weight=weight)
    yield from _solved(learner, trainer, blocks)


def _solved(learner: OneVsRest, trainer: BlockTrainer, blocks: list[Int32]) -> Iterator[_Classifiers]:
    threads = learner._affordable_threads(*trainer.X.shape)
    with closing(trainer.train(blocks, threads=threads)) as solved:
        for labels, block in zip(blocks, solved, strict=True):
            yield _Classifiers(labels.astype(np.int64), block.matrix(len(labels), trainer.X.shape[1]), block.bias)


def _picked(rows: sp.csr_array, chosen: Flags) -> sp.csr_array:
    """The chosen entries of a sparse matrix."""
    before = np.concatenate([[0], np.cumsum(chosen)])
    return sp.csr_array((rows.data[chosen], rows.indices[chosen], before[rows.indptr]), shape=rows.shape)


def _classifiers(weights: BlockWeights, n_labels: int) -> _Classifiers:
    lanes = np.flatnonzero(weights.lane_labels_ >= 0)
    labels = weights.lane_labels_[lanes].astype(np.int64)
    return _Classifiers(labels, weights.matrix(n_labels)[labels], weights.lane_bias_[lanes])


def _assembled(parts: list[_Classifiers], batch: UpdateBatch, precision: Precision, n_features: int) -> BlockWeights:
    """Assemble all classifiers in blocks by the present frequency of their labels."""
    labels = np.concatenate([part.labels for part in parts])
    rows = sp.csr_array(sp.vstack([part.rows for part in parts], format="csr"))
    bias = np.zeros(batch.n_labels, np.float32)
    bias[labels] = np.concatenate([part.bias for part in parts])
    place = np.full(batch.n_labels, -1, np.int64)
    place[labels] = np.arange(len(labels))
    blocks = BlockTrainer.blocks_by_frequency(np.where(place >= 0, batch.label_counts, 0))
    with BlockFile() as block_file:
        for block in blocks:
            columns = sp.csc_array(rows[place[block]])
            kept = np.diff(columns.indptr)
            features = np.flatnonzero(kept).astype(np.int32)
            values = to_bfloat16(columns.data) if precision == "bfloat16" else columns.data
            lanes = columns.indices.astype(np.uint8)
            block_file.append(SolvedBlock(features, kept[features].astype(np.uint8), lanes, values, bias[block]))
        return BlockWeights.assemble(block_file, blocks, n_features, precision)
