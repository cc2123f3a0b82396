import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from longtail import Model
from longtail.errors import InputError, ParameterError
from longtail.features.tfidf.tfidf import Tfidf
from longtail.learners import InstanceForest, Learner, Popularity, TextLearner
from tests.learners.contract import LearnerContract, assert_same

TEXTS = ["red fish blue fish", "red car", "blue car", "red fish", ""]
LABELS = [[1, 0, 0], [0, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 0]]


def as_texts(X):
    """Texts whose word counts are the rows."""
    X = sp.csr_array(X)
    return [
        " ".join(f"word{column} " * int(count) for column, count in zip(X[[row]].indices, X[[row]].data, strict=True))
        for row in range(X.shape[0])
    ]


class TestTextLearner(LearnerContract):
    def make(self, *, n_jobs=None, **params):
        if n_jobs is not None:
            params = {"features": Tfidf(min_df=1, n_jobs=n_jobs), **params}
        return TextLearner(**{"features": Tfidf(min_df=1), "learner": Popularity(), **params})

    def rows(self, X):
        return as_texts(X)

    def test_gives_what_its_parts_give(self):
        learner = TextLearner(features=Tfidf(min_df=1), learner=Popularity()).fit(TEXTS, LABELS)
        features = Tfidf(min_df=1).fit(TEXTS)
        assert learner.n_features_in_ == len(features.feature_names())
        alone = Popularity().fit(features.transform(TEXTS), LABELS)
        new = ["a fish", "something else", ""]
        assert_same(learner.predict_topk(new, 3), alone.predict_topk(features.transform(new), 3))
        assert (learner.predict(new) != alone.predict(features.transform(new))).nnz == 0

    def test_more_trees_over_texts(self):
        forest = {"leaf_size": 1, "C": 10.0}
        learner = TextLearner(features=Tfidf(min_df=1), learner=InstanceForest(n_trees=2, **forest)).fit(TEXTS, LABELS)
        larger = TextLearner(features=Tfidf(min_df=1), learner=InstanceForest(n_trees=5, **forest)).fit(TEXTS, LABELS)
        assert learner.add_trees(TEXTS, LABELS, 3) is learner
        assert learner.learner.n_trees == 5
        assert_same(learner.predict_topk(TEXTS, 3), larger.predict_topk(TEXTS, 3))
        with pytest.raises(InputError, match="Popularity has no instance trees"):
            TextLearner(learner=Popularity()).fit(TEXTS, LABELS).add_trees(TEXTS, LABELS, 1)

    @pytest.mark.parametrize(
        ("inside", "reason"),
        [
            (LogisticRegression(), "must be a learner or None"),
            ("dismec", "must be a learner or None"),
            (TextLearner(), "must take a matrix: give the one that it wraps"),
        ],
    )
    def test_what_is_no_learner_over_matrices_is_refused(self, inside, reason):
        with pytest.raises(ParameterError, match=reason):
            TextLearner(learner=inside).fit(TEXTS, LABELS)

    def test_nested_parameters(self):
        learner = TextLearner(features=Tfidf(ngram_range=(1, 2)), learner=Popularity())
        learner.set_params(features__ngram_range=(1, 3), features__min_df=1)
        assert learner.features.ngram_range == (1, 3)
        assert learner.get_params()["features__min_df"] == 1
        copy = clone(learner)
        assert copy.features is not learner.features
        assert copy.features.ngram_range == (1, 3)

    def test_nested_parameters_of_a_default_part(self):
        learner = TextLearner(learner=Popularity()).set_params(features__min_df=1)
        assert learner.features.min_df == 1
        assert TextLearner().features is None

    def test_parts_are_not_fitted_themselves(self):
        features, inner = Tfidf(min_df=1), Popularity()
        TextLearner(features=features, learner=inner).fit(TEXTS, LABELS)
        with pytest.raises(NotFittedError):
            features.transform(TEXTS)
        with pytest.raises(NotFittedError):
            inner.predict_topk([[1]])

    def test_features_and_learner_stay_together_when_interrupted_between(self, monkeypatch):
        learner = self.make().fit(TEXTS, LABELS)
        before, whole_fit = dict(vars(learner)), Learner._fit_unchecked

        def interrupted_after(self, X, Y):
            whole_fit(self, X, Y)
            if isinstance(self, TextLearner):
                raise KeyboardInterrupt
            return self

        monkeypatch.setattr(Learner, "_fit_unchecked", interrupted_after)
        with pytest.raises(KeyboardInterrupt):
            learner.fit(["another text", "and words"], [[1], [0]])
        assert vars(learner) == before

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ("one text", "one text"),
            (sp.eye_array(3), "must be a list of texts"),
            (np.eye(3), r"must be a list of texts, got a matrix \(ndarray\)"),
            ([[1, 0], [0, 1], [1, 1]], r"must be a list of texts, got a matrix \(list\)"),
            (None, "must be a list of texts"),
            (["fine", None], r"X\[1\]"),
            ([b"bytes"], "X must|X.0. must"),
        ],
    )
    def test_what_is_no_list_of_texts_is_an_error(self, fitted, wrong, message):
        for call in (lambda: self.make().fit(wrong, [[1]] * 3), lambda: fitted.predict_topk(wrong)):
            with pytest.raises(InputError, match=message):
                call()

    @pytest.mark.parametrize("matrix", [np.eye(2), sp.eye_array(2), [[1, 0], [0, 1]]], ids=["array", "sparse", "lists"])
    def test_a_matrix_is_refused_by_every_method(self, fitted, matrix):
        model, y = Model(fitted), np.eye(2, fitted.n_labels_)
        for call in (
            lambda: self.make().fit(matrix, y),
            lambda: self.make().estimate(matrix, y),
            lambda: fitted.predict_topk(matrix),
            lambda: fitted.predict(matrix),
            lambda: fitted.decision_function(matrix),
            lambda: fitted.score(matrix, y),
            lambda: fitted.update(matrix, y),
            lambda: fitted.explain(matrix),
            lambda: model.predict_topk(matrix),
            lambda: model.explain(matrix),
        ):
            with pytest.raises(InputError, match="X must be a list of texts, got a matrix"):
                call()

    def test_arrays_and_tuples_of_texts_are_fine(self, fitted, data):
        texts = data[0][:5]
        expected = fitted.predict_topk(texts, 3)
        for same in (tuple(texts), np.array(texts), np.array(texts, dtype=object)):
            assert_same(fitted.predict_topk(same, 3), expected)

    def test_wrong_parameters_of_the_parts_are_refused_before_work(self):
        with pytest.raises(ParameterError, match="ngram_range"):
            TextLearner(features=Tfidf(ngram_range=(0, 1)), learner=Popularity()).fit(["x"], [[1], [0]])


@pytest.mark.parametrize("features", [5, object(), ["tfidf"], Popularity()])
def test_wrong_features_are_refused(features):
    with pytest.raises(ParameterError, match=r"features must be Tfidf, TfidfEmbedding, Tokens, or the name of one"):
        TextLearner(features=features).fit(["red fish"], [[1]])
