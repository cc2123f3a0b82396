"""PECOS XR-Linear at its defaults: PIFA label features, hierarchical k-means, one linear model a layer."""

from importlib import metadata

import numpy as np
import scipy.sparse as sp
from pecos.utils import smat_util
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear import XLinearModel
from runner import System, pad, run, time_batch


class Pecos(System):
    """Trains as the package's manual shows; predicts with the model re-loaded for prediction only, as its CLI does."""

    name = "pecos"
    version = metadata.version("libpecos")

    def prepare(self, X: sp.csr_matrix, Y: sp.csr_matrix) -> None:
        """Keep X as it is; PECOS wants Y by columns."""
        self.X, self.Y = X, Y.tocsc()

    def fit(self) -> None:
        """Label features, clustering and training."""
        features = LabelEmbeddingFactory.create(self.Y, self.X, method="pifa", threads=self.threads)
        chain = Indexer.gen(features, threads=self.threads)
        self.model = self.trained = XLinearModel.train(self.X, self.Y, C=chain, threads=self.threads)

    def make_ready(self) -> None:
        """Re-load in prediction-only mode."""
        self.model.save(str(self.folder))
        self.model = XLinearModel.load(str(self.folder), is_predict_only=True)

    def predict(self, rows: sp.csr_matrix) -> sp.csr_matrix:
        """Beam search at the default width; a second thread would only slow a single row down."""
        return self.model.predict(rows, only_topk=self.k, threads=min(self.threads, rows.shape[0]))

    def more(self, X: sp.csr_matrix) -> dict[str, float]:
        """Time of a batch without re-loading the model, which is several times slower."""
        self.model = self.trained
        return {"predict_batch_as_trained_us_per_row": 1e6 * time_batch(self, X)[0] / X.shape[0]}

    def labels(self, predicted: sp.csr_matrix) -> np.ndarray:
        """Column numbers of each row, best score first."""
        ranked = smat_util.sorted_csr(predicted)
        return pad([row.tolist() for row in np.split(ranked.indices, ranked.indptr[1:-1])], self.k)


if __name__ == "__main__":
    run(Pecos)
