"""Weights as 8-bit integers: a quarter of the size, and faster matrix products on a CPU."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from longtail.runtime.tensors import Tensors

if TYPE_CHECKING:
    from longtail.learners.neural.modules.network import Network

_SCALE = "::scale"


def to_int8(tensors: Tensors) -> Tensors:
    """Round matrices to 8 bits, with a stored scale per row; other tensors stay unchanged.

    Examples
    --------
    >>> found = to_int8(Tensors(weight=np.array([[1.0, -0.5], [0.1, 0.2]], np.float32), bias=np.ones(2, np.float32)))
    >>> found["weight"]
    array([[127, -64],
           [ 64, 127]], dtype=int8)
    >>> from_int8(found)["weight"].round(3)
    array([[ 1.   , -0.504],
           [ 0.101,  0.2  ]], dtype=float32)
    """
    found = Tensors()
    for name, array in tensors.items():
        if array.dtype != np.float32 or array.ndim < 2:
            found[name] = array
            continue
        flat = array.reshape(len(array), -1)
        scale = np.maximum(np.abs(flat).max(axis=1, initial=0), 1e-12).astype(np.float32) / np.float32(127)
        found[name] = np.rint(flat / scale[:, None]).astype(np.int8).reshape(array.shape)
        found[name + _SCALE] = scale
    return found


def from_int8(tensors: Tensors) -> Tensors:
    """Return the matrices that `to_int8` rounded, in float32."""
    found = Tensors()
    for name, array in tensors.items():
        if name + _SCALE in tensors:
            scale = tensors[name + _SCALE].reshape(-1, *[1] * (array.ndim - 1))
            found[name] = array.astype(np.float32) * scale
        elif not name.endswith(_SCALE):
            found[name] = array
    return found


def with_int8_products(network: Network) -> Network:
    """Return the network with 8-bit linear layers, which round their inputs dynamically."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantisation: Any = torch.ao.quantization
        by_row = {torch.nn.Linear: quantisation.per_channel_dynamic_qconfig}  # as `to_int8` scales
        found: Network = quantisation.quantize_dynamic(network, by_row, torch.qint8)
    return found
