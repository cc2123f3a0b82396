"""What training a tree takes: memory for each thread, and a short trial that tells time and size beforehand."""

from __future__ import annotations

import math
import time

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.lanes import LANES
from longtail.engine.memory import MemoryWatch, parse_memory, resident_memory
from longtail.engine.pool import StopFlag, run_blocks
from longtail.errors import ParameterError
from longtail.learners.estimate import Estimate
from longtail.learners.label_trees.node_training import Level, NodeBlock, NodeTrainer, level_bytes, node_blocks
from longtail.learners.linear.training import block_bytes

_PILOTS = 6


def node_bytes(trainer: NodeTrainer, level: Level) -> int:
    """Memory that a thread needs for the largest node of a level, in bytes."""
    n_rows, n_features = trainer.X.shape
    most_rows = int(np.diff(level.row_starts).max(initial=1))
    density = trainer.X.nnz / max(n_rows, 1)
    size = min(int(most_rows * density * 1.5), int(trainer.X.nnz))
    return block_bytes(most_rows, min(size, n_features)) + 8 * size + 8 * n_features + 4 * n_rows


def affordable_threads(trainer: NodeTrainer, level: Level, memory_limit: int | str | None) -> int:
    """Threads that `memory_limit` leaves room for; the result is the same for any number."""
    if memory_limit is None:
        return trainer.threads
    limit, used, each = parse_memory(memory_limit), resident_memory(), node_bytes(trainer, level)
    affordable = min(trainer.threads, (limit - used) // each)
    if affordable < 1:
        raise ParameterError(
            "memory_limit",
            memory_limit,
            f"leaves no room: {used / 1e6:,.0f} MB are in use, and a node takes {each / 1e6:,.1f} MB; "
            f"raise it to {math.ceil((used + each) / 1e7) * 10 + 10}MB, or train with fewer features or rows",
        )
    return affordable


def make_room(size: int, memory_limit: int | str | None) -> None:
    """Refuse to go on where so many more bytes would pass the limit."""
    if memory_limit is None:
        return
    limit, used = parse_memory(memory_limit), resident_memory()
    if used + size > limit:
        raise ParameterError(
            "memory_limit",
            memory_limit,
            f"leaves no room: {used / 1e6:,.0f} MB are in use, and the rows of a level take {size / 1e6:,.0f} MB; "
            f"raise it to {math.ceil((used + size) / 1e7) * 10 + 10}MB, or train with fewer negatives or rows",
        )


def estimate_nodes(trainer: NodeTrainer, negatives: int, memory_limit: int | str | None) -> Estimate:
    """Train a few nodes of each level, and add up what all nodes would take.

    Which rows the levels above will send to a node is not known without training these: as many random rows stand for
    them.
    """
    forest, before = trainer.forest, resident_memory()
    blocks, starts = node_blocks(forest)
    seconds, size, peak, each, threads = 0.0, 0.0, float(before), 0, trainer.threads
    n_rows = int(trainer.X.shape[0])
    for depth in range(forest.n_levels):
        first, last = (int(at) for at in forest.level_starts[depth : depth + 2])
        level = trainer.level(depth, None)
        whole = np.diff(level.row_starts)
        of_level = blocks[int(starts[first]) : int(starts[last])]
        if not of_level:
            continue
        chosen = _pilots(whole, of_level, first)
        if negatives:
            # Each row goes to its best nodes, its own among them as a rule.
            nodes = last - first
            sent = n_rows * min(negatives, nodes // forest.n_trees_) * forest.n_trees_
            more = max(0, sent - int(whole.sum())) / nodes
            pilots = np.unique([of_level[at].node - first for at in chosen])
            level = trainer.level(depth, _random_rows(n_rows, nodes, pilots, more))
            whole = np.minimum(whole + int(more), n_rows)
        rows_of = whole
        threads = min(threads, affordable_threads(trainer, level, memory_limit))

        def solve(at: int, stop: StopFlag) -> tuple[float, float]:
            start = time.thread_time()
            solved = trainer.solve(depth, level, of_level[at], stop)  # noqa: B023 - run before the next level
            return time.thread_time() - start, float(sum(array.nbytes for array in solved))

        with MemoryWatch() as watch:
            tried = np.array(list(run_blocks(solve, chosen, threads=threads, description="trying nodes")))
        trainer.release()
        weights = np.array([rows_of[block.node - first] for block in of_level], np.float64) + 1
        tried_weight = weights[chosen].sum()
        seconds += tried[:, 0].sum() * weights.sum() / tried_weight / min(threads, len(of_level))
        size += tried[:, 1].sum() * weights.sum() / tried_weight
        each = max(each, node_bytes(trainer, level))
        peak = max(peak, float(watch.peak))
    candidates = level_bytes(trainer, negatives)
    peak = max(peak, before + min(threads, max(len(blocks), 1)) * each + candidates, before + 2 * size + candidates)
    return Estimate(
        seconds=seconds,
        peak_memory_mb=peak / 1e6,
        model_mb=(size + 12 * LANES * len(blocks) + 8 * forest.n_nodes) / 1e6,
        block_mb=each / 1e6,
        threads=threads,
    )


def _random_rows(n_rows: int, n_nodes: int, nodes: npt.NDArray[np.int64], count: float) -> sp.csr_array:
    """Send so many random rows to some nodes, as a 0/1 matrix, rows by nodes of the level."""
    rng = np.random.default_rng(0)
    rows = [rng.choice(n_rows, min(int(count), n_rows), replace=False) for _ in nodes]
    columns = np.repeat(nodes, [len(some) for some in rows])
    data = np.ones(len(columns), np.float32)
    return sp.csr_array((data, (np.concatenate(rows), columns)), shape=(n_rows, n_nodes))


def _pilots(rows_of: npt.NDArray[np.int64], blocks: list[NodeBlock], first: int) -> list[int]:
    """Blocks to try: spread evenly over those of the level, by the rows of their nodes."""
    order = np.argsort([-rows_of[block.node - first] for block in blocks], kind="stable")
    places = np.unique(np.linspace(0, len(blocks) - 1, min(_PILOTS, len(blocks))).astype(int))
    return [int(at) for at in order[places]]
