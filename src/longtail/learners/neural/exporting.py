"""Export of networks to ONNX, for programs without torch."""

from __future__ import annotations

import importlib
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from longtail.errors import InputError, MissingExtraError, ModelError

if TYPE_CHECKING:
    from longtail.learners.neural.neural_ranker import NeuralRanker

_TOLERANCE = 1e-3


def export_onnx(learner: NeuralRanker, path: str | PathLike[str]) -> float:
    """Write the network of a fitted learner as one ONNX file, and check it against torch.

    The file takes ``tokens`` (int64, rows by tokens, padded on the right) and ``mask`` (bool, true for real tokens),
    and gives ``scores``: log-odds of all labels, of shape (rows, labels), and -inf for labels without a training row.
    If the model retrieves clusters of labels, the file scores the labels of all clusters: labels that both rank have
    the same order, but the file also ranks labels of clusters that the model doesn't retrieve.

    The learner must have a single level. Returns the largest difference between the file's scores and those of torch on
    synthetic rows; raises a ModelError if it is above 0.001.
    """
    missing = [package for package in ("onnx", "onnxscript", "onnxruntime") if find_spec(package) is None]
    if missing:
        raise MissingExtraError("Export to ONNX", "onnx")
    import torch

    stack = learner._stack()
    if len(stack.networks) > 1:
        raise InputError("The model ranks level by level, and ONNX has one network: export a model without levels.")
    if learner.precision_ != "float32":
        raise InputError("The model has 8-bit weights: export the one that it was quantised from.")
    scored = _scored(learner)
    batches = [_synthetic(learner, rows, places) for rows, places in ((3, 9), (1, 4), (5, 17))]
    rows, places = torch.export.Dim("rows", min=1, max=2**16), torch.export.Dim("places", min=2, max=2**15)
    shapes = {"tokens": {0: rows, 1: places}, "mask": {0: rows, 1: places}}
    made = Path(f"{fspath(path)}.unfinished")
    try:
        with _quiet(), torch.no_grad():
            torch.onnx.export(
                scored, batches[0], fspath(made), input_names=["tokens", "mask"], output_names=["scores"],
                dynamic_shapes=shapes, dynamo=True, external_data=False,
            )  # fmt: skip
        apart = _difference(scored, batches, made)
        if apart > _TOLERANCE:
            raise ModelError(f"The ONNX file differs from torch by {apart:.2g}: use the model itself.")
        os.replace(made, path)
    finally:
        made.unlink(missing_ok=True)
    return apart


def _difference(scored: Any, batches: list[Any], path: Path) -> float:
    """Largest difference between the scores of a file and those of torch."""
    import torch

    onnxruntime: Any = importlib.import_module("onnxruntime")
    session = onnxruntime.InferenceSession(fspath(path), providers=["CPUExecutionProvider"])
    apart = 0.0
    for tokens, mask in batches:
        with torch.no_grad():
            wanted = scored(tokens, mask).numpy()
        (found,) = session.run(None, {"tokens": tokens.numpy(), "mask": mask.numpy()})
        is_known = np.isfinite(wanted)
        if not np.array_equal(np.isfinite(found), is_known):
            return float("inf")
        apart = max(apart, float(np.abs(found[is_known] - wanted[is_known]).max(initial=0)))
    return apart


def _scored(learner: NeuralRanker) -> Any:
    """Return a module from tokens to the scores of all labels."""
    import torch

    network = learner._network(0, is_whole=True)
    network.encoder = network.encoder.plain()
    labels = torch.arange(learner.n_labels_)
    barred = torch.from_numpy(np.where(learner.label_counts_ > 0, 0, -np.inf).astype(np.float32))

    class Scored(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            raw = self.network.head.log_odds(self.network.encoder(tokens, mask), labels)
            return raw * learner.slope_ + learner.offset_ + barred

    return Scored().eval()


def _synthetic(learner: NeuralRanker, rows: int, places: int) -> tuple[Any, Any]:
    import torch

    rng = np.random.default_rng(rows)
    most = next(learner._stack().networks[0].encoder.embedding().parameters()).shape[0]
    tokens = torch.from_numpy(rng.integers(0, most, (rows, places)))
    lengths = torch.from_numpy(rng.integers(2, places + 1, rows))
    lengths[0] = places
    return tokens, torch.arange(places)[None] < lengths[:, None]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's messages while it exports."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
