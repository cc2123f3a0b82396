"""Adam over some rows of a table."""

from __future__ import annotations

import numpy as np
import pytest

from longtail.learners.training.row_adam import AdamTable, StepSize, adam_rows


def test_a_step_is_that_of_adam():
    rng = np.random.default_rng(0)
    table = AdamTable.untrained(rng.normal(size=(6, 4)).astype(np.float32))
    wanted, mean, square = table.values.astype(np.float64), np.zeros((6, 4)), np.zeros((6, 4))
    for step in range(1, 8):
        rows = rng.permutation(6)[:3].astype(np.int64)
        gradients = rng.normal(size=(3, 4)).astype(np.float32)
        adam_rows(table, rows, gradients, StepSize.of(0.01, step - 1))
        mean[rows] = 0.9 * mean[rows] + 0.1 * gradients
        square[rows] = 0.999 * square[rows] + 0.001 * gradients.astype(np.float64) ** 2
        corrected = mean[rows] / (1 - 0.9**step), square[rows] / (1 - 0.999**step)
        wanted[rows] -= 0.01 * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)
        np.testing.assert_allclose(table.values, wanted, rtol=1e-5, atol=1e-6)


def test_it_steps_as_the_sparse_adam_of_torch():
    torch = pytest.importorskip("torch", reason="the networks are trained with torch")
    from longtail.learners.neural.optimising import RowAdam

    # Torch adds its epsilon before it corrects the squares, so slopes next to 0 would step differently: none are.
    start = torch.rand((9, 5), generator=torch.Generator().manual_seed(0)) + 0.5
    tables = [torch.nn.Embedding.from_pretrained(start.clone(), freeze=False, sparse=True) for _ in range(2)]
    optimisers = [RowAdam(tables[0].parameters()), torch.optim.SparseAdam(list(tables[1].parameters()), lr=1e-3)]
    for number in range(5):
        chosen = torch.randint(0, 9, (7,), generator=torch.Generator().manual_seed(number))
        for table, optimiser in zip(tables, optimisers, strict=True):
            table(chosen).square().sum().backward()
            optimiser.step()
            optimiser.zero_grad()
    np.testing.assert_allclose(tables[0].weight.detach(), tables[1].weight.detach(), rtol=1e-5, atol=1e-7)
