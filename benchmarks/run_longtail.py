"""Measure one of longtail's recipes as the peers are measured."""

import argparse

import numpy as np
import scipy.sparse as sp

import longtail
from peers.runner import System, run

WARM_UP_ROWS = 200


class Longtail(System):
    """A recipe with its own parameters; only the number of threads is set."""

    version = longtail.__version__

    def __init__(self, options: argparse.Namespace, *rest: object) -> None:
        super().__init__(options, *rest)
        self.recipe: str = options.recipe
        self.name = self.recipe if self.recipe.startswith("longtail-") else f"longtail-{self.recipe}"

    def prepare(self, X: sp.csr_matrix, Y: sp.csr_matrix) -> None:
        """Keep both matrices, and fit on a few rows so that compiling kernels is not timed."""
        self.X, self.Y = X, Y
        warm_up = longtail.recipe(self.recipe, n_jobs=self.threads)
        warm_up.fit(X[:WARM_UP_ROWS], Y[:WARM_UP_ROWS])
        warm_up.predict_topk(X[:WARM_UP_ROWS], k=self.k)

    def fit(self) -> None:
        """Train the recipe."""
        self.learner = longtail.recipe(self.recipe, n_jobs=self.threads).fit(self.X, self.Y)

    def make_ready(self) -> None:
        """Save the model, and load it to predict with."""
        model = self.folder / "model"
        longtail.Model(self.learner).save(model)
        self.learner = longtail.load(model).learner

    def predict(self, rows: sp.csr_matrix) -> np.ndarray:
        """Return the k best labels per row."""
        return self.learner.predict_topk(rows, k=self.k).labels

    def labels(self, predicted: np.ndarray) -> np.ndarray:
        """Return the labels, which are in the wanted form already."""
        return predicted


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", default="dismec")
    run(Longtail, parser)
