"""Prediction with fitted networks: ranking of labels level by level, vectors of texts and effects of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from longtail.config import own_jobs
from longtail.kernels.types import Flags, Float32, Float64, Int32, Int64
from longtail.learners.neural.batches import TokenRows, by_length
from longtail.learners.neural.modules.encoder import Encoded
from longtail.learners.neural.modules.network import Network
from longtail.learners.neural.modules.ranking import ClusteredRanking
from longtail.learners.neural.training import Proposed, candidates_of
from longtail.runtime.library_threads import one_torch_thread
from longtail.runtime.pool import in_chunks
from longtail.topk import TopK

_AT_ONCE = 32  # rows


class Stack(NamedTuple):
    """Networks, the highest level first, and the children of the labels of each; None for the last."""

    networks: Sequence[Network]
    children: Sequence[Int64 | None]
    proposals: int


def rank(stack: Stack, rows: TokenRows, k: int, allowed: Flags) -> TopK:
    """Return the k best allowed labels of each row."""
    return rank_level(stack.networks[-1], rows, k, allowed, _proposed(stack, rows, allowed))


def _proposed(stack: Stack, rows: TokenRows, allowed: Flags) -> Proposed | None:
    """Return the proposals of the levels above the last, among clusters with an allowed label."""
    above = [allowed]
    for children in reversed(stack.children[:-1]):
        above.insert(0, _with_allowed(children, above[0]))
    proposed = None
    for network, children, own in zip(stack.networks[:-1], stack.children[:-1], above[:-1], strict=True):
        proposed = propose(network, children, rows, stack.proposals, proposed, allowed=own)
    return proposed


def propose(
    network: Network,
    children: Int64 | None,
    rows: TokenRows,
    proposals: int,
    proposed: Proposed | None,
    own: Callable[[TopK], TopK] | None = None,
    allowed: Flags | None = None,
) -> Proposed:
    """Return the children of the best allowed labels of a level for each row; `own` may replace labels."""
    if allowed is None:
        allowed = np.ones(network.head.n_labels, np.bool_)
    top = rank_level(network, rows, proposals, allowed, proposed)
    if own is not None:
        top = own(top)
    below = np.full((1, 1), -1, np.int64) if children is None or not len(children) else children
    size = top.k * below.shape[1]
    labels = np.where(top.labels[:, :, None] >= 0, below[top.labels], -1).reshape(len(top), size)
    scores = -np.logaddexp(0, -top.scores.astype(np.float64))
    spread = np.repeat(np.maximum(scores, -1e4), below.shape[1], axis=1)
    return Proposed(labels.astype(np.int32), spread.astype(np.float32))


def _with_allowed(children: Int64 | None, allowed: Flags) -> Flags:
    """Return which labels of a level have an allowed one under them."""
    if children is None:
        return np.zeros(0, np.bool_)
    return np.asarray((allowed[children] & (children >= 0)).any(axis=1))


def rank_level(network: Network, rows: TokenRows, k: int, allowed: Flags, proposed: Proposed | None) -> TopK:
    """Rank the labels of one level."""
    n = len(rows)
    top = TopK.empty(n, k)

    def some(encoded: Encoded, chosen: Int64) -> None:
        candidates = None if proposed is None else candidates_of(proposed, chosen, network.device)
        found = network.head.ranked(encoded, k, allowed, candidates)
        top.labels[chosen], top.scores[chosen] = found.labels, found.scores

    for_each_batch(network, rows, some, "predicting")
    return top


def for_each_batch(network: Network, rows: TokenRows, work: Callable[[Encoded, Int64], None], description: str) -> None:
    """Encode all rows in batches, and call `work` with each."""
    batches = by_length(rows.lengths, _AT_ONCE)
    network.eval()

    def batch(first: int, last: int) -> None:
        if network.device.type == "cpu":
            torch.set_num_threads(1)  # of this thread
        with torch.inference_mode():
            for chosen in batches[first:last]:
                tokens, mask = rows.batch(chosen, network.encoder.padding)
                work(network.encoder(tokens.to(network.device), mask.to(network.device)), chosen)

    with one_torch_thread(), own_jobs(None if network.device.type == "cpu" else 1):
        in_chunks(batch, len(batches), 1, description)


def retrieved(stack: Stack, rows: TokenRows) -> Int32 | None:
    """Return the labels scored in the last stage for each row, padded with -1; None if there is one stage."""
    network = stack.networks[-1]
    proposed = _proposed(stack, rows, np.ones(network.head.n_labels, np.bool_))
    if proposed is not None:
        return proposed.labels
    head = network.head
    if not isinstance(head, ClusteredRanking):
        return None
    found = np.full((len(rows), head.retrieved * head.members.shape[1]), -1, np.int32)

    def some(encoded: Encoded, chosen: Int64) -> None:
        found[chosen] = head.retrieved_labels(encoded).cpu().numpy()

    for_each_batch(network, rows, some, "retrieving labels")
    return found


def vectors(network: Network, rows: TokenRows) -> Float32:
    """Return the vector of each row."""
    found = np.empty((len(rows), network.encoder.vector_width), np.float32)

    def some(encoded: Encoded, chosen: Int64) -> None:
        found[chosen] = encoded.vector.float().cpu().numpy()

    for_each_batch(network, rows, some, "embedding texts")
    return found


def effects(network: Network, rows: TokenRows, labels: Int32) -> Float64:
    """Return the effect of each token of one row on the scores of labels, by gradient times input."""
    network.eval()
    tokens, mask = rows.batch(np.zeros(1, np.int64), network.encoder.padding)
    kept: list[Tensor] = []
    explaining = get_ident()

    def keep(module: Any, inputs: Any, output: Tensor) -> Tensor | None:
        if get_ident() != explaining:  # another thread predicts with the same module
            return None
        kept.append(output.detach().requires_grad_())
        return kept[-1]

    encoder = network.encoder.plain().eval()
    hook = encoder.embedding().register_forward_hook(keep)
    try:
        with one_torch_thread(), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            encoded = encoder(tokens.to(network.device), mask.to(network.device))
            scores = network.head.log_odds(encoded, torch.from_numpy(labels.astype(np.int64)).to(network.device))[0]
            found = []
            for score in scores:
                (slope,) = torch.autograd.grad(score, kept[-1], retain_graph=True)
                found.append((slope * kept[-1]).sum(dim=2).reshape(-1).detach().cpu().numpy())  # one row
    finally:
        hook.remove()
    n = int(rows.lengths[0])
    return np.array(found, np.float64).reshape(len(labels), tokens.shape[1])[:, :n]
