import os
import signal
import threading
import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from longtail.errors import Interrupted, ModelError, ParameterError
from longtail.kernels.lanes import LANES
from longtail.learners import OneVsRest
from longtail.learners.linear.weights import _choose_depths
from longtail.losses import get_loss
from longtail.runtime.block_file import BlockFile
from longtail.weighting import PW, Costs, PWcb, Weighting
from tests.learners.contract import MatrixContract, small_data

EXACT = {"bias_centre": 0.0, "tol": 1e-4, "max_iter": 100_000, "prune_below": 0.0, "precision": "float32"}
LOSSES = ("squared-hinge", "hinge", "logistic")


class GivenCosts(Weighting):
    """Costs that are known beforehand, for comparison with solvers that take them as class weights."""

    def __init__(self, *, positive, negative):
        super().__init__()
        self.positive = positive
        self.negative = negative

    def _positive(self, label_counts, n_rows):
        return np.full(len(label_counts), self.positive)

    def _costs(self, label_counts, n_rows):
        size = len(label_counts)
        return Costs(np.full(size, self.positive, np.float32), np.full(size, self.negative, np.float32))


def liblinear(X, y, loss, C, positive, negative):
    """Weights and bias of one label by LIBLINEAR."""
    weight = {0: negative, 1: positive}
    if loss == "logistic":
        solver = LogisticRegression(
            solver="liblinear", C=C, class_weight=weight, tol=1e-10, max_iter=10000, intercept_scaling=1
        )
    else:
        solver = LinearSVC(
            loss=loss.replace("-", "_"), C=C, class_weight=weight, tol=1e-10, max_iter=1000000, dual=True
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solver.fit(X, y)
    return solver.coef_[0], solver.intercept_[0]


def objective(X, y, w, b, loss, C, positive, negative, center=0.0):
    """What one label's classifier minimises, in double precision."""
    scores = X @ w + b
    total = get_loss(loss).weighted_value(scores, y, positive, negative)
    return 0.5 * (w @ w) + 0.5 * (b - center) ** 2 + C * np.sum(total)


class TestOneVsRest(MatrixContract):
    def make(self, **params):
        return OneVsRest(**params)


class TestLogisticOneVsRest(MatrixContract):
    def make(self, **params):
        return OneVsRest(**{"loss": "logistic", "precision": "float32", **params})


@settings(max_examples=25)
@given(
    loss=st.sampled_from(LOSSES),
    seed=st.integers(0, 2**32 - 1),
    C=st.sampled_from([0.1, 1.0, 10.0]),
    costs=st.sampled_from([(1.0, 1.0), (8.0, 1.0), (0.2, 1.0), (3.0, 0.5)]),
)
def test_the_optimum_is_liblinears(loss, seed, C, costs):
    rng = np.random.default_rng(seed)
    X = sp.random_array((60, 12), density=0.4, rng=rng, dtype=np.float32, format="csr")
    Y = (rng.random((60, 5)) < [0.02, 0.1, 0.3, 0.5, 0.9]).astype(np.float32)
    Y[0], Y[1] = 1, 0
    learner = OneVsRest(
        loss=loss, C=C, weighting=GivenCosts(positive=costs[0], negative=costs[1]), normalise=False, n_jobs=1, **EXACT
    ).fit(X, Y)
    coef, intercept = learner.coef_.toarray().astype(float), learner.intercept_.astype(float)
    for label in range(5):
        y = Y[:, label]
        w, b = liblinear(X, y, loss, C, *costs)
        best = objective(X, y, w, b, loss, C, *costs)
        ours = objective(X, y, coef[label], intercept[label], loss, C, *costs)
        assert ours <= best * (1 + 2e-3) + 1e-4


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_equal_liblinears_on_more_labels_than_a_block(loss):
    rng = np.random.default_rng(3)
    X = sp.random_array((200, 30), density=0.3, rng=rng, dtype=np.float32, format="csr")
    truth = rng.normal(size=(30, LANES + 9))
    Y = ((X @ truth + 0.3 * rng.normal(size=(200, LANES + 9))) > 0.8).astype(np.float32)
    learner = OneVsRest(loss=loss, normalise=False, **EXACT).fit(X, Y)
    coef = learner.coef_.toarray()
    for label in range(0, LANES + 9, 8):
        w, b = liblinear(X, Y[:, label], loss, 1.0, 1.0, 1.0)
        np.testing.assert_allclose(coef[label], w, atol=0.02 * np.abs(w).max())
        assert learner.intercept_[label] == pytest.approx(b, abs=0.02 * np.abs(w).max())


def test_default_bias_centre_is_the_stated_objective():
    rng = np.random.default_rng(5)
    X = sp.random_array((80, 10), density=0.4, rng=rng, dtype=np.float32, format="csr")
    Y = (rng.random((80, 3)) < 0.2).astype(np.float32)
    exact = {**EXACT, "bias_centre": None}
    learner = OneVsRest(normalise=False, **exact).fit(X, Y)
    coef, intercept = learner.coef_.toarray().astype(float), learner.intercept_.astype(float)
    for label in range(3):
        best = objective(X, Y[:, label], coef[label], intercept[label], "squared-hinge", 1, 1, 1, center=-1)
        for _ in range(200):
            nearby = coef[label] + rng.normal(scale=0.02, size=10)
            other = intercept[label] + rng.normal(scale=0.02)
            assert objective(X, Y[:, label], nearby, other, "squared-hinge", 1, 1, 1, center=-1) >= best - 1e-4


def test_scores_are_the_weights_times_the_normalised_row():
    X, Y = small_data()
    learner = OneVsRest(precision="float32", bias=2.0).fit(X, Y)
    top = learner.predict_topk(X, Y.shape[1])
    lengths = np.sqrt((X.toarray() ** 2).sum(axis=1, keepdims=True))
    dense = (X.toarray() / np.maximum(lengths, 1e-30)) @ learner.coef_.toarray().T + learner.intercept_
    for row in range(X.shape[0]):
        found = top.labels[row] >= 0
        np.testing.assert_allclose(top.scores[row][found], dense[row, top.labels[row][found]], atol=1e-5)


def test_panels_and_entries_hold_the_same_weights(monkeypatch):
    X, Y = small_data(n_rows=300, n_features=60, n_labels=200)
    tops = []
    for cost in (0.0, 8.0, 1e9):
        monkeypatch.setattr("longtail.learners.linear.weights.PANEL_ROW_COST", cost)
        learner = OneVsRest(precision="float32", prune_below=0.2).fit(X, Y)
        tops.append((learner.predict_topk(X, 7), learner.coef_.toarray()))
        heights = learner.weights_.panel_heights_
        assert (heights == 0).all() == (cost == 1e9)
        assert (len(learner.weights_.entry_lanes_) == 0) == (cost == 0)
        assert cost != 8 or heights[-1] < heights[0], "some features stand in the first panels only"
    for top, coef in tops[1:]:
        np.testing.assert_array_equal(coef, tops[0][1])
        np.testing.assert_allclose(top.scores, tops[0][0].scores, atol=1e-5)


def test_depths_cost_least():
    rng = np.random.default_rng(0)
    n_blocks, n_features = 6, 40
    kept = rng.integers(0, 20, (n_blocks, n_features)) * (rng.random((n_blocks, n_features)) < 0.6)
    with BlockFile() as block_file:
        for counts in kept:
            features = np.flatnonzero(counts).astype(np.int32)
            block_file.append([features, counts[features].astype(np.uint8)])
        depths, left = _choose_depths(block_file, n_blocks, n_features)
    for feature in range(n_features):
        costs = [12 * depth + kept[depth:, feature].sum() for depth in range(n_blocks + 1)]
        assert costs[depths[feature]] == min(costs)
        assert left[feature] == kept[depths[feature] :, feature].sum()


def test_pruning_keeps_the_bias_and_what_is_large():
    X, Y = small_data()
    full = OneVsRest(prune_below=0.0, precision="float32").fit(X, Y)
    pruned = OneVsRest(prune_below=0.1, precision="float32").fit(X, Y)
    wanted = full.coef_.toarray()
    wanted[np.abs(wanted) < 0.1] = 0
    np.testing.assert_array_equal(pruned.coef_.toarray(), wanted)
    np.testing.assert_array_equal(pruned.intercept_, full.intercept_)


def test_half_precision_changes_scores_by_little():
    X, Y = small_data()
    full = OneVsRest(precision="float32").fit(X, Y).predict_topk(X, 3)
    half = OneVsRest().fit(X, Y).predict_topk(X, 3)
    np.testing.assert_allclose(half.scores, full.scores, atol=0.02)


def test_costs_of_positives_lift_rare_labels():
    X, Y = small_data(n_rows=400, n_labels=30)
    plain = OneVsRest().fit(X, Y).intercept_
    for weighting in (PW(), PWcb(), "pw", "inverse-propensity"):
        weighted = OneVsRest(weighting=weighting).fit(X, Y)
        assert not np.allclose(weighted.intercept_, plain)
    assert OneVsRest(weighting="pw").fit(X, Y).coef_.toarray().max() > OneVsRest().fit(X, Y).coef_.toarray().max()


def test_no_bias():
    X, Y = small_data()
    learner = OneVsRest(bias=0.0).fit(X, Y)
    present = Y.toarray().any(axis=0)
    assert (learner.intercept_[present] == 0).all()
    assert np.isneginf(learner.intercept_[~present]).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("C", 0.0),
        ("C", float("nan")),
        ("C", "1"),
        ("bias", -1.0),
        ("bias_centre", float("inf")),
        ("prune_below", -0.1),
        ("tol", 0),
        ("max_iter", 0),
        ("max_iter", 2.5),
        ("precision", "int3"),
        ("loss", "cube"),
        ("random_state", -1),
        ("n_jobs", 0),
        ("weighting", "heavy"),
    ],
)
def test_parameters_that_make_no_sense(name, value):
    with pytest.raises(ParameterError, match=name):
        OneVsRest(**{name: value}).fit(*small_data())


@pytest.mark.parametrize("factor", [1e-25, 1e-20, 1e20, 1e25])
def test_normalised_rows_have_no_scale(factor):
    X, Y = small_data()
    plain, scaled = OneVsRest().fit(X, Y), OneVsRest().fit(X * np.float32(factor), Y)
    np.testing.assert_allclose(
        scaled.predict_topk(X * np.float32(factor), 3).scores, plain.predict_topk(X, 3).scores, atol=0.02
    )


def first(array, value):
    changed = array.copy()
    changed.flat[0] = value
    return changed


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("entry_lanes_", lambda lanes: first(lanes, 60000)),
        ("entry_lanes_", lambda lanes: first(lanes.astype(np.int64), -(2**40))),
        ("entry_offsets_", lambda offsets: first(offsets, 1)),
        ("entry_offsets_", lambda offsets: offsets[::-1].copy()),
        ("entry_values_", lambda values: values[:-1]),
        ("entry_values_", lambda values: values.astype(np.float64)),
        ("lane_labels_", lambda labels: first(labels, 2**31 - 1)),
        ("lane_labels_", lambda labels: first(labels, -2)),
        ("lane_bias_", lambda bias: bias[:-1]),
        ("panel_heights_", lambda heights: first(heights, heights[0] + 1)),
        ("panel_heights_", lambda heights: heights.astype(np.int64)),
        ("panel_slots_", lambda slots: first(slots, 10_000)),
        ("panel_slots_", lambda slots: np.where(slots == 1, 0, slots).astype(np.int32)),
        ("panels_", lambda panels: np.asfortranarray(panels)),
        ("panels_", lambda panels: panels[:, :32].copy()),
        ("panels_", lambda panels: panels.astype(np.float64)),
    ],
)
def test_weights_that_do_not_fit_together_are_refused(monkeypatch, name, change):
    monkeypatch.setattr("longtail.learners.linear.weights.PANEL_ROW_COST", 8.0)
    X, Y = small_data(n_rows=300, n_features=60, n_labels=200)
    learner = OneVsRest(prune_below=0.2).fit(X, Y)
    weights = learner.weights_
    assert min(len(weights.entry_lanes_), len(weights.panels_)) > 0
    setattr(weights, name, change(getattr(weights, name)))
    with pytest.raises(ModelError, match="don't fit together"):
        learner.predict_topk(X, 2, only=[0])


def test_ctrl_c_stops_training_and_leaves_no_threads():
    X = sp.random_array((20000, 200), density=0.2, rng=np.random.default_rng(0), dtype=np.float32, format="csr")
    Y = sp.random_array((20000, 500), density=0.05, rng=np.random.default_rng(1), dtype=np.float32, format="csr")
    learner = OneVsRest(tol=1e-4, max_iter=1000, n_jobs=2)
    OneVsRest(n_jobs=2).fit(X[:50], Y[:50])
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    with pytest.raises(Interrupted, match="of 500 labels were done"):
        learner.fit(X, Y)
    assert time.monotonic() - started < 20
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("longtail")]
