import pytest
import scipy.sparse as sp

from longtail import recipe
from longtail.config import get_config
from longtail.errors import ParameterError
from longtail.learners import InstanceForest, Popularity
from longtail.propensity import JainPropensity
from longtail.recipes import configure, find, recipes
from longtail.rerank import CentroidReranker
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
    assert (learner.loss, learner.C, learner.prune_below) == ("squared-hinge", 1.0, 0.01)
    assert find(name).paper


def test_published_constants_of_trees():
    parabel, bonsai, plt = (recipe(name) for name in ("parabel", "bonsai", "plt"))
    assert (parabel.n_trees, parabel.arity, parabel.leaf_size, parabel.prune_below) == (3, 2, 100, 0.1)
    assert (parabel.beam, parabel.discount, parabel.balanced, parabel.n_hard_negatives) == (10, 1.0, True, 0)
    assert (bonsai.n_trees, bonsai.arity, bonsai.leaf_size, bonsai.prune_below) == (3, 100, 100, 0.01)
    assert (bonsai.discount, bonsai.balanced, bonsai.max_depth) == (0.98, False, 2)
    assert (plt.loss, plt.C, plt.search, plt.prune_below) == ("logistic", 10.0, "best-first", 0.1)
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
        assert (learner.n_trees, learner.leaf_size, learner.leaf_labels) == (50, 10, 100)
        assert (learner.C, learner.bias, learner.normalise) == (1.0, 1.0, False)
        assert (learner.max_iter, learner.max_inner_iter, learner.tol) == (10, 10, 0.01)
    assert (fastxml.weighting, fastxml.criterion) == (None, "ndcg")
    assert isinstance(pfastxml.weighting, InversePropensity)
    assert (pfastxml.weighting.propensity.b, pfastxml.criterion) == (2.6, "dcg")
    pfastrexml = recipe("pfastrexml", propensity="Amazon-670K")
    assert isinstance(pfastrexml, CentroidReranker)
    assert (pfastrexml.gamma, pfastrexml.alpha, pfastrexml.top_k) == (30.0, 0.8, 1000)
    assert repr(pfastrexml.learner) == repr(pfastxml)
    assert recipe("pfastrexml", learner__n_trees=5, alpha=0.5).learner.n_trees == 5
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
    learner = recipe("pw-cb-dismec", C=0.5, weighting__beta=0.99, weighting__propensity__a=0.7)
    assert (learner.C, learner.weighting.beta, learner.weighting.propensity.a) == (0.5, 0.99, 0.7)


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
    with pytest.raises(ParameterError, match=r"recipe 'pw_dismec' doesn't exist \(did you mean pw-dismec\?\)"):
        recipe("pw_dismec")


def test_unknown_parameter():
    with pytest.raises(
        ParameterError, match=r"prune_bellow is not a parameter of this recipe.*did you mean prune_below.*C, bias"
    ):
        recipe("dismec", prune_bellow=2)
    with pytest.raises(ParameterError, match="weighting__gamma"):
        recipe("pw-dismec", weighting__gamma=2)
    with pytest.raises(ParameterError, match="there are none"):
        configure(find("popularity").build(None), {"random_state": 3})


def test_the_seed_reaches_every_learner_and_threads_the_outermost():
    """A fit with `n_jobs` runs what is inside with as many threads: see `longtail.config_context`."""
    learner = recipe("pfastrexml", n_jobs=1, random_state=7)
    assert (learner.n_jobs, learner.learner.n_jobs) == (1, None)
    assert learner.learner.random_state == 7
    for params in ({"n_jobs": 2, "learner__n_jobs": 1}, {"learner__n_jobs": 1, "n_jobs": 2}):
        mixed = recipe("pfastrexml", **params)
        assert (mixed.n_jobs, mixed.learner.n_jobs) == (2, 1)
    for params in ({"random_state": 2, "learner": InstanceForest()}, {"learner": InstanceForest(), "random_state": 2}):
        assert recipe("pfastrexml", **params).learner.random_state == 2
    outer = configure(CentroidReranker(learner=recipe("ips+dismec")), {"n_jobs": 3})
    assert (outer.n_jobs, outer.learner.learner.n_jobs) == (3, None)
    assert recipe("ips+dismec", n_jobs=3).learner.n_jobs == 3
    assert recipe("pfastrexml", learner=None, n_jobs=2).n_jobs == 2


def test_threads_of_a_learner_are_those_of_what_it_wraps():
    seen = []

    class Watching(Popularity):
        def _fit(self, X, Y):
            seen.append(get_config().n_jobs)
            super()._fit(X, Y)

    configure(CentroidReranker(learner=Watching()), {"n_jobs": 3}).fit(sp.eye_array(4), sp.eye_array(4))
    assert seen == [3]


def test_a_learner_is_set_before_what_is_inside():
    for params in ({"leaf_size": 3, "learner": InstanceForest()}, {"learner": InstanceForest(), "leaf_size": 3}):
        assert recipe("pfastrexml", **params).learner.leaf_size == 3


@pytest.mark.parametrize(
    "params", [{"n_trees": 2, "learner__n_trees": 3}, {"learner__n_trees": 3, "n_trees": 2}], ids=str
)
def test_two_names_for_one_parameter_are_refused(params):
    with pytest.raises(ParameterError, match=r"^learner__n_trees sets the same as n_trees: give only one"):
        recipe("pfastrexml", **params)


@pytest.mark.parametrize("name", ["n_trees", "learner__n_trees", "weighting__propensity", "learner__n_jobs"])
def test_parameters_of_a_learner_that_is_none_are_refused(name):
    for params in ({name: 1, "learner": None}, {"learner": None, name: 1}):
        with pytest.raises(ParameterError, match=f"^{name} is inside learner, which is set to None"):
            recipe("pfastrexml", **params)


@pytest.mark.parametrize("name", ["taug+ranknet+bonsai", "taug+ips+bonsai", "taug+longtail-tail", "taug+taug+bonsai"])
def test_taug_stands_next_to_the_learner(name):
    with pytest.raises(ParameterError, match=r"as in ranknet\+taug\+bonsai"):
        recipe(name)
