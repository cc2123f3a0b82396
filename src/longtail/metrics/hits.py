"""Which of some ranked labels are true."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.topk import TopK
from longtail.metrics.kernels import judge


def are_true(top: TopK, Y: sp.csr_array) -> npt.NDArray[np.uint8]:
    """Which of the labels of each row it has, 0 or 1, of the shape of the ranking."""
    hits = np.empty(top.labels.shape[::-1], np.uint8)
    none = np.empty(0)
    judge(top.labels, Y.indptr.astype(np.int64, copy=False), Y.indices, none, hits, none.reshape(0, 0))
    return np.ascontiguousarray(hits.T)
