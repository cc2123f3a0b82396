import pytest

from longtail import recipe
from longtail.errors import ParameterError
from longtail.learners import InstanceForest
from longtail.propensity import JainPropensity
from longtail.recipes import configure, find, recipes
from longtail.tail import CentroidReranker
from longtail.weighting import PW, InversePropensity, PWcb


def test_names():
    assert [known.name for known in recipes()] == [
        *("popularity", "dismec", "pw-dismec", "pw-cb-dismec"),
        *("parabel", "pw-parabel", "bonsai", "pw-bonsai", "pw-cb-bonsai", "plt"),
        *("fastxml", "pfastxml", "pfastrexml", "embedding", "glas", "glas+ranknet"),
        *("xgrank", "pw-xgrank", "pw-cb-xgrank", "xgrank-bce", "lightxml"),
        *("attentionxml", "pw-attentionxml", "pw-cb-attentionxml"),
        *("aplc-xlnet", "pw-aplc-xlnet", "pw-cb-aplc-xlnet", "xml-cnn", "word-bag"),
        *("ranknet+fastxml", "ranknet+parabel", "ranknet+bonsai"),
        *("taug+bonsai", "ranknet+taug+bonsai", "ips+bonsai", "longtail-tail", "longtail-tree"),
    ]
    for known in recipes():
        assert known.summary.endswith(".")
        assert known.build(None) is not known.build(None)


@pytest.mark.parametrize("name", ["dismec", "pw-dismec", "pw-cb-dismec"])
def test_published_constants(name):
    learner = recipe(name)
    assert (learner.loss, learner.regularisation, learner.prune_below) == ("squared-hinge", 1.0, 0.01)
    assert find(name).paper


def test_published_constants_of_trees():
    parabel, bonsai, plt = (recipe(name) for name in ("parabel", "bonsai", "plt"))
    assert (parabel.trees, parabel.arity, parabel.leaf_size, parabel.prune_below) == (3, 2, 100, 0.1)
    assert (parabel.beam, parabel.discount, parabel.balanced, parabel.negatives) == (10, 1.0, True, 0)
    assert (bonsai.trees, bonsai.arity, bonsai.leaf_size, bonsai.prune_below) == (3, 100, 100, 0.01)
    assert (bonsai.discount, bonsai.balanced, bonsai.max_depth) == (0.98, False, 2)
    assert (plt.loss, plt.regularisation, plt.search, plt.prune_below) == ("logistic", 10.0, "best-first", 0.1)
    for name, kind in (("pw-parabel", PW), ("pw-bonsai", PW), ("pw-cb-bonsai", PWcb)):
        weighted = recipe(name, propensity="Amazon-670K")
        assert isinstance(weighted.weighting, kind)
        assert weighted.weighting.propensity.b == 2.6
        plain = recipe(name.replace("pw-cb-", "").replace("pw-", ""))
        assert {**weighted.get_params(deep=False), "weighting": None} == plain.get_params(deep=False)


def test_published_constants_of_trees_over_rows():
    fastxml, pfastxml = recipe("fastxml"), recipe("pfastxml", propensity="Amazon-670K")
    for learner in (fastxml, pfastxml):
        assert isinstance(learner, InstanceForest)
        assert (learner.trees, learner.leaf_size, learner.leaf_labels) == (50, 10, 100)
        assert (learner.regularisation, learner.bias, learner.normalise) == (1.0, 1.0, False)
        assert (learner.newton_steps, learner.sweeps, learner.tolerance) == (10, 10, 0.01)
    assert (fastxml.weighting, fastxml.ideal) == (None, True)
    assert isinstance(pfastxml.weighting, InversePropensity)
    assert (pfastxml.weighting.propensity.b, pfastxml.ideal) == (2.6, False)
    pfastrexml = recipe("pfastrexml", propensity="Amazon-670K")
    assert isinstance(pfastrexml, CentroidReranker)
    assert (pfastrexml.gamma, pfastrexml.alpha, pfastrexml.candidates) == (30.0, 0.8, 1000)
    assert repr(pfastrexml.learner) == repr(pfastxml)
    assert recipe("pfastrexml", learner__trees=5, alpha=0.5).learner.trees == 5
    assert all(find(name).paper for name in ("fastxml", "pfastxml", "pfastrexml"))


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


def test_what_belongs_to_a_run_reaches_every_learner():
    learner = recipe("pfastrexml", threads=1, seed=7, memory_limit="3GB")
    assert (learner.threads, learner.learner.threads) == (1, 1)
    assert (learner.learner.seed, learner.learner.memory_limit) == (7, "3GB")
    for params in ({"threads": 2, "learner__threads": 1}, {"learner__threads": 1, "threads": 2}):
        mixed = recipe("pfastrexml", **params)
        assert (mixed.threads, mixed.learner.threads) == (2, 1)
    for params in ({"threads": 2, "learner": InstanceForest()}, {"learner": InstanceForest(), "threads": 2}):
        assert recipe("pfastrexml", **params).learner.threads == 2
    outer = configure(CentroidReranker(learner=recipe("pfastrexml")), {"threads": 3})
    assert [outer.threads, outer.learner.threads, outer.learner.learner.threads] == [3, 3, 3]
    assert recipe("pfastrexml", learner=None, threads=2).threads == 2


def test_a_learner_is_set_before_what_is_inside():
    for params in ({"leaf_size": 3, "learner": InstanceForest()}, {"learner": InstanceForest(), "leaf_size": 3}):
        assert recipe("pfastrexml", **params).learner.leaf_size == 3


@pytest.mark.parametrize("params", [{"trees": 2, "learner__trees": 3}, {"learner__trees": 3, "trees": 2}], ids=str)
def test_two_names_for_one_parameter_are_refused(params):
    with pytest.raises(ParameterError, match=r"^learner__trees sets the same as trees: give only one"):
        recipe("pfastrexml", **params)


@pytest.mark.parametrize("name", ["trees", "learner__trees", "weighting__propensity", "learner__threads"])
def test_parameters_of_a_learner_that_is_none_are_refused(name):
    for params in ({name: 1, "learner": None}, {"learner": None, name: 1}):
        with pytest.raises(ParameterError, match=f"^{name} is inside of learner, which is set to None"):
            recipe("pfastrexml", **params)


@pytest.mark.parametrize("name", ["taug+ranknet+bonsai", "taug+ips+bonsai", "taug+longtail-tail", "taug+taug+bonsai"])
def test_taug_stands_next_to_the_learner(name):
    with pytest.raises(ParameterError, match=r"as in ranknet\+taug\+bonsai"):
        recipe(name)
