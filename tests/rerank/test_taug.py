"""TAug: the contract of learners, separate head and tail, and copies made in training against explicit copies."""

from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import InstanceForest, LabelTree, Model, OneVsRest, Popularity, TAug, load, recipe, resumable
from longtail.config import config_context
from longtail.errors import InputError, Interrupted, ParameterError
from longtail.kernels.augmentation import Augmentation, with_copies
from longtail.learners import Learner
from longtail.learners.label_trees import node_training
from longtail.learners.label_trees.estimate import node_bytes
from longtail.learners.label_trees.explaining import _linear
from longtail.learners.label_trees.node_training import node_blocks
from tests.learners.contract import MatrixContract, assert_same, small_data

FOREST = {"n_trees": 4, "leaf_size": 3, "C": 5.0}
TREE = {"leaf_size": 4, "arity": 3, "precision": "float32"}
EXACT = {"prune_below": 0.0, "precision": "float32", "tol": 1e-4, "max_iter": 400}
BASES = {"tree": LabelTree(**TREE), "one-vs-rest": OneVsRest(), "forest": InstanceForest(**FOREST)}
every_base = pytest.mark.parametrize("base", BASES)


class TestAroundLabelTree(MatrixContract):
    other_params: ClassVar = {
        "tau": 0.3,
        "copies": 2,
        "input_dropout": 0.5,
        "swaps": 3,
        "rows": "all",
        "random_state": 4,
    }

    def make(self, **params):
        inner = LabelTree(**TREE, n_jobs=params.get("n_jobs"))
        return TAug(**{"learner": inner, "tau": 0.4, "copies": 2} | params)


class TestAroundOneVsRest(MatrixContract):
    other_params: ClassVar = {"copies": 0, "merge": 2.0}

    def make(self, **params):
        inner = OneVsRest(n_jobs=params.get("n_jobs"))
        return TAug(**{"learner": inner, "tau": 0.4, "copies": 1, "rows": "own", "merge": 1.5} | params)


class TestAroundInstanceForest(MatrixContract):
    other_params: ClassVar = {"learner": Popularity()}

    def make(self, **params):
        inner = InstanceForest(**FOREST, n_jobs=params.get("n_jobs"))
        return TAug(**{"learner": inner, "tau": 0.5, "parallel": True} | params)


def more_data():
    return small_data(n_rows=150, n_features=60, n_labels=40, seed=1)


def augmented(learner, X, Y, augmentation, how=None):
    """Fit a learner with copies, by its own way or by another one."""
    learner.n_features_in_ = X.shape[1]
    learner._remember_labels(Y)
    (how or type(learner)._fit_augmented)(learner, X, Y, augmentation)
    return learner


@every_base
@pytest.mark.parametrize("rows", ["all", "own"])
def test_without_copies_both_sides_are_plain_learners(base, rows):
    X, Y = more_data()
    learner = TAug(learner=BASES[base], tau=0.25, copies=0, rows=rows).fit(X, Y)
    for side, labels in ((learner.head_learner_, learner.head_labels_), (learner.tail_learner_, learner.tail_labels_)):
        own = np.flatnonzero(Y[:, labels].sum(axis=1)) if rows == "own" else np.arange(150)
        assert 0 < len(own) <= 150
        plain = BASES[base].__class__(**BASES[base].get_params()).fit(X[own], Y[own][:, labels])
        assert_same(side.predict_topk(X, 10), plain.predict_topk(X, 10))
        assert side.n_rows_ == len(own)
        np.testing.assert_array_equal(side.label_counts_, plain.label_counts_)


@every_base
def test_copies_change_the_tail_alone_and_no_count(base):
    X, Y = more_data()
    plain, learner = (TAug(learner=BASES[base], tau=0.25, copies=copies).fit(X, Y) for copies in (0, 3))
    assert_same(learner.head_learner_.predict_topk(X, 5), plain.head_learner_.predict_topk(X, 5))
    assert (learner.tail_learner_.predict_topk(X, 5).scores != plain.tail_learner_.predict_topk(X, 5).scores).any()
    assert learner.tail_learner_.n_rows_ == 150
    np.testing.assert_array_equal(learner.tail_learner_.label_counts_, learner.label_counts_[learner.tail_labels_])
    other = TAug(learner=BASES[base], tau=0.25, copies=3, random_state=1).fit(X, Y)
    assert (learner.tail_learner_.predict_topk(X, 5).scores != other.tail_learner_.predict_topk(X, 5).scores).any()


def test_the_head_is_the_most_frequent_share_of_the_labels_that_occur():
    Y = np.zeros((20, 6))
    for label, count in enumerate([3, 0, 9, 3, 20, 1]):
        Y[:count, label] = 1
    X = np.ones((20, 2))
    for tau, head in ((0.0, []), (0.19, []), (0.2, [4]), (0.4, [2, 4]), (0.6, [0, 2, 4]), (0.99, [0, 2, 3, 4])):
        learner = TAug(learner=Popularity(), tau=tau).fit(X, Y)
        assert learner.head_labels_.tolist() == head
        assert sorted(head + learner.tail_labels_.tolist()) == list(range(6))
        assert learner.head_labels_.dtype == learner.tail_labels_.dtype == np.int32
        assert (learner.head_learner_ is None) == (not head)
    whole = TAug(learner=Popularity(), tau=1.0).fit(X, Y)
    assert whole.tail_learner_ is None
    assert whole.head_labels_.tolist() == list(range(6))


@pytest.mark.parametrize("tau", [0.0, 1.0])
def test_one_side_alone_is_the_learner_alone(tau, tmp_path):
    X, Y = more_data()
    learner = TAug(learner=OneVsRest(), tau=tau, copies=0).fit(X, Y)
    assert_same(learner.predict_topk(X, 6), OneVsRest().fit(X, Y).predict_topk(X, 6))
    Model(learner).save(tmp_path / "model")
    assert_same(load(tmp_path / "model").learner.predict_topk(X, 6), learner.predict_topk(X, 6))


def test_the_learner_that_is_left_out_is_bonsai():
    made = TAug()._base()
    assert repr(made.get_params()) == repr(recipe("bonsai").get_params())


# Copies made on the way, and by hand


@pytest.mark.parametrize("params", [{}, {"normalise": False}, {"loss": "logistic"}, {"prune_rise": 0.01}])
def test_one_vs_rest_learns_from_the_copies_of_a_block(params):
    """With one block of labels, all rows with labels are copied: as if all copies had been there from the start."""
    X, Y = more_data()
    augmentation = Augmentation(3, 0.4, 2, 5)
    lazy = augmented(OneVsRest(**params), X, Y, augmentation)
    whole = augmented(OneVsRest(**params), X, Y, augmentation, Learner._fit_augmented)
    if params.get("loss") == "logistic":  # its bias is drawn to the log-odds, those of the plain rows
        np.testing.assert_allclose(lazy.coef_.toarray(), whole.coef_.toarray(), atol=0.2)
    else:
        np.testing.assert_array_equal(lazy.coef_.toarray(), whole.coef_.toarray())
        np.testing.assert_array_equal(lazy.intercept_, whole.intercept_)
    assert (lazy.coef_ != OneVsRest(**params).fit(X, Y).coef_).nnz > 0


def test_one_vs_rest_copies_for_each_block_the_rows_of_that_block():
    """Blocks go by frequency: labels of the second one are trained as if nothing but their own rows were copied."""
    X, Y = small_data(n_rows=200, n_features=60, n_labels=100, seed=2)
    augmentation = Augmentation(2, 0.4, 1, 3)
    lazy = augmented(OneVsRest(**EXACT), X, Y, augmentation)
    second = np.argsort(-lazy.label_counts_, kind="stable")[64:99].astype(np.int32)
    by_hand = augmented(OneVsRest(**EXACT), X, sp.csr_array(Y[:, second]), augmentation, Learner._fit_augmented)
    np.testing.assert_allclose(lazy.coef_.toarray()[second], by_hand.coef_.toarray(), atol=2e-3)
    np.testing.assert_allclose(lazy.intercept_[second], by_hand.intercept_, atol=2e-3)


@pytest.mark.parametrize(("normalise", "negatives"), [(True, 0), (False, 0), (True, 4)])
def test_a_leaf_is_trained_on_copies_of_the_rows_with_its_labels(normalise, negatives):
    X, Y = small_data(n_rows=150, n_features=40, n_labels=40, seed=2)
    augmentation = Augmentation(2, 0.4, 3, 5)
    settings = {"normalise": normalise, **EXACT, "max_iter": 20_000}
    learner = augmented(
        LabelTree(n_hard_negatives=negatives, leaf_size=8, arity=8, **settings), X, Y, augmentation
    )  # fmt: skip
    forest, search = learner.forest_, learner._search
    leaf = forest.n_nodes - 1
    labels = forest.labels_under(leaf)
    has_label = np.asarray(Y[:, labels].sum(axis=1)).ravel() > 0
    rows = np.flatnonzero(has_label)
    if negatives:
        sent = search.nodes(X, learner._scales(X), 1, negatives)
        rows = np.flatnonzero(has_label | (sent == leaf).any(axis=1))
        assert len(rows) > has_label.sum()
    everything, _ = with_copies(X, Y, augmentation)
    place = np.cumsum(np.diff(Y.indptr) > 0) - 1  # of a row among those with labels
    copies = 150 + 2 * place[has_label][:, None] + np.arange(2)
    by_hand = np.concatenate([rows, copies.ravel()])
    truth = sp.csr_array(sp.vstack([Y[rows][:, labels], Y[np.repeat(np.flatnonzero(has_label), 2)][:, labels]]))
    alone = OneVsRest(**settings).fit(everything[by_hand], truth)
    for row in (0, 20, 50):
        top = alone.predict_topk(X[[row]], len(labels))
        scale = learner._scales(X[[row]])[0]
        for at, label in enumerate(labels):
            bias, effects = _linear(search, X[[row]], scale, leaf, int(label))
            assert bias + effects.sum() == pytest.approx(top.scores[0][top.labels[0] == at][0], abs=1e-2)


def test_nodes_above_the_leaves_are_trained_on_plain_rows():
    X, Y = more_data()
    learner = LabelTree(leaf_size=3, arity=3, n_hard_negatives=0, precision="float32")
    plain, trainer = learner._trainer(X, Y), learner._trainer(X, Y, Augmentation(2, 0.5, 1, 0))
    assert plain.forest.n_levels == 4
    blocks, starts = node_blocks(plain.forest)
    same = []
    for depth in range(4):
        first, last = plain.forest.level_starts[depth : depth + 2]
        for block in blocks[starts[first] : starts[last]]:
            one, other = (
                part.solve(depth, part.level(depth, None), block, np.zeros(1, np.uint8)) for part in (plain, trainer)
            )
            same.append(all(np.array_equal(a, b) for a, b in zip(one, other, strict=True)))
            assert same[-1] == (len(plain.forest.labels_under(block.node)) == 0)
    assert any(same)
    assert not all(same)


def test_where_a_node_has_nodes_and_labels_its_labels_have_copies():
    """Label 2 stands right under the root, beside a node: rows with it are copied, for all members of the root."""
    X, Y = more_data()
    Y = sp.csr_array(Y[:, :3])
    settings = {"n_hard_negatives": 0, "tree": [(0, "low"), (1, "low"), ("low", "top"), (2, "top")], **EXACT}
    augmentation = Augmentation(2, 0.5, 1, 0)
    learner = augmented(LabelTree(**settings), X, Y, augmentation)
    search, forest = learner._search, learner.forest_
    root = next(node for node in range(forest.n_nodes) if 2 in forest.labels_under(node))
    has_label = Y.toarray() > 0
    rows, copied = np.flatnonzero(has_label.any(axis=1)), np.flatnonzero(has_label[:, 2])
    everything, _ = with_copies(X, sp.csr_array(Y[:, [2]]), augmentation)
    by_hand = np.concatenate([rows, np.arange(150, everything.shape[0])])
    members = np.column_stack([has_label[:, 2], has_label[:, :2].any(axis=1)])
    truth = np.vstack([members[rows], np.repeat(members[copied], 2, axis=0)])
    alone = OneVsRest(**EXACT).fit(everything[by_hand], truth)
    top = alone.predict_topk(X[[0]], 2)
    bias, effects = _linear(search, X[[0]], learner._scales(X[[0]])[0], root, 2)
    assert bias + effects.sum() == pytest.approx(top.scores[0][top.labels[0] == 0][0], abs=1e-2)


def test_each_tree_over_rows_has_one_copy_of_its_own():
    """A forest of three trees and two copies: the first copy, the second, and the first again."""
    X, Y = more_data()
    augmentation = Augmentation(2, 0.4, 1, 9)
    settings = {**FOREST, "n_trees": 3}
    found = augmented(InstanceForest(**settings), X, Y, augmentation).leaves(X)
    rows, labels = with_copies(X, Y, augmentation)
    for tree in range(3):
        chosen = np.concatenate([np.arange(150), np.arange(150 + tree % 2, rows.shape[0], 2)])
        by_hand = InstanceForest(**settings).fit(rows[chosen], labels[chosen])
        wanted = by_hand.leaves(X)[:, tree]
        assert len(set(wanted)) > 10
        np.testing.assert_array_equal(found[:, tree] - found[:, tree].min(), wanted - wanted.min())


def test_copies_for_trees_over_rows_have_length_1_where_rows_have():
    X, Y = more_data()
    augmentation = Augmentation(2, 0.4, 1, 9)
    trainer = InstanceForest(normalise=True)._trainer(X, Y, augmentation)
    indptr, indices, values = trainer._room()
    trainer._write_copies(3, indptr, indices, values)  # the second of two copies
    size = indptr[-1]
    seen = sp.csr_array((values[:size], trainer._by_frequency[indices[:size]], indptr), shape=(len(indptr) - 1, 60))
    rows = with_copies(X, Y, augmentation)[0].toarray()
    wanted = rows[np.concatenate([np.arange(150), np.arange(151, rows.shape[0], 2)])]
    lengths = np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(seen.toarray(), wanted / np.where(lengths > 0, lengths, 1), rtol=1e-5)


def test_costs_go_by_the_plain_rows():
    X, Y = more_data()
    augmentation, counts = Augmentation(4, 0.5, 1, 0), np.bincount(Y.indices, minlength=40)
    for params in ({"weighting": "pw"}, {"weighting": "pw-cb"}):
        plain, copied = (OneVsRest(**params)._trainer(X, Y, counts, augmentation=how) for how in (None, augmentation))
        np.testing.assert_array_equal(plain.costs.positive, copied.costs.positive)
        plain, copied = (LabelTree(**params)._trainer(X, Y, how).level(0, None).costs for how in (None, augmentation))
        np.testing.assert_array_equal(plain.positive, copied.positive)
    plain, copied = (InstanceForest(weighting="inverse-propensity")._trainer(X, Y, how) for how in (None, augmentation))
    np.testing.assert_array_equal(plain.gains, copied.gains)


def test_memory_estimates_include_copies():
    X, Y = more_data()
    tree, counts = LabelTree(**TREE), np.bincount(Y.indices, minlength=40).astype(np.int64)
    sizes, blocks, threads = [], [], []
    for augmentation in (None, Augmentation(1, 0.5, 1, 0), Augmentation(8, 0.5, 1, 0)):
        trainer = tree._trainer(X, Y, augmentation)
        sizes.append(node_bytes(trainer, trainer.level(trainer.forest.n_levels - 1, None)))
        linear = OneVsRest()._trainer(X, Y, counts, augmentation=augmentation)
        blocks.append(linear.copy_bytes(linear.blocks_by_frequency(counts)))
        threads.append(InstanceForest()._trainer(X, Y, augmentation).thread_bytes)
    assert sizes[0] < sizes[1] < sizes[2]
    assert 0 == blocks[0] < blocks[1] < blocks[2]
    assert threads[0] < threads[1] == threads[2]  # one copy a tree, however many there are


def test_with_a_memory_limit_the_result_is_the_same():
    X, Y = more_data()
    for base in (LabelTree(**TREE, n_jobs=2), OneVsRest(n_jobs=2), InstanceForest(**FOREST, n_jobs=2)):
        free = TAug(learner=base, copies=2).fit(X, Y)
        with config_context(memory_limit="64GB"):
            bound = TAug(learner=base, copies=2).fit(X, Y)
        assert_same(free.predict_topk(X, 5), bound.predict_topk(X, 5))
        with pytest.raises(ParameterError, match="memory_limit leaves no room"), config_context(memory_limit="1MB"):
            TAug(learner=base, copies=2).fit(X, Y)


# Training at once, and in parts


@every_base
def test_sides_trained_at_once_are_the_same(base):
    X, Y = more_data()
    made = TAug(learner=BASES[base], tau=0.3, copies=2, parallel=True, n_jobs=4).fit(X, Y)
    assert_same(made.predict_topk(X, 5), made.set_params(parallel=False).fit(X, Y).predict_topk(X, 5))
    assert made.tail_learner_.n_jobs is None  # for prediction, as it was given


def test_on_one_thread_the_sides_are_trained_in_turn(monkeypatch):
    X, Y = more_data()
    monkeypatch.setattr("longtail.rerank.taug.run_blocks", lambda *args, **how: pytest.fail("blocks on one thread"))
    learner = TAug(learner=OneVsRest(), tau=0.3, copies=1, parallel=True, n_jobs=1).fit(X, Y)
    assert learner.head_learner_ is not None
    assert learner.tail_learner_ is not None


def test_an_interrupted_training_is_resumed(tmp_path, monkeypatch):
    X, Y = more_data()
    base = LabelTree(**TREE, n_hard_negatives=2, n_jobs=1)
    learner = TAug(learner=base, tau=0.3, copies=2, parallel=True)
    expected = learner.fit(X, Y).predict_topk(X, 5)
    solve, solved = node_training.NodeTrainer.solve_members, []

    def until_the_tail(trainer, *args):
        solved.append(trainer.augmentation)
        if sum(augmentation is not None for augmentation in solved) == 3:
            raise Interrupted("stopped")
        return solve(trainer, *args)

    monkeypatch.setattr(node_training.NodeTrainer, "solve_members", until_the_tail)
    with pytest.raises(Interrupted), resumable(tmp_path / "parts"):
        learner.fit(X, Y)
    solved.clear()
    monkeypatch.setattr(
        node_training.NodeTrainer, "solve_members", lambda trainer, *args: solved.append(0) or solve(trainer, *args)
    )
    with pytest.raises(InputError, match="another training"), resumable(tmp_path / "parts"):
        TAug(learner=base, tau=0.3, copies=2, input_dropout=0.9).fit(X, Y)
    assert not solved
    with resumable(tmp_path / "parts"):
        assert_same(learner.fit(X, Y).predict_topk(X, 5), expected)
    left = len(solved)
    learner.fit(X, Y)
    assert 0 < left < len(solved) - left - 4  # the head has more than four blocks


@pytest.mark.parametrize("base", [OneVsRest(), InstanceForest(**FOREST)])
def test_parts_with_other_copies_are_not_used(base):
    X, Y = more_data()
    counts = np.bincount(Y.indices, minlength=40).astype(np.int64)
    marks = set()
    for augmentation in (None, Augmentation(2, 0.5, 1, 0), Augmentation(2, 0.5, 2, 0), Augmentation(2, 0.5, 1, 7)):
        if isinstance(base, OneVsRest):
            marks.add(base._trainer(X, Y, counts, augmentation=augmentation).fingerprint([]))
        else:
            marks.add(base._trainer(X, Y, augmentation).fingerprint(0))
    assert len(marks) == 4
