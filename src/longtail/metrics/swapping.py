"""Differences of two rankings under permutations, for the paired randomisation test."""

from __future__ import annotations

import numpy as np

from longtail.kernels.types import Float64, Int64, UInt8, UInt64
from longtail.metrics.resample_kernels import LANES, draw_masks, swapped_label_means, weighted_sums
from longtail.metrics.resampling import Resampler, percent_of, random_states
from longtail.runtime.pool import StopFlag, run_blocks


class Swapper:
    """Two rankings of the same rows, prepared for swapping any set of rows between them.

    Only rows where the rankings differ matter, and only labels that one of the two does not rank at the same cutoff.
    With s = 1 for a swapped row, a sum A over the rows becomes A - sum(s (a - b)) and B becomes B + sum(s (a - b)).
    Numerators, denominators and label counts are all swapped together.
    """

    def __init__(self, a: Resampler, b: Resampler) -> None:
        self.a, self.b = a, b
        differs = (a.labels != b.labels).any(axis=1)
        self.n_rows = int(differs.sum())
        change = a.table.values[differs] - b.table.values[differs]
        self.changing = np.flatnonzero(change.any(axis=0))
        self.change = np.ascontiguousarray(change[:, self.changing])
        self.sums = [side.table.values.sum(axis=0)[:, None] for side in (a, b)]
        self._split_labels(np.cumsum(differs) - 1)

    def _split_labels(self, new_row: Int64) -> None:
        """Keep the predictions that differ, sorted by label, and sum up what is the same on both sides."""
        n_labels, n_ks = self.a.evaluator.n_labels, self.a.n_ks
        keys, sides = [], []
        for side in (self.a, self.b):
            labels = np.repeat(np.arange(n_labels), np.diff(side.entries.starts))
            keys.append((labels * n_ks + side.entries.spans) * side.n_rows + side.entries.rows)
            sides.append((labels, side.entries.spans, side.entries.rows, side.entries.hits))
        kept = [~np.isin(mine, others, assume_unique=True) for mine, others in (keys, keys[::-1])]
        merged = [np.concatenate([first[kept[0]], second[kept[1]]]) for first, second in zip(*sides, strict=True)]
        signs = np.repeat(np.array([1, -1], np.int32), [kept[0].sum(), kept[1].sum()])
        order = np.lexsort((merged[1], merged[0]))
        labels, self.spans, rows, self.hits = (values[order] for values in merged)
        self.signs, self.rows = signs[order], new_row[rows].astype(np.int32)

        true = np.diff(self.a.entries.true_starts)
        at_ks = [[side.evaluator.per_label(k) for k in side.evaluator.ks] for side in (self.a, self.b)]
        hits = np.array([[scores.hits for scores in side] for side in at_ks])
        both = np.array([[scores.predicted + true for scores in side] for side in at_ks])
        counts = np.concatenate([hits, both]).transpose(2, 1, 0)
        active, first, sizes = np.unique(labels, return_index=True, return_counts=True)
        self.starts = np.concatenate([[0], np.cumsum(sizes)])
        self.counts, self.is_true = counts[active].astype(np.int32), (true[active] > 0).astype(np.uint8)
        # What no swap changes: labels below the first k at which a prediction of them differs.
        from_k = np.full(n_labels, n_ks)
        from_k[active] = self.spans[first]
        same = (np.arange(n_ks) < from_k[:, None])[..., None]
        hits, both = counts[..., :2], counts[..., 2:]
        self.same_found = ((hits > 0) & same).sum(axis=0).T[..., None]
        self.same_judged = ((both > 0) & (same | (true > 0)[:, None, None])).sum(axis=0).T[..., None]
        self.same_f1 = (2 * hits / np.maximum(both, 1) * same).sum(axis=0).T[..., None]
        self.possible = max(int((true > 0).sum()), 1)

    def differences(self, swaps: UInt8) -> Float64:
        """Return every metric of b minus that of a under each set of swaps (differing rows by LANES), in percent."""
        moved = np.zeros((len(self.sums[0]), LANES))
        changed = np.empty((len(self.changing), LANES))
        weighted_sums(self.change, swaps, changed)
        moved[self.changing] = changed
        shape = (2, self.a.n_ks, LANES)
        found, judged = np.empty((2 * self.a.n_ks, LANES), np.int32), np.empty((2 * self.a.n_ks, LANES), np.int32)
        f1 = np.empty(found.shape)
        entries = (self.starts, self.rows, self.spans, self.hits, self.signs)
        swapped_label_means(swaps, *entries, self.is_true, self.counts, found, judged, f1)
        covered = percent_of(found.reshape(shape) + self.same_found, self.possible)
        means = percent_of(f1.reshape(shape) + self.same_f1, judged.reshape(shape) + self.same_judged)
        first = np.concatenate([self.a.table.metrics(self.sums[0] - moved), covered[0], means[0]])
        second = np.concatenate([self.b.table.metrics(self.sums[1] + moved), covered[1], means[1]])
        difference: Float64 = second - first
        return difference


def swap_rows(swapper: Swapper, permutations: int, *, seed: int) -> tuple[Float64, bool]:
    """Return the differences under random permutations, or under all of them where these are no more; and which."""
    every = swapper.n_rows < 63 and 2**swapper.n_rows <= permutations
    count = 2**swapper.n_rows if every else permutations

    def work(block: tuple[int, UInt64], stop: StopFlag) -> Float64:
        first, states = block
        swaps = np.empty((swapper.n_rows, LANES), np.uint8)
        if stop[0]:
            return np.empty((0, 0))
        if every:
            numbers = np.arange(first, first + LANES)
            swaps[:] = (numbers[None, :] >> np.arange(swapper.n_rows)[:, None]) & 1
        else:
            draw_masks(states, 1, swaps)
        return swapper.differences(swaps)

    blocks = [(LANES * index, states) for index, states in enumerate(random_states(count, seed, stream=1))]
    drawn = run_blocks(work, blocks, description="permuting", unit="permutations", size=lambda _: LANES)
    return np.concatenate(list(drawn), axis=-1)[:, :count], every
