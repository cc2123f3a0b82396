import numpy as np
import scipy.sparse as sp

from longtail.engine.rows import count_features, squared_lengths


def test_lengths_and_counts_equal_numpys():
    X = sp.random_array((40, 15), density=0.2, rng=np.random.default_rng(0), dtype=np.float32, format="csr")
    lengths, counts = np.empty(40), np.zeros(15, np.int64)
    squared_lengths(X.indptr.astype(np.int64), X.data, lengths)
    count_features(X.indices, counts)
    np.testing.assert_allclose(lengths, (X.toarray().astype(float) ** 2).sum(axis=1), rtol=1e-6)
    np.testing.assert_array_equal(counts, (X.toarray() != 0).sum(axis=0))
