import numpy as np
import pytest
import scipy.sparse as sp

from longtail.kernels.lanes import LANES
from longtail.kernels.rows import CSRRows
from longtail.learners.linear.block_solver import HINGE, LOGISTIC, SQUARED_HINGE, BlockProblem
from longtail.learners.linear.pruning import block_losses
from longtail.losses import Hinge, Logistic, SquaredHinge


@pytest.mark.parametrize(
    ("code", "loss"), [(SQUARED_HINGE, SquaredHinge()), (HINGE, Hinge()), (LOGISTIC, Logistic())], ids=str
)
def test_losses_are_those_of_the_definition(code, loss):
    rng = np.random.default_rng(0)
    X = sp.random_array((30, 12), density=0.4, rng=rng, format="csr", dtype=np.float32)
    Y = rng.random((30, LANES)) < 0.1
    weights, bias_weights = rng.normal(size=(12, LANES)).astype(np.float32), rng.normal(size=LANES).astype(np.float32)
    costs, scales = rng.uniform(0.5, 3, (2, LANES)), rng.uniform(0.5, 2, 30)
    positive = np.flatnonzero(Y.any(axis=1))
    offsets = np.concatenate([[0], np.cumsum(Y[positive].sum(axis=1))])
    lanes = np.nonzero(Y[positive])[1].astype(np.int32)
    none = np.ones((2, LANES), np.float32)
    rows = CSRRows(X.indptr.astype(np.int64), X.indices, X.data, scales, np.ones(30, np.float32), np.float32(0.5))
    problem = BlockProblem(positive, offsets, lanes, code, none, none, np.float32(0), np.float32(0), 1)
    totals = np.empty(LANES)
    block_losses(rows, problem, weights, bias_weights, costs, totals, np.zeros(1, np.uint8))
    scores = scales[:, None] * (X @ weights) + 0.5 * bias_weights
    wanted = np.where(Y, costs[1] * loss.positive(scores), costs[0] * loss.negative(scores)).sum(axis=0)
    np.testing.assert_allclose(totals, wanted, rtol=1e-4)
