"""Heads against slow, obvious references on tiny inputs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

torch = pytest.importorskip("torch", reason="the networks are trained with torch")

from longtail.learners import CNN, AdaptiveHead, AttentionHead, RankingHead  # noqa: E402
from longtail.learners.neural.batches import TokenRows  # noqa: E402
from longtail.learners.neural.heads import LabelCosts  # noqa: E402
from longtail.learners.neural.modules.adaptive import AdaptiveClusters  # noqa: E402
from longtail.learners.neural.modules.attention import LabelAttention  # noqa: E402
from longtail.learners.neural.modules.encoder import Encoded  # noqa: E402
from longtail.learners.neural.modules.head import ScoredCandidates, Truth, are_own, dense_truth, log_odds_of  # noqa: E402
from longtail.learners.neural.modules.network import Network  # noqa: E402
from longtail.learners.neural.modules.ranking import ClusteredRanking, FlatRanking, LabelVectors, LabelWords  # noqa: E402
from longtail.losses import grank_loss, logistic_loss  # noqa: E402
from longtail.weighting import PW, Weighting, get_weighting  # noqa: E402
from tests.learners.rankings import assert_best  # noqa: E402

N, PLACES, WIDTH, L = 4, 5, 6, 7
OWN = [[0, 3], [6], [], [1, 2, 5]]
ALL = np.ones(L, bool)


@pytest.fixture
def encoded():
    torch.manual_seed(0)
    mask = torch.tensor([[1] * 5, [1] * 3 + [0] * 2, [1] + [0] * 4, [1] * 4 + [0]]).bool()
    return Encoded(torch.randn(N, PLACES, WIDTH), mask, torch.randn(N, WIDTH))


@pytest.fixture
def truth():
    indptr = np.cumsum([0, *map(len, OWN)])
    return Truth(torch.from_numpy(indptr), torch.tensor([label for own in OWN for label in own]))


def matrix():
    found = torch.zeros(N, L)
    for row, own in enumerate(OWN):
        found[row, own] = 1
    return found


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def label_vectors(sparse):
    words = LabelWords(torch.tensor([0, 2, 3, 3, 5, 6, 7, 9]), torch.tensor([0, 1, 2, 0, 2, 1, 1, 0, 2]), 3)
    return LabelVectors(L, 8, words, sparse=sparse)


def vectors_by_hand(vectors):
    words, own = vectors.words.weight.detach().numpy(), vectors.own.weight.detach().numpy()
    indptr, listed = vectors.indptr.numpy(), vectors.listed.numpy()
    texts = [words[listed[a:b]].mean(axis=0) if b > a else np.zeros(4) for a, b in pairwise(indptr)]
    return np.concatenate([own, np.array(texts)], axis=1)


@pytest.mark.parametrize(
    ("power", "weights"), [(0.0, [1, 1, 1, 1]), (0.5, [2**0.5, 1, 1, 3**0.5]), (1.0, [2, 1, 1, 3])]
)
def test_rows_count_by_their_labels(encoded, truth, power, weights):
    """They have two labels, one, none and three."""

    class Given(torch.nn.Module):
        def forward(self, tokens, mask):
            return encoded

    head = FlatRanking(WIDTH, label_vectors(False), 0.0, grank_loss, None)
    each = head.loss(encoded, truth, 0.0, None).detach().numpy()
    found = Network(Given(), head, power)(torch.zeros(N, PLACES), encoded.mask, truth, 0.0)
    assert found.item() == pytest.approx(float(each @ weights), rel=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_label_is_its_own_vector_beside_the_mean_of_its_words(sparse):
    vectors = label_vectors(sparse)
    torch.nn.init.normal_(vectors.bias.weight)
    wanted = vectors_by_hand(vectors)
    found, bias = vectors.all()
    np.testing.assert_allclose(found.detach(), wanted, rtol=1e-6)
    some, few = vectors.some(torch.tensor([[3, 3], [2, 6]]))
    np.testing.assert_allclose(some.detach(), wanted[[[3, 3], [2, 6]]], rtol=1e-6)
    np.testing.assert_allclose(few.detach(), bias.detach()[torch.tensor([[3, 3], [2, 6]])])


def test_flat_ranking_is_an_inner_product(encoded, truth):
    head = FlatRanking(WIDTH, label_vectors(False), 0.0, grank_loss, None)
    weight, bias = (part.detach().numpy() for part in (head.project.weight, head.project.bias))
    scores = (encoded.vector.numpy() @ weight.T + bias) @ vectors_by_hand(head.vectors).T
    wanted = grank_loss(torch.from_numpy(scores), matrix().double(), None, None)
    np.testing.assert_allclose(head.loss(encoded, truth, 1.0, None).detach(), wanted, rtol=1e-4)
    with torch.no_grad():
        assert_best(head.ranked(encoded, 5, ALL, None), [dict(enumerate(row)) for row in scores])
        np.testing.assert_allclose(head.log_odds(encoded, torch.tensor([2, 0])), scores[:, [2, 0]], rtol=1e-4)


@pytest.mark.parametrize("loss", [logistic_loss, grank_loss])
@pytest.mark.parametrize("ramp", [False, True])
def test_retriever_and_ranker(encoded, truth, loss, ramp):
    """Three clusters, of which two are looked into, and those of the true labels in any case."""
    of_label = torch.tensor([0, 0, 1, 1, 1, 2, 2])
    members = torch.tensor([[0, 1, -1], [2, 3, 4], [5, 6, -1]])
    costs, cluster_costs = torch.rand(L) + 0.5, torch.rand(3) + 0.5
    head = ClusteredRanking(
        WIDTH, label_vectors(True), of_label, members, 2, 0.0, loss, loss is logistic_loss, ramp, costs, cluster_costs
    )
    with torch.no_grad():
        above = head.retrieve(encoded.vector)
        below = head.project(encoded.vector) @ torch.from_numpy(vectors_by_hand(head.vectors)).float().T
        found = head.loss(encoded, truth, 0.6, None)
    for row, own in enumerate(OWN):
        true_clusters = {int(of_label[label]) for label in own}
        is_true = torch.tensor([[float(c in true_clusters) for c in range(3)]])
        retrieving = loss(above[[row]], is_true, None, cluster_costs)
        order = sorted(range(3), key=lambda c: (c not in true_clusters, -float(above[row, c])))
        looked = order[: max(2, len(true_clusters))]
        labels = [x for c in looked for x in members[c].tolist() if x >= 0]
        is_own = torch.tensor([[float(x in own) for x in labels]])
        ranking = loss(below[[row]][:, labels], is_own, None, costs[labels])
        weight = 0.5 * 0.6 if ramp else 0.5
        wanted = (1 - weight) * retrieving + weight * ranking
        np.testing.assert_allclose(found[row], wanted[0], rtol=1e-4)
    with torch.no_grad():
        top = head.ranked(encoded, 6, ALL, None)
        retrieved = head.retrieved_labels(encoded)
    wanted = []
    for row in range(N):
        best = above[row].argsort(descending=True)[:2].tolist()
        multiplied = loss is logistic_loss
        chances = {
            int(label): (sigmoid(float(above[row, c])) if multiplied else 1.0) * sigmoid(float(below[row, label]))
            for c in best for label in members[c] if label >= 0
        }  # fmt: skip
        assert set(retrieved[row][retrieved[row] >= 0].tolist()) == set(chances)
        wanted.append({label: float(np.log(p / (1 - p))) for label, p in chances.items()})
    assert_best(top, wanted)


def test_attention_sees_the_states_a_label_looks_at(encoded, truth):
    head = LabelAttention(WIDTH, L, (4, 3), logistic_loss, None, multiplied=True, sparse=False)
    looks = head.looks.weight.detach().numpy()
    scores = np.empty((N, L))
    for row in range(N):
        states = encoded.states[row][encoded.mask[row]].numpy()
        for label in range(L):
            weights = np.exp(states @ looks[label])
            seen = (weights / weights.sum()) @ states
            for layer in head.layers:
                seen = np.maximum(layer.weight.detach().numpy() @ seen + layer.bias.detach().numpy(), 0)
            scores[row, label] = (head.out.weight.detach().numpy() @ seen + head.out.bias.detach().numpy())[0]
    with torch.no_grad():
        np.testing.assert_allclose(head.log_odds(encoded, torch.arange(L)), scores, rtol=1e-4, atol=1e-6)
        wanted = logistic_loss(torch.from_numpy(scores), matrix().double(), None, None)
        np.testing.assert_allclose(head.loss(encoded, truth, 1.0, None), wanted, rtol=1e-4)
        labels = torch.tensor([[3, 0, -1], [6, 2, 1], [0, 1, 2], [5, -1, -1]])
        above = -torch.rand(N, 3)
        below = LabelAttention(WIDTH, L, (4, 3), logistic_loss, None, multiplied=True, sparse=True)
        below.load_state_dict(head.state_dict())
        top = below.ranked(encoded, 3, ALL, ScoredCandidates(labels, above))
        loss = below.loss(encoded, truth, 1.0, ScoredCandidates(labels, above))
    chances = [
        {
            int(x): np.exp(float(a)) * sigmoid(scores[row, x])
            for x, a in zip(labels[row], above[row], strict=True)
            if x >= 0
        }
        for row in range(N)
    ]
    assert_best(top, [{x: float(np.log(p / (1 - p))) for x, p in row.items()} for row in chances])
    used = [x for x in labels[3].tolist() if x >= 0]
    np.testing.assert_allclose(loss[3], np.mean(np.log1p(np.exp(-scores[3, used]))), rtol=1e-4)


def test_rare_labels_stand_behind_gates(encoded, truth):
    """Labels 4, 6, 0 are the head, 1, 5 and 2, 3 two clusters behind their gates."""
    order, ends = torch.tensor([4, 6, 0, 1, 5, 2, 3]), [3, 5, 7]
    costs = torch.rand(L) + 0.5
    head = AdaptiveClusters(WIDTH, order, ends, 8, 2, 0.0, costs)
    assert [tail[0].out_features for tail in head.tails] == [4, 2]
    with torch.no_grad():
        hidden = head.project(encoded.vector).relu()
        outputs = head.head(hidden).double().numpy()
        inside = [tail(hidden).double().numpy() for tail in head.tails]
        found = head.loss(encoded, truth, 1.0, None)
        odds = head.log_odds(encoded, torch.arange(L))
        top = head.ranked(encoded, L, ALL, None)
    names, weights = [[4, 6, 0], [1, 5], [2, 3]], costs.numpy()
    for row, own in enumerate(OWN):
        chance = {label: sigmoid(outputs[row, at]) for at, label in enumerate(names[0])}
        for number in (0, 1):
            gate = sigmoid(outputs[row, 3 + number])
            chance |= {x: gate * sigmoid(inside[number][row, at]) for at, x in enumerate(names[1 + number])}
        terms = [-weights[x] * np.log(chance[x]) if x in own else -np.log(1 - chance[x]) for x in names[0]]
        losses = []
        for number in (0, 1):
            each = [-weights[x] * np.log(chance[x]) if x in own else -np.log(1 - chance[x]) for x in names[1 + number]]
            if set(names[1 + number]) & set(own):
                losses.append(np.mean(each))
            else:
                terms.append(-np.log(1 - sigmoid(outputs[row, 3 + number])))
        wanted = (np.mean(terms) + sum(losses)) / (1 + len(losses))
        np.testing.assert_allclose(found[row], wanted, rtol=1e-4)
        np.testing.assert_allclose(odds[row], [np.log(chance[x] / (1 - chance[x])) for x in range(L)], rtol=1e-4)
    assert_best(top, [dict(enumerate(row)) for row in odds.tolist()])


def test_a_saved_head_without_biases_is_resumed(encoded):
    order, ends = torch.tensor([4, 6, 0, 1, 5, 2, 3]), [3, 5, 7]
    one, other = (AdaptiveClusters(WIDTH, order, ends, 8, 2, 0.0, None) for _ in range(2))
    one.head.bias.data.zero_()
    older = {name: value for name, value in one.state_dict().items() if name != "head.bias"}
    other.load_state_dict(older)
    with torch.no_grad():
        found, wanted = (head.log_odds(encoded, torch.arange(L)) for head in (other, one))
    np.testing.assert_array_equal(found, wanted)
    with pytest.raises(RuntimeError):
        other.load_state_dict({name: value for name, value in older.items() if name != "head.weight"})


def test_membership():
    truth = Truth(torch.tensor([0, 2, 2]), torch.tensor([4, 1]))
    labels = torch.tensor([[1, -1, 3, 4], [1, 4, -1, 0]])
    np.testing.assert_array_equal(are_own(labels, truth), [[1, 0, 0, 1], [0, 0, 0, 0]])


def test_log_odds_of_a_probability():
    chances = torch.tensor([1e-6, 0.3, 0.999])
    np.testing.assert_allclose(log_odds_of(chances.log()), torch.logit(chances), rtol=1e-4)
    assert torch.isfinite(log_odds_of(torch.tensor([0.0, -1e4]))).all()


def test_biases_start_at_the_log_odds_over_all_rows():
    """By hand: 100 rows, 20 and 2 of them with the labels; the log-odds of their shares, times what they cost."""
    counts = np.array([20, 2, 0])
    plain = LabelCosts(get_weighting(None), 100).first_biases(counts)
    np.testing.assert_allclose(plain, np.log([20.5 / 80.5, 2.5 / 98.5, 0.5 / 100.5]), rtol=1e-6)
    weighted = LabelCosts(PW(), 100)
    np.testing.assert_allclose(weighted.first_biases(counts), plain + np.log(weighted.costs(counts)), rtol=1e-5)
    copied = LabelCosts(get_weighting(None), 100, copies=1)
    np.testing.assert_allclose(copied.first_biases(2 * counts), plain, rtol=1e-6)
    inside = LabelCosts(get_weighting(None), 100).first_biases(counts, np.array([20, 20, 0]))
    np.testing.assert_allclose(inside, np.log([20.5 / 0.5, 2.5 / 18.5, 1.0]), rtol=1e-6)


def test_costs_of_gated_labels_are_scaled_in_each_cluster():
    """By hand: of the two frequent labels one costs twice the other, and so it is with the rare ones; means of 2."""

    class Rarity(Weighting):
        rescale = False

        def _positive(self, counts, n_rows):
            return 60.0 / counts

    counts = np.array([10, 60, 30, 20])
    rows = sp.csr_array((np.ones(120, np.float32), np.repeat(np.arange(4), counts), np.arange(121)), shape=(120, 4))
    head = AdaptiveHead(n_clusters=2, hidden_size=4)
    tokens = TokenRows(sp.csr_array(np.ones((120, 3), np.float32)))
    (level,) = head.levels(tokens, rows, None, 0)
    encoder = CNN(n_filters=4, hidden_size=8).build(tokens, 3)
    made = head.build(level, encoder, "logistic", LabelCosts(Rarity(), 120))
    assert made.order.tolist() == [1, 2, 3, 0]  # costs 1, 2 | 3, 6
    np.testing.assert_allclose(made.costs, [4 / 3, 8 / 3, 4 / 3, 8 / 3], rtol=1e-6)
    plain = head.build(level, encoder, "logistic", LabelCosts(get_weighting(None), 120))
    assert plain.costs is None
    # Gates open for the 30 of 120 rows with a rare label; of these 30, 20 and 10 have each.
    biases = [60.5 / 60.5, 30.5 / 90.5, 30.5 / 90.5]
    np.testing.assert_allclose(plain.head.bias.detach(), np.log(biases), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(plain.tails[0][-1].bias.detach(), np.log([20.5 / 10.5, 10.5 / 20.5]), rtol=1e-5)
    np.testing.assert_allclose(made.head.bias.detach()[:2], np.log([4 / 3, 8 / 3]) + np.log(biases[:2]), rtol=1e-5)


def test_the_bias_that_all_labels_share_begins_at_their_mean_share():
    """Of 40 rows by 5 labels, 30 are true."""
    rows = TokenRows(sp.csr_array(np.ones((40, 3), np.float32)))
    Y = sp.csr_array(np.repeat([[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]], [10, 10], axis=0), dtype=np.float32)
    Y = sp.csr_array(sp.vstack([Y, sp.csr_array((20, 5))]))
    head = AttentionHead(hidden_layer_sizes=(4,))
    (level,) = head.levels(rows, Y, None, 0)
    made = head.build(
        level, CNN(n_filters=4, hidden_size=8).build(rows, 3), "logistic", LabelCosts(get_weighting(None), 40)
    )
    assert float(made.out.bias.detach().sigmoid()) == pytest.approx(30.5 / 201, rel=1e-5)


@pytest.mark.parametrize("cluster_size", [None, 2])
def test_an_untrained_head_of_probabilities_says_how_frequent_labels_are(cluster_size):
    rng = np.random.default_rng(0)
    Y = sp.csr_array((rng.random((500, 6)) < [0.5, 0.3, 0.1, 0.05, 0.02, 0.01]).astype(np.float32))
    rows = TokenRows(sp.csr_array(rng.integers(1, 50, (500, 4)).astype(np.float32)))
    head = RankingHead(embedding_dim=4, cluster_size=cluster_size, flat_below=0)
    (level,) = head.levels(rows, Y, None, 0)
    encoder = CNN(n_filters=4, hidden_size=8).build(rows, 4)
    encoded = Encoded(torch.zeros(1, 1, 8), torch.ones(1, 1, dtype=torch.bool), torch.zeros(1, 8))
    made = head.build(level, encoder, "logistic", LabelCosts(get_weighting(None), 500)).eval()
    made.project.bias.data.zero_()
    with torch.no_grad():
        found = made.log_odds(encoded, torch.arange(6)).sigmoid()[0].numpy()
    share = (Y.sum(axis=0) + 0.5) / 501
    np.testing.assert_allclose(found, share, rtol=0.01 if cluster_size is None else 0.3)


def test_a_ranking_begins_near_the_best_scores_that_know_nothing_of_a_row():
    rng = np.random.default_rng(0)
    shares = 0.4 / np.arange(1, 61)
    Y = sp.csr_array((rng.random((3000, 60)) < shares).astype(np.float32))
    rows = TokenRows(sp.csr_array(rng.integers(1, 50, (3000, 4)).astype(np.float32)))
    head = RankingHead(embedding_dim=4)
    (level,) = head.levels(rows, Y, None, 0)
    made = head.build(
        level, CNN(n_filters=4, hidden_size=8).build(rows, 4), "grank", LabelCosts(get_weighting(None), 3000)
    )
    start, truth = made.vectors.bias.weight.detach()[:, 0], torch.from_numpy(Y.toarray())

    def loss(biases):
        return float(grank_loss(biases.expand_as(truth), truth, None, None).mean())

    best = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([best], lr=0.05)
    for _ in range(200):
        optimiser.zero_grad()
        grank_loss(best.expand_as(truth), truth, None, None).mean().backward()
        optimiser.step()
    nothing, begins, least = loss(torch.zeros(60)), loss(start), loss(best.detach())
    assert begins - least < 0.15 * (nothing - least)
    others = head.build(
        level, CNN(n_filters=4, hidden_size=8).build(rows, 4), "margin", LabelCosts(get_weighting(None), 3000)
    )
    assert not others.vectors.bias.weight.any()


def test_true_labels_as_a_matrix():
    Y = sp.csr_array(np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]]))
    found = dense_truth(torch.from_numpy(Y.indptr.astype(np.int64)), torch.from_numpy(Y.indices.astype(np.int64)), 3)
    np.testing.assert_array_equal(found, Y.toarray())
