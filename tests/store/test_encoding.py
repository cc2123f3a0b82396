import copy
import json
import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays, scalar_dtypes
from sklearn.base import BaseEstimator

from longtail.data import Hierarchy
from longtail.errors import ModelError
from longtail.learners import LabelTree, NeuralClassifier, OneVsRest, Popularity
from longtail.propensity import JainPropensity
from longtail.rerank import TailDial
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
    assert set(encode(Popularity().fit([[1]], [[1]]), "value", writer)["state"]) == set(
        stored_attributes(Popularity)
    ) - {"feature_names_in_"}


def test_stored_attributes_add_up_over_base_classes():
    names = stored_attributes(Popularity)
    assert names == [
        *("n_features_in_", "feature_names_in_", "n_labels_", "n_rows_", "label_counts_"),
        *("ranking_", "shares_"),
    ]


@pytest.mark.parametrize(("kind", "name"), [("params", "of_a_later_version"), ("state", "predict_topk")])
def test_unknown_parameters_and_attributes_are_an_error(tmp_path, kind, name):
    writer = FileWriter(tmp_path)
    encoded = encode(Popularity().fit([[1]], [[1]]), "value", writer)
    encoded["more"] = {}
    back = decode(encoded, FileReader(tmp_path, writer.written))
    assert back.predict_topk([[0]], 1).labels.tolist() == [[0]]
    encoded[kind][name] = 3
    with pytest.raises(ModelError, match=f"Popularity with {name}"):
        decode(encoded, FileReader(tmp_path, writer.written))


def objects_in(value, path=()):
    """Where in encoded JSON objects stand, at every level."""
    if isinstance(value, dict):
        if "object" in value:
            yield path
        for key, item in value.items():
            yield from objects_in(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from objects_in(item, (*path, index))


@pytest.mark.parametrize("kind", ["params", "state"])
def test_unknown_parameters_and_attributes_are_an_error_at_every_level(tmp_path, kind):
    """In parameters, in fitted attributes, and in lists, tuples and dictionaries of them."""
    learner = TailDial(learner=OneVsRest(weighting=PWcb(propensity=JainPropensity(a=0.6)), n_jobs=1), tail=0.5)
    learner.fit(np.eye(4), np.eye(4))
    writer = FileWriter(tmp_path)
    value = {"learner": learner, "more": [JainPropensity(), (PWcb(),), {"inside": JainPropensity()}]}
    encoded = encode(value, "value", writer)
    reader = FileReader(tmp_path, writer.written)
    places = list(objects_in(encoded))
    assert len(places) >= 10
    assert {"params", "state", "tuple", "dict"} <= {step for place in places for step in place}
    for place in places:
        spoiled = copy.deepcopy(encoded)
        one = spoiled
        for step in place:
            one = one[step]
        one.setdefault(kind, {})["of_a_later_version"] = 3
        with pytest.raises(ModelError, match=f"contains a {one['object']} with of_a_later_version"):
            decode(spoiled, reader)


def test_device_is_a_setting_of_a_run_and_not_saved(tmp_path):
    """A model from a GPU loads on a machine without one, also inside of other learners."""
    learner = TailDial(learner=NeuralClassifier(device="cuda:0", n_jobs=2, epochs=3))
    loaded = round_trip(learner, tmp_path).learner
    assert (loaded.device, loaded.n_jobs, loaded.epochs) == ("auto", None, 3)


def test_threads_are_a_setting_of_a_run_and_not_saved(tmp_path):
    learner = TailDial(learner=OneVsRest(n_jobs=1)).fit(np.eye(4), np.eye(4))
    writer = FileWriter(tmp_path)
    encoded = encode(learner, "learner", writer)
    assert "n_jobs" not in json.dumps(encoded)
    loaded = decode(encoded, FileReader(tmp_path, writer.written))
    assert loaded.learner_.n_jobs is None


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


def test_hierarchies_come_back(tmp_path):
    towns = Hierarchy(("Italy", "0"), ("Italia", None), np.array([[1, 0]], np.int32), path="towns.json")
    tree = round_trip(LabelTree(tree=towns), tmp_path).tree
    assert isinstance(tree, Hierarchy)
    assert (tree.names, tree.titles, tree.notations, tree.path) == (towns.names, towns.titles, (), towns.path)
    np.testing.assert_array_equal(tree.parents, towns.parents)
