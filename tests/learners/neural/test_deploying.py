"""Networks on their way to where they are used: eight bits, and ONNX."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("torch", reason="the networks are trained with torch")
pytest.importorskip("tokenizers", reason="texts become tokens by the library tokenizers")

import torch

from longtail import Model, load
from longtail.errors import InputError
from longtail.learners import AdaptiveHead, AttentionHead, BiLSTM, RankingHead, WordBag
from longtail.learners.neural.batches import TokenRows
from longtail.learners.neural.modules.words import UnpackedBiLSTM
from tests.learners.contract import small_data
from tests.learners.neural.test_neural_classifier import as_tokens, small
from tests.learners.rankings import assert_ranked

HEADS = {
    "flat": RankingHead(embedding_dim=32, dropout=0.1),
    "clusters": RankingHead(embedding_dim=32, dropout=0.1, cluster_size=4, flat_below=0, retrieved=3),
    "attention": AttentionHead(hidden_layer_sizes=(16,)),
    "gates": AdaptiveHead(n_clusters=3, hidden_size=32, dropout=0.1),
}


@pytest.fixture(scope="module", params=list(HEADS))
def fitted(request):
    X, Y = small_data(n_rows=200)
    X = as_tokens(X)
    passes = 25 if request.param == "attention" else 8
    texts = [f"label {number} of many" for number in range(Y.shape[1])]
    head = HEADS[request.param]
    return small(head=head, epochs=passes, label_texts=texts if head.reads_texts else None).fit(X, Y), X, Y


def test_eight_bits_cost_little(fitted, tmp_path):
    learner, X, Y = fitted
    small_one = learner.quantised()
    assert learner.precision_ == "float32"
    before, after = learner.predict_topk(X, 5), small_one.predict_topk(X, 5)
    assert_ranked(after, X.shape[0], 5)
    assert abs(small_one.score(X, Y) - learner.score(X, Y)) < 0.05
    assert np.abs(after.scores - before.scores).max() < 0.5
    for one, path in ((learner, "whole"), (small_one, "small")):
        Model(one).save(tmp_path / path)
    sizes = [next((tmp_path / path).glob("*.safetensors")).stat().st_size for path in ("whole", "small")]
    assert sizes[1] < 0.6 * sizes[0]
    again = load(tmp_path / "small").learner
    np.testing.assert_array_equal(again.predict_topk(X, 5).labels, after.labels)
    assert again.quantised().tensors_ is again.tensors_


def test_onnx_gives_the_scores_of_torch(fitted, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="the file is run by onnxruntime")
    pytest.importorskip("onnxscript", reason="torch writes the file with onnxscript")
    learner, X, _ = fitted
    path = tmp_path / "network.onnx"
    assert learner.export_onnx(path) < 1e-3
    tokens, mask = TokenRows(X).batch(np.arange(20), 0)
    session = onnxruntime.InferenceSession(str(path))
    (scores,) = session.run(None, {"tokens": tokens.numpy(), "mask": mask.numpy()})
    top = learner.predict_topk(X[:20], 3)
    used = top.labels >= 0
    found = np.take_along_axis(scores, np.maximum(top.labels, 0), axis=1)
    np.testing.assert_allclose(found[used], top.scores[used], rtol=1e-3, atol=1e-3)


def test_labels_without_rows_are_barred(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="the file is run by onnxruntime")
    pytest.importorskip("onnxscript", reason="torch writes the file with onnxscript")
    X, Y = small_data(n_rows=60)
    X, Y = as_tokens(X), sp.hstack([Y, sp.csr_array((60, 2))]).tocsr()
    learner = small(epochs=1).fit(X, Y)
    learner.export_onnx(tmp_path / "a.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"))
    tokens, mask = TokenRows(X).batch(np.arange(3), 0)
    (scores,) = session.run(None, {"tokens": tokens.numpy(), "mask": mask.numpy()})
    np.testing.assert_array_equal(np.isneginf(scores), np.tile(learner.label_counts_ == 0, (3, 1)))
    assert [path.name for path in tmp_path.iterdir()] == ["a.onnx"]


def test_a_bag_is_exported_and_explained(tmp_path):
    pytest.importorskip("onnxscript", reason="torch writes the file with onnxscript")
    X, Y = small_data(n_rows=120)
    X = as_tokens(X)
    learner = small(encoder=WordBag(embedding_dim=16, dropout=0.2)).fit(X, Y)
    assert learner.export_onnx(tmp_path / "a.onnx") < 1e-3
    (why,) = learner.explain(X[[3]], k=1)
    assert why.score == pytest.approx(float(learner.predict_topk(X[[3]], 1).scores[0, 0]), abs=1e-4)
    assert np.abs([effect for _, effect in why.parts]).max() > 0


@pytest.mark.parametrize("depth", [1, 2])
def test_a_lstm_without_packed_sequences_is_the_same(depth):
    X = as_tokens(small_data(n_rows=30)[0])
    torch.manual_seed(depth)
    encoder = BiLSTM(hidden_size=5, embedding_dim=6, num_layers=depth).build(TokenRows(X), X.shape[1]).eval()
    with torch.no_grad():
        encoder.first_hidden.normal_()
        encoder.first_cell.normal_()
        tokens, mask = TokenRows(X).batch(np.arange(30), 0)
        wanted, found = encoder(tokens, mask), UnpackedBiLSTM(encoder)(tokens, mask)
    np.testing.assert_allclose(found.states, wanted.states, atol=1e-6)
    np.testing.assert_allclose(found.vector, wanted.vector, atol=1e-6)


def test_explanations_of_eight_bits_add_up(fitted):
    learner, X, _ = fitted
    small_one = learner.quantised()
    row = X[[3]]
    top = small_one.predict_topk(row, 2)
    for why, score in zip(small_one.explain(row, k=2), top.scores[0], strict=True):
        assert why.score == pytest.approx(float(score), abs=1e-4)
        assert np.abs([effect for _, effect in why.parts]).max() > 0


def test_levels_and_eight_bits_are_not_exported(tmp_path):
    pytest.importorskip("onnxscript", reason="torch writes the file with onnxscript")
    X, Y = small_data(n_rows=60)
    X = as_tokens(X)
    head = AttentionHead(hidden_layer_sizes=(8,), flat_below=6, cluster_size=3)
    with pytest.raises(InputError, match="level by level"):
        small(head=head, epochs=1).fit(X, Y).export_onnx(tmp_path / "a.onnx")
    with pytest.raises(InputError, match="8-bit weights"):
        small(epochs=1).fit(X, Y).quantised().export_onnx(tmp_path / "a.onnx")


def test_a_lstm_takes_eight_bits_too():
    X, Y = small_data(n_rows=60)
    X = as_tokens(X)
    learner = small(encoder=BiLSTM(hidden_size=8, embedding_dim=8), epochs=1).fit(X, Y)
    assert_ranked(learner.quantised().predict_topk(X, 3), 60, 3)
