"""What the tests of centroids share: learners to rerank, and distances in plain numpy."""

import numpy as np

from longtail import InstanceForest, LabelTree, OneVsRest, Popularity
from tests.learners.contract import small_data

FOREST = {"n_trees": 4, "leaf_size": 3, "C": 5.0}
BASES = {
    "forest": InstanceForest(**FOREST),
    "pfastxml": InstanceForest(**FOREST, weighting="inverse-propensity", criterion="dcg"),
    "one-vs-rest": OneVsRest(),
    "logistic": OneVsRest(loss="logistic"),
    "tree": LabelTree(leaf_size=4, arity=3, precision="float32"),
    "popularity": Popularity(),
}


def more_data():
    return small_data(n_rows=150, n_features=60, n_labels=40, seed=1)


def strengths(learner, scores):
    """The base learner's factor in the product."""
    if isinstance(learner, OneVsRest):
        return 1 / (1 + np.exp(-scores * (1 if learner.loss == "logistic" else 3)))
    return scores


def distances(X, Y, rows):
    """Squared distances of rows from the centroids of all labels, in plain numpy; NaN for labels without rows."""

    def unit(matrix):
        wide = np.column_stack([matrix.toarray().astype(float), np.ones(matrix.shape[0])])
        return wide / np.linalg.norm(wide, axis=1, keepdims=True)

    truth, vectors = Y.toarray() != 0, unit(X)
    with np.errstate(invalid="ignore"):
        means = (truth.T.astype(float) @ vectors) / truth.sum(axis=0)[:, None]
    return ((unit(rows)[:, None, :] - means[None, :, :]) ** 2).sum(axis=2)
