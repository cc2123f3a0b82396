"""Training of instance trees: memory, estimates, resumption, and trees that were corrupted on disk."""

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import InstanceForest, Model, load, resumable
from longtail.config import config_context
from longtail.errors import InputError, Interrupted, ModelError, ParameterError
from longtail.learners.instance_trees import training
from longtail.learners.instance_trees.l1_logistic import L1Memory
from longtail.runtime.block_file import BlockFile
from longtail.runtime.memory import affordable_threads
from tests.learners.contract import assert_same, small_data
from tests.learners.instance_trees.test_instance_forest import ARRAYS, SMALL, assert_same_trees, more_data


@pytest.fixture(scope="module")
def forest():
    return InstanceForest(**SMALL).fit(*more_data())


def interrupted(monkeypatch, left):
    """Have training end after so many trees are written."""
    append, remaining = BlockFile.append, [left]

    def stops(self, arrays):
        if remaining[0] == 0:
            raise KeyboardInterrupt
        remaining[0] -= 1
        append(self, arrays)

    monkeypatch.setattr(BlockFile, "append", stops)


def counted(monkeypatch):
    append, written = BlockFile.append, []
    monkeypatch.setattr(BlockFile, "append", lambda self, arrays: (written.append(1), append(self, arrays)))
    return written


@pytest.mark.parametrize("added", [False, True])
def test_training_resumes_from_finished_trees(tmp_path, monkeypatch, forest, added):
    X, Y = more_data()

    def train():
        if added:
            return InstanceForest(**SMALL | {"n_trees": 1}).fit(X, Y).add_trees(X, Y, 3)
        return InstanceForest(**SMALL).fit(X, Y)

    with monkeypatch.context() as patch:
        interrupted(patch, 3)
        with pytest.raises(KeyboardInterrupt), resumable(tmp_path / "unfinished"):
            train()
    with monkeypatch.context() as patch:
        written = counted(patch)
        with resumable(tmp_path / "unfinished"):
            learner = train()
    assert len(written) == 1
    assert_same_trees(learner.trees_, forest.trees_)
    assert not (tmp_path / "unfinished").exists()


def test_an_interruption_counts_the_trees_of_earlier_runs(tmp_path, monkeypatch):
    X, Y = more_data()
    grow = training.TreeTrainer.grow_one

    def train(last):
        def stops(self, number, stop):
            if number == last:
                raise KeyboardInterrupt
            return grow(self, number, stop)

        monkeypatch.setattr(training.TreeTrainer, "grow_one", stops)
        with resumable(tmp_path / "unfinished"):
            InstanceForest(**SMALL | {"n_trees": 8}, n_jobs=1).fit(X, Y)

    for last in (3, 5):
        with pytest.raises(Interrupted, match=f"growing trees: {last} of 8 trees were done"):
            train(last)


def test_fewer_trees_than_were_finished(tmp_path, monkeypatch):
    X, Y = more_data()
    with monkeypatch.context() as patch:
        interrupted(patch, 3)
        with pytest.raises(KeyboardInterrupt), resumable(tmp_path / "unfinished"):
            InstanceForest(**SMALL).fit(X, Y)
    with resumable(tmp_path / "unfinished"):
        learner = InstanceForest(**SMALL | {"n_trees": 2}).fit(X, Y)
    assert learner.trees_.n_trees == 2
    assert_same_trees(learner.trees_, InstanceForest(**SMALL | {"n_trees": 2}).fit(X, Y).trees_)


@pytest.mark.parametrize(
    "other",
    [
        {"random_state": 1},
        {"leaf_size": 4},
        {"weighting": "pw"},
        {"criterion": "dcg"},
        {"normalise": True},
        {"max_inner_iter": 9},
    ],
    ids=str,
)
def test_another_training_does_not_resume_from_these_trees(tmp_path, monkeypatch, other):
    X, Y = more_data()
    with monkeypatch.context() as patch:
        interrupted(patch, 2)
        with pytest.raises(KeyboardInterrupt), resumable(tmp_path / "unfinished"):
            InstanceForest(**SMALL).fit(X, Y)
    with pytest.raises(InputError, match="another training"), resumable(tmp_path / "unfinished"):
        InstanceForest(**SMALL | other).fit(X, Y)


def test_a_memory_limit_takes_threads_away_or_refuses(monkeypatch):
    X, Y = more_data()
    trainer = InstanceForest(**SMALL)._trainer(X, Y)
    used, each = 10**9, trainer.thread_bytes
    monkeypatch.setattr("longtail.runtime.memory.resident_memory", lambda: used)

    def affordable(limit):
        with config_context(memory_limit=limit, n_jobs=8):
            return affordable_threads(trainer.thread_bytes, "a tree")

    for count in (1, 2, 3, 7, 8):
        assert affordable(used + count * each + 5) == count
    assert affordable(used + 50 * each) == 8
    assert affordable(None) == 8
    for limit in (used + each - 1, used, used // 2):
        with pytest.raises(ParameterError, match="memory_limit leaves no room: 1,000 MB are in use") as refusal:
            affordable(limit)
    advised = str(refusal.value).split("raise it to at least ")[1].split(",")[0]
    assert affordable(advised) >= 1


def test_a_limit_changes_the_threads_and_nothing_else(monkeypatch, forest):
    X, Y = more_data()
    grow, used = training.TreeTrainer.grow, []
    monkeypatch.setattr(
        training.TreeTrainer,
        "grow",
        lambda self, numbers, threads, done: (used.append(threads), grow(self, numbers, threads, done))[1],
    )
    monkeypatch.setattr("longtail.runtime.memory.resident_memory", lambda: 10**9)
    room = InstanceForest(**SMALL)._trainer(X, Y).thread_bytes
    with config_context(memory_limit=10**9 + 2 * room):
        learner = InstanceForest(**SMALL, n_jobs=3).fit(X, Y)
    assert used == [2]
    assert_same_trees(learner.trees_, forest.trees_)
    with pytest.raises(ParameterError, match="memory_limit leaves no room"), config_context(memory_limit="1GB"):
        learner.add_trees(X, Y, 1)
    assert learner.trees_.n_trees == 4


def test_a_thread_is_said_to_need_at_least_what_its_memory_takes():
    X, Y = more_data()
    memory = L1Memory.for_matrix(*X.shape, X.nnz)
    needed = InstanceForest(**SMALL)._trainer(X, Y).thread_bytes
    assert needed >= sum(array.nbytes for array in memory)


def test_estimates_are_of_the_right_size(forest):
    X, Y = more_data()
    one, many = (InstanceForest(**SMALL | {"n_trees": trees}, n_jobs=1).estimate(X, Y) for trees in (1, 40))
    for estimate in (one, many):
        told = ("seconds", "peak_memory_mb", "model_mb", "block_mb", "threads", "blocks", "least_seconds", "data_mb")
        assert all(np.isfinite(getattr(estimate, name)) and getattr(estimate, name) > 0 for name in told)
        assert estimate.threads == 1
    stored = sum(getattr(forest.trees_, name).nbytes for name in ARRAYS) / 1e6
    assert one.model_mb * 4 == pytest.approx(stored, rel=0.3)
    assert many.model_mb == pytest.approx(40 * one.model_mb, rel=1e-6)
    assert many.seconds > one.seconds
    assert InstanceForest(**SMALL, n_jobs=64).estimate(X, Y).threads == 4  # no more than there are trees
    empty = InstanceForest(**SMALL).estimate(X, sp.csr_array(Y.shape))
    assert np.isfinite(empty.seconds)


def changed(name, place, value):
    def change(trees):
        array = getattr(trees, name).copy()
        array[place] = value
        setattr(trees, name, array)

    return change


def put(name, make):
    return lambda trees: setattr(trees, name, make(getattr(trees, name)))


def crossing_rights(trees):
    """The right child of the root's left child moves under the root's right child: what is under both is mixed up."""
    assert trees.rights_[1] > 0
    put("rights_", lambda rights: np.concatenate([rights[:1], rights[:1] + np.int32(1), rights[2:]]))(trees)


def more(name, size, value, trees):
    """A number that the trees allow, and the learner that wraps them doesn't."""
    changed(name, 5, value)(trees)
    setattr(trees, size, 99)


SPOILT = {
    "right child is the node itself": changed("rights_", 1, 1),
    "right child is the left child": changed("rights_", 0, 1),
    "right child goes back": lambda trees: changed("rights_", trees.roots_[1], 1)(trees),
    "right child is negative": changed("rights_", 0, -5),
    "right child is past the end": lambda trees: changed("rights_", 0, len(trees.rights_))(trees),
    "right child is in another tree": lambda trees: changed("rights_", 0, trees.roots_[1] + 1)(trees),
    "right children cross": crossing_rights,
    "last node has a right child": changed("rights_", -1, 3),
    "feature too large": changed("features_", 5, 60),
    "feature negative": changed("features_", 5, -1),
    "label too large": changed("labels_", 5, 40),
    "label negative": changed("labels_", 5, -1),
    "value not a number": changed("values_", 5, np.nan),
    "value infinite": changed("values_", 5, np.inf),
    "weights start late": changed("weight_starts_", 0, 1),
    "weights end late": changed("weight_starts_", -1, 10**9),
    "weights fall": changed("weight_starts_", 3, 10**6),
    "labels start negative": changed("label_starts_", 0, -1),
    "labels end early": changed("label_starts_", -1, 0),
    "labels fall": changed("label_starts_", 3, 10**6),
    "too few starts": put("label_starts_", lambda starts: starts[:-1]),
    "too few weights": put("weights_", lambda weights: weights[:-1]),
    "too few features": put("features_", lambda features: features[:-1]),
    "too few values": put("values_", lambda values: values[:-1]),
    "too few sizes": put("sizes_", lambda sizes: sizes[:-1]),
    "too few bias parts": put("bias_", lambda bias: bias[:-1]),
    "too few nodes": put("rights_", lambda rights: rights[:-1]),
    "first root not 0": changed("roots_", 0, 1),
    "roots fall": put("roots_", lambda roots: roots[::-1].copy()),
    "root past the end": changed("roots_", -1, 10**6),
    "a root twice": lambda trees: changed("roots_", 2, trees.roots_[1])(trees),
    "no roots": put("roots_", lambda roots: roots[:0]),
    "wide features": put("features_", lambda features: features.astype(np.int64)),
    "wide weights": put("weights_", lambda weights: weights.astype(np.float64)),
    "narrow starts": put("weight_starts_", lambda starts: starts.astype(np.int32)),
    "labels as floats": put("labels_", lambda labels: labels.astype(np.float32)),
    "two dimensions": put("values_", lambda values: values[:, None]),
    "every second": put("bias_", lambda bias: np.repeat(bias, 2)[::2]),
    "a list": put("rights_", lambda rights: rights.tolist()),
    "no number of labels": put("n_labels_", lambda n_labels: None),
    "negative number of features": put("n_features_", lambda n_features: -1),
    "missing": lambda trees: delattr(trees, "labels_"),
    "more features than the learner": lambda trees: more("features_", "n_features_", 70, trees),
    "more labels than the learner": lambda trees: more("labels_", "n_labels_", 45, trees),
}  # fmt: skip


def loaded_copy(forest, tmp_path):
    Model(forest).save(tmp_path / "model")
    return load(tmp_path / "model").learner


@pytest.mark.parametrize("fault", SPOILT)
def test_corrupted_trees_are_refused(forest, tmp_path, fault):
    X, _ = more_data()
    loaded = loaded_copy(forest, tmp_path)
    SPOILT[fault](loaded.trees_)
    for call in (
        lambda: loaded.predict_topk(X[:2], 3, exclude=[0]),
        lambda: loaded.leaves(X[:1]),
        lambda: loaded.explain(X[:1], [0]),
    ):
        with pytest.raises(ModelError, match="train it again"):
            call()


def test_corrupted_trees_are_not_followed(forest, tmp_path):
    loaded = loaded_copy(forest, tmp_path)
    changed("rights_", 0, 10**6)(loaded.trees_)
    with pytest.raises(ModelError, match="train it again"):
        loaded.path(more_data()[0][:1], 0)


def test_sound_trees_are_not_refused(forest, tmp_path):
    X, _ = more_data()
    loaded = loaded_copy(forest, tmp_path)
    for name in ARRAYS:
        put(name, np.copy)(loaded.trees_)
    assert_same(loaded.predict_topk(X, 5), forest.predict_topk(X, 5))


def test_trees_of_one_leaf_survive(tmp_path):
    """Trees that were never split, without weights, and even without a label."""
    X, Y = small_data()
    learner = InstanceForest(n_trees=2, leaf_size=100).fit(X, Y)
    np.testing.assert_array_equal(learner.leaves(X), np.tile([0, 1], (80, 1)))
    np.testing.assert_allclose(learner.predict_topk(X, 1).scores, learner.label_counts_.max() / 80, rtol=1e-6)
    learner.fit(X, sp.csr_array(Y.shape))
    loaded = loaded_copy(learner, tmp_path)
    assert (loaded.predict_topk(X, 3).labels == -1).all()
    assert loaded.add_trees(X, Y, 1).trees_.n_trees == 3
    np.testing.assert_allclose(loaded.predict_topk(X, 1).scores, Y.sum(axis=0).max() / 240, rtol=1e-6)
