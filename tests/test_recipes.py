import pytest

from longtail import recipe
from longtail.errors import ParameterError
from longtail.propensity import JainPropensity
from longtail.recipes import configure, find, recipes
from longtail.weighting import PW, PWcb


def test_names():
    assert [known.name for known in recipes()] == ["popularity", "dismec", "pw-dismec", "pw-cb-dismec"]
    for known in recipes():
        assert known.summary.endswith(".")
        assert known.build(None) is not known.build(None)


@pytest.mark.parametrize("name", ["dismec", "pw-dismec", "pw-cb-dismec"])
def test_published_constants(name):
    learner = recipe(name)
    assert (learner.loss, learner.regularisation, learner.prune_below) == ("squared-hinge", 1.0, 0.01)
    assert find(name).paper


def test_weightings():
    propensity = JainPropensity(a=0.6, b=2.6)
    assert recipe("dismec", propensity=propensity).weighting is None
    assert isinstance(recipe("pw-dismec").weighting, PW)
    balanced = recipe("pw-cb-dismec", propensity=propensity).weighting
    assert isinstance(balanced, PWcb)
    assert balanced.beta == 0.9
    assert balanced.order == "correct-then-rebalance"
    assert repr(balanced.propensity) == repr(propensity)
    assert repr(recipe("pw-dismec", propensity="Wikipedia-500K").weighting.propensity) == "JainPropensity(a=0.5, b=0.4)"


def test_parameters_can_be_set():
    learner = recipe("pw-cb-dismec", regularisation=0.5, weighting__beta=0.99, weighting__propensity__a=0.7)
    assert (learner.regularisation, learner.weighting.beta, learner.weighting.propensity.a) == (0.5, 0.99, 0.7)


def test_parameters_come_in_any_order():
    for params in (
        {"weighting__propensity__a": 0.7, "weighting__beta": 0.99, "weighting": "pw-cb"},
        {"weighting": "pw-cb", "weighting__beta": 0.99, "weighting__propensity__a": 0.7},
        {"weighting__propensity__a": 0.7, "weighting__propensity": None, "weighting": "pw-cb", "weighting__beta": 0.99},
    ):
        weighting = recipe("dismec", **params).weighting
        assert isinstance(weighting, PWcb)
        assert (weighting.beta, weighting.propensity.a) == (0.99, 0.7)


def test_unknown_recipe():
    with pytest.raises(
        ParameterError, match=r"recipe must be one of popularity, dismec.*did you mean pw-dismec.*pw_dismec"
    ):
        recipe("pw_dismec")


def test_unknown_parameter():
    with pytest.raises(
        ParameterError, match=r"regularization is no parameter.*did you mean regularisation.*prune_below"
    ):
        recipe("dismec", regularization=2)
    with pytest.raises(ParameterError, match="weighting__gamma"):
        recipe("pw-dismec", weighting__gamma=2)
    with pytest.raises(ParameterError, match="there are none"):
        configure(find("popularity").build(None), {"seed": 3})
