import numpy as np
import pytest
import scipy.sparse as sp

from longtail.config import config_context
from longtail.errors import InputError, ParameterError
from longtail.learners.label_trees import representation
from longtail.learners.label_trees.representation import represent_labels

X = sp.csr_array(np.array([[3, 4, 0], [0, 0, 2], [0, 5, 0]], np.float32))
Y = sp.csr_array(np.array([[1, 1, 0, 0], [0, 1, 0, 1], [0, 1, 0, 0]], np.float32))
SCALES = np.array([1 / 5, 1 / 2, 1 / 5])


def represent(kind, X=X, Y=Y, scales=SCALES, *, n_components=None, random_state=0):
    return represent_labels(kind, X, Y, scales, n_components=n_components, random_state=random_state)


def unit(rows):
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)


def problem(n=300, features=150, labels=40):
    rng = np.random.default_rng(1)
    rows = sp.csr_array(sp.random_array((n, features), density=0.1, rng=rng, dtype=np.float32))
    truth = sp.csr_array((rng.uniform(size=(n, labels)) < 0.1).astype(np.float32))
    truth = sp.csr_array(truth.toarray() * (np.arange(labels) != 7))  # label 7 has no rows
    lengths = np.sqrt(rows.power(2).sum(axis=1))
    return rows, truth.astype(np.float32), np.divide(1, lengths, out=np.zeros(n), where=lengths > 0)


# Worked out by hand: rows of unit length are (0.6, 0.8, 0), (0, 0, 1), (0, 1, 0).
CENTROIDS = unit(np.array([[0.6, 0.8, 0], [0.6, 1.8, 1], [0, 0, 0], [0, 0, 1]]))
COMPANIONS = unit(np.array([[1.0, 1, 0, 0], [1, 3, 0, 1], [0, 0, 0, 0], [0, 1, 0, 1]]))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("centroids", CENTROIDS),
        ("co-occurrence", COMPANIONS),
        ("both", np.hstack([CENTROIDS, COMPANIONS]) / np.sqrt(2)),
    ],
)
def test_exact_points_by_hand(kind, expected):
    points = represent(kind)
    assert isinstance(points, sp.csr_array)
    assert points.dtype == np.float32
    assert points.has_sorted_indices
    np.testing.assert_allclose(points.toarray(), expected, atol=1e-6)


def signs(features, dimensions, seed):
    """The random matrix, seen through the projection of one-hot features."""
    Y = sp.csr_array((1, features), dtype=np.float32)
    matrix = represent(sp.eye_array(features, format="csr"), Y=Y, n_components=dimensions, random_state=seed)
    return np.sign(matrix) * (np.abs(matrix) > 0)


@pytest.mark.parametrize("dimensions", [1, 10, 64, 100])
@pytest.mark.parametrize("seed", [0, 5])
def test_projected_centroids_are_centroids_times_random_signs(dimensions, seed):
    rows, truth, scales = problem()
    R = signs(150, dimensions, seed)
    assert set(np.unique(R)) == {-1, 1}
    assert abs(R.mean()) < 4 / np.sqrt(R.size)
    points = represent("centroids", rows, truth, scales, n_components=dimensions, random_state=seed)
    assert points.dtype == np.float32
    assert points.flags.c_contiguous
    assert points.shape == (40, dimensions)
    expected = unit(truth.toarray().T @ (scales[:, None] * rows.toarray()) @ R)
    np.testing.assert_allclose(points, expected, atol=2e-5)
    assert (points[7] == 0).all()


@pytest.mark.parametrize("kind", ["centroids", "co-occurrence", "both"])
def test_projections_keep_cosines(kind):
    rows, truth, scales = problem()
    exact = represent(kind, rows, truth, scales).toarray()
    points = represent(kind, rows, truth, scales, n_components=4096)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), np.arange(40) != 7, atol=1e-5)
    np.testing.assert_allclose(points @ points.T, exact @ exact.T, atol=5 / np.sqrt(4096))


@pytest.mark.parametrize("kind", ["centroids", "both"])
def test_threads_leave_every_bit_and_seeds_do_not(kind):
    rows, truth, scales = problem(n=9000)
    with config_context(n_jobs=1):
        one = represent(kind, rows, truth, scales, n_components=70)
    with config_context(n_jobs=3):
        three = represent(kind, rows, truth, scales, n_components=70)
    np.testing.assert_array_equal(one, three)
    other = represent(kind, rows, truth, scales, n_components=70, random_state=1)
    assert np.abs(one - other).max() > 0.01


def test_rows_in_several_chunks_give_the_same_points(monkeypatch):
    rows, truth, scales = problem()
    whole = represent("centroids", rows, truth, scales, n_components=64)
    given = represent(rows, Y=sp.csr_array((1, 300)), n_components=64)
    monkeypatch.setattr(representation, "_CHUNK", 77)
    np.testing.assert_allclose(represent("centroids", rows, truth, scales, n_components=64), whole, atol=1e-5)
    np.testing.assert_allclose(represent(rows, Y=sp.csr_array((1, 300)), n_components=64), given, atol=1e-5)


@pytest.mark.parametrize("dimensions", [None, 20, 64])
def test_given_features_dense_or_sparse(dimensions):
    rng = np.random.default_rng(2)
    features = rng.normal(size=(4, 50)).astype(np.float32) * np.array([[1], [1e25], [0], [1e-12]], np.float32)
    results = [
        represent(form(features), n_components=dimensions)
        for form in (np.asarray, sp.csr_array, sp.coo_matrix, np.ndarray.tolist)
    ]
    plain = [result.toarray() if sp.issparse(result) else result for result in results]
    for result in plain[1:]:
        np.testing.assert_allclose(result, plain[0], atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(plain[0], axis=1), [1, 1, 0, 1], atol=1e-5)
    if dimensions != 20:  # 50 columns fit into 64 dimensions
        np.testing.assert_allclose(plain[0][:, :50], unit(features.astype(float)), atol=1e-6)


@pytest.mark.parametrize("texts", [["red fish", "blue fish", "", "red bird"], ("a1 b2", "b2", "c3", "c3 a1")])
@pytest.mark.parametrize("form", [list, tuple, np.array])
def test_label_texts(texts, form):
    points = represent(form(texts)).toarray()
    words = [set(text.split()) for text in texts]
    cosines = points @ points.T
    for one in range(4):
        for two in range(4):
            assert (cosines[one, two] > 0) == bool(words[one] & words[two])
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), [bool(word) for word in words], atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("centroid", "must be one of centroids, co-occurrence, both, a matrix or label texts, got 'centroid'"),
        (np.ones((3, 2)), r"must have one row for each of the 4 labels, got \(3, 2\)"),
        (sp.csr_array((5, 2)), r"must have one row for each of the 4 labels, got \(5, 2\)"),
        (["one", "two"], r"must have one text for each of the 4 labels, got \(2,\)"),
        (["one", "two", "three", 4.5], "must be one of"),
        ([[1, 2], [3]], "must be one of"),
        (np.ones(4), "must be one of"),
        (np.ones((4, 2), complex), "must be one of"),
        (None, "must be one of"),
        (7, "must be one of"),
    ],
)
def test_representations_that_make_no_sense(kind, message):
    with pytest.raises(ParameterError, match=message) as caught:
        represent(kind)
    assert caught.value.name == "representation"
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_features_that_are_no_numbers(form, bad):
    features = np.ones((4, 3))
    features[2, 1] = bad
    with pytest.raises(InputError, match="representation has a NaN"):
        represent(form(features))


@pytest.mark.parametrize("dimensions", [0, -3, 2.5, True, "64"])
def test_n_components_that_make_no_sense(dimensions):
    with pytest.raises(ParameterError, match="n_components must be"):
        represent("centroids", n_components=dimensions)
