"""Adjacency of labels, by hand and by definition."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.learners.embedding.adjacency import LabelGraph

# Label 0 in rows 0 1 2 3, label 1 in rows 0 1, label 2 in rows 3 4; of six rows.
Y = sp.csr_array(np.array([[1, 1, 0], [1, 1, 0], [1, 0, 0], [1, 0, 1], [0, 0, 1], [0, 0, 0]], np.float32))
EVERY = np.arange(3, dtype=np.int32)


@pytest.mark.parametrize(
    ("adjacency", "first", "second"),
    [
        ("arithmetic", (2 / 4 + 2 / 2) / 2, (1 / 4 + 1 / 2) / 2),
        ("geometric", 2 / np.sqrt(8), 1 / np.sqrt(8)),
        ("jaccard", 2 / 4, 1 / 5),
        (
            "pmi",
            np.log((2 / 6) / (4 / 6 * 2 / 6)) / -np.log(2 / 6),
            0.0,
        ),  # labels 0 and 2 are together less than by chance
    ],
)
def test_adjacency_by_hand(adjacency, first, second):
    wanted = np.array([[1, first, second], [first, 1, 0], [second, 0, 1]])
    np.testing.assert_allclose(LabelGraph(Y, adjacency).among(EVERY), wanted, rtol=1e-6)


def test_some_labels_in_any_order():
    graph = LabelGraph(Y)
    np.testing.assert_array_equal(graph.among(np.array([2, 0], np.int32)), graph.among(EVERY)[np.ix_([2, 0], [2, 0])])
    assert graph.nbytes > 0


def test_labels_of_all_rows_are_as_near_as_can_be():
    everywhere = sp.csr_array(np.ones((4, 2), np.float32))
    for adjacency in ("arithmetic", "geometric", "pmi", "jaccard"):
        np.testing.assert_array_equal(LabelGraph(everywhere, adjacency).among(EVERY[:2]), np.ones((2, 2)))


def test_the_default_is_that_of_the_paper():
    """U = (A Z^-1 + Z^-1 A) / 2 of equation (3), over matrices."""
    labels = (sp.random_array((60, 12), density=0.3, rng=np.random.default_rng(1)) > 0).astype(np.float64)
    together = (labels.T @ labels).toarray()
    inverse = np.diag(1 / np.diag(together))
    wanted = (together @ inverse + inverse @ together) / 2
    found = LabelGraph(sp.csr_array(labels)).among(np.arange(12, dtype=np.int32))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
