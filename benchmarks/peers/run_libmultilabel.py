"""LibMultiLabel's linear one-vs-rest at its defaults: LIBLINEAR's dual solver, C = 1, one label at a time."""

from importlib import metadata

import numpy as np
import psutil
import scipy.sparse as sp
from libmultilabel import linear
from runner import System, run

BATCH_ROWS = 256  # what its own evaluation uses


class LibMultiLabel(System):
    """Keeps the weights as a dense array of doubles; prediction makes rows by labels, so it goes in batches."""

    name = "libmultilabel"
    version = metadata.version("libmultilabel")

    def prepare(self, X: sp.csr_matrix, Y: sp.csr_matrix) -> None:
        """Both matrices go in as they are. It starts a thread for each core found: make that `threads`."""
        self.X, self.Y = X, Y
        psutil.cpu_count = lambda logical=True: self.threads

    def fit(self) -> None:
        """One binary problem a label."""
        self.model = linear.train_1vsrest(self.Y, self.X, verbose=False)

    def make_ready(self) -> None:
        """The model as trained is ready."""

    def predict(self, rows: sp.csr_matrix) -> np.ndarray:
        """Decision values and their best k, by the package's own two functions."""
        names = np.arange(self.Y.shape[1])
        best = []
        for start in range(0, rows.shape[0], BATCH_ROWS):
            values = linear.predict_values(self.model, rows[start : start + BATCH_ROWS])
            best.append(linear.get_topk_labels(values, names, self.k)[0])
        return np.concatenate(best)

    def labels(self, predicted: np.ndarray) -> np.ndarray:
        """Already what is wanted."""
        return predicted

    def model_bytes(self) -> int:
        """Its own saving pickles this array unchanged."""
        return self.model.weights.nbytes


if __name__ == "__main__":
    run(LibMultiLabel)
