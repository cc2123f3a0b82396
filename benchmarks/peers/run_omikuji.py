"""Omikuji at its defaults: three Parabel-like trees."""

from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from omikuji import Model, __version__, _ThreadPoolHandle, ffi, lib
from runner import System, pad, run

Row = list[tuple[int, float]]


class Omikuji(System):
    """Trains from a file only, and predicts one row a call; its threads share the trees of that row."""

    name = "omikuji"
    version = __version__

    def prepare(self, X: sp.csr_matrix, Y: sp.csr_matrix) -> None:
        """Write the data in the Extreme Classification Repository's format and have omikuji read it."""
        path = self.folder / "train.txt"
        with path.open("w") as file:
            file.write(f"{X.shape[0]} {X.shape[1]} {Y.shape[1]}\n")
            for i, row in enumerate(self.rows(X)):
                labels = ",".join(map(str, Y.indices[Y.indptr[i] : Y.indptr[i + 1]]))
                file.write(f"{labels} {' '.join(f'{feature}:{value:.7g}' for feature, value in row)}\n")
        self.pool = _ThreadPoolHandle(self.threads)
        loaded = lib.load_omikuji_data_set(ffi.new("char[]", str(path).encode()), self.pool.ptr)
        if loaded == ffi.NULL:
            raise RuntimeError(f"omikuji could not read {path}")
        self.data = ffi.gc(loaded, lib.free_omikuji_data_set)
        path.unlink()

    def fit(self) -> None:
        """Do what `Model.train_on_data` does once the file is read, so that reading is not timed."""
        trained = lib.train_omikuji_model(self.data, Model.default_hyper_param(), self.pool.ptr)
        self.model = Model(trained)

    def make_ready(self) -> None:
        """Save, for its size, and set the number of threads."""
        self.model.save(str(self.folder))
        self.model.init_prediction_thread_pool(self.threads)

    def rows(self, X: sp.csr_matrix) -> list[Row]:
        """Pairs of feature and value."""
        features, values, ends = X.indices.tolist(), X.data.tolist(), X.indptr.tolist()
        return [list(zip(features[start:end], values[start:end], strict=True)) for start, end in pairwise(ends)]

    def predict(self, rows: list[Row]) -> list[list[tuple[int, float]]]:
        """Beam search at the default width, row by row: the package has no other call."""
        return [self.model.predict(row, top_k=self.k) for row in rows]

    def labels(self, predicted: list[list[tuple[int, float]]]) -> np.ndarray:
        """Pairs of label and score are in rank order already."""
        return pad([[label for label, _ in row] for row in predicted], self.k)


if __name__ == "__main__":
    run(Omikuji)
