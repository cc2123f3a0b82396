import numpy as np
import pytest
import scipy.sparse as sp

from longtail import Model, OneVsRest
from longtail.data.sparse import as_indicator, as_rows
from longtail.errors import InputError, NotNumbersError, ParameterError


def parts(X):
    return X.data, X.indices, X.indptr


def test_canonical_input_is_not_copied():
    X = sp.random_array((5, 4), density=0.5, rng=np.random.default_rng(0), dtype=np.float32, format="csr")
    assert as_rows(X) is X


def test_strided_parts_are_straightened():
    X = sp.random_array((5, 4), density=0.5, rng=np.random.default_rng(0), dtype=np.float32, format="csr")
    wide = np.zeros(2 * X.nnz, np.float32)
    wide[::2] = X.data
    strided = sp.csr_array((wide[::2], X.indices, X.indptr), shape=X.shape)
    straight = as_rows(strided)
    assert all(part.flags.c_contiguous for part in parts(straight))
    np.testing.assert_array_equal(straight.toarray(), X.toarray())


def test_wide_indices_become_int32():
    X = sp.random_array((5, 4), density=0.5, rng=np.random.default_rng(0), dtype=np.float32, format="csr")
    wide = X.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    assert as_rows(wide).indices.dtype == np.int32


@pytest.mark.parametrize("bad", [-1, 4, 10**6])
@pytest.mark.parametrize("check", [as_rows, as_indicator])
def test_columns_outside_the_matrix_are_refused(bad, check):
    X = sp.csr_array((np.ones(2, np.float32), np.array([0, 1], np.int32), np.array([0, 1, 2], np.int32)), shape=(2, 4))
    X.indices[1] = bad
    with pytest.raises(InputError, match="outside its 4 columns"):
        check(X)


def test_offsets_that_do_not_fit_are_refused():
    X = sp.csr_array((np.ones(2, np.float32), np.array([0, 1], np.int32), np.array([0, 1, 2], np.int32)), shape=(2, 4))
    X.indptr[1] = 5
    with pytest.raises(InputError, match="row offsets"):
        as_rows(X)


def test_negative_labels_are_refused():
    plus_minus = np.array([[1, -1, 1], [1, 1, 1], [-1, 1, -1]])
    for Y in (plus_minus, sp.csr_array(plus_minus, dtype=np.float32), sp.coo_array(plus_minus)):
        with pytest.raises(InputError, match=r"Y has -1 in row 0, but labels are 0 or 1"):
            as_indicator(Y)
    with pytest.raises(InputError, match=r"truth has -0.5 in row 2, but labels are 0 or 1"):
        as_indicator([[0, 0], [3, 0], [0, -0.5]], name="truth")
    assert as_indicator([[0, 7], [0.25, 0]]).toarray().tolist() == [[0, 1], [1, 0]]
    with pytest.raises(InputError, match=r"Y has a NaN or infinite value in row 1: labels are 0 or 1"):
        as_indicator([[0, 1], [np.nan, 0]])


def test_duplicates_are_summed_without_touching_the_input():
    X = sp.csr_array(
        (np.array([1, 2], np.float32), np.array([3, 3], np.int32), np.array([0, 2], np.int32)), shape=(1, 4)
    )
    assert as_rows(X).toarray().tolist() == [[0, 0, 0, 3]]
    assert X.nnz == 2


def test_integers_that_no_float_can_hold_are_refused():
    with pytest.raises(NotNumbersError, match="X must hold numbers"):
        as_rows(np.array([[10**400, 1]], object))


NAMES = [["red", "car"], ["bus"], []]


@pytest.mark.parametrize(
    "Y",
    [
        NAMES,
        tuple(map(tuple, NAMES)),
        [set(names) for names in NAMES],
        [["red"], ["bus"], ["car"]],
        [[0, 2], [1], []],
        np.array([list(names) for names in NAMES], dtype=object),
        np.array([["red"], ["bus"]]),
    ],
    ids=["lists", "tuples", "sets", "one label each", "ids", "array of lists", "array of names"],
)
def test_lists_of_labels_are_no_matrix(Y):
    with pytest.raises(InputError, match=r"a list of labels per row.*MultiLabelBinarizer\(sparse_output=True\)"):
        as_indicator(Y, name="y")
    with pytest.raises(InputError, match="read_jsonl"):
        OneVsRest().fit(np.ones((3, 2)), Y)


@pytest.mark.parametrize(
    "texts",
    ["one", ["one", "two"], ("one",), np.array(["one"]), np.array(["one"], dtype=object)],
    ids=["text", "list", "tuple", "array", "objects"],
)
def test_texts_are_no_matrix(texts):
    learner = OneVsRest().fit([[1, 0], [0, 1]], [[1, 0], [0, 1]])
    model = Model(learner)
    for call in (
        lambda: OneVsRest().fit(texts, [[1]]),
        lambda: learner.predict_topk(texts),
        lambda: learner.predict(texts),
        lambda: learner.decision_function(texts),
        lambda: learner.score(texts, [[1, 0]]),
        lambda: learner.update(texts, [[1, 0]]),
        lambda: learner.explain(texts),
        lambda: model.predict_topk(texts),
    ):
        with pytest.raises(InputError, match=r"X holds texts, and must be a matrix of features: .* TextLearner"):
            call()


def test_a_model_is_evaluated_on_a_data_set():
    model = Model(OneVsRest().fit([[1, 0], [0, 1]], [[1, 0], [0, 1]]))
    for call in (model.evaluate, model.update, model.truth, model.calibrate):
        with pytest.raises(InputError, match=r"must be a Dataset, .* got ndarray: Dataset\(X, Y\)"):
            call(np.eye(2))


@pytest.mark.parametrize("form", [list, tuple, set, iter, np.array])
def test_labels_in_any_iterable(form):
    learner = OneVsRest().fit(np.eye(3), np.eye(3))
    model = Model(learner, ["a", "b", "c"])
    for ranker in (learner, model):
        ranking = ranker.predict_topk([[1, 1, 1]], only=form([1, 2]))
        assert sorted(ranking.labels[0, :2].tolist()) == [1, 2]
    assert {name for name, _ in model.predict_names([[1, 1, 1]], exclude=form(["b"]))[0]} == {"a", "c"}
    with pytest.raises(ParameterError, match=r"only\[0\] must be a label id from 0 to 2, got 3"):
        learner.predict_topk(np.eye(3), only=form([3]))
    with pytest.raises(ParameterError, match=r"only\[0\] must be the name of a label, or an id from 0 to 2, got 'd'"):
        model.predict_topk(np.eye(3), only=form(["d"]))


def test_one_text_is_no_matrix_of_labels():
    with pytest.raises(InputError, match="y must have rows and columns"):
        as_indicator("red", name="y")
