"""The fit loop on a model of one number, and the averages of weights."""

from __future__ import annotations

import numpy as np
import pytest

from longtail import resumable
from longtail.errors import Interrupted, ParameterError
from longtail.learners.training.averaging import RunningAverage, WindowAverage
from longtail.learners.training.fit import HISTORY, Schedule, TrainingStep, fit, time_steps
from longtail.runtime.checkpoint import Checkpoint


class Counter:
    """Its weight is the number of steps it has taken."""

    steps_per_epoch, n_processes = 4, 1

    def __init__(self, stop_at=-1, loss=1.0):
        self.weight, self.started, self.taken, self.stop_at, self.loss = np.zeros(1), [], [], stop_at, loss

    def start_epoch(self, epoch):
        self.started.append(epoch)

    def training_step(self, step):
        if step == self.stop_at:
            raise KeyboardInterrupt
        self.taken.append(step)
        self.weight = self.weight + 1
        return TrainingStep(self.loss, 2.0, 8)

    def weights(self):
        return [self.weight.copy()]

    def state(self):
        return [self.weight]

    def load_state(self, arrays):
        (self.weight,) = arrays

    def divergence(self):
        return ParameterError("learning_rate", 9.0, "must be lower")


def trained(model, evaluate=None, average=None, **schedule):
    schedule = Schedule(**{"epochs": 3, "patience": 2, **schedule})
    return fit(model, schedule, average or WindowAverage(1), evaluate, Checkpoint(b"counter"), "counting")


def test_all_steps_are_taken():
    model = Counter()
    weights, history = trained(model)
    assert (model.started, model.taken, weights) == ([0, 1, 2], list(range(12)), [12])
    assert list(history) == list(HISTORY)
    assert history["loss"] == [1.0] * 3
    assert np.isnan(history["validation"]).all()
    assert trained(Counter(), epochs=0).history["loss"] == []


@pytest.mark.parametrize(("per_epoch", "wanted"), [(1, [4, 8]), (2, [2, 4, 6, 8]), (3, list(range(1, 9)))])
def test_evaluations_are_spread_over_an_epoch(per_epoch, wanted):
    seen = []
    trained(Counter(), lambda weights: seen.append(int(weights[0][0])) or seen[-1], epochs=2, evals_per_epoch=per_epoch)
    assert seen == wanted


def test_patience_and_the_best_weights():
    scores = {4: 0.1, 8: 0.3, 12: 0.2, 16: 0.3, 20: 0.9}
    weights, history = trained(Counter(), lambda weights: scores[int(weights[0][0])], epochs=5)
    assert weights == [8]
    assert history["validation"] == [0.1, 0.3, 0.2, 0.3]


def test_averages():
    assert trained(Counter(), average=WindowAverage(2)).weights == [10]
    assert trained(Counter(), average=RunningAverage(1)).weights == [10]
    assert trained(Counter(), average=RunningAverage(0)).weights == [8]
    assert trained(Counter(), average=RunningAverage(3)).weights == [12]


@pytest.mark.parametrize("average", [WindowAverage(2), RunningAverage(0)], ids=["window", "running"])
@pytest.mark.parametrize("stop_at", [1, 4, 7, 11])
def test_a_stopped_training_resumes(tmp_path, monkeypatch, stop_at, average):
    monkeypatch.setattr("longtail.learners.training.fit._SAVE_EVERY", -1.0)
    score = {4: 0.1, 8: 0.4, 12: 0.3}
    evaluate = lambda weights: score.get(int(weights[0][0]), 0.2)  # noqa: E731
    whole = trained(Counter(), evaluate, average)
    with pytest.raises(Interrupted, match=f"Stopped while counting: {stop_at} of 12 steps"):  # noqa: SIM117
        with resumable(tmp_path / "unfinished"):
            trained(Counter(stop_at), evaluate, average)
    model = Counter()
    with resumable(tmp_path / "unfinished"):
        resumed = trained(model, evaluate, average)
    assert model.taken == list(range(stop_at, 12))
    assert resumed.weights == whole.weights
    assert resumed.history["validation"] == whole.history["validation"]


def test_a_loss_that_is_not_finite_stops_the_training():
    with pytest.raises(ParameterError, match="learning_rate must be lower"):
        trained(Counter(loss=np.nan))


def test_steps_are_timed():
    model = Counter()
    assert len(time_steps(model, 6)) == 6
    assert model.started == [0, 1]
