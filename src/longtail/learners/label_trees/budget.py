"""What training a tree takes: memory for each thread, and a short trial that tells time and size beforehand."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine import memory
from longtail.engine.mapped import is_mapped
from longtail.engine.memory import MemoryWatch, resident_memory
from longtail.engine.pool import StopFlag, run_blocks
from longtail.learners.estimate import Estimate
from longtail.learners.label_trees.node_training import Level, NodeBlock, NodeTrainer, level_bytes, node_blocks
from longtail.learners.linear.training import block_bytes

_PILOTS = 12


def node_bytes(trainer: NodeTrainer, level: Level) -> int:
    """Memory that a thread needs for the largest node of a level, in bytes."""
    rows = np.diff(level.row_starts)
    return max(_bytes_for(trainer, int(rows.max(initial=1))), _bytes_with_copies(trainer, level, rows))


def _bytes_with_copies(trainer: NodeTrainer, level: Level, rows: npt.NDArray[np.int64]) -> int:
    """Memory that a thread needs for the largest node with labels, as if all of its rows were copied; 0 if none are."""
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


def affordable_threads(trainer: NodeTrainer, level: Level, memory_limit: int | str | None, next_level: int = 0) -> int:
    """Threads that `memory_limit` leaves room for; the result is the same for any number.

    `next_level` is what the rows of other levels may take, in bytes: the advice in a refusal leaves room for them.
    """
    return memory.affordable_threads(
        trainer.threads, node_bytes(trainer, level), memory_limit, "a node", besides=next_level,
        fewer="features or rows",
    )  # fmt: skip


def make_room(trainer: NodeTrainer, size: int, memory_limit: int | str | None) -> None:
    """Refuse to go on where the rows of a level, of so many bytes, would pass the limit."""
    if memory_limit is None:
        return
    used = memory.memory_in_use()
    if used + size > memory.parse_memory(memory_limit):
        enough = used + size + _bytes_for(trainer, int(trainer.X.shape[0]))
        need = f"the rows of a level take {size / 1e6:,.0f} MB"
        raise memory.no_room(memory_limit, used, need, enough, "negatives or rows")


def estimate_nodes(trainer: NodeTrainer, negatives: int, memory_limit: int | str | None) -> Estimate:
    """Train a few blocks of each level, and add up what all blocks would take.

    Which rows the levels above will send to a node is not known without training these: as many random rows stand for
    them.
    """
    forest, before = trainer.forest, resident_memory()
    blocks, starts = node_blocks(forest)
    seconds, least, size, peak, each, threads = 0.0, 0.0, 0.0, float(before), 0, trainer.threads
    n_rows, candidates = int(trainer.X.shape[0]), level_bytes(trainer, negatives)
    for depth in range(forest.n_levels):
        first, last = (int(at) for at in forest.level_starts[depth : depth + 2])
        level = trainer.level(depth, None)
        whole = np.diff(level.row_starts)
        of_level = blocks[int(starts[first]) : int(starts[last])]
        if not of_level:
            continue
        chosen, stand_for = _pilots(whole, of_level, first)
        if negatives:
            # Each row goes to its best nodes, its own among them as a rule.
            nodes = last - first
            sent = n_rows * min(negatives, nodes // forest.n_trees_) * forest.n_trees_
            more = max(0, sent - int(whole.sum())) / nodes
            pilots = np.unique([of_level[at].node - first for at in chosen])
            level = trainer.level(depth, _random_rows(n_rows, nodes, pilots, more))
            whole = np.minimum(whole + int(more), n_rows)
        each = max(each, _bytes_for(trainer, int(whole.max(initial=1))))
        threads = min(
            threads, memory.affordable_threads(trainer.threads, each, memory_limit, "a node", besides=candidates)
        )

        def solve(at: int, stop: StopFlag) -> tuple[float, float]:
            start = time.thread_time()
            solved = trainer.solve(depth, level, of_level[at], stop)  # noqa: B023 - run before the next level
            return time.thread_time() - start, float(sum(array.nbytes for array in solved))

        with MemoryWatch() as watch:
            tried = np.array(list(run_blocks(solve, chosen, threads=threads, description="trying nodes")))
        trainer.release()
        seconds += float(stand_for @ tried[:, 0]) / min(threads, len(of_level))
        size += float(stand_for @ tried[:, 1])
        least += float(tried[:, 0].max())  # levels wait for each other
        peak = max(peak, float(watch.peak))
    peak = max(peak, before + min(threads, max(len(blocks), 1)) * each + candidates, before + 2 * size + candidates)
    # Where blocks begin, nodes, the labels in them, and the counts of labels.
    shape = 40 * len(blocks) + 20 * forest.n_nodes + 4 * len(forest.labels_) + 8 * int(trainer.Y.shape[1])
    return Estimate(
        seconds=seconds,
        peak_memory_mb=peak / 1e6,
        model_mb=(size + shape) / 1e6,
        block_mb=each / 1e6,
        threads=threads,
        blocks=max(len(blocks), 1),
        least_seconds=least,
    )


def _random_rows(n_rows: int, n_nodes: int, nodes: npt.NDArray[np.int64], count: float) -> sp.csr_array:
    """Send so many random rows to some nodes, as a 0/1 matrix, rows by nodes of the level."""
    rng = np.random.default_rng(0)
    rows = [rng.choice(n_rows, min(int(count), n_rows), replace=False) for _ in nodes]
    columns = np.repeat(nodes, [len(some) for some in rows])
    data = np.ones(len(columns), np.float32)
    return sp.csr_array((data, (np.concatenate(rows), columns)), shape=(n_rows, n_nodes))


def _pilots(
    rows_of: npt.NDArray[np.int64], blocks: list[NodeBlock], first: int
) -> tuple[list[int], npt.NDArray[np.float64]]:
    """Blocks to try, and how many like itself each of them stands for.

    What a block takes grows roughly with the root of its node's rows. So the blocks of a level, the largest first, are
    cut into stretches with equal sums of these roots, and the middle one of each is tried. Were time and size taken as
    proportional to rows, a few large nodes would stand for all: the small ones of trees with unequal parts, which take
    several times as much a row, would hardly count.
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
    of_stretches = np.diff(np.concatenate([[0], sums])[cuts])
    return [int(at) for at in middles], of_stretches / roots[middles]
