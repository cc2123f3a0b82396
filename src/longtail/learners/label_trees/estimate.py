"""Memory per thread of tree training, and an estimate of the training cost from a few blocks."""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse as sp

from longtail.config import memory_limit, thread_count
from longtail.kernels.types import Float64, Int64
from longtail.learners.cost import TrainingCost
from longtail.learners.label_trees.node_training import LevelProblem, NodeBlock, NodeTrainer, level_bytes, node_blocks
from longtail.learners.linear.training import block_bytes
from longtail.runtime import memory
from longtail.runtime.disk import shown_size
from longtail.runtime.memory import MemoryWatch, resident_memory
from longtail.runtime.mmap import is_mapped
from longtail.runtime.pool import StopFlag, run_blocks

_PILOTS = 12


def node_bytes(trainer: NodeTrainer, level: LevelProblem) -> int:
    """Memory of a thread for the largest node of a level, in bytes."""
    rows = np.diff(level.row_starts)
    return max(_bytes_for(trainer, int(rows.max(initial=1))), _bytes_with_copies(trainer, level, rows))


def _bytes_with_copies(trainer: NodeTrainer, level: LevelProblem, rows: Int64) -> int:
    """Memory of a thread for the largest node with labels, if all its rows are copied; 0 without augmentation."""
    if trainer.augmentation is None:
        return 0
    copies, labels = trainer.augmentation.copies, np.diff(trainer.forest.label_starts_)
    most = int(rows[labels[level.first : level.first + len(rows)] > 0].max(initial=0))
    extra = int(most * trainer.X.nnz / max(int(trainer.X.shape[0]), 1) * 1.5)
    return _bytes_for(trainer, most) + block_bytes(copies * most, 0) + 8 * (1 + copies) * extra


def _bytes_for(trainer: NodeTrainer, most_rows: int) -> int:
    n_rows, n_features = trainer.X.shape
    density = trainer.X.nnz / max(n_rows, 1)
    size = min(int(most_rows * density * 1.5), int(trainer.X.nnz))
    of_rows = 0 if is_mapped(trainer.X.data) else 8 * size
    return block_bytes(most_rows, min(size, n_features)) + of_rows + 8 * n_features + 4 * n_rows


def level_threads(trainer: NodeTrainer, level: LevelProblem, reserved: int = 0) -> int:
    """Number of threads that fit into the memory limit; the result does not depend on it.

    `reserved` is memory for the rows of other levels, in bytes, which the advice in an error message includes.
    """
    return memory.affordable_threads(
        node_bytes(trainer, level), "a node", besides=reserved,
        fewer="features or rows",
    )  # fmt: skip


def check_level_room(trainer: NodeTrainer, size: int) -> None:
    """Raise an error if the rows of a level, `size` bytes, would exceed the memory limit."""
    limit, used = memory_limit(), memory.memory_in_use()
    if limit is not None and used + size > limit:
        enough = used + size + _bytes_for(trainer, int(trainer.X.shape[0]))
        need = f"the rows of a level take {shown_size(size)}"
        raise memory.not_enough_memory(used, need, enough, "hard negatives (n_hard_negatives) or rows")


def estimate_nodes(trainer: NodeTrainer, n_hard_negatives: int) -> TrainingCost:
    """Train a few blocks of each level, and extrapolate to all.

    The hard negatives of a node are only known once the levels above are trained: random rows take their place.
    """
    forest, before = trainer.forest, resident_memory()
    blocks, starts = node_blocks(forest)
    seconds, least, size, peak, each, threads = 0.0, 0.0, 0.0, float(before), 0, thread_count()
    n_rows, candidates = int(trainer.X.shape[0]), level_bytes(trainer, n_hard_negatives)
    for depth in range(forest.n_levels):
        first, last = (int(at) for at in forest.level_starts[depth : depth + 2])
        level = trainer.level(depth, None)
        whole = np.diff(level.row_starts)
        of_level = blocks[int(starts[first]) : int(starts[last])]
        if not of_level:
            continue
        chosen, represented = _pilots(whole, of_level, first)
        if n_hard_negatives:
            # The best nodes of a row usually include its own.
            nodes = last - first
            sent = n_rows * min(n_hard_negatives, nodes // forest.n_trees_) * forest.n_trees_
            more = max(0, sent - int(whole.sum())) / nodes
            pilots = np.unique([of_level[at].node - first for at in chosen])
            level = trainer.level(depth, _random_rows(n_rows, nodes, pilots, more))
            whole = np.minimum(whole + int(more), n_rows)
        each = max(each, _bytes_for(trainer, int(whole.max(initial=1))))
        threads = min(threads, memory.affordable_threads(each, "a node", besides=candidates))

        def solve(at: int, stop: StopFlag) -> tuple[float, float]:
            start = time.thread_time()
            solved = trainer.solve(depth, level, of_level[at], stop)  # noqa: B023 - run before the next level
            return time.thread_time() - start, float(sum(array.nbytes for array in solved))

        with MemoryWatch() as watch:
            tried = np.array(list(run_blocks(solve, chosen, n_jobs=threads, description="trying nodes")))
        trainer.spare.clear()
        seconds += float(represented @ tried[:, 0]) / min(threads, len(of_level))
        size += float(represented @ tried[:, 1])
        least += float(tried[:, 0].max())  # levels wait for each other
        peak = max(peak, float(watch.peak))
    peak = max(peak, before + min(threads, max(len(blocks), 1)) * each + candidates, before + 2 * size + candidates)
    # Offsets of blocks, nodes, their labels, and label counts.
    shape = 40 * len(blocks) + 20 * forest.n_nodes + 4 * len(forest.labels_) + 8 * int(trainer.Y.shape[1])
    return TrainingCost(
        seconds=seconds,
        peak_memory_mb=peak / 1e6,
        model_mb=(size + shape) / 1e6,
        block_mb=each / 1e6,
        threads=threads,
        blocks=max(len(blocks), 1),
        least_seconds=least,
    )


def _random_rows(n_rows: int, n_nodes: int, nodes: Int64, count: float) -> sp.csr_array:
    """Assign `count` random rows to each of some nodes, as a 0/1 matrix, rows by nodes of the level."""
    rng = np.random.default_rng(0)
    rows = [rng.choice(n_rows, min(int(count), n_rows), replace=False) for _ in nodes]
    columns = np.repeat(nodes, [len(some) for some in rows])
    data = np.ones(len(columns), np.float32)
    return sp.csr_array((data, (np.concatenate(rows), columns)), shape=(n_rows, n_nodes))


def _pilots(rows_of: Int64, blocks: list[NodeBlock], first: int) -> tuple[list[int], Float64]:
    """Blocks to train, and how many blocks each of them represents.

    The cost of a block grows roughly with the square root of the rows of its node. So the blocks, the largest first,
    are split into groups with equal sums of these roots, and the middle one of each group is trained. With cost
    proportional to rows, a few large nodes would represent all, and small nodes, which cost several times as much per
    row, would hardly count.
    """
    n = len(blocks)
    if n <= _PILOTS:
        return list(range(n)), np.ones(n)
    roots = np.sqrt([rows_of[block.node - first] + 1 for block in blocks])
    order = np.argsort(-roots, kind="stable")
    sums = np.cumsum(roots[order])
    ends = np.unique(np.searchsorted(sums, sums[-1] * np.arange(1, _PILOTS) / _PILOTS) + 1)
    cuts = np.unique([0, *ends, n])
    middles = order[(cuts[:-1] + cuts[1:]) // 2]
    of_groups = np.diff(np.concatenate([[0], sums])[cuts])
    return [int(at) for at in middles], of_groups / roots[middles]
