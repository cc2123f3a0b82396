"""A short trial of the training: some blocks of labels are solved, and the others are judged by them."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from longtail.engine.lanes import LANES
from longtail.engine.memory import MemoryWatch, resident_memory
from longtail.engine.pool import StopFlag, run_blocks
from longtail.learners.estimate import Estimate
from longtail.learners.linear.training import BlockTrainer, block_bytes
from longtail.learners.linear.weights import PANEL_ROW_COST

_PILOTS = 7


def estimate_blocks(trainer: BlockTrainer, blocks: list[npt.NDArray[np.int32]], threads: int) -> Estimate:
    """Solve a few blocks, more of the frequent labels than of the rare, and add up what all would take."""
    n_rows, n_features = trainer.X.shape
    before = resident_memory()
    each = block_bytes(n_rows, n_features, bounded=trainer.settings.prune_rise is not None)
    if not blocks:
        return Estimate(0.0, before / 1e6, 12 * n_features / 1e6, each / 1e6, threads)
    chosen = _pilots(len(blocks))

    def solve(block: int, stop: StopFlag) -> tuple[float, float]:
        start = time.thread_time()  # what else runs on the machine now need not run later
        solved = trainer.solve(blocks[block], block, stop)
        width = solved.values.itemsize
        kept = solved.kept.astype(np.int64)
        size = np.where(kept > PANEL_ROW_COST, width * LANES, (2 + width) * kept).sum()
        return time.thread_time() - start, float(size)

    with MemoryWatch() as watch:
        tried = np.array(list(run_blocks(solve, chosen, threads=threads, description="trying blocks")))
    trainer.release()
    # Both fall with the frequency of the labels about as a power does, so they are straight between logarithms.
    places, known = np.log1p(np.arange(len(blocks))), np.log1p(chosen)
    seconds, sizes = (np.exp(np.interp(places, known, column)) for column in np.log(np.maximum(tried, 1e-9)).T)
    model = float(sizes.sum()) + 12 * n_features + 8 * LANES * len(blocks)
    at_work = min(threads, len(blocks))
    peak = max(float(watch.peak), before + at_work * each, before + model)
    return Estimate(
        seconds=max(float(seconds.sum()) / at_work, float(seconds.max())),
        peak_memory_mb=peak / 1e6,
        model_mb=model / 1e6,
        block_mb=each / 1e6,
        threads=at_work,
        blocks=len(blocks),
        least_seconds=float(seconds.max()),
    )


def _pilots(n_blocks: int) -> list[int]:
    """Numbers of the blocks to try: the first, the last, and between them closer together where labels are frequent."""
    shares = (np.arange(_PILOTS) / (_PILOTS - 1)) ** 2
    return sorted({round(float(share) * (n_blocks - 1)) for share in shares})
