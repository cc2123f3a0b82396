"""Trainings of embeddings that are killed or stopped, and resumed."""

from __future__ import annotations

import signal
import time

import pytest

pytest.importorskip("torch", reason="the embeddings are trained with torch")

from longtail import EmbeddingClassifier, resumable
from longtail.errors import InputError, Interrupted
from longtail.learners.embedding.training import TrainableEmbedding
from longtail.learners.training.averaging import WindowAverage
from tests.learners.contract import assert_same, small_data


def small(**params):
    return EmbeddingClassifier(
        **{
            "embedding_dim": 16,
            "batch_size": 16,
            "epochs": 6,
            "learning_rate": 0.02,
            "validation_fraction": 0.25,
            **params,
        }
    )


class _KilledError(Exception):
    pass


def spied(monkeypatch, spy):
    """Call `spy(model, step)` before every step."""
    step = TrainableEmbedding.training_step
    monkeypatch.setattr(TrainableEmbedding, "training_step", lambda self, at: (spy(self, at), step(self, at))[1])


def test_a_killed_training_resumes(tmp_path, monkeypatch):
    X, Y = small_data()
    whole = small(average=2).fit(X, Y)
    started = []

    def dies(model, step):
        started.append(step)
        if step == 3 * model.steps_per_epoch + 2 and len(started) == step + 1:
            raise _KilledError

    spied(monkeypatch, dies)
    with pytest.raises(_KilledError), resumable(tmp_path / "unfinished"):
        small(average=2).fit(X, Y)
    before = len(started)
    with resumable(tmp_path / "unfinished"):
        resumed = small(average=2, n_jobs=1).fit(X, Y)
    assert started[before] == started[before - 1] - 2  # the first step after the last evaluation
    assert_same(resumed.predict_topk(X, 5), whole.predict_topk(X, 5))
    for name in ("loss", "regularisation", "gradient_norm", "validation"):
        assert resumed.history_[name] == whole.history_[name]


def test_other_parameters_do_not_resume_from_it(tmp_path, monkeypatch):
    X, Y = small_data()
    monkeypatch.setattr(EmbeddingClassifier, "_take", lambda *given: (_ for _ in ()).throw(_KilledError))
    with pytest.raises(_KilledError), resumable(tmp_path / "unfinished"):
        small(validation_fraction=0.0).fit(X, Y)
    with pytest.raises(InputError, match="another training"), resumable(tmp_path / "unfinished"):
        small(validation_fraction=0.0, regulariser_weight=1.0).fit(X, Y)


def test_ctrl_c_says_how_far_it_came(monkeypatch):
    X, Y = small_data()

    def interrupts(model, step):
        if step == 9:
            raise KeyboardInterrupt

    spied(monkeypatch, interrupts)
    with pytest.raises(Interrupted, match=r"Stopped while training embeddings: 9 of \d+ steps were done"):
        small().fit(X, Y)


@pytest.mark.parametrize("takes", ["a moment", "long"])
def test_a_signal_during_an_evaluation_loses_no_step(tmp_path, monkeypatch, takes):
    X, Y = small_data()
    whole = small(average=2).fit(X, Y)
    take, evaluations = EmbeddingClassifier._take, []

    def signalled(self, weights, model):
        evaluations.append(3 * model.steps_per_epoch)
        if len(evaluations) == 3:
            signal.raise_signal(signal.SIGINT)
            for _ in range(300 if takes == "long" else 0):
                time.sleep(0.01)
        take(self, weights, model)

    with monkeypatch.context() as patched:
        patched.setattr("longtail.runtime.signals._LONGEST", 0.1 if takes == "long" else 60.0)
        patched.setattr(EmbeddingClassifier, "_take", signalled)
        with pytest.raises(Interrupted) as stopped, resumable(tmp_path / "unfinished"):
            small(average=2).fit(X, Y)
    done = evaluations[0]
    assert f" {done} of {2 * done} steps" in str(stopped.value)
    started, averaged = [], []
    spied(monkeypatch, lambda model, step: started.append((step, len(averaged))))
    after = WindowAverage.after
    monkeypatch.setattr(
        WindowAverage, "after", lambda self, weights, epoch: averaged.append(epoch) or after(self, weights, epoch)
    )
    with resumable(tmp_path / "unfinished"):
        resumed = small(average=2).fit(X, Y)
    assert started[0] == (done, 1 if takes == "long" else 0)  # the evaluation that was stopped runs again
    assert_same(resumed.predict_topk(X, 5), whole.predict_topk(X, 5))
    assert resumed.history_["validation"] == whole.history_["validation"]
