"""OneVsRest with losses that bring their own correction for missing labels."""

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import Model, OneVsRest, load
from longtail.errors import ParameterError
from longtail.losses import SquaredHinge, Surrogate, Unbiased, ZeroOne
from longtail.propensity import GivenPropensity
from longtail.weighting import PW, ClassBalanced, PWcb

RNG = np.random.default_rng(0)
X = sp.random_array((400, 60), density=0.1, rng=RNG, format="csr")
Y = (RNG.random((400, 70)) < np.linspace(0.02, 0.4, 70)).astype(float)
P = RNG.uniform(0.1, 1, 70)


def fit(**params):
    return OneVsRest(n_jobs=1, precision="float32", **params).fit(X, Y)


@pytest.mark.parametrize("loss", ["squared-hinge", "hinge", "logistic"])
def test_a_surrogate_is_the_loss_with_the_weighting(loss):
    known = GivenPropensity(values=P)
    surrogate, weighted = fit(loss=Surrogate(loss, propensity=P)), fit(loss=loss, weighting=PW(propensity=known))
    assert surrogate.coef_.nnz
    np.testing.assert_array_equal(surrogate.coef_.toarray(), weighted.coef_.toarray())
    np.testing.assert_array_equal(surrogate.intercept_, weighted.intercept_)
    balanced = fit(loss=Surrogate(loss, propensity=P), weighting=ClassBalanced())
    both = fit(loss=loss, weighting=PWcb(propensity=known))
    np.testing.assert_allclose(balanced.coef_.toarray(), both.coef_.toarray(), atol=2e-2)


def test_where_nothing_goes_missing_the_unbiased_loss_is_the_loss():
    np.testing.assert_array_equal(
        fit(loss=Unbiased("hinge", propensity=1.0)).coef_.toarray(), fit(loss="hinge").coef_.toarray()
    )


@pytest.mark.parametrize(
    "loss", [Unbiased("hinge", propensity=0.5), Unbiased("logistic", propensity=0.5), "zero-one", ZeroOne()], ids=str
)
def test_what_has_no_minimum_is_refused(loss):
    with pytest.raises(ParameterError, match=r"^loss must be"):
        fit(loss=loss)


def test_propensities_count_once_and_must_fit_the_labels():
    with pytest.raises(ParameterError, match="must not use propensities"):
        fit(loss=Surrogate("hinge", propensity=0.5), weighting="pw")
    with pytest.raises(ParameterError, match="must be 70, got 3"):
        fit(loss=Surrogate("hinge", propensity=[0.5, 0.5, 0.5]))


def test_a_model_keeps_the_loss(tmp_path):
    learner = fit(loss=Surrogate(SquaredHinge(), propensity=P))
    Model(learner).save(tmp_path / "model")
    again = load(tmp_path / "model").learner
    assert isinstance(again.loss, Surrogate)
    np.testing.assert_array_equal(again.loss.propensity, P)
    np.testing.assert_array_equal(again.coef_.toarray(), learner.coef_.toarray())
