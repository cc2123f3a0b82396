"""The neural classifier: the contract with every head, and what is its own."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

pytest.importorskip("torch", reason="the networks are trained with torch")
pytest.importorskip("tokenizers", reason="texts become tokens by the library tokenizers")

from longtail import CentroidReranker, Model, RankNet, TAug, TextLearner, datasets, load, recipe, resumable
from longtail.config import config_context
from longtail.errors import InputError, Interrupted, ParameterError
from longtail.features import Tokens
from longtail.kernels.augmentation import Augmentation
from longtail.learners import CNN, AdaptiveHead, AttentionHead, BiLSTM, NeuralClassifier, RankingHead, WordBag
from longtail.learners.neural import training
from longtail.learners.neural.heads import LabelCosts
from longtail.learners.training.averaging import RunningAverage
from longtail.weighting import PW
from tests.learners.contract import MatrixContract, assert_same, small_data


def as_tokens(X):
    """Each feature of a row as a token, as often as its value says."""
    X = sp.csr_array(X)
    rows = [
        np.repeat(X.indices[a:b], X.data[a:b].astype(int)) for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)
    ]
    wide = max(40, *(len(row) for row in rows))
    found = np.zeros((X.shape[0], wide), np.float32)
    for number, row in enumerate(rows):
        found[number, : len(row)] = row + 1
    return sp.csr_array(found)


def small(**params):
    defaults = {
        "encoder": CNN(n_filters=8, kernel_sizes=(1, 2), pool_chunks=1, hidden_size=32, dropout=0.1),
        "head": RankingHead(embedding_dim=16, dropout=0.1),
        "epochs": 6,
        "learning_rate": 0.01,
        "head_learning_rate": 0.01,
        "batch_size": 16,
        "micro_batch_size": 8,
        "validation_fraction": 0.25,
    }
    return NeuralClassifier(**{**defaults, **params})


class NeuralContract(MatrixContract):
    def rows(self, X):
        return as_tokens(X)


class TestContract(NeuralContract):
    other_params = {"loss": "grank", "warmup_fraction": 0.2}  # noqa: RUF012

    def make(self, **params):
        return small(**params)


class TestContractOfClusters(NeuralContract):
    other_params = {"weight_decay": 0.2}  # noqa: RUF012
    exact = False

    def make(self, **params):
        head = RankingHead(embedding_dim=16, dropout=0.1, cluster_size=3, flat_below=0, retrieved=3)
        return small(**{"head": head, "loss": "grank", **params})


class TestContractOfAttention(NeuralContract):
    other_params = {"row_power": 1.0}  # noqa: RUF012
    exact = False

    def make(self, **params):
        head = AttentionHead(hidden_layer_sizes=(8,), flat_below=6, cluster_size=3, top_k=3)
        return small(**{"head": head, "epochs": 3, **params})


class TestContractOfGates(NeuralContract):
    other_params = {"max_grad_norm": 0.5}  # noqa: RUF012

    def make(self, **params):
        return small(**{"head": AdaptiveHead(n_clusters=3, hidden_size=16, dropout=0.1), **params})


PASSES = {"cnn": 60, "bilstm": 200, "bag": 100}
ENCODERS = {
    "cnn": CNN(n_filters=32, hidden_size=64, dropout=0),
    "bilstm": BiLSTM(hidden_size=24, dropout=0, state_dropout=0),
    "bag": WordBag(embedding_dim=64, dropout=0),
}
HEADS = {
    "flat": RankingHead(embedding_dim=64, dropout=0.0),
    "clusters": RankingHead(embedding_dim=64, dropout=0.0, cluster_size=8, flat_below=0, retrieved=4),
    "attention": AttentionHead(hidden_layer_sizes=(32,)),
    "tree": AttentionHead(hidden_layer_sizes=(32,), flat_below=10, cluster_size=4, top_k=6),
    "gates": AdaptiveHead(n_clusters=2, hidden_size=64, dropout=0.0),
}


@pytest.fixture(scope="module")
def tiny_texts():
    """The first texts of the bundled data with their labels, those without a row left out."""
    data = datasets.load("debian-tags:train")
    Y = data.Y[:10]
    return data.texts[:10], Y[:, np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1]))]


@pytest.mark.parametrize("head", list(HEADS))
@pytest.mark.parametrize("encoder", list(ENCODERS))
def test_every_learner_learns_a_tiny_batch_by_heart(head, encoder, tiny_texts):
    texts, Y = tiny_texts
    if HEADS[head].reads_states and not ENCODERS[encoder].has_states:
        pytest.skip("attention needs a state per token, and a bag of words has none")
    for loss in HEADS[head].losses[:3]:
        learner = NeuralClassifier(
            encoder=ENCODERS[encoder],
            head=HEADS[head],
            loss=loss,
            epochs=PASSES[encoder],
            learning_rate=0.005,
            head_learning_rate=0.01,
            batch_size=5,
        )
        fitted = TextLearner(learner=learner).set_params(features__max_length=24).fit(texts, Y)
        assert fitted.score(texts, Y) == 1.0, loss


def test_threads_change_nothing():
    X, Y = small_data(n_rows=120)
    X = as_tokens(X)
    one, two = (small(n_jobs=threads, epochs=2).fit(X, Y) for threads in (1, 3))
    for mine, other in zip(one.tensors_, two.tensors_, strict=True):
        assert all(np.array_equal(mine[name], other[name]) for name in mine)
    assert_same(one.predict_topk(X, 5), two.predict_topk(X, 5))


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"average_from": 0.3, "evals_per_epoch": 2},
        {"head": HEADS["tree"], "epochs": 3},
        {"head": HEADS["clusters"]},
    ],
)
def test_training_resumes_after_a_kill(tmp_path, monkeypatch, params):
    X, Y = small_data(n_rows=120)
    X = as_tokens(X)
    step = training.TrainableNetwork._gradients
    done = [0]

    def counts(self, rows, number):
        done[0] += 1
        return step(self, rows, number)

    monkeypatch.setattr(training.TrainableNetwork, "_gradients", counts)
    whole = small(**params).fit(X, Y)
    total = done[0]
    for stop_at in (5, 9):
        count = [0]

        def breaks(self, rows, number, stop_at=stop_at, count=count):
            count[0] += 1
            if count[0] == stop_at:
                raise RuntimeError("killed")
            return step(self, rows, number)

        monkeypatch.setattr(training.TrainableNetwork, "_gradients", breaks)
        monkeypatch.setattr("longtail.learners.training.fit._SAVE_EVERY", -1.0)
        with pytest.raises(RuntimeError, match="killed"), resumable(tmp_path / "unfinished"):
            small(**params).fit(X, Y)
        monkeypatch.setattr(training.TrainableNetwork, "_gradients", step)
    done[0] = 0
    monkeypatch.setattr(training.TrainableNetwork, "_gradients", counts)
    with resumable(tmp_path / "unfinished"):
        again = small(**params).fit(X, Y)
    assert_same(again.predict_topk(X, 5), whole.predict_topk(X, 5))
    for mine, other in zip(again.tensors_, whole.tensors_, strict=True):
        assert all(np.array_equal(mine[name], other[name]) for name in mine)
    assert again.history_["loss"] == whole.history_["loss"]
    assert done[0] == total - (5 - 1) - (9 - 1)  # what the killed runs did is not done again


def test_other_parameters_are_not_resumed(tmp_path, monkeypatch):
    X, Y = small_data(n_rows=60)
    X = as_tokens(X)
    step = training.TrainableNetwork._gradients

    def breaks(self, rows, number):
        if number == 9:
            raise RuntimeError("killed")
        return step(self, rows, number)

    monkeypatch.setattr(training.TrainableNetwork, "_gradients", breaks)
    with pytest.raises(RuntimeError, match="killed"), resumable(tmp_path / "unfinished"):
        small().fit(X, Y)
    monkeypatch.setattr(training.TrainableNetwork, "_gradients", step)
    with pytest.raises(InputError), resumable(tmp_path / "unfinished"):
        small(weight_decay=0.5).fit(X, Y)


def test_ctrl_c_is_one_sentence(monkeypatch):
    X, Y = small_data(n_rows=60)

    def stops(self, rows, number):
        raise KeyboardInterrupt

    monkeypatch.setattr(training.TrainableNetwork, "_gradients", stops)
    with pytest.raises(Interrupted, match="Stopped while training: 0 of"):
        small().fit(as_tokens(X), Y)


def test_early_stopping_takes_the_best_check():
    X, Y = small_data(n_rows=120)
    learner = small(epochs=40, patience=2, learning_rate=0.05, head_learning_rate=0.05).fit(as_tokens(X), Y)
    held_out = learner.history_["validation"]
    assert len(held_out) < 40
    assert int(np.argmax(held_out)) == len(held_out) - 1 - 2


def test_weights_are_averaged(monkeypatch):
    X, Y = small_data(n_rows=80)
    X = as_tokens(X)
    params = {"validation_fraction": 0.0, "epochs": 3}
    steps = []
    after = RunningAverage.after
    monkeypatch.setattr(
        RunningAverage, "after", lambda self, weights, epoch: steps.append(weights) or after(self, weights, epoch)
    )
    plain, averaged = (small(**params, average_from=share).fit(X, Y) for share in (1.0, 0.0))
    assert [len(part) for part in steps[:3]] == [len(part) for part in steps[3:]]
    shape = plain.tensors_[0]["head.project.weight"].shape
    (at,) = (number for number, part in enumerate(steps[0]) if part.shape == shape)
    np.testing.assert_array_equal(steps[2][at], plain.tensors_[0]["head.project.weight"])
    wanted = np.mean([weights[at] for weights in steps[:3]], axis=0)
    np.testing.assert_allclose(averaged.tensors_[0]["head.project.weight"], wanted, rtol=1e-4, atol=1e-6)


def test_retrieval_is_measured():
    X, Y = small_data(n_rows=120)
    head = RankingHead(embedding_dim=16, cluster_size=4, flat_below=0, retrieved=1)
    few = small(head=head).fit(as_tokens(X), Y).recall_
    most = small(head=clone(head).set_params(retrieved=99)).fit(as_tokens(X), Y).recall_
    assert 0 < few < 1
    assert most == 1.0
    tree = AttentionHead(hidden_layer_sizes=(8,), flat_below=6, cluster_size=3, top_k=1)
    assert 0 < small(head=tree, epochs=20).fit(as_tokens(X), Y).recall_ < 1
    assert small(head=clone(tree).set_params(top_k=99)).fit(as_tokens(X), Y).recall_ == 1.0


@pytest.mark.parametrize("name", ["clusters", "tree"])
def test_only_the_allowed_labels_are_retrieved(name):
    """Each label alone is found in every row, though one cluster or two are looked into."""
    X, Y = small_data(n_rows=60)
    X = as_tokens(X)
    few = {"clusters": {"retrieved": 1}, "tree": {"top_k": 1}}[name]
    learner = small(head=clone(HEADS[name]).set_params(**few), epochs=1).fit(X, Y)
    for label in np.flatnonzero(learner.label_counts_):
        assert (learner.predict_topk(X, 1, only=[label]).labels == label).all()


def test_tokens_that_the_encoder_does_not_read_are_refused(tmp_path):
    texts, Y = ["a red car", "a blue bus"], [[1, 0], [0, 1]]
    for features in (Tokens(tokenizer="minilm"), "tfidf", Tokens(vectors="other.npz")):
        with pytest.raises(ParameterError, match="what the encoder reads"):
            TextLearner(features=features, learner=small()).fit(texts, Y)


def test_costs_change_what_is_learned():
    X, Y = small_data(n_rows=120)
    X = as_tokens(X)
    for head in (RankingHead(embedding_dim=16), HEADS["tree"], AdaptiveHead(hidden_size=16), HEADS["clusters"]):
        plain, weighted = (small(head=head, epochs=2, weighting=weighting).fit(X, Y) for weighting in (None, PW()))
        assert not np.array_equal(plain.predict_topk(X, 3).scores, weighted.predict_topk(X, 3).scores)
    assert small(weighting="none", epochs=2).fit(X, Y).score(X, Y) == small(epochs=2).fit(X, Y).score(X, Y)


def test_wrappers_work_on_top():
    data = datasets.load("debian-tags:train")
    texts, Y = data.texts[:300], data.Y[:300]
    inner = small(epochs=2)
    for outer in (
        RankNet(learner=inner, folds=2, width=2, epochs=2),
        CentroidReranker(learner=inner),
        TAug(learner=inner, copies=1),
    ):
        learner = TextLearner(learner=outer).set_params(features__max_length=32)
        assert learner.fit(texts, Y).predict_topk(texts[:5], 3).labels.shape == (5, 3)
        assert learner.features_.tokenizer == "words"
        assert learner.explain(texts[:1], k=1)[0].score == pytest.approx(
            learner.predict_topk(texts[:1], 1).scores[0, 0]
        )
        if isinstance(outer, CentroidReranker):  # it compares texts by the vectors of the encoder
            assert learner.learner_.centroids_.arrays(32, Y.shape[1]).features.max() < 32


def test_copies_of_rows_are_not_counted_in_costs(monkeypatch):
    X, Y = small_data(n_rows=100)
    counted = []
    costs = LabelCosts.costs

    def spy(self, counts):
        counted.append(counts // (1 + self.copies))
        return costs(self, counts)

    monkeypatch.setattr(LabelCosts, "costs", spy)
    learner = small(weighting="pw", validation_fraction=0.0, epochs=1)
    learner.n_features_in_ = as_tokens(X).shape[1]
    learner._remember_labels(Y)
    learner._fit_augmented(as_tokens(X), Y, Augmentation(copies=4, input_dropout=0.3, swaps=1, random_state=0))
    np.testing.assert_array_equal(counted[0], learner.label_counts_)


def test_models_are_kept_whole(tmp_path):
    data = datasets.load("debian-tags:train")
    texts, Y = data.texts[:200], data.Y[:200]
    head = AttentionHead(hidden_layer_sizes=(8,), flat_below=100, cluster_size=16, top_k=4)
    learner = TextLearner(learner=small(head=head, epochs=2)).set_params(features__max_length=32).fit(texts, Y)
    Model(learner, label_names=data.label_names).save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert_same(again.predict_topk(texts[:20], 5), learner.predict_topk(texts[:20], 5))
    why = again.explain(texts[0], k=1)[0]
    assert {name for name, _ in why.parts} <= set(learner.features_.names_of(learner.features_.transform(texts[:1])))


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"batch_size": 1.5},
        {"learning_rate": 0},
        {"head_learning_rate": -1},
        {"max_grad_norm": 0},
        {"warmup_fraction": 1},
        {"validation_fraction": 1},
        {"average_from": 2},
        {"loss": "hinge"},
        {"precision": "float64"},
        {"device": "tpu?"},
        {"device": "cuda:7"},
        {"device": "mps"},
        {"micro_batch_size": 0},
        {"cache_frozen": "yes"},
        {"head": RankingHead(flat_below=-1)},
        {"head": AttentionHead(), "label_texts": ["a"] * 12},
        {"head": RankingHead(texts=2)},
        {"encoder": "bert"},
        {"head": 3},
        {"label_texts": "names"},
        {"label_texts": 5},
        {"head": AdaptiveHead(), "label_texts": 5},
        {"weighting": "heavy"},
        {"random_state": -1},
        {"encoder": CNN(kernel_sizes=())},
        {"encoder": CNN(dropout=1)},
        {"encoder": BiLSTM(hidden_size=0)},
        {"encoder": WordBag(max_length=0)},
        {"encoder": WordBag(), "head": AttentionHead()},
        {"head": RankingHead(embedding_dim=1)},
        {"head": RankingHead(cluster_size=0)},
        {"head": AttentionHead(hidden_layer_sizes=3)},
        {"head": AdaptiveHead(n_clusters=0)},
        {"head": AdaptiveHead(), "loss": "grank"},
        {"row_power": -1},
        {"row_power": "half"},
    ],
    ids=str,
)
def test_wrong_parameters_are_refused(wrong):
    X, Y = small_data(n_rows=40)
    with pytest.raises(ParameterError):
        small(**wrong).fit(as_tokens(X), Y)


def test_rows_that_hold_no_tokens_are_refused():
    with pytest.raises(InputError, match="no tokens"):
        small().fit([[0.5, 1.0]], [[1]])
    with pytest.raises(InputError, match="texts"):
        small(label_texts=["one"]).fit([[1, 2]], [[1, 0]])


def test_too_little_memory_is_refused():
    X, Y = small_data(n_rows=40)
    with pytest.raises(ParameterError, match="memory_limit"), config_context(memory_limit="1MB"):
        small().fit(as_tokens(X), Y)


@pytest.mark.parametrize(
    "name",
    ["xgrank", "pw-xgrank", "pw-cb-xgrank", "xgrank-bce", "lightxml", "attentionxml", "pw-attentionxml",
     "pw-cb-attentionxml", "aplc-xlnet", "pw-aplc-xlnet", "pw-cb-aplc-xlnet", "xml-cnn", "word-bag"],
)  # fmt: skip
def test_recipes_are_networks(name):
    learner = recipe(name, epochs=1)
    assert isinstance(learner, NeuralClassifier)
    assert (learner.weighting is not None) == name.startswith("pw-")
    assert learner.row_power == (0.5 if learner.loss == "grank" else 0)


def test_explaining_while_another_thread_predicts():
    X, Y = small_data()
    rows = as_tokens(X)
    learner = small(epochs=1).fit(rows, Y)
    expected = [why.parts for why in learner.explain(rows[[0]], k=2)]
    best, stop, wrong = learner.predict_topk(rows, 3), threading.Event(), []

    def predict():
        while not stop.is_set():
            try:
                assert_same(learner.predict_topk(rows, 3), best)
            except BaseException as error:
                wrong.append(error)

    thread = threading.Thread(target=predict)
    thread.start()
    try:
        for _ in range(60):
            assert [why.parts for why in learner.explain(rows[[0]], k=2)] == expected
    finally:
        stop.set()
        thread.join()
    assert not wrong
