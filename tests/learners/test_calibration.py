import numpy as np
import pytest

from longtail import Model, OneVsRest
from longtail.data import Dataset
from longtail.errors import InputError, ParameterError
from longtail.learners import Calibration
from longtail.metrics import calibration_error
from longtail.topk import TopK
from tests.learners.contract import small_data


def simulated(n=20000, seed=0):
    """Predictions of a frequent and a rare label whose scores mean different things."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, (n, 1)).astype(np.int32)
    scores = rng.normal(size=(n, 1)).astype(np.float32)
    chance = 1 / (1 + np.exp(-(1.5 * scores - np.where(labels == 0, 0, 2))))
    Y = np.zeros((n, 2))
    Y[np.arange(n), labels[:, 0]] = rng.random((n, 1))[:, 0] < chance[:, 0]
    return TopK(labels, scores), Y, chance


@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_each_bin_gets_its_own_probabilities(method):
    top, Y, chance = simulated()
    counts = [900, 4]
    own = Calibration(method=method).fit(top, Y, counts).probabilities(top)
    one = Calibration(method=method, bins=None).fit(top, Y, counts).probabilities(top)
    assert np.abs(own.scores - chance).mean() < 0.02
    assert np.abs(one.scores - chance).mean() > 0.1
    assert ((own.scores >= 0) & (own.scores <= 1)).all()
    np.testing.assert_array_equal(own.labels, top.labels)


def test_platt_agrees_with_a_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    top, Y, _ = simulated()
    hits = Y[np.arange(len(top)), top.labels[:, 0]]
    regression = LogisticRegression(C=1e6).fit(top.scores, hits)
    found = Calibration(method="platt", bins=None).fit(top, Y, [9, 9]).probabilities(top)
    np.testing.assert_allclose(found.scores[:, 0], regression.predict_proba(top.scores)[:, 1], atol=2e-3)


def test_probabilities_rise_with_the_score():
    top, Y, _ = simulated(3000)
    calibration = Calibration().fit(top, Y, [900, 4])
    grid = np.linspace(-5, 5, 200, dtype=np.float32)[:, None]
    for label in (0, 1):
        found = calibration.probabilities(TopK(np.full((200, 1), label, np.int32), grid)).scores[:, 0]
        assert (np.diff(found) >= 0).all()


def test_padding_gets_zero_and_a_bin_with_few_rows_the_common_map():
    top, Y, _ = simulated(3000)
    few = TopK(np.zeros((3000, 1), np.int32), top.scores)
    calibration = Calibration().fit(few, Y, [900, 4])
    both = calibration.probabilities(
        TopK(np.array([[0], [1], [-1]], np.int32), np.array([[1.0], [1], [-np.inf]], "f4"))
    )
    assert both.scores[0, 0] == both.scores[1, 0] > 0
    assert both.scores[2, 0] == 0


def test_what_cannot_be_learned_from_is_refused():
    top, Y, _ = simulated(50)
    with pytest.raises(InputError, match="more held-out rows"):
        Calibration().fit(top, np.zeros_like(Y), [5, 5])
    with pytest.raises(ParameterError, match="method"):
        Calibration(method="magic").fit(top, Y, [5, 5])
    with pytest.raises(InputError, match="shape"):
        Calibration().fit(top, Y[:3], [5, 5])


def test_a_model_keeps_its_calibration(tmp_path):
    X, Y = small_data(n_rows=400, n_labels=30)
    model = Model(OneVsRest().fit(X[:200], Y[:200]))
    with pytest.raises(InputError, match="calibrate it"):
        model.predict_topk(X, 3, probabilities=True)
    model.calibrate(Dataset(X[200:], Y[200:]))
    plain, likely = model.predict_topk(X, 3), model.predict_topk(X, 3, probabilities=True)
    np.testing.assert_array_equal(plain.labels, likely.labels)
    assert ((likely.scores >= 0) & (likely.scores <= 1)).all()
    model.save(tmp_path / "model")
    again = Model.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_topk(X, 3, probabilities=True).scores, likely.scores)
    held_out = Dataset(X[200:], Y[200:])
    scores = again.evaluate(held_out, ks=(1, 3))
    shown = again.predict_topk(held_out, 3, probabilities=True)
    assert scores["ECE@3"] == calibration_error(shown, Y[200:], 3) < 15
    assert "ECE@1" not in Model(again.learner).evaluate(held_out)
