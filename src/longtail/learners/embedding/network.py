"""The embedding map in training: layers with normalised weights over the sums of an embedding bag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from longtail.kernels.types import Float32, Float64
from longtail.learners.training.row_adam import AdamTable

if TYPE_CHECKING:
    from torch import Tensor

EmbeddingActivation = Literal["relu", "linear"]
Parameters = dict[str, AdamTable]

FIRST_SPREAD = 0.05  # of weights; only their direction matters, so it sets how far a step turns them
_FIRST_SCALE, _FIRST_SHIFT = 20.0, 10.0  # from inner products to log-odds


def first_parameters(n_features: int, widths: Sequence[int], rng: np.random.Generator) -> Parameters:
    """Initialise all parameters but the two tables; the last of `widths` is that of the embedding."""
    begin: dict[str, Float32] = {
        "scale": np.array([np.log(_FIRST_SCALE)], np.float32),
        "shift": np.array([_FIRST_SHIFT], np.float32),
    }
    for number, width in enumerate(widths):
        below = n_features if number == 0 else widths[number - 1]
        gain = 0.5 * np.log(below if number == 0 else 1.0)  # for values around 1
        begin[f"length{number}"] = np.array([gain], np.float32)
        begin[f"bias{number}"] = np.zeros(width, np.float32)
        if number:
            begin[f"weights{number}"] = (FIRST_SPREAD * rng.standard_normal((below, width))).astype(np.float32)
    return {name: AdamTable.untrained(values) for name, values in begin.items()}


def embed(
    sums: Tensor, norms: Tensor, parameters: dict[str, Tensor], n_layers: int, activation: EmbeddingActivation
) -> Tensor:
    """Embed rows as vectors of norm 1.

    All neurons of a layer share one trained norm; each has its own direction (section 3.1 of the paper).

    Parameters
    ----------
    sums : Tensor, shape (rows, width)
        Sums of the bags over the table.
    norms : Tensor, shape (width,)
        Norms of the columns of the table, taken as constants: a gradient through them would only change the norms,
        which have no effect, and would touch every feature.
    parameters : dict of Tensor
        See `first_parameters`.
    n_layers : int
    activation : {"relu", "linear"}
        Of the last layer; those below it have ReLU.
    """
    from torch.nn.functional import normalize

    values = sums * (parameters["length0"].exp() / norms) + parameters["bias0"]
    for number in range(1, n_layers):
        directions = normalize(parameters[f"weights{number}"], dim=0)
        values = values.relu() @ directions * parameters[f"length{number}"].exp() + parameters[f"bias{number}"]
    return normalize(values.relu() if activation == "relu" else values, dim=1, eps=1e-6)


def folded(table: Float32, parameters: dict[str, Float32], n_layers: int) -> tuple[list[Float32], list[Float32]]:
    """Return weights and biases of each layer, with the shared norms multiplied in."""
    weights = [_scaled(table, np.exp(parameters["length0"]))]
    for number in range(1, n_layers):
        weights.append(_scaled(parameters[f"weights{number}"], np.exp(parameters[f"length{number}"])))
    return weights, [parameters[f"bias{number}"].copy() for number in range(n_layers)]


def column_squares(table: Float32) -> Float64:
    """Return the squared norm of each column."""
    total = np.zeros(table.shape[1])
    for first in range(0, len(table), 4096):
        total += np.square(table[first : first + 4096], dtype=np.float64).sum(axis=0)
    return total


def _scaled(weights: Float32, length: Float32) -> Float32:
    lengths = np.sqrt(np.maximum(column_squares(weights), 1e-30))
    return np.asarray(weights * (length / lengths).astype(np.float32), np.float32)
