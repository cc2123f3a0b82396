"""napkinXC's probabilistic label tree at its defaults."""

from importlib import metadata

import numpy as np
import scipy.sparse as sp
from napkinxc.models import PLT
from runner import System, pad, run


class NapkinXC(System):
    """Its training writes the model to disk as it goes, so that is part of the time; loading it back is not."""

    name = "napkinxc"
    version = metadata.version("napkinxc")

    def prepare(self, X: sp.csr_matrix, Y: sp.csr_matrix) -> None:
        """Both matrices go in as they are."""
        self.X, self.Y = X, Y
        self.model = PLT(str(self.folder), threads=self.threads, seed=0)

    def fit(self) -> None:
        """Tree building and training."""
        self.model.fit(self.X, self.Y)

    def make_ready(self) -> None:
        """Load the weights from disk."""
        self.model.load()

    def predict(self, rows: sp.csr_matrix) -> list[list[int]]:
        """Exact search of the tree."""
        return self.model.predict(rows, top_k=self.k)

    def labels(self, predicted: list[list[int]]) -> np.ndarray:
        """Lists are in rank order already."""
        return pad(predicted, self.k)


if __name__ == "__main__":
    run(NapkinXC)
