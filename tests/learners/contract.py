"""The contract of all learners as tests: a learner's test class inherits one of these mixins and makes the learner.

class TestMine(MatrixContract):
    def make(self, **params):
        return Mine(**params)
"""

from __future__ import annotations

import copy
import inspect

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score

from longtail import JainPropensity, Model, TopK
from longtail.errors import InputError, Interrupted, LongtailError, ParameterError
from tests.learners.rankings import assert_best, assert_ranked, dialled, filtered

UNSEEN = 5  # a label without a training row
NO_FEATURES, NO_LABELS = 7, 9  # rows
TWINS = (3, 10)  # labels with the same rows


def small_data(n_rows=80, n_features=40, n_labels=14, seed=0):
    """Rows of small integers, each label tied to three features, with all the special cases in it."""
    rng = np.random.default_rng(seed)
    Y = sp.random_array((n_rows, n_labels), density=0.2, rng=rng, format="lil", dtype=np.float32)
    Y[Y.nonzero()] = 1
    Y[:, [TWINS[1]]] = Y[:, [TWINS[0]]]
    Y[:, [UNSEEN]] = 0
    Y[[NO_LABELS], :] = 0
    Y[0, 0] = 1
    of_label = sp.lil_array((n_labels, n_features), dtype=np.float32)
    for label in range(n_labels):
        of_label[[label], rng.choice(n_features, 3, replace=False)] = 2
    noise = sp.random_array((n_rows, n_features), density=0.1, rng=rng, dtype=np.float32)
    noise.data[:] = 1
    X = sp.lil_array(sp.csr_array(Y) @ sp.csr_array(of_label) + noise)
    X[[NO_FEATURES], :] = 0
    return sp.csr_array(X), sp.csr_array(Y)


def assert_same(one: TopK, other: TopK, name: str = "") -> None:
    np.testing.assert_array_equal(one.labels, other.labels, err_msg=name)
    np.testing.assert_array_equal(one.scores, other.scores, err_msg=name)


class LearnerContract:
    """For any learner. `make` is required; `rows` makes the rows of a learner that takes no matrix."""

    exact = True  # whether `only` and `exclude` give exactly the rest of the full ranking
    other_params: dict[str, object] = {}  # noqa: RUF012 - parameters that differ from those of make()

    def make(self, **params):
        raise NotImplementedError

    def rows(self, X):
        return X

    def undialled(self, fitted):
        """The learner whose plain scores the tail dial multiplies: one that sets the dial gives the learner inside."""
        return fitted

    @pytest.fixture(scope="class")
    @classmethod
    def data(cls):
        X, Y = small_data()
        return cls().rows(X), Y

    @pytest.fixture(scope="class")
    @classmethod
    def fitted(cls, data):
        return cls().make().fit(*data)

    def test_labels_are_called_y_in_every_public_method(self):
        kind = type(self.make())
        methods = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
        taking = {name: inspect.signature(method).parameters for name, method in methods.items() if callable(method)}
        assert "y" in taking["fit"]
        assert not [name for name, parameters in taking.items() if "Y" in parameters]

    def test_parameters_are_keyword_only_and_kept_verbatim(self):
        parameters = inspect.signature(type(self.make()).__init__).parameters
        for name, parameter in list(parameters.items())[1:]:
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                assert parameter.kind == parameter.KEYWORD_ONLY, name
        learner = self.make(**self.other_params)
        for name, value in self.other_params.items():
            assert learner.get_params()[name] is value

    def test_clone_gives_the_same_parameters_unfitted(self, fitted):
        copy = clone(fitted)
        assert repr(copy.get_params()) == repr(fitted.get_params())
        with pytest.raises(NotFittedError):
            copy.predict_topk(self.rows(small_data()[0]), 1)

    def test_set_params_takes_what_get_params_gives(self):
        learner = self.make()
        assert learner.set_params(**learner.get_params()) is learner

    def test_fit_returns_self_and_leaves_everything_as_it_was(self, data):
        X, Y = data
        before = X.copy(), Y.copy()
        learner = self.make()
        params = repr(learner.get_params())
        assert learner.fit(X, Y) is learner
        learner.predict_topk(X, 3)
        assert repr(learner.get_params()) == params
        for now, then in zip((X, Y), before, strict=True):
            if sp.issparse(now):
                for part in ("data", "indices", "indptr"):
                    np.testing.assert_array_equal(getattr(now, part), getattr(then, part))
            else:
                assert now == then

    @settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
    @given(seed=st.integers(0, 2**16), dense=st.booleans())
    def test_fitting_never_changes_its_inputs(self, seed, dense):
        """Neither X nor y, in any form, nor the parameters, including costs of a weighting."""
        X, Y = small_data(n_rows=40, n_features=20, n_labels=14, seed=seed)
        rows, labels = self.rows(X), Y.toarray() if dense else Y.tocsc() if seed % 2 else Y
        if dense and sp.issparse(rows):
            rows = rows.toarray()
        given_in, learner = (rows, labels), self.make()
        before, parameters = copy.deepcopy(given_in), joblib.hash(learner.get_params())
        learner.fit(rows, labels)
        assert joblib.hash(learner.get_params()) == parameters
        for now, then in zip(given_in, before, strict=True):
            assert joblib.hash(now) == joblib.hash(then)

    def test_remembers_the_training_labels(self, fitted, data):
        Y = data[1]
        assert fitted.n_rows_ == Y.shape[0]
        assert fitted.n_labels_ == Y.shape[1]
        assert fitted.label_counts_.dtype == np.int64
        np.testing.assert_array_equal(fitted.label_counts_, np.asarray(Y.sum(axis=0)).ravel())

    def test_unfitted_is_an_error(self, data):
        for method in ("predict_topk", "predict"):
            with pytest.raises(NotFittedError):
                getattr(self.make(), method)(data[0])

    @pytest.mark.parametrize("k", [1, 3, 14, 20])
    def test_ranking_has_its_shape_order_and_padding(self, fitted, data, k):
        X, Y = data
        assert_ranked(fitted.predict_topk(X, k), Y.shape[0], k)

    def test_a_smaller_k_gives_the_top_of_the_same_ranking(self, fitted, data):
        more, fewer = fitted.predict_topk(data[0], 9), fitted.predict_topk(data[0], np.int64(4))
        assert_same(TopK(more.labels[:, :4], more.scores[:, :4]), fewer)

    def test_labels_without_a_training_row_are_never_predicted(self, fitted, data):
        X, Y = data
        assert UNSEEN not in fitted.predict_topk(X, Y.shape[1]).labels
        assert fitted.predict(X)[:, [UNSEEN]].nnz == 0
        assert (fitted.predict_topk(X, 2, only=[UNSEEN]).labels == -1).all()

    def test_no_rows_give_no_predictions(self, fitted, data):
        assert_ranked(fitted.predict_topk(data[0][:0], 3), 0, 3)
        assert fitted.predict(data[0][:0]).shape == (0, fitted.n_labels_)

    def test_single_rows_are_predicted_as_in_a_batch(self, fitted, data):
        X = data[0]
        batch = fitted.predict_topk(X, 3)
        for row in (0, NO_FEATURES, NO_LABELS, 40):
            single = fitted.predict_topk(X[row : row + 1], 3)
            np.testing.assert_allclose(single.scores[0], batch.scores[row], rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(single.labels[0], batch.labels[row])

    def test_explanations_add_up_to_the_scores(self, fitted, data):
        X, Y = data
        top = fitted.predict_topk(X, 4)
        for row in (0, NO_FEATURES, 40):
            found = fitted.explain(X[row : row + 1], k=4)
            assert [why.label for why in found] == [label for label in top.labels[row] if label >= 0]
            for why, score in zip(found, top.scores[row], strict=False):
                assert abs(why.score - score) < 1e-4
                assert abs(why.bias + sum(effect for _, effect in why.parts) - why.score) < 1e-4
        asked = fitted.explain(X[:1], [8, 2])
        everything = fitted.predict_topk(X[:1], Y.shape[1])
        scores = dict(zip(everything.labels[0].tolist(), everything.scores[0].tolist(), strict=True))
        assert [why.label for why in asked] == [8, 2]
        alone = fitted.predict_topk(X[:1], 2, only=[8, 2])
        ranked_alone = dict(zip(alone.labels[0].tolist(), alone.scores[0].tolist(), strict=True))
        for why in asked:
            if why.label in scores:
                assert abs(why.score - scores[why.label]) < 1e-4
            else:  # 0, or what it would have if nothing else were asked for
                assert min(abs(why.score), abs(why.score - ranked_alone.get(why.label, 0.0))) < 1e-4
        with pytest.raises(InputError, match="one row"):
            fitted.explain(X[:2])
        with pytest.raises(ParameterError):
            fitted.explain(X[:1], [99])

    def test_estimates_before_training(self, data):
        learner = self.make()
        estimate = learner.estimate(*data)
        assert estimate.seconds >= 0
        assert estimate.peak_memory_mb > 0
        assert estimate.model_mb > 0
        with pytest.raises(NotFittedError):
            learner.predict_topk(data[0], 1)

    def test_labels_can_be_restricted(self, fitted, data):
        X, Y = data
        n_labels = Y.shape[1]
        everything = fitted.predict_topk(X, n_labels)
        for k in (2, n_labels + 2):
            for only, exclude, keep in (
                ([1, 4, 8], None, {1, 4, 8}),
                (None, np.array([0, 2]), set(range(n_labels)) - {0, 2}),
                ([1, 4, 8], [4], {1, 8}),
                ([], None, set()),
                (None, [], set(range(n_labels))),
                (range(n_labels), None, set(range(n_labels))),
            ):
                top = fitted.predict_topk(X, k, only=only, exclude=exclude)
                assert_ranked(top, Y.shape[0], k)
                assert set(top.labels.ravel()) <= keep | {-1}
                if self.exact:
                    assert_same(top, filtered(everything, keep, k))

    @pytest.mark.parametrize(
        "wrong",
        [
            {"only": [99]},
            {"exclude": [-1]},
            {"only": [0.5]},
            {"exclude": ["x"]},
            {"only": [[0, 1]]},
            {"exclude": np.array([[0], [1]])},
            {"only": [[]]},
            {"only": [[0], [1, 2]]},
            {"exclude": 3},
        ],
    )
    def test_wrong_restrictions_are_refused(self, fitted, data, wrong):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            fitted.predict_topk(data[0], 3, **wrong)

    @pytest.mark.parametrize("k", [0, -1, 2.0, True, "3", None, 2**31])
    def test_wrong_k_is_refused(self, fitted, data, k):
        with pytest.raises(ParameterError, match="k must be"):
            fitted.predict_topk(data[0], k)
        with pytest.raises(ParameterError, match="k must be"):
            fitted.predict(data[0], k=k)

    @pytest.mark.parametrize("min_score", ["a", np.nan, True, [0.5]])
    def test_wrong_min_score_is_refused(self, fitted, data, min_score):
        with pytest.raises(ParameterError, match="min_score must be"):
            fitted.predict(data[0], min_score=min_score)

    def test_predict_is_a_sparse_indicator(self, fitted, data):
        X, Y = data
        decided = fitted.predict(X)
        assert isinstance(decided, sp.csr_array)
        assert decided.shape == Y.shape
        assert (decided.data == 1).all()
        assert decided.has_canonical_format
        assert (np.diff(fitted.predict(X, k=2, min_score=-np.inf).indptr) <= 2).all()
        assert fitted.predict(X, min_score=np.inf).nnz == 0

    def test_the_same_seed_gives_the_same_model(self, fitted, data):
        X, Y = data
        assert_same(self.make().fit(X, Y).predict_topk(X, 5), fitted.predict_topk(X, 5))

    def test_fitting_again_forgets_the_first_fit(self, fitted, data):
        X, Y = data
        twice = self.make().fit(X[:50], Y[:50]).fit(X, Y)
        assert_same(twice.predict_topk(X, 5), fitted.predict_topk(X, 5))

    @pytest.mark.parametrize("error", [ValueError("broken"), Interrupted("stopped")])
    def test_a_fit_that_ends_early_changes_nothing(self, data, monkeypatch, error):
        X, Y = data
        learner, unfitted = self.make().fit(X, Y), self.make()
        expected, decided, before = learner.predict_topk(X, 5), learner.predict(X), dict(vars(learner))
        whole_fit = type(learner)._fit

        def ends_early(self, X, Y):
            whole_fit(self, X, Y)
            raise error

        monkeypatch.setattr(type(learner), "_fit", ends_early)
        for one in (learner, unfitted):
            with pytest.raises(type(error), match=str(error)):
                one.fit(X[:50], Y[:50, :4])
        assert vars(learner).keys() == before.keys()
        assert all(value is before[name] for name, value in vars(learner).items())
        assert_same(learner.predict_topk(X, 5), expected)
        assert (learner.predict(X) != decided).nnz == 0
        with pytest.raises(NotFittedError):
            unfitted.predict_topk(X, 5)
        assert vars(unfitted).keys() == vars(self.make()).keys()

    def test_classes_are_the_label_ids(self, fitted):
        np.testing.assert_array_equal(fitted.classes_, np.arange(fitted.n_labels_))
        assert not hasattr(self.make(), "classes_")

    def test_score_is_precision_at_1(self, fitted, data):
        X, Y = data
        best = fitted.predict_topk(X, 1).labels[:, 0]
        hits = [best[row] >= 0 and Y[row, best[row]] != 0 for row in range(Y.shape[0])]
        assert fitted.score(X, Y) == pytest.approx(np.mean(hits))
        assert 0 < fitted.score(X, Y) <= 1
        assert fitted.score(X, Y.toarray()) == fitted.score(X, Y)
        with pytest.raises(InputError, match="use the same columns"):
            fitted.score(X, Y[:, :3])
        with pytest.raises(NotFittedError):
            self.make().score(X, Y)

    def test_can_be_cross_validated(self, data):
        X, Y = data
        scores = cross_val_score(self.make(), X, Y.toarray(), cv=3, error_score="raise")
        assert scores.shape == (3,)
        assert ((scores >= 0) & (scores <= 1)).all()
        assert scores.max() > 0
        search = GridSearchCV(self.make(), {}, cv=3, error_score="raise").fit(X, Y)  # takes a sparse Y too
        np.testing.assert_allclose(search.best_score_, scores.mean())
        np.testing.assert_array_equal(search.classes_, np.arange(Y.shape[1]))

    def test_the_thread_count_changes_nothing(self):
        if not any(name.rpartition("__")[2] == "n_jobs" for name in self.make().get_params()):
            pytest.skip("runs on one thread")
        X, Y = small_data(n_rows=150, n_features=60, n_labels=200, seed=1)
        rows = self.rows(X)
        tops = [self.make(n_jobs=threads).fit(rows, Y).predict_topk(rows, 8) for threads in (1, 2, 3)]
        assert_same(tops[0], tops[1])
        assert_same(tops[0], tops[2])

    def test_labels_need_not_be_binary_or_sparse(self, fitted, data):
        X, Y = data
        expected = fitted.predict_topk(X, 5)
        scaled = Y.copy()
        scaled.data = scaled.data * np.float32(7)
        duplicated = sp.coo_array(sp.vstack([Y, Y[:0]]))
        duplicated = sp.csr_array(
            (np.tile(Y.data, 2), (np.tile(duplicated.row, 2), np.tile(duplicated.col, 2))), shape=Y.shape
        )
        with_zeros = _with_explicit_zeros(Y)
        for same in (scaled, duplicated, with_zeros, Y.toarray(), Y.astype(bool), sp.csc_matrix(Y), Y.astype(np.int64)):
            assert_same(self.make().fit(X, same).predict_topk(X, 5), expected)

    def test_rows_of_x_and_y_must_match(self, data):
        X, Y = data
        with pytest.raises(InputError, match="79"):
            self.make().fit(X, Y[:79])

    def test_nothing_to_learn_from_is_an_error(self, data):
        X, Y = data
        with pytest.raises(InputError, match="nothing to learn"):
            self.make().fit(X[:0], Y[:0])

    def test_no_labels_at_all_are_legal(self, data):
        X, Y = data
        for empty in (sp.csr_array(Y.shape, dtype=np.float32), sp.csr_array((Y.shape[0], 0), dtype=np.float32)):
            learner = self.make().fit(X, empty)
            assert (learner.predict_topk(X, 2).labels == -1).all()
            assert learner.predict(X).shape == empty.shape

    def test_the_tail_dial_at_0_ranks_by_the_plain_scores(self, fitted, data):
        for k in (3, 20):
            for tail in (0, 0.0, np.float32(0)):
                assert_same(fitted.predict_topk(data[0], k, tail=tail), self.undialled(fitted).predict_topk(data[0], k))

    @pytest.mark.parametrize("tail", [1, 0.4, np.float64(0.05)])
    def test_the_tail_dial_ranks_all_labels_by_score_times_inverse_propensity_to_a_power(self, fitted, data, tail):
        X, Y = data
        inverse = fitted.propensity_model().inverse(fitted.label_counts_, fitted.n_rows_)
        plain = self.undialled(fitted).predict_topk(X, Y.shape[1])
        scores = dialled(self.undialled(fitted), plain, inverse, tail)
        for k in (1, 4, 20):
            assert_best(fitted.predict_topk(X, k, tail=tail), scores)
        for row in (0, NO_FEATURES, 40):
            assert_best(fitted.predict_topk(X[row : row + 1], 3, tail=tail), scores[row : row + 1])
        assert_ranked(fitted.predict_topk(X[:0], 3, tail=tail), 0, 3)
        top = fitted.predict_topk(X, 3, tail=tail, exclude=[0, 2])
        assert not np.isin(top.labels, [0, 2]).any()
        if self.exact:
            assert_best(top, [{label: of[label] for label in of if label not in (0, 2)} for of in scores])

    @pytest.mark.parametrize("tail", [-0.01, 1.01, np.nan, np.inf, "0.5", "auto", True, [0.5], np.array([0.5]), {}])
    def test_a_wrong_position_of_the_tail_dial_is_refused(self, fitted, data, tail):
        with pytest.raises(ParameterError, match="tail must be"):
            fitted.predict_topk(data[0], 3, tail=tail)

    def test_the_tail_dial_goes_by_the_propensity_of_the_model(self, fitted, data):
        """Unless the learner was given one of its own."""
        X, Y = data
        other = JainPropensity(a=1.2, b=0.4)
        model = Model(copy.copy(fitted), propensity=other)
        plain = self.undialled(fitted).predict_topk(X, Y.shape[1])
        inverse = fitted.propensity_model(other).inverse(fitted.label_counts_, fitted.n_rows_)
        assert_best(model.predict_topk(X, 4, tail=0.83), dialled(self.undialled(fitted), plain, inverse, 0.83))

    def test_nan_in_labels_is_an_error(self, data):
        X, Y = data
        spoilt = Y.copy()
        spoilt.data[3] = np.nan
        with pytest.raises(InputError, match="NaN"):
            self.make().fit(X, spoilt)

    def test_survives_saving_and_loading(self, fitted, data, tmp_path):
        X = data[0]
        Model(fitted).save(tmp_path / "model")
        loaded = Model.load(tmp_path / "model", verify=True).learner
        assert type(loaded) is type(fitted)
        assert repr(loaded.get_params()) == repr(fitted.get_params())
        assert_same(loaded.predict_topk(X, 5), fitted.predict_topk(X, 5))
        assert_same(loaded.predict_topk(X[:1], 5), fitted.predict_topk(X[:1], 5))
        assert_same(loaded.predict_topk(X, 5, exclude=[0]), fitted.predict_topk(X, 5, exclude=[0]))
        assert_same(loaded.predict_topk(X, 5, tail=0.6), fitted.predict_topk(X, 5, tail=0.6))
        assert (loaded.predict(X) != fitted.predict(X)).nnz == 0
        Model(loaded).save(tmp_path / "again")
        assert_same(Model.load(tmp_path / "again").predict_topk(X, 5), fitted.predict_topk(X, 5))


class MatrixContract(LearnerContract):
    """For a learner whose rows are a matrix."""

    def test_every_form_of_matrix_gives_the_same(self, fitted, data):
        X, Y = data
        expected = fitted.predict_topk(X, 5)
        wide = sp.csr_array((X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)), shape=X.shape)
        unsorted = sp.csr_array(X[:, ::-1])[:, ::-1]
        coo = sp.coo_array(X)
        halves = sp.csr_array((np.tile(X.data / 2, 2), (np.tile(coo.row, 2), np.tile(coo.col, 2))), shape=X.shape)
        forms = {
            "dense": X.toarray(),
            "float64": X.toarray().astype(np.float64),
            "integers": X.toarray().astype(np.int64),
            "Fortran order": np.asfortranarray(X.toarray()),
            "csr_matrix": sp.csr_matrix(X),
            "csc_array": sp.csc_array(X),
            "csc_matrix": sp.csc_matrix(X),
            "coo_array": coo,
            "int64 indices": wide,
            "unsorted indices": unsorted,
            "duplicates": halves,
            "explicit zeros": _with_explicit_zeros(X),
        }
        for name, form in forms.items():
            assert_same(fitted.predict_topk(form, 5), expected, name)
            if name in ("dense", "csc_matrix", "duplicates", "explicit zeros"):
                assert_same(self.make().fit(form, Y).predict_topk(X, 5), expected, name)

    def test_read_only_input_is_enough(self, fitted, data):
        X, Y = (matrix.copy() for matrix in data)
        for matrix in (X, Y):
            for part in (matrix.data, matrix.indices, matrix.indptr):
                part.flags.writeable = False
        assert_same(self.make().fit(X, Y).predict_topk(X, 5), fitted.predict_topk(X, 5))

    def test_wrong_number_of_features_is_an_error(self, fitted, data):
        for wrong in (data[0][:, :-1], sp.hstack([data[0], data[0]])):
            for call in (
                lambda wrong=wrong: fitted.predict_topk(wrong, 3),
                lambda wrong=wrong: fitted.predict(wrong),
                lambda wrong=wrong: fitted.score(wrong, data[1]),
            ):
                with pytest.raises(InputError, match="features"):
                    call()

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_values_that_are_no_numbers_are_an_error(self, fitted, data, value):
        X, Y = data
        spoilt = X.copy()
        spoilt.data[5] = value
        for call in (lambda: self.make().fit(spoilt, Y), lambda: fitted.predict_topk(spoilt, 3)):
            with pytest.raises(InputError, match="row 0"):
                call()

    @pytest.mark.parametrize("wrong", [[1.0, 2.0], [["a"]], "text", None])
    def test_what_is_no_matrix_is_an_error(self, fitted, wrong):
        with pytest.raises(LongtailError):
            fitted.predict_topk(wrong, 3)


def _with_explicit_zeros(matrix):
    """Store zeros beside the values; the matrix means the same."""
    coo = sp.coo_array(matrix)
    rows = np.concatenate([coo.row, np.arange(matrix.shape[0])])
    columns = np.concatenate([coo.col, np.full(matrix.shape[0], UNSEEN)])
    values = np.concatenate([coo.data, np.zeros(matrix.shape[0], coo.data.dtype)])
    return sp.csr_array((values, (rows, columns)), shape=matrix.shape)
