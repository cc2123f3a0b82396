"""The embedding classifier: the contract, and what is its own."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

pytest.importorskip("torch", reason="the embeddings are trained with torch")

from longtail import EmbeddingClassifier, Model, TextLearner, datasets, evaluate, load, recipe
from longtail.config import config_context
from longtail.errors import InputError, ParameterError
from longtail.kernels.augmentation import Augmentation
from longtail.learners.embedding import training
from longtail.learners.training.averaging import WindowAverage
from longtail.losses import TORCH_LOSSES
from longtail.weighting import InversePropensity
from tests.learners.contract import MatrixContract, assert_same, small_data


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


class TestContract(MatrixContract):
    other_params = {"regulariser_weight": 3.0, "adjacency": "jaccard"}  # noqa: RUF012

    def make(self, **params):
        return small(**params)


class TestContractOfLayersAndMargins(MatrixContract):
    other_params = {"margin": 0.5}  # noqa: RUF012

    def make(self, **params):
        return small(
            **{
                "hidden_layer_sizes": (24,),
                "activation": "linear",
                "loss": "margin",
                "regulariser": "spread-out",
                **params,
            }
        )


class TestContractWithAnIndex(MatrixContract):
    other_params = {"regulariser_weight": 3.0}  # noqa: RUF012

    def make(self, **params):
        return small(**{"search": "hnsw", **params})

    def test_labels_can_be_restricted(self, fitted, data):
        """The index isn't asked then, so that scores are rounded in another order."""
        X, Y = data
        whole = fitted.predict_topk(X, Y.shape[1])
        for only, exclude, keep in (([1, 4, 8], None, {1, 4, 8}), (None, [0, 2], set(range(Y.shape[1])) - {0, 2})):
            top = fitted.predict_topk(X, len(keep), only=only, exclude=exclude)
            kept = np.isin(whole.labels, list(keep))
            np.testing.assert_allclose(top.scores[top.labels >= 0], whole.scores[kept], atol=1e-5)
            assert set(np.unique(top.labels[top.labels >= 0])) == set(np.unique(whole.labels[kept]))


@pytest.mark.parametrize("loss", TORCH_LOSSES)
def test_every_loss_learns(loss):
    X, Y = small_data(n_rows=400)
    learner = small(loss=loss, epochs=10).fit(X[:300], Y[:300])
    assert learner.score(X[300:], Y[300:]) > 0.75
    losses = learner.history_["loss"]
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("regulariser", [None, "glas", "spread-out", "laplacian", "gravity"])
@pytest.mark.parametrize("adjacency", ["arithmetic", "pmi"])
def test_every_regulariser_trains(regulariser, adjacency):
    X, Y = small_data(n_rows=200)
    learner = small(regulariser=regulariser, adjacency=adjacency).fit(X, Y)
    assert learner.score(X, Y) > 0.7


def test_regularisers_do_what_they_are_for():
    """Labels that are always together come together with GLaS and the Laplacian, and are kept apart by spread-out."""
    X, Y = small_data(n_rows=300)
    nearness = {}
    for regulariser in (None, "glas", "spread-out", "laplacian"):
        vectors = (
            small(regulariser=regulariser, regulariser_weight=300.0, epochs=10, validation_fraction=0.0)
            .fit(X, Y)
            .label_embeddings_
        )
        products = vectors @ vectors.T
        np.fill_diagonal(products, 0)
        nearness[regulariser] = products[3, 10], np.abs(products[:3, 6:9]).mean()
    assert nearness["spread-out"][0] < nearness[None][0] < nearness["glas"][0]
    assert nearness["glas"][0] > 0.8
    assert nearness["laplacian"][0] > 0.8
    assert nearness["spread-out"][1] < nearness[None][1]


def test_the_regulariser_weight_scales_with_the_number_of_labels():
    X, Y = small_data(n_labels=14)
    for given, wanted in ((None, 1.4), (7, 7)):
        model = training.TrainableEmbedding(X, Y, np.ones(14, np.float32), small(regulariser_weight=given))
        assert model.regulariser_weight == pytest.approx(wanted)


def test_labels_of_the_regulariser():
    X, Y = small_data(n_rows=60, n_labels=200)
    for sampling, wanted in (("even", 1.0), ("rows", 60.0)):
        model = training.TrainableEmbedding(X, Y, np.ones(200, np.float32), small(sampling=sampling))
        batch = model._sample_batch(np.arange(60), np.random.default_rng(0))
        labelled = (np.diff(Y.indptr) > 0).sum()
        if sampling == "even":
            assert set(batch.weights) == {wanted}
        else:
            np.testing.assert_array_equal(batch.weights, np.bincount(batch.sampled[batch.sampled >= 0], minlength=199))
            assert batch.weights.sum() == labelled


def test_weighting_brings_rare_labels_up():
    X, Y = small_data(n_rows=600, n_labels=60, n_features=80)
    rare = np.argsort(np.asarray(Y.sum(axis=0)).ravel())[1:30]
    ranked = {}
    for weighting in (None, "pw-cb", InversePropensity()):
        top = small(weighting=weighting, epochs=8).fit(X, Y).predict_topk(X, 3)
        ranked[str(weighting)] = np.isin(top.labels, rare).mean()
    assert ranked["None"] < ranked["pw-cb"]
    assert ranked["None"] < ranked["InversePropensity()"]


def test_label_embeddings_are_of_length_1():
    X, Y = small_data()
    learner = small().fit(X, Y)
    lengths = np.linalg.norm(learner.label_embeddings_, axis=1)
    held = learner.label_counts_ > 0
    np.testing.assert_allclose(lengths[held & (lengths > 0)], 1, rtol=1e-5)
    assert (lengths[~held] == 0).all()
    assert learner.label_embeddings_.shape == (14, 16)


def test_rows_are_embedded_where_their_labels_are():
    X, Y = small_data(n_rows=400)
    learner = small(epochs=10).fit(X, Y)
    embedded = learner.embed(X)
    assert embedded.shape == (400, 16)
    top = learner.predict_topk(X, 1)
    np.testing.assert_array_equal((embedded @ learner.label_embeddings_.T).argmax(axis=1), top.labels[:, 0])


def test_similar_labels():
    X, Y = small_data(n_rows=300)
    learner = small(regulariser_weight=300.0, epochs=10).fit(X, Y)
    near = learner.similar(3, k=4)
    assert near[0][0] == 10  # its twin
    assert [score for _, score in near] == sorted((score for _, score in near), reverse=True)
    assert 3 not in [label for label, _ in near]
    assert len(learner.similar(3, k=99)) == 12  # neither itself nor the label without rows
    with pytest.raises(InputError, match="no training row"):
        learner.similar(5)
    with pytest.raises(ParameterError, match="label must be"):
        learner.similar(14)


def test_scores_are_log_odds():
    """Of the labels predicted with a probability of about one half, about one half is true."""
    X, Y = small_data(n_rows=3000)
    learner = small(epochs=3, validation_fraction=0.2).fit(X[:2000], Y[:2000])
    top = learner.predict_topk(X[2000:], 14)
    chances = 1 / (1 + np.exp(-top.scores))
    truth = np.take_along_axis(Y[2000:].toarray(), np.maximum(top.labels, 0), axis=1)
    for low, high in ((0.1, 0.4), (0.4, 0.7), (0.7, 0.95)):
        some = (chances > low) & (chances < high) & (top.labels >= 0)
        if some.sum() > 100:
            assert truth[some].mean() == pytest.approx(chances[some].mean(), abs=0.12)


def test_training_stops_when_the_rows_held_out_stop_getting_better():
    X, Y = small_data(n_rows=300)
    rng = np.random.default_rng(0)
    noise = sp.csr_array(Y[rng.permutation(300)])  # labels that have nothing to do with the rows
    learner = small(epochs=40, patience=2, validation_fraction=0.3).fit(X, noise)
    measured = learner.history_["validation"]
    assert len(measured) < 40
    assert max(measured) == measured[-3]


def test_without_held_out_rows_the_last_epoch_is_kept():
    X, Y = small_data()
    learner = small(validation_fraction=0.0, epochs=3).fit(X, Y)
    assert len(learner.history_["loss"]) == 3
    assert np.isnan(learner.history_["validation"]).all()


def test_weights_of_the_last_epochs_are_averaged(monkeypatch):
    X, Y = small_data()
    kept = []
    after = WindowAverage.after
    monkeypatch.setattr(
        WindowAverage, "after", lambda self, weights, epoch: kept.append(weights) or after(self, weights, epoch)
    )
    taken = []
    take = EmbeddingClassifier._take
    monkeypatch.setattr(
        EmbeddingClassifier, "_take", lambda self, weights, model: taken.append(weights) or take(self, weights, model)
    )
    small(validation_fraction=0.0, average=3, epochs=5).fit(X, Y)
    assert len(kept) == 5
    for number, part in enumerate(taken[-1]):
        np.testing.assert_allclose(part, np.mean([weights[number] for weights in kept[-3:]], axis=0), rtol=1e-5)


def test_training_without_torch_is_an_error_and_prediction_works(tmp_path):
    X, Y = small_data()
    learner = small().fit(X, Y)
    Model(learner).save(tmp_path / "model")
    expected = learner.predict_topk(X[:3], 2).labels.tolist()
    script = f"""
import importlib.util
import sys
class WithoutTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, WithoutTorch())
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "torch" else find(name, *more)
import numpy as np
from longtail import EmbeddingClassifier, load
from longtail.errors import MissingExtraError
model = load({str(tmp_path / "model")!r})
X = np.array({X[:3].toarray().tolist()!r})
assert model.predict_topk(X, 2).labels.tolist() == {expected!r}
try:
    EmbeddingClassifier().fit([[1], [2]], [[1], [0]])
except MissingExtraError as error:
    assert "longtail[neural]" in str(error)
else:
    raise SystemExit("trained")
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("embedding_dim", 0),
        ("hidden_layer_sizes", (0,)),
        ("hidden_layer_sizes", 5),
        ("hidden_layer_sizes", ["x"]),
        ("activation", "tanh"),
        ("loss", "hinge"),
        ("margin", -1),
        ("n_hard_negatives", 0),
        ("n_negatives", -1),
        ("regulariser", "l2"),
        ("regulariser_weight", float("nan")),
        ("sampling", "all"),
        ("adjacency", "x"),
        ("input_dropout", 1),
        ("input_dropout", -0.1),
        ("batch_size", 0),
        ("epochs", 0),
        ("learning_rate", 0),
        ("label_learning_rate", 0),
        ("optimiser", "adagrad"),
        ("validation_fraction", 1.0),
        ("patience", 0),
        ("average", 0),
        ("search", "brute"),
        ("precision", "float16"),
        ("normalise", 1),
        ("random_state", -1),
        ("n_jobs", 0),
        ("weighting", "x"),
    ],
)
def test_wrong_parameters_are_refused(name, value):
    X, Y = small_data()
    with pytest.raises(ParameterError, match=name):
        small(**{name: value}).fit(X, Y)


def test_too_little_memory_is_refused_before_training():
    X, Y = small_data()
    with pytest.raises(ParameterError, match="leaves no room"), config_context(memory_limit="1MB"):
        small().fit(X, Y)


def test_labels_of_a_step_are_those_of_its_rows_and_others():
    X, Y = small_data(n_rows=100, n_labels=300)
    model = training.TrainableEmbedding(X, Y, np.ones(300, np.float32), small(n_negatives=20))
    rows = np.arange(2)
    batch = model._sample_batch(rows, np.random.default_rng(0))
    own = set(Y[rows].indices)
    assert own <= set(batch.labels)
    assert 5 < len(set(batch.labels) - own) <= 20
    assert np.diff(batch.labels).min() > 0
    np.testing.assert_array_equal(batch.truth.toarray(), Y[rows][:, batch.labels].toarray())
    for row, place in zip(rows, batch.sampled, strict=True):
        assert Y[row, batch.labels[place]] == 1
    whole = training.TrainableEmbedding(X, Y, np.ones(300, np.float32), small(n_negatives=300))
    np.testing.assert_array_equal(whole._sample_batch(rows, np.random.default_rng(0)).labels, np.unique(Y.indices))


def test_one_true_label_per_row_is_sampled_uniformly():
    X = sp.csr_array(np.ones((3, 1), np.float32))
    Y = sp.csr_array(np.array([[1, 1, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]], np.float32))
    model = training.TrainableEmbedding(X, Y, np.ones(4, np.float32), small(n_negatives=4))
    rng = np.random.default_rng(0)
    drawn = np.array([model._sample_batch(np.arange(3), rng).sampled for _ in range(400)])
    np.testing.assert_allclose(np.bincount(drawn[:, 0], minlength=4), 100, atol=40)
    assert set(drawn[:, 1]) == {2}
    assert set(drawn[:, 2]) == {-1}


def test_a_step_follows_the_gradient_of_the_whole_objective():
    """The gradients that are handed to Adam, by numeric differences of loss and regulariser together."""
    X, Y = (part[10:22] for part in small_data())  # each row with features: at the origin there is no gradient
    settings = small(
        hidden_layer_sizes=(5,), embedding_dim=4, n_negatives=14, input_dropout=0.0, regulariser_weight=7.0
    )
    model = training.TrainableEmbedding(X, Y, np.linspace(0.5, 2, 14).astype(np.float32), settings)
    batch = model._sample_batch(np.arange(12), np.random.default_rng(1))
    norms = np.sqrt(training.column_squares(model.features.values))

    def objective():
        import torch

        sums = np.asarray(X @ model.features.values, np.float32)
        rows = model.labels.values[batch.labels]
        units = torch.from_numpy(rows / np.linalg.norm(rows, axis=1, keepdims=True))
        lengths = torch.from_numpy(norms.astype(np.float32))
        shards, regulariser = model._gradients(batch, sums, units, lengths)
        return sum(shard.loss for shard in shards) + 7.0 * regulariser.value, shards

    _, shards = objective()
    for name in ("weights1", "bias0", "length1", "scale"):
        values, gradient = model.layers[name].values, sum(shard.layers[name] for shard in shards)
        for place in list(np.ndindex(values.shape))[:4]:
            before = values[place]
            ends = []
            for nudge in (2e-3, -2e-3):
                values[place] = before + nudge
                ends.append(objective()[0])
            values[place] = before
            assert gradient[place] == pytest.approx((ends[0] - ends[1]) / 4e-3, rel=0.05, abs=2e-3), name


def test_algorithm_2_step_by_step():
    """One step of plain gradients against the algorithm in double precision: labels, biases and lengths of layers."""
    import torch

    X, Y = (part[10:22] for part in small_data())
    params = {
        "loss": "margin",
        "optimiser": "sgd",
        "sampling": "rows",
        "input_dropout": 0.0,
        "n_negatives": 14,
        "regulariser_weight": 10.0,
    }
    settings = small(hidden_layer_sizes=(6,), embedding_dim=5, learning_rate=0.5, batch_size=12, **params)
    model = training.TrainableEmbedding(X, Y, np.ones(14, np.float32), settings)
    begin = {name: torch.from_numpy(table.values.astype(np.float64)) for name, table in model.layers.items()}
    begin |= {"V": torch.from_numpy(model.labels.values.astype(np.float64))}
    W = torch.from_numpy(model.features.values.astype(np.float64))
    batch = model._sample_batch(np.arange(12), np.random.default_rng(1))
    leaves = {name: value.clone().requires_grad_() for name, value in begin.items()}
    inputs = torch.from_numpy(X.toarray().astype(np.float64))
    hidden = inputs @ (W / W.norm(dim=0)) * leaves["length0"].exp() + leaves["bias0"]
    directions = leaves["weights1"] / leaves["weights1"].norm(dim=0)
    phi = hidden.relu() @ directions * leaves["length1"].exp() + leaves["bias1"]
    phi = phi.relu() / phi.relu().norm(dim=1, keepdim=True).clamp(min=1e-6)
    V = leaves["V"] / leaves["V"].norm(dim=1, keepdim=True)
    truth, loss = Y.toarray(), 0.0
    labelled = np.flatnonzero(batch.sampled >= 0)  # a row has no labels: nothing is drawn for it
    drawn = batch.labels[batch.sampled]
    assert len(labelled) == 11
    for row in labelled:
        scores = V @ phi[row]
        for label in np.flatnonzero(truth[row] == 0):
            if label in batch.labels:
                loss = loss + (scores[label] - scores[drawn[row]] + 0.3).relu() / 12
    together = (truth.T @ truth).astype(np.float64)
    for one in drawn[labelled]:
        for other in drawn[labelled]:
            near = (together[one, other] / together[other, other] + together[one, other] / together[one, one]) / 2
            loss = loss + 10.0 * (V[one] @ V[other] - near).square() / 121
    loss.backward()
    model.start_epoch(0)
    model._step(batch, 0)
    rate = float(model._step_size(0.5, 0).learning_rate)
    found = {name: table.values for name, table in model.layers.items()} | {"V": model.labels.values}
    for name, leaf in leaves.items():
        gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        np.testing.assert_allclose(found[name], begin[name] - rate * gradient, rtol=1e-4, atol=1e-5, err_msg=name)


def test_plain_steps_learn_too():
    X, Y = small_data(n_rows=400)
    learner = small(
        optimiser="sgd", learning_rate=1.0, label_learning_rate=10.0, epochs=30, validation_fraction=0.1
    ).fit(X[:300], Y[:300])
    assert learner.score(X[300:], Y[300:]) > 0.6


def test_a_training_that_diverges_says_so():
    X, Y = small_data()
    with pytest.raises(ParameterError, match="makes the training diverge"):
        small(optimiser="sgd", learning_rate=1e30, label_learning_rate=1e30).fit(X, Y)


def test_mixed_precision_learns_the_same():
    X, Y = small_data(n_rows=300)
    full, mixed = (small(precision=precision).fit(X, Y) for precision in ("float32", "bfloat16"))
    assert abs(full.score(X, Y) - mixed.score(X, Y)) < 0.1


def test_prediction_is_the_same_after_saving(tmp_path):
    X, Y = small_data()
    learner = small(hidden_layer_sizes=[8]).fit(X, Y)
    Model(learner).save(tmp_path / "model")
    again = load(tmp_path / "model").learner
    assert_same(again.predict_topk(X, 4), learner.predict_topk(X, 4))
    assert again.history_ == learner.history_
    assert again.similar(3) == learner.similar(3)


def test_recipes_on_real_data():
    train, test = datasets.load("debian-tags:train"), datasets.load("debian-tags:test")
    found = {}
    for name in ("glas", "embedding"):
        learner = TextLearner(learner=recipe(name, embedding_dim=64, epochs=3)).fit(train.texts, train.Y)
        found[name] = evaluate(learner.predict_topk(test.texts, 5), test.Y, ks=(1, 5))["P@1"]
    assert min(found.values()) > 70


def test_shards_and_threads_change_nothing():
    """Enough rows, features and labels that every kind of work is cut into several parts."""
    rng = np.random.default_rng(0)
    X = sp.csr_array(sp.random_array((700, 1500), density=0.01, rng=rng, dtype=np.float32))
    Y = sp.csr_array((sp.random_array((700, 1200), density=0.004, rng=rng) > 0).astype(np.float32))
    made = {"embedding_dim": 8, "batch_size": 600, "epochs": 2, "hidden_layer_sizes": (8,)}
    tops = [EmbeddingClassifier(**made, n_jobs=threads).fit(X, Y).predict_topk(X, 5) for threads in (1, 2, 3)]
    assert_same(tops[0], tops[1])
    assert_same(tops[0], tops[2])


@pytest.mark.parametrize("loss", TORCH_LOSSES)
def test_steps_without_any_label(loss):
    X, Y = small_data()
    empty = sp.csr_array(Y.shape, dtype=np.float32)
    lonely = empty.tolil()
    lonely[0, 0] = 1
    small(loss=loss, n_negatives=0, batch_size=4).fit(X, sp.csr_array(lonely))
    assert small(loss=loss).estimate(X, empty).model_mb > 0


def test_asking_an_unfitted_learner_is_an_error():
    with pytest.raises(NotFittedError):
        small().embed([[1]])
    with pytest.raises(NotFittedError):
        small().similar(0)


def test_copies_of_rows_that_are_held_out_are_not_trained_on(monkeypatch):
    X = sp.csr_array(np.eye(80, dtype=np.float32))
    Y = sp.csr_array(np.tile(np.eye(4, dtype=np.float32), (20, 1)))
    trained = []
    init = training.TrainableEmbedding.__init__

    def spy(self, rows, *rest):
        trained.append(rows)
        init(self, rows, *rest)

    monkeypatch.setattr(training.TrainableEmbedding, "__init__", spy)
    learner = small(validation_fraction=0.25)
    learner.n_features_in_ = 80
    learner._remember_labels(Y)
    learner._fit_augmented(X, Y, Augmentation(copies=2, input_dropout=0.0, swaps=0, random_state=0))
    (rows,) = trained
    uses = np.bincount(rows.indices, minlength=80)
    assert sorted(set(uses)) == [0, 3]
    assert (uses == 0).sum() == 20
