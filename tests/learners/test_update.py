"""Rows that come after the training: what moves, what stays, and how near the result is to a refit."""

import copy
import time

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import (
    CentroidReranker,
    InstanceForest,
    LabelTree,
    Model,
    OneVsRest,
    Popularity,
    RankNet,
    Stacked,
    TailDial,
    TAug,
    TextLearner,
    datasets,
)
from longtail.errors import InputError
from longtail.features import Tfidf
from longtail.learners import Blend
from longtail.learners.label_trees.block_lanes import decoded, label_rows
from longtail.learners.label_trees.chunk_weights import EncodedBlock
from longtail.learners.label_trees.node_training import NodeMembers
from longtail.learners.label_trees.updating import trained_together
from longtail.metrics import evaluate
from tests.learners.contract import small_data

OLD, LABELS = 300, 50  # of 400 rows and 60 labels


@pytest.fixture(scope="module")
def data():
    X, Y = small_data(n_rows=400, n_features=80, n_labels=60)
    Y = sp.lil_array(Y)
    Y[:OLD, LABELS:] = 0  # labels that only the late rows bring
    return X, sp.csr_array(Y)


@pytest.fixture(scope="module")
def texts():
    """Packages with their tags: rows for the first training, late ones, and held-out ones, as features."""
    train, test = datasets.load("debian-tags:train"), datasets.load("debian-tags:test")
    order = np.random.default_rng(0).permutation(train.n_rows)[:3000]
    tfidf = Tfidf()
    X = tfidf.fit_transform([train.texts[row] for row in order])
    return X, train.Y[order], tfidf.transform(test.texts[:2000]), test.Y[:2000]


UPDATABLE = [
    lambda: OneVsRest(),
    lambda: OneVsRest(loss="logistic", weighting="pw", precision="float32"),
    lambda: OneVsRest(loss="hinge", normalise=False, bias=0.0),
    lambda: LabelTree(leaf_size=8),
    lambda: LabelTree(n_trees=2, leaf_size=8, arity=2, n_hard_negatives=0, precision="float32", overlap=0.2),
    lambda: LabelTree(leaf_size=8, loss="logistic", weighting="pw-cb", precision="bfloat16"),
    lambda: TailDial(tail=0.3),
    lambda: Stacked(second=OneVsRest(weighting="pw")),
    lambda: RankNet(),
    lambda: TAug(),
    lambda: TAug(rows="own", learner=OneVsRest()),
    lambda: TAug(tau=1.0, learner=OneVsRest()),
    lambda: CentroidReranker(learner=OneVsRest()),
    lambda: InstanceForest(n_trees=5),
    lambda: Popularity(),
]


def held_out(learner, X, Y):
    found = evaluate(learner.predict_topk(X, 5), Y, ks=(1, 5))
    return np.array([found["P@1"], found["P@5"], found["nDCG@5"]])


@pytest.mark.parametrize("with_train", [False, True])
@pytest.mark.parametrize("make", UPDATABLE)
def test_late_rows_and_labels_are_learned_and_kept(make, with_train, data, tmp_path):
    X, Y = data
    learner = make().fit(X[:OLD], Y[:OLD, :LABELS])
    before = learner.predict_topk(X, 5)
    train = (X[:OLD], Y[:OLD, :LABELS]) if with_train else None
    updated = copy.copy(learner).update(X[OLD:], Y[OLD:], train=train)
    assert (updated.n_labels_, updated.n_rows_) == (60, 400)
    np.testing.assert_array_equal(updated.label_counts_, Y.toarray().sum(axis=0))
    assert updated.score(X[OLD:], Y[OLD:]) >= learner.score(X[OLD:], Y[OLD:, :LABELS])
    top = updated.predict_topk(X[OLD:], 60)
    assert np.isin(top.labels, np.arange(LABELS, 60)).any(), "new labels are ranked"
    np.testing.assert_array_equal(learner.predict_topk(X, 5).labels, before.labels, "the old one is another learner")
    Model(updated).save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model", verify=True)
    np.testing.assert_array_equal(loaded.predict_topk(X[OLD:], 60).labels, top.labels)


@pytest.mark.parametrize("make", [OneVsRest, LabelTree, lambda **params: OneVsRest(weighting="pw-cb", **params)])
@pytest.mark.parametrize("with_train", [False, True])
def test_the_result_is_near_that_of_a_refit(make, with_train, texts):
    X, Y, X_test, Y_test = texts
    old = 2700
    learner = make().fit(X[:old], Y[:old])
    refit = held_out(make().fit(X, Y), X_test, Y_test)
    learner.update(X[old:], Y[old:], train=(X[:old], Y[:old]) if with_train else None)
    assert (held_out(learner, X_test, Y_test) > refit - 1).all(), "2,000 rows: a point is two standard errors"


@pytest.mark.parametrize(("make", "most"), [(OneVsRest, 1), (LabelTree, 1)])
def test_labels_that_no_row_had_are_found(make, most, texts):
    """A fifth of the rows is late."""
    X, Y, X_test, Y_test = texts
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    new = np.flatnonzero((counts >= 10) & (counts <= 40))[:40]
    late = np.asarray(Y[:, new].sum(axis=1)).ravel() > 0
    others = np.setdiff1d(np.arange(Y.shape[1]), new)
    order = np.concatenate([others, new])
    Y, Y_test = Y[:, order], Y_test[:, order]
    learner = make().fit(X[~late], Y[~late][:, : len(others)])
    without = held_out(learner, X_test, Y_test)
    refit = held_out(make().fit(X, Y), X_test, Y_test)
    alone = copy.copy(learner).update(X[late], Y[late])
    both = copy.copy(learner).update(X[late], Y[late], train=(X[~late], Y[~late][:, : len(others)]))
    assert (held_out(both, X_test, Y_test) > refit - most).all()
    assert (held_out(alone, X_test, Y_test) > without - 0.3).all(), "without the earlier rows nothing is lost"
    is_new = np.arange(len(order)) >= len(others)
    recalls = [
        evaluate(each.predict_topk(X_test, 5), sp.csr_array(Y_test.multiply(is_new)))["R@5"]
        for each in (make().fit(X, Y), learner, alone, both)
    ]
    assert recalls[1] == 0
    assert min(recalls[2:]) > 0.8 * recalls[0]


def test_a_label_without_new_information_keeps_its_bits(data):
    X, Y = data
    learner = OneVsRest().fit(X, Y)
    row = sp.csr_array(Y[:1])
    claimed = learner.predict(X[:1])
    told = np.union1d(row.indices, claimed.indices)
    others = np.setdiff1d(np.arange(60), told)
    before = learner.coef_.toarray(), learner.intercept_
    learner.update(X[:1], row)
    np.testing.assert_array_equal(learner.coef_.toarray()[others], before[0][others])
    np.testing.assert_array_equal(learner.intercept_[others], before[1][others])


def test_one_row_moves_its_label_a_little_and_in_its_favour(texts):
    X, Y, X_test, Y_test = texts
    learner = OneVsRest().fit(X[:2500], Y[:2500])
    scores = (X[2500:] @ learner.coef_.T).toarray() + learner.intercept_  # 500 rows by 598 labels
    true = (Y[2500:].toarray() > 0) & np.isfinite(learner.intercept_)
    at, label = np.unravel_index(np.where(true, scores, np.inf).argmin(), scores.shape)
    row, figures = slice(2500 + at, 2501 + at), held_out(learner, X_test, Y_test)
    learner.update(X[row], Y[row])
    after = (X[row] @ learner.coef_[[label]].T).toarray()[0, 0] + learner.intercept_[label]
    assert after > scores[at, label], "of all labels that a row has, the one that was thought least likely"
    np.testing.assert_allclose(held_out(learner, X_test, Y_test), figures, atol=0.3)


@pytest.mark.parametrize("leaf_size", [64, 8], ids=["one node", "many nodes"])
def test_a_tree_refits_nodes_that_grow_by_a_fifth_when_given_all_rows(leaf_size, data):
    X, Y = data
    exact = {"tol": 1e-5, "max_iter": 500, "prune_below": 0.0, "precision": "float32"}
    learner = LabelTree(leaf_size=leaf_size, n_hard_negatives=100, **exact).fit(X[:OLD], Y[:OLD, :LABELS])
    moved = copy.copy(learner).update(X[OLD:], Y[OLD:])
    learner.update(X[OLD:], Y[OLD:], train=(X[:OLD], Y[:OLD, :LABELS]))
    both = LabelTree(leaf_size=64, n_hard_negatives=100, **exact).fit(X, Y)  # every label on all rows
    wanted, found, without = (label_weights(each) for each in (both, learner, moved))
    counts, late = (np.bincount(part.indices, minlength=60) for part in (Y, Y[OLD:]))
    refit = np.flatnonzero((late > 0) & (late >= 0.2 * counts))
    assert len(np.setdiff1d(refit, np.arange(LABELS, 60))) > 10, "labels that were there before, too"
    np.testing.assert_allclose(found[refit], wanted[refit], atol=2e-3)
    assert (np.abs(without[refit] - wanted[refit]).max(axis=1) > 0.02).all(), "new rows alone lead elsewhere"


def test_members_that_are_trained_together_find_back_to_their_blocks_in_time_that_grows_with_them():
    sizes = np.random.default_rng(0).integers(1, 65, 20_000)
    sizes[::2] = 1
    ends = np.cumsum(sizes)
    some = [
        NodeMembers(number, 7 if number % 100 == 0 else number, np.arange(end - size, end), np.arange(end - size, end))
        for number, (size, end) in enumerate(zip(sizes.tolist(), ends.tolist(), strict=True))
    ]
    start, back = time.process_time(), {}
    for whole, origins in trained_together(some):
        assert len(whole.members) == sum(len(lanes) for _, lanes in origins) <= 64
        for number, lanes in origins:
            assert some[number].node == whole.node
            back.setdefault(number, []).extend(whole.members[lanes])
    assert time.process_time() - start < 10, "a look at all of them for each node would take minutes"
    assert all(back[part.number] == part.members.tolist() for part in some)


def label_weights(learner):
    """Weights of a tree's labels, which stand under one node each."""
    members = learner.weights_.members_
    weights = np.zeros((learner.n_labels_, learner.n_features_in_), np.float32)
    weights[members[members >= 0]] = label_rows(learner.weights_.blocks(), learner.weights_.n_features_).toarray()
    return weights


def test_a_single_row_of_a_new_label_does_not_put_it_everywhere(texts):
    X, Y, X_test, _ = texts
    for make in (OneVsRest, LabelTree):
        learner = make().fit(X[:2500], Y[:2500])
        new = sp.csr_array(sp.hstack([Y[2500:2501], sp.csr_array(np.ones((1, 1), np.float32))]))
        learner.update(X[2500:2501], new)
        assert learner.n_labels_ == Y.shape[1] + 1
        share = (learner.predict_topk(X_test, 5).labels == Y.shape[1]).any(axis=1).mean()
        assert share < 0.1
        assert Y.shape[1] in learner.predict_topk(X[2500:2501], 5).labels


def test_corrected_rows_take_a_wrong_label_back(data):
    X, Y = data
    wrong = sp.lil_array(Y)
    rows = np.flatnonzero(Y[:, [4]].toarray())[:20]
    wrong[rows, 4] = 0
    wrong[rows, 20] = 1
    learner = OneVsRest().fit(X, wrong)
    rest = np.setdiff1d(np.arange(400), rows)
    wrong = sp.csr_array(wrong)

    def places(fitted):
        """Mean place of the right and of the wrong label, from 0."""
        ranked = fitted.predict_topk(X[rows], 60).labels
        return np.array([(ranked == label).argmax(axis=1).mean() for label in (4, 20)])

    before, exact = places(learner), places(OneVsRest().fit(X, Y))
    alone = places(copy.copy(learner).update(X[rows], Y[rows]))
    both = places(copy.copy(learner).update(X[rows], Y[rows], train=(X[rest], wrong[rest])))
    assert alone[0] < before[0] - 3
    assert alone[1] >= before[1]
    assert both[0] < before[0] - 3
    assert both[1] > exact[1] - 1


@pytest.mark.parametrize(
    "make",
    [
        OneVsRest,
        lambda: LabelTree(leaf_size=8),
        lambda: LabelTree(n_trees=2, leaf_size=1, arity=2, overlap=0.2),
        TailDial,
        Popularity,
        lambda: CentroidReranker(learner=OneVsRest()),
        lambda: TAug(rows="own", learner=OneVsRest()),
        lambda: TAug(rows="own", learner=LabelTree(leaf_size=8)),
        lambda: TAug(rows="own", learner=Popularity()),
        lambda: InstanceForest(n_trees=5),
        lambda: TAug(rows="own", learner=InstanceForest(n_trees=5)),
        lambda: CentroidReranker(learner=InstanceForest(n_trees=5)),
        RankNet,
        lambda: Stacked(second=OneVsRest()),
    ],
)
@pytest.mark.parametrize("kept", ["the others", "a frequent one"])
def test_a_label_whose_last_row_is_taken_away_is_forgotten(make, kept, data, tmp_path):
    X, Y = data
    wrong = sp.lil_array(Y)
    wrong[:, 20] = 0
    wrong[7, 20] = 1
    frequent = np.bincount(Y.indices, minlength=60).argmax()  # of the head, where there is one
    keeps = np.arange(60) != 20 if kept == "the others" else np.arange(60) == frequent
    right = sp.csr_array((keeps & ((Y[[7]].toarray() > 0) | (kept == "a frequent one"))).astype(np.float32))
    learner = make().fit(X, sp.csr_array(wrong))
    assert (learner.predict_topk(X, 60).labels == 20).any()
    rest = np.setdiff1d(np.arange(400), 7)
    learner.update(X[[7]], right, train=(X[rest], sp.csr_array(wrong)[rest]))
    assert learner.label_counts_[20] == 0
    Model(learner).save(tmp_path / "model")
    for each in (learner, Model.load(tmp_path / "model", verify=True).learner):
        ranked = each.predict_topk(X, 60).labels
        assert not (ranked == 20).any(), "nothing speaks for it any more"
        assert np.isin(np.flatnonzero(learner.label_counts_), ranked).all(), "the others are there"
    back = sp.csr_array((np.arange(60) == 20)[None].astype(np.float32))
    learner.update(X[:1], back, train=(X[rest], sp.csr_array(wrong)[rest]))
    assert 20 in learner.predict_topk(X[:1], 60).labels, "it can come back"


@pytest.mark.parametrize("trees", [1, 2])
def test_a_node_without_labels_does_not_enter_the_beam(trees, data):
    X, Y = data
    learner = LabelTree(n_trees=trees, leaf_size=4, arity=2, beam=1).fit(X, Y)
    forest = learner.forest_
    leaf = int(forest.holders[0])
    gone = forest.labels_under(leaf)
    rows = np.flatnonzero(Y[:, gone].sum(axis=1))
    rest = np.setdiff1d(np.arange(400), rows)
    right = sp.csr_array(Y[rows].toarray() * ~np.isin(np.arange(60), gone))
    learner.update(X[rows], right, train=(X[rest], Y[rest]))
    assert not learner.label_counts_[gone].any()
    assert leaf not in -2 - learner.weights_.members_
    assert (learner.predict_topk(X, 1).labels >= 0).all(), "the one way that is open leads to labels"
    members = learner.weights_.members_
    others = np.setdiff1d(np.arange(forest.n_trees_, forest.n_nodes), np.flatnonzero(learner.forest_.heights == 0))
    np.testing.assert_array_equal(np.unique(-2 - members[members < -1]), others)
    learner.update(X[rows], Y[rows], train=(X[rest], Y[rest]))
    assert np.isin(gone, learner.predict_topk(X[rows], 60).labels).any(), "they can come back, elsewhere"
    assert np.isin(gone, learner.forest_.labels_).all()
    for label in gone:
        assert np.isfinite(learner.explain(X[:1], labels=[label])[0].score)


@pytest.mark.parametrize("others_join", [False, True], ids=["it alone", "another label joins too"])
@pytest.mark.parametrize("make", [OneVsRest, lambda: LabelTree(leaf_size=8), lambda: LabelTree(n_trees=2, leaf_size=8)])
def test_a_forgotten_label_comes_back_with_earlier_rows_alone(make, others_join, data):
    """As when the rows of the first training, without their corrections, are given to the next update again."""
    X, Y = data
    has_20, late = Y[:, [20]].toarray().ravel() > 0, np.flatnonzero(Y[:, [20]].toarray().ravel() == 0)[:5]
    rest = np.setdiff1d(np.arange(400), late)
    learner = make().fit(X[rest], Y[rest])
    learner.update(X[has_20], sp.csr_array(Y[has_20].multiply(np.arange(60) != 20)), train=(X[~has_20], Y[~has_20]))
    assert 20 not in learner.predict_topk(X[has_20], 60).labels
    new = sp.csr_array(sp.hstack([Y[late], np.ones((5, int(others_join)), np.float32)]))
    learner.update(X[late], new, train=(X[rest], Y[rest]))
    assert learner.label_counts_[20] == has_20.sum()
    found = [each.predict_topk(X[has_20], 61).labels for each in (learner, make().fit(X[rest], Y[rest]))]
    places = [
        np.append(np.argwhere(labels == 20)[:, 1], np.full((labels != 20).all(axis=1).sum(), 61)) for labels in found
    ]
    assert places[0].mean() < places[1].mean() + 3, "about where a refit would have it"
    assert (60 in found[0]) == others_join


@pytest.mark.parametrize("make", [OneVsRest, lambda **params: LabelTree(leaf_size=8, **params)])
def test_the_thread_count_changes_nothing(make, data):
    X, Y = data
    tops = []
    for threads in (1, 2):
        learner = make(n_jobs=threads).fit(X[:OLD], Y[:OLD, :LABELS])
        tops.append(learner.update(X[OLD:], Y[OLD:], train=(X[:OLD], Y[:OLD])).predict_topk(X, 10))
    np.testing.assert_array_equal(tops[0].labels, tops[1].labels)
    np.testing.assert_array_equal(tops[0].scores, tops[1].scores)


@pytest.mark.parametrize("make", [OneVsRest, lambda: LabelTree(leaf_size=8), lambda: LabelTree(n_trees=2, leaf_size=8)])
def test_labels_that_had_a_column_but_no_row_are_learned_too(make, data):
    X, Y = data
    order = np.random.default_rng(0).permutation(60)  # so that they stand between the others
    Y = Y[:, order]
    unseen = np.flatnonzero(np.bincount(Y[:OLD].indices, minlength=60) == 0)
    learner = make().fit(X[:OLD], Y[:OLD])
    updated = copy.copy(learner).update(X[OLD:], Y[OLD:], train=(X[:OLD], Y[:OLD]))
    for labels in updated.predict_topk(X, 60).labels:
        found = labels[labels >= 0]
        assert len(np.unique(found)) == len(found)
    present = np.intersect1d(unseen, Y[OLD:].indices)
    assert len(present) > 5
    assert np.isin(present, updated.predict_topk(X[OLD:], 60).labels).all()
    assert updated.score(X[OLD:], Y[OLD:]) > 0.95
    if isinstance(updated, LabelTree):
        forest = updated.forest_
        for node in range(forest.n_nodes):
            assert (np.diff(forest.labels_under(node)) > 0).all(), "labels of a node rise"


@pytest.mark.parametrize("inside", [OneVsRest, lambda: LabelTree(leaf_size=8), Popularity])
def test_a_side_that_loses_all_rows_of_its_own_ranks_nothing(inside, data):
    X, Y = data
    frequent = np.bincount(Y.indices, minlength=60) >= 60
    head = sp.csr_array(Y.toarray() * frequent)
    rare = np.flatnonzero(np.diff(Y.indptr) > np.diff(head.indptr))
    rest = np.setdiff1d(np.arange(400), rare)
    learner = TAug(rows="own", tau=frequent.sum() / (np.bincount(Y.indices, minlength=60) > 0).sum(), learner=inside())
    learner.fit(X, Y)
    np.testing.assert_array_equal(learner.head_labels_, np.flatnonzero(frequent))
    learner.update(X[rare], head[rare], train=(X[rest], head[rest]))
    ranked = learner.predict_topk(X, 60).labels
    assert set(ranked[ranked >= 0]) == set(np.flatnonzero(frequent))
    learner.update(X[:5], sp.csr_array((5, 62), dtype=np.float32))
    assert learner.predict_topk(X, 60).labels.max() < 60, "columns without rows are labels, and never ranked"


def test_updates_can_follow_one_another(data):
    X, Y = data
    learner = OneVsRest().fit(X[:200], Y[:200, :LABELS])
    for start in range(200, 400, 50):
        learner.update(X[start : start + 50], Y[start : start + 50])
    assert learner.n_rows_ == 400
    np.testing.assert_array_equal(learner.label_counts_, Y.toarray().sum(axis=0))
    blocks = len(learner.weights_.panel_heights_)
    assert blocks == 1, "sixty labels stay in one block"


def test_what_can_not_be_updated_says_so_and_stays(data):
    X, Y = data
    blend = Blend(learners=[OneVsRest(), OneVsRest(weighting="pw")], weights=[1, 1]).fit(X, Y)
    with pytest.raises(InputError, match=r"Blend does not support incremental updates: refit on all rows"):
        blend.update(X, Y)
    learner = OneVsRest().fit(X, Y)
    before = learner.coef_.toarray()
    for rows, labels, message in (
        (X[:5], Y[:4], "same rows"),
        (X[:5, :7], Y[:5], "features"),
        (X[:5], Y[:5, :7], "keep its columns"),
        (X[:0], Y[:0], "nothing to learn"),
    ):
        with pytest.raises(InputError, match=message):
            learner.update(rows, labels)
    np.testing.assert_array_equal(learner.coef_.toarray(), before)


def test_a_learner_over_texts_keeps_its_words():
    texts = ["a red ship", "a blue ship", "a red tree", "a blue tree"] * 3
    learner = TextLearner(features=Tfidf(min_df=1)).fit(texts, [[1, 0], [1, 0], [0, 1], [0, 1]] * 3)
    words = learner.features_.feature_names()
    learner.update(["a green red tree"], [[0, 1, 1]], train=(texts, [[1, 0], [1, 0], [0, 1], [0, 1]] * 3))
    assert learner.features_.feature_names() == words
    assert learner.learner_.n_labels_ == learner.n_labels_ == 3
    assert learner.predict_topk(["red green tree"], 3).labels[0, 0] == 1


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16", "int8"])
def test_blocks_of_a_tree_can_be_taken_apart_and_put_together(precision, data):
    X, Y = data
    weights = LabelTree(leaf_size=8, precision=precision).fit(X, Y).weights_
    for block in weights.blocks():
        features, dense = decoded(block)
        members = block.members[block.members != -1]
        again = EncodedBlock.encoded(dense, block.bias, features.astype(np.int32), members, 1e-30, precision, 80)
        for name, one, other in zip(block._fields, block, again, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, err_msg=name)
    assert label_rows(weights.blocks(), weights.n_features_).shape == (len(weights.members_[weights.members_ >= 0]), 80)
