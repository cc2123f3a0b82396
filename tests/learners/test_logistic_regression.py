"""The logistic regression behind stacking, against plain numpy and scikit-learn."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from longtail.learners.platt import add_derivatives, fit_logistic


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(500, 3))
    truth = (rng.random(500) < 1 / (1 + np.exp(-(features @ [1.0, -2.0, 0.5] - 0.7)))).astype(np.float64)
    return features, truth


def test_derivatives(data):
    features, truth = data
    inputs, weights = np.column_stack([features, np.ones(500)]), np.array([0.3, -0.1, 0.9, 0.2])
    chances = 1 / (1 + np.exp(-inputs @ weights))
    slope, curvature = np.zeros(4), np.zeros((4, 4))
    add_derivatives(features, truth, weights, slope, curvature)
    np.testing.assert_allclose(slope, inputs.T @ (chances - truth), rtol=1e-9)
    np.testing.assert_allclose(curvature, (inputs * (chances * (1 - chances))[:, None]).T @ inputs, rtol=1e-9)


def test_weights_are_those_of_scikit_learn(data):
    features, truth = data
    other = LogisticRegression(C=1 / 0.5, tol=1e-10, max_iter=1000).fit(features, truth)
    found = fit_logistic(features, truth, ridge=0.5)
    np.testing.assert_allclose(found, [*other.coef_[0], other.intercept_[0]], rtol=1e-5)
