"""Trainings of embeddings that are killed or stopped, and go on."""

from __future__ import annotations

import signal
import time

import pytest

pytest.importorskip("torch", reason="the embeddings are trained with torch")

from longtail import EmbeddingClassifier, resumable
from longtail.errors import InputError, Interrupted
from longtail.learners.embedding import fitting, training
from tests.learners.contract import assert_same, small_data


def small(**params):
    return EmbeddingClassifier(**{"dimensions": 16, "batch": 16, "passes": 6, "rate": 0.02, "held_out": 0.25, **params})


class _KilledError(Exception):
    pass


def test_a_killed_training_goes_on_where_it_was(tmp_path, monkeypatch):
    X, Y = small_data()
    whole = small(average=2).fit(X, Y)
    steps, started = training.Trainer.steps, []

    def dies(self, state, number, within):
        started.append(number)
        for at, progress in enumerate(steps(self, state, number, within)):
            if number == 3 and at == 2 and len(started) == 4:
                raise _KilledError
            yield progress

    monkeypatch.setattr(training.Trainer, "steps", dies)
    with pytest.raises(_KilledError), resumable(tmp_path / "unfinished"):
        small(average=2).fit(X, Y)
    with resumable(tmp_path / "unfinished"):
        resumed = small(average=2, threads=1).fit(X, Y)
    assert started[4:] == [3, 4, 5][: len(started) - 4]
    assert_same(resumed.predict_topk(X, 5), whole.predict_topk(X, 5))
    for name in ("loss", "regularisation", "gradient_norm", "held_out"):
        assert resumed.history_[name] == whole.history_[name]


def test_other_parameters_dont_go_on_from_it(tmp_path, monkeypatch):
    X, Y = small_data()
    monkeypatch.setattr(fitting, "_mean", lambda window: (_ for _ in ()).throw(_KilledError))
    with pytest.raises(_KilledError), resumable(tmp_path / "unfinished"):
        small(held_out=0.0).fit(X, Y)
    with pytest.raises(InputError, match="another training"), resumable(tmp_path / "unfinished"):
        small(held_out=0.0, strength=1.0).fit(X, Y)


def test_ctrl_c_says_how_far_it_came(monkeypatch):
    X, Y = small_data()
    steps = training.Trainer.steps

    def interrupted(self, state, number, within):
        if number == 2:
            raise KeyboardInterrupt
        yield from steps(self, state, number, within)

    monkeypatch.setattr(training.Trainer, "steps", interrupted)
    with pytest.raises(Interrupted, match="2 of 6 passes"):
        small().fit(X, Y)


@pytest.mark.parametrize("takes", ["a moment", "long"])
def test_a_signal_while_a_pass_is_measured_loses_no_step(tmp_path, monkeypatch, takes):
    X, Y = small_data()
    whole = small(average=2).fit(X, Y)
    mean, measured = fitting._mean, []

    def signalled(window):
        measured.append(len(window))
        if len(measured) == 3:
            signal.raise_signal(signal.SIGINT)
            for _ in range(300 if takes == "long" else 0):
                time.sleep(0.01)
        return mean(window)

    with monkeypatch.context() as patched:
        patched.setattr("longtail.engine.signals._LONGEST", 0.1 if takes == "long" else 60.0)
        patched.setattr(fitting, "_mean", signalled)
        with pytest.raises(Interrupted, match=f"{2 if takes == 'long' else 3} of 6 passes"):  # noqa: SIM117
            with resumable(tmp_path / "unfinished"):
                small(average=2).fit(X, Y)
    steps, begun = training.Trainer.steps, []

    def noted(self, state, number, within):
        begun.append((number, within.done == self.batches))
        yield from steps(self, state, number, within)

    monkeypatch.setattr(training.Trainer, "steps", noted)
    with resumable(tmp_path / "unfinished"):
        resumed = small(average=2).fit(X, Y)
    assert begun[0] == ((2, True) if takes == "long" else (3, False))
    assert_same(resumed.predict_topk(X, 5), whole.predict_topk(X, 5))
    assert resumed.history_["held_out"] == whole.history_["held_out"]
