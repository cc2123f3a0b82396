"""Training from mapped arrays with far less memory than the data take.

RLIMIT_DATA is what limits here: it counts the private memory of the process, used or only asked for, and not the files
that are mapped, which the system takes back when it needs room. RLIMIT_AS would count those too. So every copy of the
rows as a whole, even of their indices alone, ends with a MemoryError.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from longtail import InstanceForest, LabelTree, Model, OneVsRest, RankNet, Stacked, TAug
from longtail.config import config_context
from longtail.data import generate, load, save
from longtail.data.readers.mapped import MappedWriter, read_mapped
from longtail.learners.linear.weights import BlockWeights
from longtail.runtime.memory import memory_in_use
from longtail.runtime.mmap import is_mapped, spilled, writable

ROWS, FEATURES, LABELS, VALUES = 24_000, 8_000, 96, 800
BUDGET = 70  # MB
LEARNERS = {
    "one-vs-rest": "OneVsRest(n_jobs=1, max_iter=1)",
    "label tree": "LabelTree(n_jobs=1, max_iter=1, leaf_size=32, arity=8, n_hard_negatives=2)",
    "forest": "InstanceForest(n_trees=1, n_jobs=1, max_iter=1, max_inner_iter=1, leaf_size=2000)",
    "unit rows": "InstanceForest(n_trees=1, n_jobs=1, max_iter=1, max_inner_iter=1, leaf_size=2000, normalise=True)",
}
WORKER = """
import json, resource, sys
from longtail import InstanceForest, LabelTree, Model, OneVsRest
from longtail.data import load

def held(what="VmData"):
    with open("/proc/self/status") as file:
        return 1024 * int(next(line for line in file if line.startswith(what)).split()[1])

small, path, out, budget = *sys.argv[1:4], int(sys.argv[4])
data = load(small)
Model({learner}.fit(data.X, data.Y)).save(out)  # kernels and libraries are loaded
before = held()
resource.setrlimit(resource.RLIMIT_DATA, (before + budget, before + budget))
data = load(path)
model = Model({learner}.fit(data.X, data.Y))
hits = rows = 0
for top in model.iter_topk(data, 1):
    hits += int((top.labels[:, 0] == data.Y.indices[rows : rows + len(top)]).sum())
    rows += len(top)
model.save(out)
print(json.dumps({{"grown": held() - before, "hits": hits / rows}}))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Rows whose label follows from one feature, written in chunks."""
    folder = tmp_path_factory.mktemp("large")
    rng, width = np.random.default_rng(0), FEATURES // VALUES
    with MappedWriter(folder / "large", FEATURES, LABELS) as writer:
        for _ in range(0, ROWS, 2000):
            own = (rng.random(2000) ** 2 * LABELS).astype(np.int32)
            indices = (rng.random((2000, VALUES)) * width).astype(np.int32) + np.arange(VALUES, dtype=np.int32) * width
            values = rng.random((2000, VALUES), np.float32) / 8 + np.float32(0.01)
            indices[np.arange(2000), 8 * own] = 8 * own * width
            values[np.arange(2000), 8 * own] = 5
            ends = np.arange(1, 2001)
            writer.append(ends * VALUES, indices.ravel(), values.ravel(), ends, own)
        writer.finish("large")
    save(generate(300, LABELS, 200, random_state=0), folder / "small")
    yield folder
    for file in (folder / "large").iterdir():
        file.unlink()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_DATA counts mapped memory on Linux alone")
@pytest.mark.parametrize(
    "learner",
    [pytest.param(learner, marks=pytest.mark.slow if number else ()) for number, learner in enumerate(LEARNERS)],
)
def test_training_and_prediction_take_a_fraction_of_the_data(data, learner, tmp_path):
    size = 8 * ROWS * VALUES / 1e6
    assert size / 2 > BUDGET, "not even the indices alone would fit"
    code = WORKER.format(learner=LEARNERS[learner])
    arguments = [str(data / "small"), str(data / "large"), str(tmp_path / "model")]
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
    for megabytes in (10**6, BUDGET):  # the first run compiles kernels, which takes memory too
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments, str(megabytes * 10**6)],
            capture_output=True, text=True, check=False, env=environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["grown"] <= BUDGET * 10**6
    assert found["hits"] > (0.9 if "InstanceForest" not in LEARNERS[learner] else 0.05)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("both")
    save(generate(600, 150, 400, random_state=3), folder / "data")
    mapped = load(folder / "data")
    assert is_mapped(mapped.X.data)
    assert not mapped.X.data.flags.writeable
    save(mapped, folder / "data.npz")
    return load(folder / "data.npz"), mapped


def arrays_of(learner, path):
    Model(learner).save(path)
    return {file.name: file.read_bytes() for file in path.glob("*.npy")}


@pytest.mark.parametrize(
    "learner",
    [
        OneVsRest(n_jobs=2, max_iter=3),
        LabelTree(n_jobs=2, leaf_size=16, arity=4),
        InstanceForest(n_trees=3, normalise=True),
        RankNet(learner=OneVsRest(), width=4, tail=0.5),
        TAug(learner=OneVsRest(), copies=2),
        Stacked(second=OneVsRest(weighting="pw")),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_mapped_rows_give_the_same_model(both, learner, tmp_path, monkeypatch):
    monkeypatch.setattr("longtail.data.sparse._IN_MEMORY", 0)
    held, mapped = both
    expected = arrays_of(learner.fit(held.X, held.Y), tmp_path / "held")
    top = learner.predict_topk(held.X, 3)
    assert arrays_of(learner.fit(mapped.X, mapped.Y), tmp_path / "mapped") == expected
    np.testing.assert_array_equal(learner.predict_topk(mapped.X, 3).labels, top.labels)


@pytest.mark.parametrize("make", [OneVsRest, LabelTree, InstanceForest])
def test_a_model_that_does_not_fit_is_put_together_on_disk(both, make, tmp_path, monkeypatch):
    X, Y = both[0].X, both[0].Y
    monkeypatch.setattr("longtail.runtime.mmap.memory_in_use", lambda: 10**12)
    with config_context(memory_limit="100GB"):
        limited = make().fit(X, Y)
    parts = vars(getattr(limited, "weights_", None) or limited.trees_)
    large = [name for name in ("panels_", "entry_values_", "keys_", "features_", "labels_") if name in parts]
    assert large
    assert all(is_mapped(parts[name]) for name in large if parts[name].size)
    free = make().fit(X, Y)
    np.testing.assert_array_equal(limited.predict_topk(X, 3).scores, free.predict_topk(X, 3).scores)
    assert arrays_of(limited, tmp_path / "limited") == arrays_of(free, tmp_path / "free")


def test_spilled_arrays_and_mapped_data_are_not_memory_in_use(tmp_path):
    spilled(1, np.int8)
    before = memory_in_use()
    array = spilled(100_000_000, np.uint8)
    array[:] = 1
    assert memory_in_use() - before < 30_000_000
    ordinary = np.ones(100_000_000, np.uint8)
    assert memory_in_use() - before > 80_000_000
    assert ordinary.sum() == array.sum(dtype=np.int64)


def test_unlocked_arrays_look_writable_and_are_not(tmp_path):
    save(generate(300, 50, 400, random_state=0), tmp_path / "data")
    found = read_mapped(tmp_path / "data")
    with pytest.raises(ValueError, match="read-only"):
        found.X.data[0] = 1
    opened = writable(found.X.data)
    assert opened.flags.writeable
    assert is_mapped(opened)
    np.testing.assert_array_equal(opened, found.X.data)
    code = (
        "import sys\nfrom longtail.data import load\nfrom longtail.runtime.mmap import writable\n"
        "writable(load(sys.argv[1]).X.data)[0] = 1"
    )
    before = found.X.data.tobytes()
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path / "data")], check=False, capture_output=True)
    assert ended.returncode < 0, "the pages are protected"
    assert read_mapped(tmp_path / "data", verify=True).X.data.tobytes() == before


def test_stacking_keeps_the_limit_of_its_learners():
    """In a separate process, because memory left by other tests would count.

    The limit is looked at before each piece of work, so that small arrays may pass it by a few MB.
    """
    code = """
from longtail import OneVsRest, Stacked, config_context
from longtail.data import generate
from longtail.runtime.memory import MemoryWatch, memory_in_use

def fitted(data, limit):
    parts = [OneVsRest(weighting=name, max_iter=2, prune_below=0) for name in (None, "pw")]
    with MemoryWatch() as watch, config_context(memory_limit=limit):
        Stacked(learner=parts[0], second=parts[1]).fit(data.X, data.Y).predict_topk(data.X[:300], 5)
    return watch.peak

fitted(generate(300, 50, 400, random_state=0), None)
data = generate(6000, 3000, 6000, random_state=0)
before = memory_in_use()
limited = fitted(data, before + 90_000_000) - before
free = max(fitted(data, None) for _ in range(3)) - before  # threads that happen to take turns hold less
print(limited, free)
assert limited < 95_000_000
assert free > 1.5 * limited, "the limit did something"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_blocks_that_fit_stay_in_memory(both):
    with config_context(memory_limit="100GB"):
        learner = OneVsRest().fit(both[0].X, both[0].Y)
    assert isinstance(learner.weights_, BlockWeights)
    assert not is_mapped(learner.weights_.panels_)
