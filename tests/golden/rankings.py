"""Reference rankings of every recipe on small data with fixed seeds, and the processor they were computed on.

The rankings of linear learners, label trees, forests and their wrappers are those of commit 6a45b85, before the
packages and parameters got their present names; those of embeddings and networks are later, since they got one
generator and one row-wise Adam.

``python tests/golden/rankings.py`` rewrites ``rankings.npz``: only for a change that should change a recipe's result.
"""

import sys
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np

from longtail import Dataset, datasets, recipe
from longtail.learners import EmbeddingClassifier, Learner, NeuralClassifier, TextLearner

FILE = Path(__file__).with_name("rankings.npz")
ROWS, NEW, K = 500, 12, 5
NETWORK = {"epochs": 2, "batch_size": 8, "validation_fraction": 0.1}
BAG = {**NETWORK, "encoder": "word-bag", "encoder__embedding_dim": 16}
WORDS = {**NETWORK, "encoder__embedding_dim": 8, "encoder__hidden_size": 8}
SETTINGS = {
    "embedding": {"embedding_dim": 16, "epochs": 3, "batch_size": 64},
    "glas": {"embedding_dim": 16, "epochs": 3, "batch_size": 64},
    "glas+ranknet": {"embedding_dim": 16, "learner__epochs": 3, "batch_size": 64},
    "fastxml": {"n_trees": 5},
    "pfastxml": {"n_trees": 5},
    "pfastrexml": {"n_trees": 5},
    "ranknet+fastxml": {"n_trees": 5},
    "xgrank": BAG,
    "pw-xgrank": BAG,
    "pw-cb-xgrank": BAG,
    "xgrank-bce": BAG,
    "lightxml": {**BAG, "head__cluster_size": 8, "head__retrieved": 2, "head__flat_below": 10},
    "aplc-xlnet": BAG,
    "pw-aplc-xlnet": BAG,
    "pw-cb-aplc-xlnet": BAG,
    "attentionxml": WORDS,
    "pw-attentionxml": WORDS,
    "pw-cb-attentionxml": WORDS,
    "xml-cnn": {**WORDS, "encoder__n_filters": 4},
    "word-bag": {**NETWORK, "encoder__embedding_dim": 16},
}
SAME_BITS = {"znver5", "rocketlake"}
"""Processors for which kernels compile to the same sums in single precision; torch's differ between them."""


def machine() -> str:
    """Return the processor that kernels are compiled for; it decides the last bits of sums in single precision."""
    return llvm.get_host_cpu_name()


def is_exact(written_on: str, *, with_torch: bool = False) -> bool:
    """Return whether results of this machine equal, bit for bit, those written on that processor."""
    if with_torch:
        return machine() == written_on
    return machine() == written_on or {machine(), written_on} <= SAME_BITS


def texts_and_labels() -> tuple[Dataset, list[str]]:
    train = datasets.load("debian-tags", "train")
    rows = np.arange(0, ROWS * 20, 20)
    return train.take(rows), datasets.load("debian-tags", "test").texts[:NEW]


def learner_of(name: str):
    """Return the unfitted learner of a recipe, small enough for a test."""
    return recipe(name, propensity="debian-tags", **SETTINGS.get(name, {}))


def trains_with_torch(name: str) -> bool:
    """Return whether embeddings or a network are trained for the recipe."""
    return uses_torch(learner_of(name))


def uses_torch(learner: Learner) -> bool:
    """Return whether a learner or one nested in it has weights that torch trains."""
    return any(isinstance(part, EmbeddingClassifier | NeuralClassifier) for _, part in learner.parts())


def ranked(name: str):
    """Train a recipe on texts and rank labels of new ones."""
    train, new = texts_and_labels()
    return TextLearner(learner=learner_of(name)).fit(train.texts, train.Y).predict_topk(new, K)


def main() -> None:
    from longtail.recipes import recipes

    kept = {"machine": np.array(machine())}
    for known in recipes():
        top = ranked(known.name)
        kept[f"{known.name}/labels"], kept[f"{known.name}/scores"] = top.labels, top.scores
        sys.stderr.write(f"{known.name} {top.labels[0]} {top.scores[0]}\n")
    np.savez_compressed(FILE, **kept)


if __name__ == "__main__":
    main()
