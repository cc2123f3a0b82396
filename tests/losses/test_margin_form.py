"""Which losses a solver supports, and the errors for the others."""

import numpy as np
import pytest

from longtail.errors import ParameterError
from longtail.losses import (
    Hinge,
    Logistic,
    Loss,
    Rebalanced,
    SquaredHinge,
    Surrogate,
    Unbiased,
    UnbiasedRebalanced,
    ZeroOne,
    margin_form,
)

MARGIN = [Hinge(), SquaredHinge(), Logistic()]


@pytest.mark.parametrize(
    ("loss", "kind", "cost"),
    [
        ("logistic", Logistic, 1),
        (Hinge(), Hinge, 1),
        (Surrogate("squared-hinge", propensity=0.25), SquaredHinge, 7),
        (Surrogate(Hinge(), propensity=[0.25, 0.5]), Hinge, [7, 3]),
        (Rebalanced(Logistic(), propensity=0.5, factor=0.1), Logistic, 0.3),
        (Rebalanced(Logistic(), propensity=0.5, factor=0.1, order="rebalance-then-correct"), Logistic, 1.2),
        (Unbiased(Hinge(), propensity=1.0), Hinge, 1),
        (UnbiasedRebalanced(Hinge(), propensity=1.0, factor=0.4), Hinge, 0.4),
    ],
)
def test_what_it_is_made_of(loss, kind, cost):
    form = margin_form(loss)
    assert type(form.loss) is kind
    np.testing.assert_allclose(form.positive_cost, cost)
    np.testing.assert_allclose(form.costs(2), np.broadcast_to(cost, 2))


@pytest.mark.parametrize("plain", MARGIN, ids=lambda loss: loss.name)
def test_the_form_is_the_loss(plain):
    scores, y = np.random.default_rng(2).normal(size=(9, 2)), np.eye(9, 2)
    for loss in (Surrogate(plain, propensity=[0.2, 0.9]), Rebalanced(plain, propensity=[0.2, 0.9], factor=[1.0, 0.1])):
        form = margin_form(loss)
        rebuilt = form.loss.weighted_value(scores, y, positive_cost=form.costs(2))
        assert rebuilt == pytest.approx(loss.weighted_value(scores, y))


class Step(Loss):
    """Somebody's own loss, convex but no margin loss."""

    name = "step"
    convex = True
    positive = negative = positive_gradient = negative_gradient = lambda self, score: np.zeros_like(score)


@pytest.mark.parametrize(
    ("loss", "reason", "instead"),
    [
        (Unbiased(Hinge(), propensity=0.5), "is neither", r"use Surrogate\(Hinge\(\), propensity=\.\.\.\)"),
        (Unbiased("squared-hinge", propensity=[1.0, 0.5]), "is neither", r"Surrogate\(SquaredHinge\(\)"),
        (Unbiased(Logistic(), propensity=0.5), "not bounded below", r"Surrogate\(Logistic\(\)"),
        (UnbiasedRebalanced(Logistic(), propensity=0.5, factor=1.0), "not bounded below", r"Rebalanced\(Logistic\(\)"),
        (
            UnbiasedRebalanced("logistic", propensity=0.5, factor=0.1, order="rebalance-then-correct"),
            "is neither",
            r"Rebalanced\(Logistic\(\), propensity=\.\.\., factor=\.\.\.\)",
        ),
        ("zero-one", "must be convex", "squared-hinge, hinge or logistic"),
        (ZeroOne(), "must be convex", "squared-hinge, hinge or logistic"),
        (Surrogate(ZeroOne(), propensity=0.5), "must be convex", "squared-hinge, hinge or logistic"),
        (Step(), "must be a margin loss", "squared-hinge, hinge or logistic"),
        ("huber", "must be a Loss", "squared-hinge, hinge, logistic"),
    ],
)
def test_others_are_refused_with_the_reason_and_what_to_use(loss, reason, instead):
    with pytest.raises(ParameterError, match=f"^loss must be.*{reason.removeprefix('must be')}.*{instead}"):
        margin_form(loss)


def test_propensities_for_other_labels():
    with pytest.raises(ParameterError, match="number of labels of the loss must be 4, got 3"):
        margin_form(Surrogate("hinge", propensity=[0.1, 0.2, 0.3])).costs(4)
