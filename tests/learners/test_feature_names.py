"""Column names of data frames: kept, saved, and compared with those of other rows."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from longtail import Blend, LabelTree, Model, OneVsRest, Popularity, TailDial
from longtail.errors import InputError
from tests.learners.contract import small_data

pandas = pytest.importorskip("pandas", reason="makes data frames")


@pytest.fixture
def frame():
    X, Y = small_data()
    return pandas.DataFrame(X.toarray(), columns=[f"ä {column}" for column in range(X.shape[1])]), Y


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


BLEND = Blend(learners=[OneVsRest(), Popularity()], weights=[1, 1])


@pytest.mark.parametrize("learner", [OneVsRest(), TailDial(learner=OneVsRest()), BLEND])
def test_other_columns_are_refused(frame, learner, tmp_path):
    X, Y = frame
    fitted = clone(learner).fit(X, Y)
    Model(fitted).save(tmp_path / "model")
    for one in (fitted, Model.load(tmp_path / "model", verify=True).learner):
        assert one.feature_names_in_.dtype == object
        assert one.feature_names_in_.tolist() == list(X.columns)
        np.testing.assert_array_equal(one.predict_topk(X, 3).labels, fitted.predict_topk(X, 3).labels)
        for method in (one.predict_topk, one.predict, one.predict_proba) if learner is BLEND else (one.predict,):
            with pytest.raises(InputError, match="same order as they were in fit"):
                method(X[X.columns[::-1]])
        with pytest.raises(InputError, match="- b"):
            one.explain(X[:1].rename(columns={"ä 0": "b"}))
        with pytest.warns(UserWarning, match="does not have valid feature names"):
            one.predict_topk(X.to_numpy())


def test_updates_are_refused_too(frame):
    X, Y = frame
    learner = OneVsRest().fit(X, Y)
    with pytest.raises(InputError, match="same order"):
        learner.update(X[X.columns[::-1]], Y)
    learner.update(X, Y)
    LabelTree(n_trees=1).fit(X, Y).update(X, Y)


def test_another_fit_forgets_them(frame):
    X, Y = frame
    learner = OneVsRest().fit(X, Y)
    with pytest.raises(InputError, match="NaN"):
        learner.fit(X.assign(**{"ä 0": np.nan}), Y)
    assert hasattr(learner, "feature_names_in_")
    learner.fit(X.to_numpy(), Y)
    assert not hasattr(learner, "feature_names_in_")


def test_a_blend_of_fitted_learners_has_theirs(frame):
    X, Y = frame
    learners = [OneVsRest().fit(X, Y), Popularity().fit(X, Y)]
    blend = Blend.from_fitted(learners, X, Y)
    assert blend.feature_names_in_ is learners[0].feature_names_in_
    blend.predict_topk(X)
    with pytest.raises(InputError, match="different feature names"):
        Blend.from_fitted([learners[0], Popularity().fit(X.to_numpy(), Y)], X, Y)
