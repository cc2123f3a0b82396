from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.errors import InputError, ParameterError
from longtail.metrics import calibration_curve, calibration_error
from longtail.topk import TopK


def top(labels, scores) -> TopK:
    return TopK(np.array(labels, np.int32), np.array(scores, np.float32))


def test_by_hand() -> None:
    """Two bins. Below one half: 0.25 (hit) and 0 (miss). Above: 0.5 (miss), 0.75 (hit) and 1 (hit). One is padding.

    |12.5 - 50| over 2 predictions and |75 - 66.67| over 3.
    """
    ranking = top([[0, 1], [1, 0], [0, -1]], [[1.0, 0.25], [0.75, 0.5], [0.0, -np.inf]])
    curve = calibration_curve(ranking, [[1, 1], [0, 1], [0, 1]], k=2, bins=2)
    assert curve.edges.tolist() == [0, 0.5, 1]
    assert curve.count.tolist() == [2, 3]
    assert curve.predicted == pytest.approx([12.5, 75])
    assert curve.observed == pytest.approx([50, 200 / 3])
    assert curve.error == pytest.approx((2 * 37.5 + 3 * (75 - 200 / 3)) / 5)
    assert calibration_error(ranking, [[1, 1], [0, 1], [0, 1]], k=2, bins=2) == curve.error
    first = calibration_curve(ranking, [[1, 1], [0, 1], [0, 1]], k=1, bins=2)
    assert first.count.tolist() == [1, 2]


def test_labels_outside_the_columns_are_wrong() -> None:
    assert calibration_error(top([[7]], [[0.25]]), [[1, 0]], k=1) == 25


@given(st.lists(st.tuples(st.floats(0, 1, width=32), st.booleans()), min_size=1, max_size=40), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_as_in_a_plain_loop(predictions: list[tuple[float, bool]], bins: int) -> None:
    scores, right = np.array([p for p, _ in predictions]), np.array([r for _, r in predictions])
    found = calibration_curve(top(np.zeros((len(scores), 1)), scores[:, None]), right[:, None], 1, bins)
    total = 0.0
    for index in range(bins):
        low, high = found.edges[index], found.edges[index + 1]
        inside = (scores >= low) & ((scores < high) | (index == bins - 1))
        assert found.count[index] == inside.sum()
        if inside.any():
            total += inside.sum() * abs(scores[inside].mean() - right[inside].mean())
        else:
            assert np.isnan([found.predicted[index], found.observed[index]]).all()
    assert found.error == pytest.approx(100 * total / len(scores), abs=1e-6)


def test_true_probabilities_have_a_small_error_and_others_a_large_one() -> None:
    rng = np.random.default_rng(0)
    p = rng.random((20_000, 1))
    labels, Y = np.zeros((20_000, 1)), rng.random((20_000, 1)) < p
    assert calibration_error(top(labels, p), Y, 1) < 1.5
    assert calibration_error(top(labels, p**2), Y, 1) == pytest.approx(100 / 6, abs=1.5)  # mean of p - p squared


def test_reads_well() -> None:
    curve = calibration_curve(top([[0]], [[0.3]]), [[1]], 1, 4)
    assert repr(curve).splitlines() == [
        "Calibration of 1 predictions, in percent; error 70.00",
        "score      predictions  mean score    true",
        "0.25-0.50            1       30.00  100.00",
    ]


def test_nothing_predicted() -> None:
    assert calibration_error(top([[-1]], [[-np.inf]]), [[1]], 1) == 0


@pytest.mark.parametrize("score", [-0.1, 1.01, np.nan, np.inf])
def test_scores_that_are_no_probabilities(score: float) -> None:
    with pytest.raises(InputError, match="calibrate the model first"):
        calibration_error(top([[0]], [[score]]), [[1]], 1)


def test_refused() -> None:
    good = top([[0]], [[0.5]])
    with pytest.raises(InputError, match="give a TopK"):
        calibration_error([[0]], [[1]], 1)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="1 rows and Y has 2"):
        calibration_error(good, [[1], [0]], 1)
    with pytest.raises(ParameterError, match="bins"):
        calibration_error(good, [[1]], 1, bins=0)
    with pytest.raises(ParameterError, match="k must"):
        calibration_error(good, [[1]], 0)
