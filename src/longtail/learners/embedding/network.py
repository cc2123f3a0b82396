"""The embedding map while it is trained: layers of normalised weights over the sums of an embedding bag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from longtail.engine.bags import Table

if TYPE_CHECKING:
    from torch import Tensor

Activation = Literal["relu", "linear"]
Parameters = dict[str, Table]

FIRST_SPREAD = 0.05  # of weights; only their direction counts, so this decides how far a step turns them
_FIRST_SCALE, _FIRST_SHIFT = 20.0, 10.0  # of the inner products, to log-odds


def first_parameters(n_features: int, widths: Sequence[int], rng: np.random.Generator) -> Parameters:
    """Everything trained besides the two tables, as it begins.

    Parameters
    ----------
    n_features : int
    widths : sequence of int
        Of the layers, that of the embedding last.
    rng : Generator
    """
    begin: dict[str, npt.NDArray[np.float32]] = {
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
    return {name: Table.begin(values) for name, values in begin.items()}


def embed(
    sums: Tensor, lengths: Tensor, parameters: dict[str, Tensor], n_layers: int, activation: Activation
) -> Tensor:
    """Embed rows as vectors of length 1.

    All neurons of a layer share one trained length; each has a direction of its own (section 3.1 of the paper).

    Parameters
    ----------
    sums : Tensor, shape (rows, width)
        Sums of the bags, over the table as it is.
    lengths : Tensor, shape (width,)
        Lengths of the columns of the table. They are taken as constants: what the table's gradient has along its
        columns would change their lengths alone, which don't matter, and would touch every feature.
    parameters : dict of Tensor
        See `first_parameters`.
    n_layers : int
    activation : {"relu", "linear"}
        What the last layer ends with; those below it end with ReLU.
    """
    from torch.nn.functional import normalize

    values = sums * (parameters["length0"].exp() / lengths) + parameters["bias0"]
    for number in range(1, n_layers):
        directions = normalize(parameters[f"weights{number}"], dim=0)
        values = values.relu() @ directions * parameters[f"length{number}"].exp() + parameters[f"bias{number}"]
    return normalize(values.relu() if activation == "relu" else values, dim=1, eps=1e-6)


def folded(
    table: npt.NDArray[np.float32], parameters: dict[str, npt.NDArray[np.float32]], n_layers: int
) -> tuple[list[npt.NDArray[np.float32]], list[npt.NDArray[np.float32]]]:
    """Plain weights and biases of each layer, with the shared lengths multiplied in."""
    weights = [_scaled(table, np.exp(parameters["length0"]))]
    for number in range(1, n_layers):
        weights.append(_scaled(parameters[f"weights{number}"], np.exp(parameters[f"length{number}"])))
    return weights, [parameters[f"bias{number}"].copy() for number in range(n_layers)]


def column_squares(table: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Squared length of each column, a stretch of rows at a time."""
    total = np.zeros(table.shape[1])
    for first in range(0, len(table), 4096):
        total += np.square(table[first : first + 4096], dtype=np.float64).sum(axis=0)
    return total


def _scaled(weights: npt.NDArray[np.float32], length: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    lengths = np.sqrt(np.maximum(column_squares(weights), 1e-30))
    return np.asarray(weights * (length / lengths).astype(np.float32), np.float32)
