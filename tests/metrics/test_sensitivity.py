"""PSP@k over a grid of A and B: against `evaluate`, one pair after the other."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.errors import InputError, ParameterError
from longtail.metrics import evaluate
from longtail.metrics.propensity_sensitivity import Sensitivity, sensitivity
from longtail.propensity import JainPropensity
from longtail.topk import TopK


def rankings(rng, n, n_labels, places):
    return np.argsort(rng.random((n, n_labels)), axis=1)[:, :places].astype(np.int32)


@given(st.integers(0, 10_000))
@settings(max_examples=15)
def test_the_same_as_evaluate(seed):
    rng = np.random.default_rng(seed)
    n, n_labels = int(rng.integers(1, 20)), int(rng.integers(3, 15))
    Y = sp.random_array((n, n_labels), density=0.3, rng=rng, format="csr")
    counts = rng.integers(0, 60, n_labels)
    tops = {name: rankings(rng, n, n_labels, 3) for name in "xy"}
    tops["y"][0, 1:] = -1
    found = sensitivity(tops, Y, counts, 60, a=[0, 0.4, 1.2], b=[0.1, 2.6], ks=[1, 3])
    for i, a in enumerate(found.a):
        for j, b in enumerate(found.b):
            inverse = JainPropensity(a=a, b=b).inverse(counts, 60)
            for number, top in enumerate(tops.values()):
                scores = evaluate(top, Y, inverse_propensity=inverse, ks=[1, 3])
                np.testing.assert_allclose(found.psp[i, j, number], [scores["PSP@1"], scores["PSP@3"]], atol=1e-9)


def test_by_hand():
    """1/p is 1 + (ln 100 - 1) (2.5 / (n + 1.5))^A: at A = 0 all labels weigh the same, so "head" has 2 of 2."""
    Y = [[1, 1, 0], [1, 0, 0]]
    tops = {"head": [[0], [0]], "tail": [[1], [2]]}
    found = sensitivity(tops, Y, [90, 2, 1], 100, a=[0, 1], b=[1.5], ks=[1])
    np.testing.assert_allclose(found.psp[0, 0, :, 0], [100, 50])
    c = np.log(100) - 1
    frequent, rare = 1 + c * 2.5 / 91.5, 1 + c * 2.5 / 3.5
    expected = [100 * 2 * frequent / (frequent + rare), 100 * rare / (frequent + rare)]
    np.testing.assert_allclose(found.psp[1, 0, :, 0], expected)
    assert found.order(0, 1.5, 1) == ("head", "tail")
    assert found.order(1, 1.5, 1) == ("tail", "head") == found.base_order(1)
    assert found.changes(1) == [(0, 1.5)]
    assert [row["changed"] for row in found.rows()] == [True, False]
    assert found.rows()[0]["psp"] == {"head": 100, "tail": 50}
    assert json.loads(json.dumps(found.rows()))[1]["order"] == ["tail", "head"]
    assert str(found).splitlines()[2].endswith("*")


def test_the_base_may_lie_outside_the_grid():
    tops = {"head": [[0], [0]], "tail": [[1], [2]]}
    found = sensitivity(tops, [[1, 1, 0], [1, 0, 0]], [90, 2, 1], 100, a=[1], b=[1.5], ks=[1], base=(0, 1))
    assert found.base_order(1) == ("head", "tail")
    assert found.changes(1) == [(1, 1.5)]


def test_equal_models_stand_in_the_order_given():
    tops = {"b": [[0]], "a": [[0]]}
    found = sensitivity(tops, [[1, 0]], [3, 1], 10, ks=[1])
    assert found.base_order(1) == ("b", "a")
    assert found.changes(1) == []
    assert found.psp.shape == (7, 5, 2, 1)


def test_a_top_k_and_rows_without_labels():
    top = TopK(np.array([[1, 0], [0, 1]], np.int32), np.array([[2, 1], [2, 1]], np.float32))
    found = sensitivity({"m": top}, [[0, 0], [0, 1]], [5, 1], 10, ks=[1, 2])
    np.testing.assert_allclose(found.psp[..., 0, :], np.broadcast_to([0, 100], (7, 5, 2)))
    nothing = sensitivity({"m": top}, np.zeros((2, 2)), [5, 1], 10)
    assert not nothing.psp.any()


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"tops": {}}, ParameterError, "tops"),
        ({"label_counts": [1]}, ParameterError, r"number of labels \(2\), got 1"),
        ({"label_counts": [1, 20]}, ParameterError, "label_counts of label 1"),
        ({"a": [-1]}, ParameterError, "a must be"),
        ({"b": [0]}, ParameterError, "b must be"),
        ({"a": []}, ParameterError, "a must be a sequence of at least 1 number"),
        ({"ks": [0]}, ParameterError, "ks"),
        ({"Y": np.empty((0, 2)), "tops": {"m": np.empty((0, 1), int)}}, InputError, "no rows"),
        ({"tops": {"m": [[0], [1]]}}, InputError, "2 rows"),
    ],
)
def test_mistakes(options, error, told):
    with pytest.raises(error, match=told):
        sensitivity(**{"tops": {"m": [[0]]}, "Y": [[1, 0]], "label_counts": [3, 1], "n_rows": 10} | options)


def test_questions_outside_the_grid():
    found: Sensitivity = sensitivity({"m": [[0]]}, [[1, 0]], [3, 1], 10, ks=[1])
    with pytest.raises(ParameterError, match="k must be one of 1"):
        found.changes(5)
    with pytest.raises(ParameterError, match="must be a pair of the grid"):
        found.order(9, 1.5, 1)


def test_cutoffs_may_come_from_an_iterator():
    tops = {"one": [[0]], "other": [[1]]}
    found = sensitivity(tops, [[1, 1]], [1, 2], 5, ks=(k for k in (1, 2)))
    assert found.ks == (1, 2)
    assert found.psp.shape[2:] == (2, 2)
