"""The lengths of the labels' classifiers, and a learner in which they are evened out."""

from __future__ import annotations

import copy
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from longtail.engine.lanes import LANES, to_bfloat16
from longtail.errors import InputError, ParameterError
from longtail.learners import BlockWeights, ChunkWeights, LabelTree, Learner, OneVsRest
from longtail.learners.norms import lane_norms, widened
from longtail.propensity.base import is_number

Float64 = npt.NDArray[np.float64]
BiasChoice = Literal["scaled", "kept"]

_SIDES = ("head", "tail")


def label_norms(learner: Learner) -> Float64 | None:
    """Euclidean norm of each label's classifier, NaN for labels without one; None for a learner that has none.

    The bias is left out. In `LabelTree` the weights of a label in its leaf count, and of several leaves the mean. In
    `InstanceForest` the score of a label is linear in which leaves a row reaches: the vector is that of its values in
    all leaves, over the number of trees. A learner around another one has the norms of the one inside, and `TAug` those
    of both sides. Others may have a matrix ``coef_``, a row a label.

    Examples
    --------
    >>> from longtail import OneVsRest, Popularity
    >>> X, Y = [[1, 0], [0, 1], [1, 1]], [[1, 0], [0, 1], [1, 1]]
    >>> label_norms(OneVsRest(threads=1).fit(X, Y)).shape
    (2,)
    >>> label_norms(Popularity().fit(X, Y)) is None
    True
    """
    check_is_fitted(learner, "n_labels_")
    own = learner._label_norms()
    if own is not None:
        return own
    coef = getattr(learner, "coef_", None)
    if coef is not None and coef.shape[0] == learner.n_labels_:
        squares = sp.csr_array(coef).power(2).sum(axis=1)
        return np.sqrt(np.asarray(squares, np.float64).ravel())
    if _has_sides(learner):
        return _norms_of_sides(learner)
    inside = getattr(learner, "learner_", None)
    return None if inside is None else label_norms(inside)


def _has_sides(learner: Any) -> bool:
    return all(hasattr(learner, f"{side}_{part}_") for side in _SIDES for part in ("learner", "labels"))


def _norms_of_sides(learner: Any) -> Float64 | None:
    norms, known = np.full(learner.n_labels_, np.nan), False
    for side in _SIDES:
        inside, labels = getattr(learner, f"{side}_learner_"), getattr(learner, f"{side}_labels_")
        of_side = None if inside is None else label_norms(inside)
        if of_side is not None:
            norms[labels], known = of_side, True
    return norms if known else None


def normalised(learner: Learner, power: float = 1.0, *, bias: BiasChoice = "scaled") -> Learner:
    """Give a copy of a fitted learner in which each label's weights are divided by their norm to a power.

    All are then multiplied by the median norm to that power, so that the label in the middle keeps its weights. Nothing
    is trained anew, and what was not changed is shared with the learner. This is the plain way to even out what
    frequent and rare labels get; see the documentation for what it does.

    Parameters
    ----------
    learner : Learner
        A fitted `OneVsRest` or `LabelTree`, where the labels' weights in the leaves are changed and nodes stay as they
        are, or a learner around one.
    power : float
        From 0, which changes nothing, to 1, after which all norms are the same.
    bias : {"scaled", "kept"}
        A bias that is one weight among others, as in the paper's classifiers, is divided as they are: the whole
        linear score of a label is multiplied, and what it decides alone stays the same. "kept" leaves the bias as it
        was, so that only the evidence of the features is multiplied.

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
    if not (is_number(power) and 0 <= power <= 1):
        raise ParameterError("power", power, "must be a number from 0 to 1")
    if bias not in get_args(BiasChoice):
        raise ParameterError("bias", bias, f"must be one of {', '.join(get_args(BiasChoice))}")
    norms = label_norms(learner)
    usable = np.empty(0) if norms is None else norms[norms > 0]
    middle = float(np.median(usable)) if len(usable) else 1.0
    made: Learner = _evened(learner, middle, float(power), bias)
    return made


def _evened(learner: Any, middle: float, power: float, bias: BiasChoice) -> Any:
    made = copy.copy(learner)
    if isinstance(learner, OneVsRest):
        made.weights_ = _evened_blocks(learner, middle, power, bias)
    elif isinstance(learner, LabelTree):
        made.weights_ = _evened_chunks(learner.weights_, middle, power, bias)
    elif _has_sides(learner):
        for side in _SIDES:
            inside = getattr(learner, f"{side}_learner_")
            if inside is not None:
                setattr(made, f"{side}_learner_", _evened(inside, middle, power, bias))
    elif isinstance(getattr(learner, "learner_", None), Learner):
        made.learner_ = _evened(learner.learner_, middle, power, bias)
    else:
        raise InputError(f"{type(learner).__name__} has no linear weights to normalise: OneVsRest and LabelTree have.")
    return made


def _factors(norms: Float64, middle: float, power: float) -> npt.NDArray[np.float32]:
    """What weights are multiplied by; 1 where there are none."""
    known = np.isfinite(norms) & (norms > 0)
    ratio = np.divide(middle, norms, out=np.ones(len(norms)), where=known)
    return np.asarray(ratio**power, np.float32)


def _evened_blocks(learner: OneVsRest, middle: float, power: float, bias: BiasChoice) -> BlockWeights:
    old, of_label = learner.weights_, _factors(learner._label_norms(), middle, power)
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


def _multiplied(values: npt.NDArray[Any], factors: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
    """Stored weights times factors, in the precision in which they were stored."""
    product = widened(values) * factors
    return to_bfloat16(product) if values.dtype == np.uint16 else product


def _evened_chunks(old: ChunkWeights, middle: float, power: float, bias: BiasChoice) -> ChunkWeights:
    """Change the units of the weights alone, which is exact in every precision."""
    chunks = old.chunks
    factors = np.where(chunks.members >= 0, _factors(lane_norms(old), middle, power), np.float32(1))
    made = ChunkWeights()
    for name in ChunkWeights._stored:
        setattr(made, name, getattr(old, name))
    made.scales_ = chunks.scales * factors
    if bias == "scaled":
        made.bias_ = chunks.bias * factors
    return made
