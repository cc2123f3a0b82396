"""Fitted label trees: new labels, bounded pruning, resumption, memory limits, estimates."""

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import Model, OneVsRest, Popularity, TextLearner, Tfidf, resumable
from longtail.config import config_context
from longtail.data import Dataset
from longtail.errors import InputError, ParameterError
from longtail.learners.linear import training
from longtail.losses import SquaredHinge
from longtail.runtime.memory import resident_memory
from longtail.weighting import PW
from tests.learners.contract import small_data


def test_new_labels_join_and_the_others_stay():
    X, Y = small_data(n_rows=300, n_labels=150)
    old = OneVsRest(weighting=PW()).fit(X, Y[:, :100])
    before, intercept = old.coef_, old.intercept_
    grown = old.add_labels(X, Y[:, 100:])
    assert (grown.n_labels_, grown.n_rows_) == (150, 300)
    np.testing.assert_array_equal(grown.label_counts_, Y.toarray().sum(axis=0))
    np.testing.assert_array_equal(grown.coef_[:100].toarray(), before.toarray())
    np.testing.assert_array_equal(grown.intercept_[:100], intercept)
    alone = OneVsRest(weighting=PW(), tol=1e-4, max_iter=2000, precision="float32").fit(X, Y[:, 100:])
    exact = OneVsRest(weighting=PW(), tol=1e-4, max_iter=2000, precision="float32").fit(X, Y[:, :100])
    exact.add_labels(X, Y[:, 100:])
    np.testing.assert_allclose(exact.coef_[100:].toarray(), alone.coef_.toarray(), atol=2e-2)
    top = grown.predict_topk(X, 150)
    dense = X.toarray() / np.maximum(np.linalg.norm(X.toarray(), axis=1, keepdims=True), 1e-30)
    scores = dense @ grown.coef_.toarray().T + grown.intercept_
    for row in range(5):
        found = top.labels[row] >= 0
        np.testing.assert_allclose(top.scores[row][found], scores[row, top.labels[row][found]], atol=1e-4)


def test_new_labels_are_the_same_for_any_number_of_threads():
    X, Y = small_data(n_rows=200, n_labels=200)
    one, two = (OneVsRest(n_jobs=threads).fit(X, Y[:, :70]).add_labels(X, Y[:, 70:]) for threads in (1, 2))
    np.testing.assert_array_equal(one.coef_.toarray(), two.coef_.toarray())


def test_new_labels_need_rows_that_fit():
    X, Y = small_data()
    learner = OneVsRest().fit(X, Y)
    with pytest.raises(InputError, match="the same rows"):
        learner.add_labels(X, Y[:3])
    with pytest.raises(InputError, match="features"):
        learner.add_labels(X[:, :3], Y)
    assert learner.n_labels_ == Y.shape[1]


@pytest.mark.parametrize("precisions", [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_new_labels_take_the_precision_of_the_others(precisions):
    X, Y = small_data()
    learner = OneVsRest(precision=precisions[0]).fit(X, Y)
    before = learner.coef_.toarray()
    learner.set_params(precision=precisions[1]).add_labels(X, Y[:, :2])
    np.testing.assert_array_equal(learner.coef_.toarray()[:-2], before)


def test_growing_never_uses_blocks_of_another_run(tmp_path):
    X, Y = small_data(n_rows=200, n_labels=200)
    learner = OneVsRest().fit(X, Y)
    with pytest.raises(ParameterError), resumable(tmp_path / "kept"), config_context(memory_limit="1MB"):
        learner.add_labels(X, Y)
    clean = OneVsRest().fit(X, Y[:, :100]).add_labels(X, Y[:, 100:])
    (tmp_path / "kept").mkdir(exist_ok=True)
    for file in (tmp_path / "kept").iterdir():
        file.unlink()
    with resumable(tmp_path / "kept"):
        grown = OneVsRest().fit(X, Y[:, :100]).add_labels(X, Y[:, 100:])
    np.testing.assert_array_equal(grown.coef_.toarray(), clean.coef_.toarray())


def test_a_model_grown_from_other_rows_can_be_evaluated():
    X, Y = small_data(n_rows=300)
    model = Model(OneVsRest().fit(X[:20], Y[:20]))
    model.add_labels(X, np.ones((300, 1)))
    assert model.label_counts[-1] == 20
    assert model.evaluate(Dataset(X, sp.csr_array(sp.hstack([Y, np.ones((300, 1))]))))["P@1"] > 0


def test_a_model_that_could_not_grow_is_unchanged():
    X, Y = small_data()
    model = Model(OneVsRest().fit(X, Y))
    with pytest.raises(InputError):
        model.add_labels(X[:5], Y[:6, :1], ["new"])
    with pytest.raises(ParameterError, match="no other label"):
        model.add_labels(X, Y[:, :1], ["7"])
    assert (model.label_names, model.n_labels) == (None, Y.shape[1])
    model.add_labels(X, Y[:, :1], np.array(["new"]))
    assert model.label_names[-2:] == [str(Y.shape[1] - 1), "new"]


def test_new_labels_of_a_model_have_names(tmp_path):
    texts = ["a red ship", "a blue ship", "a red tree", "a blue tree"] * 5
    Y = np.array([[1, 0], [1, 0], [0, 1], [0, 1]] * 5)
    learner = TextLearner(features=Tfidf(min_df=1)).fit(texts, Y)
    model = Model(learner, ["ship", "tree"])
    with pytest.raises(ParameterError, match="one name for each"):
        model.add_labels(texts, Y[:, :1])
    with pytest.raises(ParameterError, match="no other label"):
        model.add_labels(texts, Y[:, :1], ["tree"])
    model.add_labels(texts, np.array([[1], [0], [1], [0]] * 5), ["red"])
    model.save(tmp_path / "model")
    assert Model.load(tmp_path / "model").predict_names(["red"], k=1)[0][0][0] == "red"
    with pytest.raises(InputError, match="can't add labels: refit on all rows"):
        Model(Popularity().fit([[1]], [[1]])).add_labels([[1]], [[1]])


def training_loss(learner, X, Y):
    dense = X.toarray() / np.maximum(np.linalg.norm(X.toarray(), axis=1, keepdims=True), 1e-30)
    scores, truth = dense @ learner.coef_.toarray().T + learner.intercept_, Y.toarray() > 0
    loss = np.where(truth, SquaredHinge().positive(scores), SquaredHinge().negative(scores)).sum(axis=0)
    return loss, 0.5 * ((learner.coef_.toarray() ** 2).sum(axis=1) + (learner.intercept_ + 1) ** 2)


@pytest.mark.parametrize(
    ("rise", "precision"),  # rounding to bfloat16 is a rise of its own, so 0 can't be kept there
    [(0.0, "float32"), (0.01, "float32"), (0.1, "float32"), (0.01, "bfloat16"), (0.1, "bfloat16")],
)
def test_pruning_keeps_its_bound(rise, precision):
    X, Y = small_data(n_rows=300, n_features=80, n_labels=70)
    same = {"precision": precision, "tol": 0.01}
    full = OneVsRest(prune_below=0, precision="float32", tol=0.01).fit(X, Y)
    pruned = OneVsRest(prune_below=0.01, prune_rise=rise, **same).fit(X, Y)
    before, regulariser = training_loss(full, X, Y)
    after, _ = training_loss(pruned, X, Y)
    seen = full.label_counts_ > 0
    assert (after[seen] <= before[seen] + rise * (before + regulariser)[seen] + 1e-3).all()
    blunt = OneVsRest(prune_below=0.01, **same).fit(X, Y)
    assert pruned.coef_.nnz < {0.0: 1.1, 0.01: 0.8, 0.1: 0.5}[rise] * blunt.coef_.nnz


def test_interrupted_training_resumes_from_finished_blocks(tmp_path, monkeypatch):
    X, Y = small_data(n_rows=300, n_labels=400)
    whole = OneVsRest(n_jobs=2).fit(X, Y)
    solve, solved = training.BlockTrainer.solve, []

    def solve_some(self, labels, number, stop):
        if number == 4:
            raise KeyboardInterrupt
        solved.append(number)
        return solve(self, labels, number, stop)

    monkeypatch.setattr(training.BlockTrainer, "solve", solve_some)
    with pytest.raises(KeyboardInterrupt), resumable(tmp_path / "kept"):
        OneVsRest(n_jobs=1).fit(X, Y)
    first, solved[:] = list(solved), []
    monkeypatch.setattr(training.BlockTrainer, "solve", lambda *args: solved.append(args[2]) or solve(*args))
    with pytest.raises(InputError, match="another training"), resumable(tmp_path / "kept"):
        OneVsRest(C=2.0).fit(X, Y)
    with pytest.raises(InputError, match="another training"), resumable(tmp_path / "kept"):
        OneVsRest().fit(X * 2, Y)
    with resumable(tmp_path / "kept"):
        resumed = OneVsRest(n_jobs=2).fit(X, Y)
    assert {0, 1, 2, 3} <= set(first)
    assert sorted(solved) == [4, 5, 6], "the first four were kept"
    np.testing.assert_array_equal(resumed.coef_.toarray(), whole.coef_.toarray())
    assert not (tmp_path / "kept").exists()


def test_a_memory_limit_takes_threads_away_or_refuses(monkeypatch):
    X, Y = small_data(n_rows=200)
    each = training.block_bytes(*X.shape)
    used = resident_memory()
    monkeypatch.setattr("longtail.runtime.memory.resident_memory", lambda: used)
    with config_context(memory_limit=used + 3 * each + 5, n_jobs=8):
        assert OneVsRest()._affordable_threads(*X.shape) == 3
    with config_context(memory_limit="900GB", n_jobs=2):
        assert OneVsRest()._affordable_threads(*X.shape) == 2
    free = OneVsRest(n_jobs=2).fit(X, Y)
    with config_context(memory_limit=used + each + 5):
        tight = OneVsRest(n_jobs=2).fit(X, Y)
    np.testing.assert_array_equal(free.coef_.toarray(), tight.coef_.toarray())
    with pytest.raises(ParameterError, match="raise it to"), config_context(memory_limit=used + each - 5):
        OneVsRest().fit(X, Y)


def test_an_estimate_is_near_what_happens():
    rng = np.random.default_rng(0)
    X = sp.random_array((3000, 2000), density=0.02, rng=rng, format="csr", dtype=np.float32)
    Y = sp.random_array((3000, 1500), density=0.002, rng=rng, format="csr", dtype=np.float32)
    Y.data[:] = 1
    learner = OneVsRest(n_jobs=1)
    resident = resident_memory() / 1e6
    estimate = learner.estimate(X, Y)
    assert not hasattr(learner, "weights_")
    learner.fit(X, Y)
    size = sum(getattr(learner.weights_, name).nbytes for name in learner.weights_._stored) / 1e6
    assert size / 1.3 < estimate.model_mb < 1.3 * size
    assert estimate.block_mb == pytest.approx(training.block_bytes(3000, 2000) / 1e6)
    assert estimate.seconds > 0
    many = OneVsRest(n_jobs=12).estimate(X, Y)
    assert many.threads == 12
    assert many.peak_memory_mb >= resident + 12 * many.block_mb
    assert Popularity().estimate(X, Y).model_mb < 0.1
