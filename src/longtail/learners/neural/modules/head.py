"""What every head owes: a loss to be trained by, and a ranking of labels."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from longtail.engine.lanes import LANES
from longtail.engine.topk import TopK
from longtail.engine.topk_kernels import rank_block
from longtail.learners.neural.modules.encoder import Encoded


class Truth(NamedTuple):
    """True labels of some rows: those of row r are ``labels[indptr[r] : indptr[r + 1]]``."""

    indptr: Tensor
    labels: Tensor


class Candidates(NamedTuple):
    """Labels of each row that a level above proposes, -1 for none, with the logarithm of its probability for each."""

    labels: Tensor
    scores: Tensor


class HeadModule(nn.Module):
    """Scores labels for encoded texts.

    Attributes
    ----------
    n_labels : int
    """

    n_labels: int

    @abstractmethod
    def loss(self, encoded: Encoded, truth: Truth, share: float, candidates: Candidates | None) -> Tensor:
        """Loss of each row; `share` is how much of the training is over, from 0 to 1."""

    @abstractmethod
    def ranked(self, encoded: Encoded, k: int, allowed: npt.NDArray[np.bool_], candidates: Candidates | None) -> TopK:
        """Rank the k best of the allowed labels for each row, by log-odds or what stands for them."""

    @abstractmethod
    def log_odds(self, encoded: Encoded, labels: Tensor) -> Tensor:
        """Scores of chosen labels, of shape (rows, labels), as `ranked` gives them."""

    def tables(self) -> list[Tensor]:
        """Parameters of which a step changes only some rows: their gradients are sparse."""
        return []


def table(rows: int, width: int, spread: float, sparse: bool) -> nn.Embedding:
    """A row for each label, drawn at random; where few are used in a step, their gradients are sparse."""
    made = nn.Embedding(rows, width, sparse=sparse)
    nn.init.normal_(made.weight, std=spread)
    return made


def top_of(scores: Tensor, k: int, allowed: npt.NDArray[np.bool_]) -> TopK:
    """Rank by scores of all labels, of shape (rows, labels)."""
    n, n_labels = scores.shape
    padded = np.full((n, -(-n_labels // LANES) * LANES), -np.inf, np.float32)
    padded[:, :n_labels] = scores.float().cpu().numpy()
    lanes = np.full(padded.shape[1], -1, np.int32)
    lanes[:n_labels] = np.arange(n_labels)
    top = TopK(np.full((n, k), -1, np.int32), np.full((n, k), -np.inf, np.float32))
    rank_block(padded, lanes, allowed, top.labels, top.scores)
    return top


def top_of_some(labels: Tensor, scores: Tensor, k: int, allowed: npt.NDArray[np.bool_]) -> TopK:
    """Rank by scores of each row's own labels, -1 for none; each label stands once in a row."""
    chosen = labels.cpu().numpy().astype(np.int32)
    values = scores.float().cpu().numpy()
    is_out = (chosen < 0) | ~allowed[chosen]
    chosen, values = np.where(is_out, np.int32(-1), chosen), np.where(is_out, np.float32(-np.inf), values)
    if chosen.shape[1] < k:
        more = ((0, 0), (0, k - chosen.shape[1]))
        chosen = np.pad(chosen, more, constant_values=-1)
        values = np.pad(values, more, constant_values=-np.inf)
    return TopK(chosen, values).ranked_by(values, k)


def log_odds_of(log_chances: Tensor) -> Tensor:
    """Log-odds of a probability given by its logarithm."""
    below = log_chances.clamp(max=-1e-7)
    return below - torch.log(-torch.expm1(below))


def are_own(labels: Tensor, truth: Truth) -> Tensor:
    """1 where a row's label is one of its true ones."""
    n = len(labels)
    rows = torch.repeat_interleave(torch.arange(n, device=labels.device), truth.indptr.diff())
    wide = int(labels.max()) + 2 if labels.numel() else 1
    wide = max(wide, int(truth.labels.max()) + 2 if truth.labels.numel() else 1)
    keys = torch.arange(n, device=labels.device)[:, None] * wide + labels
    return torch.isin(keys, rows * wide + truth.labels).float() * (labels >= 0)
