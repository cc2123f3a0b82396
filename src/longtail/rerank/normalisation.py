"""Tau-normalisation of the labels' classifiers."""

from __future__ import annotations

from copy import copy
from typing import Any, Literal, get_args

import numpy as np
from sklearn.utils.validation import check_is_fitted

from longtail.errors import InputError
from longtail.kernels.lanes import LANES, to_bfloat16, widened
from longtail.kernels.types import Array, Float32, Float64
from longtail.learners import BlockWeights, ChunkWeights, LabelTree, Learner, OneVsRest
from longtail.learners.norms import label_norms
from longtail.rerank.taug import TAug
from longtail.validation import Number, OneOf, check

BiasChoice = Literal["scaled", "kept"]


def normalised(learner: Learner, power: float = 1.0, *, bias: BiasChoice = "scaled") -> Learner:
    """Return a copy of a fitted learner in which each label's weights are divided by their norm to a power.

    All are multiplied by the median norm to that power, so that the median label keeps its weights. Nothing is trained,
    and unchanged parts are shared with the learner.

    Parameters
    ----------
    learner : Learner
        A fitted `OneVsRest` or `LabelTree`, or a learner that wraps some: each is normalised by its own median norm,
        the two sides of `TAug` by that of both. In a tree only the labels' weights in the leaves change. Parts without
        linear weights stay unchanged.
    power : float
        From 0, no change, to 1, all norms the same.
    bias : {"scaled", "kept"}
        "scaled" divides the bias too, as in the paper: the whole score of a label is multiplied, and its sign stays.
        "kept" leaves the bias unchanged.

    Returns
    -------
    Learner
        Of the same class; can be saved.

    References
    ----------
    Kang, Xie, Rohrbach, Yan, Gordo, Feng and Kalantidis: Decoupling Representation and Classifier for Long-tailed
    Recognition. ICLR 2020: tau-normalisation.

    Examples
    --------
    >>> from longtail import OneVsRest
    >>> X, Y = [[1, 0], [0, 1], [1, 1], [2, 1]], [[1, 0], [0, 1], [1, 1], [1, 0]]
    >>> even = label_norms(normalised(OneVsRest(precision="float32").fit(X, Y)))
    >>> bool(abs(even[0] - even[1]) < 1e-6)
    True
    """
    check("power", power, Number(low=0, high=1))
    check("bias", bias, OneOf(*get_args(BiasChoice)))
    made: Learner = _normalised(learner, None, float(power), bias)
    if made is learner:
        raise InputError(f"{type(learner).__name__} has no linear weights to normalise: OneVsRest and LabelTree have.")
    return made


def _normalised(learner: Any, median: float | None, power: float, bias: BiasChoice) -> Any:
    """Return a normalised copy, or the learner itself if it has no linear weights."""
    check_is_fitted(learner, "n_labels_")
    if median is None and isinstance(learner, OneVsRest | LabelTree | TAug):
        median = _median_norm(learner)
    if median is not None and isinstance(learner, OneVsRest):
        made = copy(learner)
        made.weights_ = _normalised_blocks(learner, median, power, bias)
        return made
    if median is not None and isinstance(learner, LabelTree):
        made = copy(learner)
        made.weights_ = _normalised_chunks(learner, median, power, bias)
        return made
    return learner._with_nested(lambda part: _normalised(part, median, power, bias))


def _median_norm(learner: Learner) -> float:
    norms = label_norms(learner)
    usable = np.empty(0) if norms is None else norms[norms > 0]
    return float(np.median(usable)) if len(usable) else 1.0


def _factors(norms: Float64, median: float, power: float) -> Float32:
    """Factors of the weights; 1 where there are none."""
    known = np.isfinite(norms) & (norms > 0)
    ratio = np.divide(median, norms, out=np.ones(len(norms)), where=known)
    return np.asarray(ratio**power, np.float32)


def _normalised_blocks(learner: OneVsRest, median: float, power: float, bias: BiasChoice) -> BlockWeights:
    old = learner.weights_
    of_label = _factors(old.norms(learner.n_labels_), median, power)
    arrays = old._arrays
    used = old.lane_labels_ >= 0
    factors = np.ones(len(used), np.float32)
    factors[used] = of_label[old.lane_labels_[used]]
    made = BlockWeights()
    made.lane_labels_, made.panel_slots_ = old.lane_labels_, old.panel_slots_
    made.entry_offsets_, made.entry_lanes_ = old.entry_offsets_, old.entry_lanes_
    made.lane_bias_ = old.lane_bias_ * factors if bias == "scaled" else old.lane_bias_
    made.panel_heights_ = np.diff(arrays.starts).astype(np.int32)
    made.entry_values_ = _multiplied(arrays.values, factors[arrays.lanes])
    made.panels_ = np.empty_like(arrays.panels)
    for block, (start, stop) in enumerate(zip(arrays.starts[:-1], arrays.starts[1:], strict=True)):
        made.panels_[start:stop] = _multiplied(arrays.panels[start:stop], factors[block * LANES : (block + 1) * LANES])
    return made


def _multiplied(values: Array, factors: Float32) -> Array:
    """Stored weights times factors, in the precision in which they were stored."""
    product = widened(values) * factors
    return to_bfloat16(product) if values.dtype == np.uint16 else product


def _normalised_chunks(learner: LabelTree, median: float, power: float, bias: BiasChoice) -> ChunkWeights:
    """Change the scales of the weights alone, which is exact in every precision."""
    old = learner.weights_
    chunks = old.chunks
    factors = np.where(chunks.members >= 0, _factors(old.lane_norms(), median, power), np.float32(1))
    made = ChunkWeights()
    for name in ChunkWeights._stored:
        setattr(made, name, getattr(old, name))
    made.scales_ = chunks.scales * factors
    if bias == "scaled":
        made.bias_ = chunks.bias * factors
    return made
