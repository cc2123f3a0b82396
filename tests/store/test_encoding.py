import json
import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays, scalar_dtypes
from sklearn.base import BaseEstimator

from longtail.errors import ModelError
from longtail.learners import Popularity
from longtail.propensity import JainPropensity
from longtail.store.encoding import decode, encode, stored_attributes
from longtail.store.files import FileReader, FileWriter
from longtail.weighting import PWcb


def round_trip(value, directory):
    directory.mkdir(exist_ok=True)
    writer = FileWriter(directory)
    encoded = json.loads(json.dumps(encode(value, "value", writer)))
    return decode(encoded, FileReader(directory, writer.written))


def plain_values():
    leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.lists(inner, max_size=4).map(tuple)
            | st.dictionaries(st.text(), inner, max_size=4)
        ),
        max_leaves=12,
    )


@given(plain_values())
@settings(max_examples=60, deadline=None)
def test_plain_values_come_back(tmp_path_factory, value):
    assert round_trip(value, tmp_path_factory.mktemp("model")) == value


@given(arrays(scalar_dtypes(), array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)))
@settings(max_examples=60, deadline=None)
def test_arrays_come_back(tmp_path_factory, array):
    back = round_trip(array, tmp_path_factory.mktemp("model"))
    assert back.dtype == array.dtype
    assert type(back) is np.ndarray
    np.testing.assert_array_equal(back, array)


def test_nan_comes_back(tmp_path):
    assert math.isnan(round_trip(float("nan"), tmp_path))


def test_numpy_scalars_become_plain_numbers(tmp_path):
    back = round_trip([np.float32(0.5), np.int64(3), np.bool_(True)], tmp_path)
    assert back == [0.5, 3, True]
    assert [type(item) for item in back] == [float, int, bool]


def test_long_lists_of_text_come_back(tmp_path):
    texts = [*(f"label {index}" for index in range(100)), "", "two\nlines", "ünï", "\ud800", "\u2028", '"']
    assert round_trip(texts, tmp_path) == texts


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.csr_matrix, sp.csc_matrix])
def test_sparse_matrices_come_back(tmp_path, kind):
    matrix = kind(sp.random_array((20, 30), density=0.2, rng=np.random.default_rng(0), dtype=np.float32))
    back = round_trip(matrix, tmp_path)
    assert type(back) is kind
    assert back.shape == matrix.shape
    assert back.indices.dtype == matrix.indices.dtype
    assert (back != matrix).nnz == 0
    assert back.has_canonical_format
    assert not back.data.flags.owndata


def test_sparse_index_types_are_kept(tmp_path):
    matrix = sp.csr_array(sp.eye_array(4, format="csr", dtype=np.float32))
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    back = round_trip(matrix, tmp_path)
    assert (back.indices.dtype, back.indptr.dtype) == (np.int64, np.int64)


def test_empty_sparse_matrix(tmp_path):
    assert round_trip(sp.csr_array((3, 0), dtype=np.float32), tmp_path).shape == (3, 0)


def test_objects_come_back_with_parameters(tmp_path):
    weighting = PWcb(propensity=JainPropensity(a=0.6, b=2.6), beta=0.99)
    back = round_trip(weighting, tmp_path)
    assert isinstance(back, PWcb)
    assert repr(back) == repr(weighting)


def test_only_fitted_objects_have_state(tmp_path):
    writer = FileWriter(tmp_path)
    assert "state" not in encode(Popularity(), "value", writer)
    assert set(encode(Popularity().fit([[1]], [[1]]), "value", writer)["state"]) == set(stored_attributes(Popularity))


def test_stored_attributes_add_up_over_base_classes():
    names = stored_attributes(Popularity)
    assert names == ["n_features_in_", "n_labels_", "n_rows_", "label_counts_", "ranking_", "shares_"]


def test_unknown_parameters_and_attributes_are_left_out(tmp_path):
    writer = FileWriter(tmp_path)
    encoded = encode(Popularity().fit([[1]], [[1]]), "value", writer)
    encoded["params"]["of_a_later_version"] = 3
    encoded["state"]["predict_topk"] = "no"
    encoded["more"] = {}
    back = decode(encoded, FileReader(tmp_path, writer.written))
    assert "of_a_later_version" not in vars(back)
    assert back.predict_topk([[0]], 1).labels.tolist() == [[0]]


class Stranger(BaseEstimator):
    pass


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Stranger(), "Stranger.*register"),
        (object(), "value is a object"),
        (lambda: 0, "value is a function"),
        ({1: 2}, "value is a dict"),
        (np.array([None]), "Python objects"),
        (sp.coo_array((2, 2)), "coo"),
        ([0, {"a": {1, 2}}], r"value\.1\.0 is a set"),
        (Popularity, "value is a"),
    ],
)
def test_what_a_model_cannot_hold_is_refused(tmp_path, value, message):
    with pytest.raises(ModelError, match=message):
        encode(value, "value", FileWriter(tmp_path))


@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        ({"object": "os.system", "params": {}}, r"os\.system"),
        ({"object": "Stranger", "params": {}}, "Stranger"),
        ({"novelty": 1}, "novelty.*upgrade"),
        ({}, "upgrade"),
        ({"array": "../secret.npy", "dtype": "<f4", "shape": [1]}, "secret"),
    ],
)
def test_what_is_unknown_is_refused(tmp_path, encoded, message):
    with pytest.raises(ModelError, match=message):
        decode(encoded, FileReader(tmp_path, {}))
