"""The tail dial: its curve, and which position is chosen."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from longtail import JainPropensity, OneVsRest, Popularity, TailDial, evaluate, resumable
from longtail.data import Dataset, random_split
from longtail.errors import InputError, ParameterError
from longtail.learners.linear import training
from longtail.rerank import DialPoint, choose_tail, dial_curve
from longtail.rerank.dial import TAILS
from tests.learners.contract import assert_same, small_data
from tests.learners.rankings import dialled


def more_data():
    return small_data(n_rows=150, n_features=60, n_labels=40, seed=1)


def inverse_of(learner, propensity=None):
    return (propensity or JainPropensity()).inverse(learner.label_counts_, learner.n_rows_)


class TestCurve:
    def test_points_are_the_metrics_of_each_position(self):
        X, Y = more_data()
        learner = OneVsRest().fit(X[:100], Y[:100])
        curve = dial_curve(learner, X[100:], Y[100:], tails=[0, 0.5, 1], k=3)
        inverse = inverse_of(learner)
        for point, tail in zip(curve, (0, 0.5, 1), strict=True):
            top = learner.predict_topk(X[100:], 3, tail=tail)
            scores = evaluate(top, Y[100:], inverse_propensity=inverse, ks=(1, 3))
            expected = (tail, *(scores[name] for name in ("P@1", "P@3", "PSP@1", "PSP@3")))
            assert point == pytest.approx(expected, rel=1e-6)

    def test_twenty_steps_by_default(self):
        X, Y = more_data()
        curve = dial_curve(Popularity().fit(X, Y), X, Y)
        assert [point.tail for point in curve] == pytest.approx(np.linspace(0, 1, 21))
        assert len(TAILS) == 21

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"tails": [0, 2]}, "tail must be"),
            ({"k": 0}, "k must be"),
            ({"tails": []}, "tails must be a sequence of at least 1 position"),
            ({"tails": iter([0.0])}, "tails must be a sequence"),
            ({"tails": ["0.5"]}, "tails must be a sequence"),
        ],
    )
    def test_wrong_positions_are_refused(self, wrong, message):
        X, Y = more_data()
        with pytest.raises(ParameterError, match=message):
            dial_curve(Popularity().fit(X, Y), X, Y, **wrong)

    def test_unfitted_is_an_error(self):
        with pytest.raises(NotFittedError):
            dial_curve(Popularity(), *more_data())

    def test_other_labels_are_an_error(self):
        X, Y = more_data()
        with pytest.raises(InputError, match="Y has 7 labels where 40 are expected"):
            dial_curve(Popularity().fit(X, Y), X, Y[:, :7])


class TestChoice:
    CURVE = (
        DialPoint(0.0, 90.0, 60.0, 40.0, 50.0),
        DialPoint(0.25, 90.5, 60.0, 42.0, 52.0),
        DialPoint(0.5, 89.5, 59.0, 45.0, 55.0),
        DialPoint(0.75, 89.4, 58.0, 46.0, 57.0),
        DialPoint(1.0, 80.0, 50.0, 60.0, 57.0),
    )

    @pytest.mark.parametrize(("max_loss", "expected"), [(0, 0.25), (1, 0.5), (1.1 + 1e-9, 0.75), (50, 0.75)])
    def test_best_within_the_loss(self, max_loss, expected):
        """Of equally good positions, the lower."""
        assert choose_tail(self.CURVE, max_loss) == expected

    def test_choosing_from_an_empty_curve_is_refused(self):
        with pytest.raises(ParameterError, match="curve"):
            choose_tail([])

    @pytest.mark.parametrize("max_loss", [0.0, 5.0, 100.0])
    def test_auto_chooses_on_held_out_rows(self, max_loss):
        X, Y = more_data()
        learner = TailDial(
            learner=OneVsRest(),
            tail="auto",
            max_loss=max_loss,
            validation_fraction=0.3,
            random_state=4,
            propensity=JainPropensity(a=1.0),
        ).fit(X, Y)
        train, held_out = random_split(Dataset(X, Y), test_size=0.3, random_state=4)
        trial = OneVsRest(weighting=None).fit(train.X, train.Y)
        inverse = inverse_of(trial, JainPropensity(a=1.0))
        plain = trial.predict_topk(held_out.X, 40)
        found = {}
        for tail in TAILS:
            ranked = [sorted(of, key=lambda label: -of[label])[:5] for of in dialled(trial, plain, inverse, tail)]
            found[tail] = evaluate(np.array(ranked), held_out.Y, inverse_propensity=inverse)
        fair = [tail for tail in TAILS if found[tail]["P@1"] >= max(s["P@1"] for s in found.values()) - max_loss]
        assert learner.tail_ == max(fair, key=lambda tail: (round(found[tail]["PSP@5"], 6), -tail))
        assert_same(learner.learner_.predict_topk(X, 5), OneVsRest().fit(X, Y).predict_topk(X, 5))

    def test_auto_needs_two_rows(self):
        with pytest.raises(InputError, match="holds rows out"):
            TailDial(learner=Popularity(), tail="auto").fit([[1.0]], [[1]])
        learner = TailDial(learner=Popularity(), tail="auto").fit([[1.0], [2.0]], [[1], [1]])
        assert learner.tail_ == 0

    def test_auto_resumes_after_an_interruption(self, tmp_path, monkeypatch):
        X, Y = small_data(n_rows=150, n_features=60, n_labels=200, seed=1)
        make = lambda: TailDial(learner=OneVsRest(n_jobs=1), tail="auto")  # noqa: E731
        expected = make().fit(X, Y)
        solve, solved = training.BlockTrainer.solve, []

        def interrupt(self, labels, number, stop):
            if self.X.shape[0] == 150 and number == 2:
                raise KeyboardInterrupt
            return solve(self, labels, number, stop)

        monkeypatch.setattr(training.BlockTrainer, "solve", interrupt)
        with pytest.raises(KeyboardInterrupt), resumable(tmp_path / "unfinished"):
            make().fit(X, Y)
        monkeypatch.setattr(
            training.BlockTrainer,
            "solve",
            lambda self, labels, number, stop: solved.append(number) or solve(self, labels, number, stop),
        )
        with resumable(tmp_path / "unfinished"):
            learner = make().fit(X, Y)
        assert solved == [2, 3]
        assert learner.tail_ == expected.tail_
        assert_same(learner.predict_topk(X, 5), expected.predict_topk(X, 5))
