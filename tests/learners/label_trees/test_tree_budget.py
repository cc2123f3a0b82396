"""Training of label trees: memory, estimates, resumption, added labels, and explanations."""

import platform

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import LabelTree, Model, resumable
from longtail.config import config_context, parse_memory
from longtail.errors import InputError, ModelError, ParameterError
from longtail.learners.label_trees import estimate, node_training, training
from longtail.learners.label_trees.chunk_weights import ChunkWeights
from longtail.learners.label_trees.node_training import node_blocks
from longtail.runtime.block_file import BlockFile
from longtail.runtime.memory import resident_memory
from tests.learners.contract import small_data


def assert_same_weights(one, other):
    for name in ChunkWeights._stored:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def deep_data():
    return small_data(n_rows=120, n_features=60, n_labels=90, seed=1)


DEEP = {"leaf_size": 6, "arity": 3, "n_hard_negatives": 4}


def test_a_memory_limit_takes_threads_away_or_refuses(monkeypatch):
    X, Y = deep_data()
    trainer = LabelTree(**DEEP)._trainer(X, Y)
    level = trainer.level(0, None)
    used, each = 10**9, estimate.node_bytes(trainer, level)
    monkeypatch.setattr("longtail.runtime.memory.resident_memory", lambda: used)

    def affordable(limit):
        with config_context(memory_limit=limit, n_jobs=8):
            return estimate.level_threads(trainer, level)

    for count in (1, 2, 3, 7, 8):
        assert affordable(used + count * each + 5) == count
    assert affordable(used + 50 * each) == 8
    assert affordable(None) == 8
    for limit in (used + each - 1, used, used // 2):
        with pytest.raises(ParameterError, match="memory_limit leaves no room: 1,000 MB are in use") as refusal:
            affordable(limit)
    advised = str(refusal.value).split("raise it to at least ")[1].split(",")[0]
    assert affordable(advised) >= 1


def test_the_advice_of_a_refusal_leaves_room_for_every_level(monkeypatch):
    """Whether a node or the rows of a level is refused: the advised limit is enough for both."""
    X, Y = small_data(n_rows=40_000, n_features=500, n_labels=60)
    learner = LabelTree(n_jobs=8, leaf_size=6, arity=3, n_hard_negatives=16)
    trainer = learner._trainer(X, Y)
    rows = node_training.level_bytes(trainer, 16)
    largest = estimate.node_bytes(trainer, trainer.level(0, sp.csr_array(np.ones((40_000, 1), np.float32))))
    assert min(rows, largest) > 12_000_000  # more than rounding could hide
    used = 10**9
    monkeypatch.setattr("longtail.runtime.memory.resident_memory", lambda: used)
    for limit in (used, used + rows + 5):  # no room for the rows, then for no node besides them
        with pytest.raises(ParameterError, match="raise it to at least") as refusal, config_context(memory_limit=limit):
            learner._fit(X, Y)
        advised = str(refusal.value).split("raise it to at least ")[1].split(",")[0]
        enough = used + rows + largest
        assert enough <= parse_memory(advised) <= 1.1 * enough + 40_000_000  # a tenth more, because runs differ
        if limit == used:
            assert "the rows of a level take" in str(refusal.value)
        used = used + rows if limit == used else used


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators can't be asked to give memory back")
def test_a_node_takes_more_memory_with_more_rows():
    X, Y = deep_data()
    trainer = LabelTree(**DEEP)._trainer(X, Y)
    everything = sp.csr_array(np.ones((120, trainer.forest.level_starts[2] - 1), np.float32))
    few, many = trainer.level(1, None), trainer.level(1, everything)
    assert np.diff(many.row_starts).max() == 120
    assert estimate.node_bytes(trainer, few) < estimate.node_bytes(trainer, many)


def test_a_limit_does_not_change_what_is_learnt(monkeypatch):
    X, Y = deep_data()
    free = LabelTree(n_jobs=2, **DEEP).fit(X, Y)
    asked = []
    whole = estimate.level_threads

    def counted(trainer, level, next_level):
        asked.append(whole(trainer, level, next_level))
        return asked[-1]

    monkeypatch.setattr("longtail.learners.label_trees.training.level_threads", counted)
    used = resident_memory()
    monkeypatch.setattr("longtail.runtime.memory.resident_memory", lambda: used)
    trainer = LabelTree(**DEEP)._trainer(X, Y)
    all_rows = sp.csr_array(np.ones((120, 1), np.float32))
    room = estimate.node_bytes(trainer, trainer.level(0, all_rows))
    with config_context(memory_limit=used + room + 100):
        tight = LabelTree(n_jobs=2, **DEEP).fit(X, Y)
    assert asked[0] == 1
    assert_same_weights(free.weights_, tight.weights_)
    with config_context(memory_limit=used + 1000):
        with pytest.raises(ParameterError, match=r"leaves no room.*raise it to"):
            LabelTree(**DEEP).fit(X, Y)
        with pytest.raises(ParameterError, match=r"leaves no room.*raise it to"):
            LabelTree(**DEEP).estimate(X, Y)


@pytest.mark.parametrize(
    "params",
    [
        DEEP,
        {"leaf_size": 20, "arity": 10, "n_hard_negatives": 0},
        {"leaf_size": 30, "arity": 9, "n_trees": 2},
        {"leaf_size": 999},
    ],
    ids=["deep", "no negatives", "two trees", "one leaf"],
)
def test_an_estimate_is_near_what_happens(params, tmp_path):
    X, Y = small_data(n_rows=400, n_features=300, n_labels=250, seed=2)
    learner = LabelTree(n_jobs=1, **params)
    before = resident_memory() / 1e6
    cost = learner.estimate(X, Y)
    assert not hasattr(learner, "weights_")
    Model(learner.fit(X, Y)).save(tmp_path / "model")
    size = sum(file.stat().st_size for file in (tmp_path / "model").iterdir() if file.suffix == ".npy") / 1e6
    assert size / 3 < cost.model_mb < 3 * size
    assert cost.threads == 1
    assert cost.seconds > 0
    assert cost.peak_memory_mb > before * 0.9
    assert 0 < cost.block_mb < 50


@pytest.mark.parametrize("params", [{"balanced": False, "arity": 8}, {"arity": 2}], ids=["unequal", "binary"])
def test_the_size_of_trees_with_unequal_nodes_is_estimated(params):
    """Labels as frequent as 1 / rank make nodes from all rows down to one; small ones have more weights per row."""
    rng = np.random.default_rng(3)
    n_labels, n_rows = 600, 2000
    popular = 1 / np.arange(1, n_labels + 1)
    held = [rng.choice(n_labels, 3, replace=False, p=popular / popular.sum()) for _ in range(n_rows)]
    Y = np.zeros((n_rows, n_labels), np.float32)
    for row, labels in enumerate(held):
        Y[row, labels] = 1
    words = sp.random_array((n_labels, 3000), density=0.005, rng=rng, format="csr", dtype=np.float32)
    X = sp.csr_array(Y) @ words + sp.random_array((n_rows, 3000), density=0.005, rng=rng, format="csr")
    learner = LabelTree(n_jobs=1, leaf_size=4, n_hard_negatives=0, prune_below=0.01, precision="float32", **params)
    cost = learner.estimate(X, Y)
    weights = learner.fit(X, Y).weights_
    size = sum(array.nbytes for block in weights.blocks() for array in block) / 1e6
    assert weights.n_blocks > 100
    assert 0.75 * size < cost.model_mb < 1.3 * size


def test_pilots_stand_for_all_blocks():
    rng = np.random.default_rng(0)
    for n in (1, 5, 12, 13, 40, 3000):
        rows = np.sort(rng.pareto(1.0, n).astype(np.int64))
        blocks = [node_training.NodeBlock(at, 7 + at, 0, 3) for at in range(n)]
        chosen, stand_for = estimate._pilots(rows, blocks, 7)
        assert len(chosen) == len(set(chosen)) == len(stand_for) <= 12
        np.testing.assert_allclose(stand_for @ np.sqrt(rows[chosen] + 1), np.sqrt(rows + 1).sum())


def interrupted_after(monkeypatch, count):
    """Make training stop after some blocks, and record what is appended later."""
    append, left = BlockFile.append, [count]

    def stops(self, arrays):
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        append(self, arrays)

    monkeypatch.setattr(BlockFile, "append", stops)
    return append


def test_training_is_resumed_in_the_middle_of_each_level(tmp_path, monkeypatch):
    X, Y = deep_data()
    whole = LabelTree(**DEEP).fit(X, Y)
    forest, starts = whole.forest_, node_blocks(whole.forest_)[1]
    assert forest.n_levels >= 3
    stops = set()
    for first, last in zip(forest.level_starts[:-1], forest.level_starts[1:], strict=True):
        begin, end = int(starts[first]), int(starts[last])
        stops |= {begin, (begin + end) // 2, end - 1}
    for count in sorted(stops):
        with monkeypatch.context() as patch:
            append = interrupted_after(patch, count)
            with pytest.raises(KeyboardInterrupt), resumable(tmp_path / "kept"):
                LabelTree(n_jobs=1, **DEEP).fit(X, Y)
            made = []
            patch.setattr(BlockFile, "append", lambda self, arrays: (made.append(1), append(self, arrays)))  # noqa: B023
            with resumable(tmp_path / "kept"):
                resumed = LabelTree(n_jobs=2, **DEEP).fit(X, Y)
        assert len(made) == whole.weights_.n_blocks - count
        assert_same_weights(resumed.weights_, whole.weights_)
        assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    "other",
    [{"n_hard_negatives": 3}, {"discount": 0.3}, {"precision": "float32"}, {"leaf_size": 7}, {"random_state": 1}],
)
def test_blocks_of_another_training_are_not_used(other, tmp_path, monkeypatch):
    X, Y = deep_data()
    with monkeypatch.context() as patch:
        interrupted_after(patch, 2)
        with pytest.raises(KeyboardInterrupt), resumable(tmp_path / "kept"):
            LabelTree(**DEEP).fit(X, Y)
    with pytest.raises(InputError, match="another training"), resumable(tmp_path / "kept"):
        LabelTree(**DEEP | other).fit(X, Y)


def test_blocks_do_not_depend_on_what_was_solved_before():
    """The working memory of one thread goes from node to node."""
    X, Y = deep_data()
    blocks, _ = node_blocks(LabelTree(**DEEP)._trainer(X, Y).forest)
    trainer = LabelTree(**DEEP)._trainer(X, Y)
    stop = np.zeros(1, np.uint8)
    for depth in range(trainer.forest.n_levels):
        first, last = trainer.forest.level_starts[depth : depth + 2]
        level = trainer.level(depth, None)
        own = [block for block in blocks if first <= block.node < last]
        one_after_the_other = [trainer.solve(depth, level, block, stop) for block in own[::-1]][::-1]
        for block, found in zip(own, one_after_the_other, strict=True):
            trainer.spare.clear()
            for one, other in zip(trainer.solve(depth, level, block, stop), found, strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "params", [DEEP, {"leaf_size": 70, "n_trees": 2}, {"leaf_size": 6, "arity": 3, "overlap": 0.4}]
)
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_blocks_of_old_labels_stay_to_the_bit(params, precision):
    X, Y = deep_data()
    learner = LabelTree(precision=precision, **params).fit(X, Y[:, :70])
    old, forest, starts = list(learner.weights_.blocks()), learner.forest_, learner.weights_.block_starts_
    learner.add_labels(X, Y[:, 70:])
    new, new_starts = list(learner.weights_.blocks()), learner.weights_.block_starts_
    added = np.unique(Y[:, 70:].indices) + 70
    seen = []
    for node in range(forest.n_nodes):
        before, after = old[starts[node] : starts[node + 1]], new[new_starts[node] : new_starts[node + 1]]
        for one, other in zip(before, after, strict=False):
            for left, right in zip(one, other, strict=True):
                np.testing.assert_array_equal(left, right)
        for block in after[len(before) :]:
            labels = block.members[block.members != -1]
            assert (labels >= 70).all()
            seen += labels.tolist()
        members = np.concatenate([block.members for block in after]) if after else np.empty(0, np.int32)
        assert sorted(members[members >= 0]) == learner.forest_.labels_under(node).tolist()
    assert sorted(seen) == sorted(added.tolist() * learner.n_trees)


def test_added_labels_are_trained_on_their_rows_and_those_sent_to_their_leaf():
    """With one leaf, every row with any label is a row of it: the new label gets what it would get from the start."""
    X, Y = small_data(n_rows=100, n_features=40, n_labels=30, seed=5)
    same = {"leaf_size": 100, "precision": "float32", "prune_below": 0.0, "tol": 1e-4, "max_iter": 500}
    whole = LabelTree(**same).fit(X, Y)
    grown = LabelTree(**same).fit(X, Y[:, :29]).add_labels(X, Y[:, 29:])
    wanted, found = (learner.predict_topk(X, 1, only=[29]) for learner in (whole, grown))
    np.testing.assert_array_equal(found.labels, wanted.labels)
    np.testing.assert_allclose(found.scores, wanted.scores, atol=0.02)


def test_rows_go_to_the_best_nodes_of_the_levels_above():
    X, Y = deep_data()
    learner = LabelTree(precision="float32", **DEEP).fit(X, Y)
    trainer, forest = LabelTree(precision="float32", **DEEP)._trainer(X, Y), learner.forest_
    starts = learner.weights_.block_starts_
    with BlockFile() as block_file:
        for block in learner.weights_.blocks():
            block_file.append(block)
        roots = training.hard_negatives(trainer, block_file, starts, 0, 4, learner.discount)
        assert roots.toarray().tolist() == [[1.0]] * 120
        for depth in range(1, forest.n_levels):
            first, last = forest.level_starts[depth : depth + 2]
            sent = training.hard_negatives(trainer, block_file, starts, depth, 4, learner.discount).toarray()
            best = learner._search.nodes(X, learner._scales(X), depth, 4)
            for row in range(120):
                wanted = sorted(int(node) - first for node in best[row] if node >= 0)
                assert np.flatnonzero(sent[row]).tolist() == wanted
                assert len(wanted) == min(4, last - first) or depth > 1


@pytest.mark.parametrize("loss", ["squared-hinge", "logistic"])
@pytest.mark.parametrize(
    "params", [DEEP, {"n_trees": 2, "leaf_size": 20}, {"leaf_size": 6, "arity": 3, "overlap": 0.5}]
)
def test_an_explanation_adds_up_to_the_score(loss, params):
    X, Y = deep_data()
    learner = LabelTree(loss=loss, beam=999, precision="float32", **params).fit(X, Y)
    top = learner.predict_topk(X, 90)
    for row in (0, 30, 7):
        for why in learner.explain(X[[row]], top.labels[row, [0, 1, 60]]):
            score = top.scores[row][top.labels[row] == why.label][0]
            assert why.score == pytest.approx(score, rel=1e-3, abs=1e-6)
            assert why.bias + sum(part for _, part in why.parts) == pytest.approx(why.score, rel=1e-6)
            assert {name for name, _ in why.parts} <= {str(feature) for feature in X[[row]].indices}


def test_an_explanation_by_hand():
    """Two labels under the root: exp(-(1 - z)^2) is shared out in proportion to what each feature adds to z."""
    X = sp.csr_array(np.array([[1, 2, 0], [0, 1, 1], [1, 0, 3]], np.float32))
    Y = sp.csr_array(np.array([[1, 0], [0, 1], [1, 0]], np.float32))
    learner = LabelTree(leaf_size=5, normalise=False, precision="float32", prune_below=0.0).fit(X, Y)
    block = next(learner.weights_.blocks())
    assert block.members[:2].tolist() == [0, 1]
    lane = 0
    weights, entry = np.zeros(3), 0
    for key, count in zip(block.keys, block.kept, strict=True):
        own = block.lanes[entry : entry + count] == lane
        weights[key] = block.values[entry : entry + count][own].sum()
        entry += count
    parts, bias = X.toarray()[0] * weights, float(block.bias[lane])
    low, high = (np.exp(-(max(0.0, 1 - z) ** 2)) for z in (bias, bias + parts.sum()))
    why = learner.explain(X[[0]], [0])[0]
    assert why.bias == pytest.approx(low, rel=1e-5)
    assert parts[:2].all()
    for feature in (0, 1):
        assert dict(why.parts)[str(feature)] == pytest.approx((high - low) * parts[feature] / parts.sum(), rel=1e-4)


def test_a_saved_tree_whose_weights_were_exchanged_is_refused(tmp_path):
    X, Y = deep_data()
    learner = LabelTree(**DEEP).fit(X, Y)
    other = LabelTree(leaf_size=30).fit(X, Y)
    learner.weights_ = other.weights_
    Model(learner).save(tmp_path / "model")
    with pytest.raises(ModelError):
        Model.load(tmp_path / "model").predict_topk(X, 3)
