"""One of longtail's recipes, measured as the peers are."""

import argparse

import numpy as np
import scipy.sparse as sp

import longtail
from peers.runner import System, run

WARM_UP_ROWS = 200


class Longtail(System):
    """Runs the recipe with nothing but the number of threads given."""

    version = longtail.__version__

    def __init__(self, options: argparse.Namespace, *rest: object) -> None:
        super().__init__(options, *rest)
        self.recipe: str = options.recipe
        self.name = self.recipe if self.recipe.startswith("longtail-") else f"longtail-{self.recipe}"

    def prepare(self, X: sp.csr_matrix, Y: sp.csr_matrix) -> None:
        """Keep both matrices as they are, and compile.

        A fit on a few rows first: the kernels are compiled once for a machine and kept on disk, so that neither
        compiling nor loading them is training time.
        """
        self.X, self.Y = X, Y
        warm_up = longtail.recipe(self.recipe, threads=self.threads)
        warm_up.fit(X[:WARM_UP_ROWS], Y[:WARM_UP_ROWS])
        warm_up.predict_topk(X[:WARM_UP_ROWS], k=self.k)

    def fit(self) -> None:
        """Train the recipe."""
        self.learner = longtail.recipe(self.recipe, threads=self.threads).fit(self.X, self.Y)

    def make_ready(self) -> None:
        """Save, for its size, and predict with the model as loaded."""
        model = self.folder / "model"
        longtail.Model(self.learner).save(model)
        self.learner = longtail.load(model).learner

    def predict(self, rows: sp.csr_matrix) -> np.ndarray:
        """Exact best k of each row."""
        return self.learner.predict_topk(rows, k=self.k).labels

    def labels(self, predicted: np.ndarray) -> np.ndarray:
        """Already what is wanted."""
        return predicted


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", default="dismec")
    run(Longtail, parser)
