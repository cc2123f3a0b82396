"""Two processes train as one does with the same rows per step."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="the networks are trained with torch")
pytest.importorskip("tokenizers", reason="texts become tokens by the library tokenizers")

SCRIPT = """
import json, os, tempfile
import numpy as np
from longtail.runtime.block_file import resumable
from longtail.errors import Interrupted
from longtail.learners import CNN, AdaptiveHead, NeuralClassifier, RankingHead
from longtail.learners.neural.training import TrainableNetwork
from tests.learners.neural.test_neural_classifier import as_tokens
from tests.learners.contract import small_data

X, Y = small_data(n_rows=120)
heads = {
    "flat": RankingHead(embedding_dim=16, dropout=0.0),
    "clusters": RankingHead(embedding_dim=16, dropout=0.0, cluster_size=4, flat_below=0, retrieved=2),
    "gates": AdaptiveHead(n_clusters=3, hidden_size=16, dropout=0.0),
}
found = {}
for name, head in heads.items():
    encoder = CNN(n_filters=8, kernel_sizes=(1, 2), pool_chunks=1, hidden_size=32, dropout=0.0)
    learner = NeuralClassifier(
        encoder=encoder, head=head, epochs=3, learning_rate=0.01, head_learning_rate=0.01, batch_size=16,
        micro_batch_size=3, validation_fraction=0.25, n_jobs=1
    )
    learner.fit(as_tokens(X), Y)
    found[name] = {
        "loss": learner.history_["loss"],
        "validation_fraction": learner.history_["validation"],
        "weights": [float(np.abs(array).sum()) for array in learner.tensors_[0].values()],
    }

def stopped(model, step, take=TrainableNetwork.training_step):
    if step == 10:
        raise KeyboardInterrupt
    return take(model, step)

def resumed():
    place = tempfile.mkdtemp() + "/unfinished"  # each process has a disk of its own
    learner = NeuralClassifier(
        encoder=CNN(n_filters=8, kernel_sizes=(1, 2), pool_chunks=1, hidden_size=32), head=heads["clusters"],
        epochs=3, learning_rate=0.01, head_learning_rate=0.01, batch_size=16, validation_fraction=0.25, n_jobs=1,
    )
    whole = learner.fit(as_tokens(X), Y).tensors_[0]
    take, TrainableNetwork.training_step = TrainableNetwork.training_step, stopped
    try:
        with resumable(place):
            learner.fit(as_tokens(X), Y)
    except Interrupted:
        TrainableNetwork.training_step = take
    with resumable(place):
        again = learner.fit(as_tokens(X), Y).tensors_[0]
    return all(np.array_equal(whole[name], again[name]) for name in whole)

found["flat"]["resumed"] = resumed()
print("FOUND", json.dumps(found))
"""


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def started(**more):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def results(process):
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors[-3000:]
    return json.loads(next(line for line in output.splitlines() if line.startswith("FOUND")).removeprefix("FOUND"))


def test_two_processes_have_the_loss_curve_of_one():
    port = str(free_port())
    together = [
        started(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        for rank in range(2)
    ]
    try:
        alone = results(started())
        both = [results(process) for process in together]
    finally:
        for process in together:
            process.kill()
    for name, wanted in alone.items():
        for found in both:
            np.testing.assert_allclose(found[name]["loss"], wanted["loss"], rtol=2e-4, err_msg=name)
            np.testing.assert_allclose(found[name]["weights"], wanted["weights"], rtol=2e-3, err_msg=name)
        assert both[0][name] == both[1][name], name
    assert alone["flat"]["resumed"]
    assert all(found["flat"]["resumed"] for found in both)
