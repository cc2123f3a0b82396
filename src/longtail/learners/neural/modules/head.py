"""The base class of heads, and helpers to rank labels by their scores."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from longtail.kernels.lanes import LANES
from longtail.kernels.selection import rank_block
from longtail.kernels.types import Flags
from longtail.learners.neural.modules.encoder import Encoded
from longtail.topk import TopK


class Truth(NamedTuple):
    """True labels of some rows: those of row r are ``labels[indptr[r] : indptr[r + 1]]``."""

    indptr: Tensor
    labels: Tensor


class ScoredCandidates(NamedTuple):
    """Labels of each row that the level above proposes, -1 for none, with their log-probabilities."""

    labels: Tensor
    scores: Tensor


class HeadModule(nn.Module):
    """Scores labels for encoded texts."""

    n_labels: int

    @abstractmethod
    def loss(self, encoded: Encoded, truth: Truth, progress: float, candidates: ScoredCandidates | None) -> Tensor:
        """Return the loss of each row; `progress` is the share of the training that is done."""

    @abstractmethod
    def ranked(self, encoded: Encoded, k: int, allowed: Flags, candidates: ScoredCandidates | None) -> TopK:
        """Return the k best allowed labels of each row, by log-odds."""

    @abstractmethod
    def log_odds(self, encoded: Encoded, labels: Tensor) -> Tensor:
        """Return the scores of chosen labels, of shape (rows, labels), the same as in `ranked`."""

    def tables(self) -> list[Tensor]:
        """Return the parameters with sparse gradients."""
        return []


def table(rows: int, width: int, spread: float, sparse: bool) -> nn.Embedding:
    """Return a table of random rows, with sparse gradients if a step uses few of them."""
    made = nn.Embedding(rows, width, sparse=sparse)
    nn.init.normal_(made.weight, std=spread)
    return made


def top_of(scores: Tensor, k: int, allowed: Flags) -> TopK:
    """Return the k best allowed labels by scores of all labels, of shape (rows, labels)."""
    n, n_labels = scores.shape
    padded = np.full((n, -(-n_labels // LANES) * LANES), -np.inf, np.float32)
    padded[:, :n_labels] = scores.float().cpu().numpy()
    lanes = np.full(padded.shape[1], -1, np.int32)
    lanes[:n_labels] = np.arange(n_labels)
    top = TopK.empty(n, k)
    rank_block(padded, lanes, allowed, top.labels, top.scores)
    return top


def top_of_some(labels: Tensor, scores: Tensor, k: int, allowed: Flags) -> TopK:
    """Return the k best allowed labels by scores of some labels per row, -1 for none."""
    chosen = labels.cpu().numpy().astype(np.int32)
    values = scores.float().cpu().numpy()
    is_out = (chosen < 0) | ~allowed[chosen]
    chosen, values = np.where(is_out, np.int32(-1), chosen), np.where(is_out, np.float32(-np.inf), values)
    if chosen.shape[1] < k:
        more = ((0, 0), (0, k - chosen.shape[1]))
        chosen = np.pad(chosen, more, constant_values=-1)
        values = np.pad(values, more, constant_values=-np.inf)
    return TopK(chosen, values).ranked_by(values, k)


def log_odds_of(log_probabilities: Tensor) -> Tensor:
    """Return the log-odds of log-probabilities."""
    below = log_probabilities.clamp(max=-1e-7)
    return below - torch.log(-torch.expm1(below))


def dense_truth(indptr: Tensor, labels: Tensor, n_labels: int) -> Tensor:
    """Return the labels of rows, given as CSR arrays, as a matrix of 0 and 1."""
    n = len(indptr) - 1
    rows = torch.repeat_interleave(torch.arange(n, device=labels.device), indptr.diff())
    found = torch.zeros((n, n_labels), device=labels.device)
    found[rows, labels] = 1
    return found


def are_own(labels: Tensor, truth: Truth) -> Tensor:
    """Return 1 where a label of a row is one of its true ones, else 0."""
    n = len(labels)
    # Compare keys that are unique per row and label; -1, for none, matches no key of a true label.
    rows = torch.repeat_interleave(torch.arange(n, device=labels.device), truth.indptr.diff())
    wide = int(labels.max()) + 2 if labels.numel() else 1
    wide = max(wide, int(truth.labels.max()) + 2 if truth.labels.numel() else 1)
    keys = torch.arange(n, device=labels.device)[:, None] * wide + labels
    return torch.isin(keys, rows * wide + truth.labels).float() * (labels >= 0)
