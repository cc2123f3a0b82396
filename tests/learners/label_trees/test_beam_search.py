"""Search through random trees, against searches in plain Python.

Weights are integer multiples of 1/64, the largest of each lane is 127/64, and rows are made of ones: so every precision
holds them exactly, and all path scores of the squared hinge are exact in float32, ties included.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.config import config_context
from longtail.kernels.lanes import LANES
from longtail.learners.label_trees import beam_search as tree_search
from longtail.learners.label_trees import search as searching
from longtail.learners.label_trees.beam_search import Collected, add_values, merge_collected
from longtail.learners.label_trees.best_first_search import _insert_once
from longtail.learners.label_trees.chunk_weights import PRECISIONS, ChunkWeights, EncodedBlock
from longtail.learners.label_trees.forest import Branches, LabelForest
from longtail.learners.label_trees.node_training import node_blocks
from longtail.learners.label_trees.search import TreeSearch
from longtail.learners.linear.block_solver import LOGISTIC, SQUARED_HINGE
from tests.learners.label_trees.test_chunks import assembled

SEEDS = st.integers(0, 2**32 - 1)
N_FEATURES = 30


@dataclass
class World:
    """A forest with random weights; `lanes` gives the members of each node with weights and bias."""

    forest: LabelForest
    weights: ChunkWeights
    lanes: list[list[tuple[int, np.ndarray, float]]]
    n_labels: int

    def search(self, loss=SQUARED_HINGE, discount=0.5):
        return TreeSearch(self.forest, self.weights, loss, discount, 1.0, self.n_labels)

    def labels_below(self, node):
        found = set(self.forest.labels_under(node).tolist())
        return found.union(*(self.labels_below(child) for child in self.forest.nodes_under(node)))

    def steps(self, row, node, above, loss, discount):
        """Path scores of the members of a node."""
        for member, weights, bias in self.lanes[node]:
            z = row @ weights + bias
            value = -(max(0.0, 1 - z) ** 2) if loss == SQUARED_HINGE else -np.logaddexp(0, -z)
            yield member, value + discount * above

    def naive(self, row, beam, *, allowed=None, loss=SQUARED_HINGE, discount=0.5, depth=None):
        """Beam search of one row: the labels with their scores, and the nodes of each tree that were reached last."""
        total, beams = {}, []
        for tree in range(self.forest.n_trees_):
            reached, best = [(tree, 0.0)], {}
            for _ in range(self.forest.n_levels if depth is None else depth):
                below = []
                for node, above in reached:
                    for member, score in self.steps(row, node, above, loss, discount):
                        if member < 0 and (allowed is None or any(allowed[list(self.labels_below(-2 - member))])):
                            below.append((-2 - member, score))
                        if member >= 0 and (allowed is None or allowed[member]):
                            best[member] = max(best.get(member, -np.inf), score)
                reached = sorted(below, key=lambda pair: (-pair[1], pair[0]))[:beam]
            beams.append([node for node, _ in reached])
            for label, score in best.items():
                total[label] = total.get(label, 0) + np.exp(score) / self.forest.n_trees_
        return total, beams


def random_tree(rng, n_nodes, labels, repeats, fanout):
    """Nodes under random earlier ones, at most four levels deep, and labels under random nodes, some under several."""
    parents, depths = [-1], [0]
    while len(parents) < n_nodes:
        parent = int(rng.integers(max(0, len(parents) - fanout), len(parents)))
        if depths[parent] < 3:
            parents.append(parent)
            depths.append(depths[parent] + 1)
        else:
            fanout = len(parents)
    chosen = {(int(rng.integers(n_nodes)), int(label)) for label in np.repeat(labels, 1 + repeats)}
    nodes, names = zip(*sorted(chosen), strict=True) if chosen else ((), ())
    return Branches(*(np.array(array, np.int32) for array in (parents, nodes, names)))


def random_world(seed, n_nodes=12, n_labels=60, n_trees=1, repeats=0, precision="float32", fanout=9, coarse=False):
    rng = np.random.default_rng(seed)
    labels = np.sort(rng.choice(n_labels, n_labels - 3, replace=False))
    forest = LabelForest.from_branches([random_tree(rng, n_nodes, labels, repeats, fanout) for _ in range(n_trees)])
    blocks, starts = node_blocks(forest)
    encoded, lanes = [], [[] for _ in range(forest.n_nodes)]
    for block in blocks:
        members = [-2 - child for child in forest.nodes_under(block.node)] + forest.labels_under(block.node).tolist()
        members = np.array(members[block.first : block.last], np.int32)
        steps = rng.choice([-32, 0, 64], (N_FEATURES, LANES)) if coarse else rng.integers(-32, 64, (N_FEATURES, LANES))
        weights = (steps * (rng.random((N_FEATURES, 1)) < rng.choice([0.1, 0.7])) / 64).astype(np.float32)
        weights[rng.integers(N_FEATURES), :] = 127 / 64
        weights *= rng.random(weights.shape) < rng.choice([0.2, 1.0], (N_FEATURES, 1))
        weights[rng.integers(N_FEATURES), :] = 127 / 64
        weights[:, len(members) :] = 0
        bias = (rng.integers(-32, 32, LANES) / 64).astype(np.float32)
        features = np.arange(N_FEATURES, dtype=np.int32)
        encoded.append(EncodedBlock.encoded(weights, bias, features, members, 0.0, precision, N_FEATURES))
        lanes[block.node] += [(int(m), weights[:, at].astype(float), float(bias[at])) for at, m in enumerate(members)]
    return World(forest, assembled(encoded, starts, precision, N_FEATURES), lanes, n_labels)


def random_rows(seed, n_rows, most=5):
    rng = np.random.default_rng(seed)
    X = np.zeros((n_rows, N_FEATURES), np.float32)
    for row in X:
        row[rng.choice(N_FEATURES, rng.integers(0, most + 1), replace=False)] = 1
    return sp.csr_array(X), np.ones(n_rows)


def ranked(scores, k):
    """The k best labels with scores, ties by the lower id, padded as TopK is."""
    order = sorted(scores, key=lambda label: (-np.float32(scores[label]), label))[:k]
    padding = k - len(order)
    return order + [-1] * padding, [scores[label] for label in order] + [-np.inf] * padding


def assert_ranks(top, wanted):
    """The same labels and scores to the bit of the order; `wanted` has the scores of each row's labels."""
    for labels, scores, of_row in zip(top.labels, top.scores, wanted, strict=True):
        names, numbers = ranked(of_row, len(labels))
        assert labels.tolist() == names
        np.testing.assert_allclose(scores, numbers, rtol=2e-6)


def assert_close(top, wanted, rtol=3e-6):
    """The best scores, each label with its own: labels with equal scores may be ranked in any order."""
    for labels, scores, of_row in zip(top.labels, top.scores, wanted, strict=True):
        np.testing.assert_allclose(scores, ranked(of_row, len(labels))[1], rtol=rtol, atol=1e-30)
        used = labels[labels >= 0].tolist()
        assert len(set(used)) == len(used)
        np.testing.assert_allclose(scores[: len(used)], [of_row[label] for label in used], rtol=rtol, atol=1e-30)


@pytest.mark.parametrize("precision", PRECISIONS)
@settings(max_examples=12)
@given(SEEDS, st.sampled_from([1, 2, 3, 7]), st.sampled_from([1, 4, 70]), st.sampled_from([0.5, 1.0]), st.booleans())
def test_a_narrow_beam_finds_what_a_naive_one_finds(precision, seed, beam, k, discount, coarse):
    world = random_world(seed, precision=precision, coarse=coarse)
    X, scales = random_rows(seed, 9)
    top = world.search(discount=discount).labels(X, scales, k, beam, None)
    assert_ranks(top, [world.naive(row, beam, discount=discount)[0] for row in X.toarray()])


@settings(max_examples=25)
@given(SEEDS, st.integers(1, 5), st.sampled_from([1, 3]), st.sampled_from([0, 1]), st.booleans())
def test_several_trees_and_labels_in_several_places(seed, beam, n_trees, repeats, restricted):
    world = random_world(seed, n_nodes=8, n_labels=40, n_trees=n_trees, repeats=repeats)
    allowed = np.random.default_rng(seed).random(40) < 0.3 if restricted else None
    X, scales = random_rows(seed, 7)
    top = world.search().labels(X, scales, 12, beam, allowed)
    assert_close(top, [world.naive(row, beam, allowed=allowed)[0] for row in X.toarray()])


@settings(max_examples=20)
@given(SEEDS, st.integers(1, 3), st.sampled_from([0.0, 0.05, 0.5]))
def test_only_nodes_with_allowed_labels_enter_the_beam(seed, beam, share):
    world = random_world(seed, n_nodes=15)
    allowed = np.random.default_rng(seed).random(60) < share
    X, scales = random_rows(seed, 6)
    top = world.search().labels(X, scales, 60, beam, allowed)
    assert allowed[top.labels[top.labels >= 0]].all()
    assert_ranks(top, [world.naive(row, beam, allowed=allowed)[0] for row in X.toarray()])


@settings(max_examples=20)
@given(SEEDS, st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 2]))
def test_best_nodes_of_a_level(seed, beam, depth, n_trees):
    world = random_world(seed, n_trees=n_trees, coarse=True)
    depth = min(depth, world.forest.n_levels - 1)
    X, scales = random_rows(seed, 5)
    found = world.search().nodes(X, scales, depth, beam).reshape(5, n_trees, beam)
    for row, of_trees in zip(X.toarray(), found.tolist(), strict=True):
        wanted = world.naive(row, beam, depth=depth)[1]
        assert of_trees == [nodes + [-1] * (beam - len(nodes)) for nodes in wanted]


def test_the_logistic_loss_multiplies_probabilities():
    world = random_world(3)
    X, scales = random_rows(3, 8)
    for discount in (1.0, 0.7):
        top = world.search(LOGISTIC, discount).labels(X, scales, 60, 100, None)
        naive = [world.naive(row, 100, loss=LOGISTIC, discount=discount)[0] for row in X.toarray()]
        assert_close(top, naive, rtol=1e-5)


def test_scales_and_the_bias_count():
    world = random_world(4)
    X, _ = random_rows(4, 6)
    scales = np.array([1, 0.5, 0.25, 2, 1, 0.5])
    search = TreeSearch(world.forest, world.weights, SQUARED_HINGE, 0.5, 2.0, 60)
    for lanes in world.lanes:
        lanes[:] = [(member, weights, 2 * bias) for member, weights, bias in lanes]
    naive = [world.naive(row * scale, 3)[0] for row, scale in zip(X.toarray(), scales, strict=True)]
    assert_close(search.labels(X, scales, 9, 3, None), naive)
    assert_close(search.best_first(X, scales, 9, None, None)[0], [
        world.naive(row * scale, 99)[0] for row, scale in zip(X.toarray(), scales, strict=True)
    ])  # fmt: skip


def uses_panels(world, X, beam):
    """Whether each visited block is opened as a panel when all rows are searched together."""
    rows, pairs, total = X.toarray(), np.diff(world.weights.pair_starts_), X.nnz
    answers = []
    for depth in range(world.forest.n_levels):
        reached = [node for row in rows for nodes in world.naive(row, beam, depth=depth)[1] for node in nodes]
        for node, visits in zip(*np.unique(reached, return_counts=True), strict=True):
            for block in range(*world.weights.block_starts_[node : node + 2]):
                answers.append(bool(tree_search._PANEL_COST * pairs[block] * X.shape[0] < visits * total))
    return set(answers)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_panels_and_looked_up_features_give_the_same(precision):
    world = random_world(11, n_nodes=80, n_labels=150, fanout=80, precision=precision)
    X, scales = random_rows(5, 40, most=3)
    assert uses_panels(world, X, 2) == {True, False}
    search = world.search()
    together = search.labels(X, scales, 10, 2, None)
    for row in range(40):
        alone = search.labels(X[[row]], scales[:1], 10, 2, None)
        np.testing.assert_array_equal(together.labels[[row]], alone.labels)
        np.testing.assert_array_equal(together.scores[[row]], alone.scores)


@pytest.mark.parametrize("n_trees", [1, 2])
def test_rows_are_searched_in_parts(n_trees, monkeypatch):
    world = random_world(1, n_trees=n_trees)
    X, scales = random_rows(1, 301)
    whole = []
    for threads in (1, 3):
        with config_context(n_jobs=threads):
            whole.append(world.search().labels(X, scales, 5, 2, None))
    monkeypatch.setattr(searching, "_FOUND_AT_ONCE", 1)  # one row at a time where labels are collected
    monkeypatch.setattr(searching, "_ROWS_AT_ONCE", 7)
    parts = world.search().labels(X, scales, 5, 2, None)
    for other in (whole[1], parts):
        np.testing.assert_array_equal(whole[0].labels, other.labels)
        np.testing.assert_array_equal(whole[0].scores, other.scores)


def test_no_rows_and_no_features():
    world = random_world(2)
    nothing = sp.csr_array((0, N_FEATURES), dtype=np.float32)
    assert world.search().labels(nothing, np.empty(0), 3, 2, None).labels.shape == (0, 3)
    bare = sp.csr_array((2, N_FEATURES), dtype=np.float32)
    assert_ranks(world.search().labels(bare, np.ones(2), 3, 2, None), [world.naive(np.zeros(N_FEATURES), 2)[0]] * 2)


@settings(max_examples=40)
@given(SEEDS, st.sampled_from([0.5, 1.0]), st.sampled_from([0, 1]), st.sampled_from([1, 5, 70]), st.booleans())
def test_the_exact_search_finds_what_walking_every_path_finds(seed, discount, repeats, k, coarse):
    world = random_world(seed, repeats=repeats, coarse=coarse)
    X, scales = random_rows(seed, 4)
    top, visits = world.search(discount=discount).best_first(X, scales, k, None, None)
    assert_ranks(top, [world.naive(row, 99, discount=discount)[0] for row in X.toarray()])
    assert ((visits >= 1) & (visits <= world.forest.n_nodes)).all()


@settings(max_examples=40)
@given(SEEDS, st.sampled_from([0.2, 0.9, 1.0]), st.sampled_from([0, 2]), st.sampled_from([SQUARED_HINGE, LOGISTIC]))
def test_the_exact_search_with_weights_and_restrictions(seed, discount, repeats, loss):
    world = random_world(seed, repeats=repeats)
    rng = np.random.default_rng(seed)
    weights = np.exp(rng.normal(size=60) * 3)
    allowed = rng.random(60) < 0.5
    X, scales = random_rows(seed, 4)
    top, _ = world.search(loss, discount).best_first(X, scales, 6, weights, allowed)
    wanted = [
        {label: score * weights[label] for label, score in scores.items() if allowed[label]}
        for scores in (world.naive(row, 99, loss=loss, discount=discount)[0] for row in X.toarray())
    ]
    assert_close(top, wanted, rtol=2e-5)


def test_nothing_allowed_opens_nothing():
    world = random_world(0)
    X, scales = random_rows(0, 3)
    top, visits = world.search().best_first(X, scales, 2, None, np.zeros(60, bool))
    assert (top.labels == -1).all()
    assert (visits == 0).all()


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), max_size=30), st.integers(1, 8))
def test_a_label_that_comes_again_keeps_its_best_score(found, k):
    labels, scores = np.full(k, -1, np.int32), np.full(k, -np.inf, np.float32)
    best = {}
    for label, score in found:
        _insert_once(labels, scores, label, np.float32(score))
        best[label] = max(score, best.get(label, 0))
    assert (labels.tolist(), scores.tolist()) == ranked(best, k)


@settings(max_examples=40)
@given(SEEDS, st.integers(1, 4), st.integers(1, 5), st.booleans())
def test_merged_scores_are_means_of_the_best_of_each_tree(seed, n_trees, k, weighted):
    """Times the factors of the labels, where there are any."""
    rng = np.random.default_rng(seed)
    found = rng.integers(0, 9, 3 * n_trees)
    labels = rng.integers(0, 6, (3 * n_trees, 9)).astype(np.int32)
    scores = (rng.integers(1, 64, (3 * n_trees, 9)) / 64).astype(np.float32)
    top_labels, top_scores = np.full((3, k), -1, np.int32), np.full((3, k), -np.inf, np.float32)
    factors = 2.0 ** rng.integers(0, 5, 6).astype(np.float32)
    given_factors = factors if weighted else np.empty(0, np.float32)
    merge_collected(n_trees, Collected(labels, scores, found), 6, given_factors, top_labels, top_scores)
    for row in range(3):
        mean = {}
        for one in range(row * n_trees, (row + 1) * n_trees):
            best = {}
            for label, score in zip(labels[one, : found[one]].tolist(), scores[one], strict=False):
                best[label] = max(best.get(label, 0), float(score))
            for label, score in best.items():
                mean[label] = mean.get(label, 0) + score
        for label, total in mean.items():
            mean[label] = np.float32(total) / np.float32(n_trees) * (factors[label] if weighted else np.float32(1))
        names, numbers = ranked(mean, k)
        assert top_labels[row].tolist() == names
        np.testing.assert_array_equal(top_scores[row], np.array(numbers, np.float32))


@pytest.mark.parametrize("loss", [SQUARED_HINGE, LOGISTIC])
def test_values_of_linear_scores(loss):
    z = np.concatenate([np.linspace(-8, 8, 58), [1, 0, 90, -90, 1e4, -1e4]]).astype(np.float32)
    sums = z.copy()
    add_values(sums, loss, np.float32(-0.25))
    exact = z.astype(float)
    wanted = -(np.maximum(0, 1 - exact) ** 2) if loss == SQUARED_HINGE else -np.logaddexp(0, -exact)
    np.testing.assert_allclose(sums, wanted - 0.25, rtol=2e-6, atol=1e-7)
