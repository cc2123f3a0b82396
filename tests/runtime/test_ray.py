"""Ray as the engine, on a real cluster of two nodes: the same bits, whichever process is killed."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from longtail import InstanceForest, JainPropensity, LabelTree, Model, OneVsRest, recipe, resumable, use_engine
from longtail.config import limit_threads, thread_count
from longtail.data import Dataset, write_npz, write_xc
from longtail.errors import InputError, Interrupted, ParameterError
from longtail.reproduce.jobs import Job, Runner
from longtail.reproduce.methods import RecipeSetup
from longtail.reproduce.sets import AvailableSet
from longtail.runtime.block_file import BlockFile
from longtail.runtime.checkpoint import Checkpoint
from longtail.runtime.pool import run_blocks
from longtail.runtime.ray import engine as engine_cluster
from longtail.runtime.ray import worker as cluster_task
from longtail.runtime.task import RemoteTask, current_engine
from longtail.tuning.search import Search
from tests.learners.contract import small_data
from tests.runtime.cluster import SmallCluster, ray

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def cluster():
    started = SmallCluster()
    yield started
    started.shutdown()


@pytest.fixture(scope="module")
def joined(cluster):
    with use_engine(engine="ray", address=cluster.address):
        engine = current_engine()
        ray.get(engine._warming)
        yield engine


@pytest.fixture(scope="module")
def data():
    return small_data(n_rows=300, n_features=120, n_labels=300, seed=1)


class Worker:
    """Work whose blocks report where they ran."""

    def __init__(self, numbers=None):
        self.numbers = np.arange(1000.0) if numbers is None else numbers
        self.calls = 0

    def square(self, number, stop):
        self.calls += 1
        time.sleep(0.03)
        return self.numbers[number] ** 2, os.getpid(), self.calls

    def threads(self, asked, stop):
        return thread_count(asked)

    def refuse(self, number, stop):
        if number == 3:
            raise InputError("is wrong.", path="train.txt", line=number)
        if number == 4:
            raise ParameterError("seed", object, "must be at least 0")
        return number

    def fail(self, number, stop):
        return [][number]

    def sleep(self, seconds, stop):
        time.sleep(seconds)
        return seconds

    def writes(self, number, stop):
        return self.numbers.flags.writeable, np.zeros(3)


class Holder:
    """Says which of its kind are held in a process."""

    def __init__(self, number):
        self.number = number

    def held(self, block, stop):
        return [value.number for value in cluster_task._held.values() if isinstance(value, Holder)]


def digest_of(learner, folder):
    """Hash of all arrays of a saved model."""
    Model(learner).save(folder)
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.npy"))]


LEARNERS = {
    "one-vs-rest": lambda threads: OneVsRest(n_jobs=threads),
    "one-vs-rest, pruned by its loss": lambda threads: OneVsRest(n_jobs=threads, prune_rise=0.01),
    "label tree": lambda threads: LabelTree(n_jobs=threads, leaf_size=20),
    "instance forest": lambda threads: InstanceForest(n_jobs=threads, n_trees=4),
    "pw-cb-dismec": lambda threads: recipe("pw-cb-dismec").set_params(n_jobs=threads),
    "pfastrexml": lambda threads: recipe("pfastrexml").set_params(learner__n_trees=4, n_jobs=threads),
    "ranknet+dismec": lambda threads: recipe("ranknet+dismec").set_params(n_jobs=threads),
    "taug+bonsai": lambda threads: recipe("taug+bonsai").set_params(n_jobs=threads),
}


QUICK = ("label tree", "instance forest", "pw-cb-dismec")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in LEARNERS]
)
def test_one_thread_two_threads_and_a_cluster_give_the_same_bits(joined, data, tmp_path, name):
    make, digests = LEARNERS[name], []
    for threads in (1, 2):
        with use_engine("threads"):
            digests.append(digest_of(make(threads).fit(*data), tmp_path / str(threads)))
    learner = make(2).fit(*data)
    digests.append(digest_of(learner, tmp_path / "ray"))
    assert len(digests[0]) > 1
    assert digests[0] == digests[1] == digests[2]


def test_heavy_work_is_really_done_elsewhere_on_both_nodes(joined):
    deadline, found = time.monotonic() + 120, []
    while len({pid for _, pid, _ in found}) < 2 and time.monotonic() < deadline:  # until both nodes have a worker
        found = list(run_blocks(RemoteTask(Worker(), "square"), range(40), n_jobs=1))
    assert [value for value, _, _ in found] == [number**2 for number in range(40)]
    pids = {pid for _, pid, _ in found}
    assert os.getpid() not in pids
    assert len(pids) >= 2
    assert max(calls for _, _, calls in found) > 5, "the object was read again for every block"
    here = list(run_blocks(Worker().square, range(3), n_jobs=1))
    assert {pid for _, pid, _ in here} == {os.getpid()}


def test_workers_keep_to_their_core(joined):
    work = RemoteTask(Worker(), "threads")
    assert list(run_blocks(work, [None, 1, 8])) == [1, 1, 1]
    assert list(run_blocks(RemoteTask(Worker(), "threads", cpus=1), [4])) == [1]
    limit_threads(None)
    assert thread_count(8) == 8


def test_arrays_are_those_that_kernels_know_and_results_are_our_own(joined):
    numbers = np.arange(100_000.0)
    numbers.flags.writeable = False
    ((as_known, result),) = run_blocks(RemoteTask(Worker(numbers), "writes"), [0])
    assert as_known
    result[0] = 1
    assert not numbers.flags.writeable


def test_an_error_of_longtail_comes_back_as_itself(joined):
    with pytest.raises(InputError, match=r"^train.txt:3: is wrong.$") as raised:
        list(run_blocks(RemoteTask(Worker(), "refuse"), [1, 3]))
    assert (raised.value.path, raised.value.line) == ("train.txt", 3)
    with pytest.raises(ParameterError, match="seed must be at least 0"):
        list(run_blocks(RemoteTask(Worker(), "refuse"), [1, 4]))
    with pytest.raises(IndexError, match="list index"):
        list(run_blocks(RemoteTask(Worker(), "fail"), [1]))


def test_what_the_store_has_no_room_for_is_a_sentence(joined, monkeypatch):
    def full(value):
        raise ray.exceptions.ObjectStoreFullError("The local object store is full of objects that are still in scope.")

    monkeypatch.setattr(joined._ray, "put", full)
    with pytest.raises(InputError, match=r"^The object store of the cluster has no room for the rows \(Obj"):
        list(run_blocks(RemoteTask(Worker(), "square"), range(2)))
    with pytest.raises(InputError, match=r"more of it \(ray start --object-store-memory\)"):
        joined.together(Worker(), "square", (1, 0))


def test_a_cluster_that_fails_is_a_sentence(joined, monkeypatch):
    def broken(*references, timeout=None):
        raise ray.exceptions.RaySystemError("The head is gone.")

    monkeypatch.setattr(joined._ray, "wait", broken)
    with pytest.raises(
        InputError, match=r"^The cluster failed \(RaySystemError\): .*The head is gone; repair it, then"
    ):
        list(run_blocks(RemoteTask(Worker(), "square"), range(2)))


def test_a_worker_keeps_what_one_run_needs(joined):
    """The rows and the working memory of a trainer go before those of the next one come."""
    for owner in (Holder(1), Holder(2), Holder(3)):
        for held in run_blocks(RemoteTask(owner, "held"), range(4)):
            assert held == [owner.number]


def test_another_version_is_reported(joined, monkeypatch):
    monkeypatch.setattr(engine_cluster, "__version__", "0.0.9")
    with pytest.raises(InputError, match=r"The cluster has longtail .*, and this is 0.0.9: install the same"):
        list(run_blocks(RemoteTask(Worker(), "square"), range(2)))


def test_results_come_in_order_and_few_wait(joined):
    seconds = [0.4, *[0.0] * 30]
    begun = []

    def pack(index):
        begun.append(index)
        return seconds[index]

    results = run_blocks(RemoteTask(Worker(), "sleep", pack=pack), range(len(seconds)))
    assert next(results) == 0.4
    assert len(begun) <= 12
    results.close()
    with pytest.raises(StopIteration):
        next(results)


@pytest.mark.parametrize("in_thread", [False, True])
def test_ctrl_c_stops_the_cluster_too(cluster, in_thread):
    def nested(block, stop):
        return list(run_blocks(RemoteTask(Worker(), "sleep"), [60.0] * 4))

    work, blocks = (nested, [60.0] * 4) if in_thread else (RemoteTask(Worker(), "sleep"), [60.0] * 4)
    with use_engine(address=cluster.address):
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        begin = time.monotonic()
        with pytest.raises(Interrupted, match="Stopped while sleeping: 0 of 4"):
            list(run_blocks(work, blocks, n_jobs=1, description="sleeping"))
        assert time.monotonic() - begin < 30
        assert list(run_blocks(RemoteTask(Worker(), "sleep"), [0.0, 0.1])) == [0.0, 0.1], "later blocks still run"


def test_a_model_predicts_on_the_cluster(joined, data, monkeypatch, tmp_path):
    X, Y = data
    with use_engine("threads"):
        Model(recipe("bonsai").fit(X, Y)).save(tmp_path / "model")
    model = Model.load(tmp_path / "model")
    monkeypatch.setattr("longtail.store.shards.SHARD_ROWS", 64)
    for how in ({}, {"tail": 0.5, "exclude": [1, 2]}):
        tops = list(model.iter_topk(X, 5, **how))
        with use_engine("threads"):
            expected = list(model.iter_topk(X, 5, **how))
        assert len(tops) == len(expected) == 5
        for one, other in zip(tops, expected, strict=True):
            np.testing.assert_array_equal(one.labels, other.labels)
            np.testing.assert_array_equal(one.scores, other.scores)
            assert one.scores.flags.writeable


@pytest.mark.slow
def test_a_trial_of_a_search_is_judged_on_the_cluster(joined, data):
    search = Search(Dataset(*data), ["dismec"], ["nDCG@5", "PSnDCG@5"], 60.0, JainPropensity(), folds=2, n_jobs=2)
    trial = ("dismec", {"C": 0.5}, search.split(0), (0.0, 0.5), 1)
    there, seconds = search._scored(*trial)
    with use_engine("threads"):
        here, _ = search._scored(*trial)
    assert there.shape == (2, 2)
    assert seconds > 0
    np.testing.assert_array_equal(there, here)


@pytest.mark.slow
def test_trainings_of_a_table_run_on_the_cluster(joined, data, tmp_path):
    X, Y = data
    write_xc(Dataset(X[:200], Y[:200]), tmp_path / "train.txt")
    write_xc(Dataset(X[200:], Y[200:]), tmp_path / "test.txt")
    at = AvailableSet("mine", str(tmp_path / "train.txt"), str(tmp_path / "test.txt"))
    jobs = [
        Job(at, RecipeSetup("popularity")),
        Job(AvailableSet("mine", "nowhere.txt", "nowhere.txt"), RecipeSetup("popularity")),
    ]
    told = []
    runner = Runner(tmp_path / "results")
    (result,) = runner.run(jobs, told.append).values()
    assert runner.threads == 1
    assert result.value("P@1") > 0
    assert result.labels().shape == (100, 5)
    assert "nowhere.txt" in runner.failed[jobs[1]]
    assert told == ["popularity on mine"] * 3
    assert not runner.run(jobs[1:], told.append)


def long_training():
    """Twenty blocks of labels that take a second or two."""
    rng = np.random.default_rng(0)
    Y = sp.random_array((3000, 20 * 64), density=0.003, rng=rng, format="csr", dtype=np.float32)
    Y[0, :] = 1
    X = sp.csr_array(Y @ sp.random_array((20 * 64, 3000), density=0.02, rng=rng, format="csr", dtype=np.float32))
    return X, sp.csr_array(Y)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    X, Y = long_training()
    return X, Y, digest_of(recipe("dismec").fit(X, Y), tmp_path_factory.mktemp("expected") / "model")


@pytest.mark.parametrize("killed", ["worker", pytest.param("node", marks=pytest.mark.slow)])
def test_what_is_killed_is_worked_on_again(cluster, expected, monkeypatch, tmp_path, killed):
    X, Y, digest = expected
    append, at, kills = BlockFile.append, [0], []

    def kill_in_between(block_file, arrays):
        at[0] += 1
        append(block_file, arrays)
        if at[0] >= 3 and not kills and killed == "node":
            kills.append(cluster.kill_other_node())
        elif at[0] >= 3 and not kills and (found := cluster.kill_worker()) is not None:
            kills.append(found)

    monkeypatch.setattr(BlockFile, "append", kill_in_between)
    with use_engine(address=cluster.address):
        learner = recipe("dismec").fit(X, Y)
    assert len(kills) == 1
    assert at[0] == 20
    assert digest_of(learner, tmp_path / "model") == digest
    if killed == "node":
        cluster.add()


@pytest.mark.slow
def test_a_training_resumes_after_the_driver_was_killed(cluster, expected, tmp_path):
    X, Y, digest = expected
    write_npz(Dataset(X, Y), tmp_path / "train.npz")
    program = "from longtail.cli import main; main()"
    command = [sys.executable, "-c", program, "train", "dismec", "train.npz", "--out", "model"]
    command += ["--cluster", cluster.address]
    driver = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE)
    blocks, deadline = tmp_path / "model.unfinished" / "0.blocks", time.monotonic() + 120
    while not (blocks.exists() and blocks.stat().st_size > 10_000) and time.monotonic() < deadline:
        assert driver.poll() is None, driver.stderr.read().decode()
        time.sleep(0.01)
    driver.kill()
    driver.wait()
    assert blocks.stat().st_size > 10_000
    assert not (tmp_path / "model").exists()
    again = subprocess.run([*command, "--resume"], cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "Looking in model.unfinished for what" in again.stderr
    assert not blocks.exists()
    assert digest == [
        hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted((tmp_path / "model").glob("*.npy"))
    ]


@pytest.mark.slow
def test_a_network_is_trained_by_all_processes_together(joined):
    """With the loss curve that one process has."""
    pytest.importorskip("torch", reason="the networks are trained with torch")
    from longtail.learners import CNN, NeuralClassifier, RankingHead
    from tests.learners.neural.test_neural_classifier import as_tokens

    X, Y = small_data(n_rows=120)
    encoder, head = (
        CNN(n_filters=8, kernel_sizes=(1, 2), pool_chunks=1, hidden_size=32, dropout=0.0),
        RankingHead(embedding_dim=16, dropout=0.0),
    )
    learner = NeuralClassifier(
        encoder=encoder,
        head=head,
        epochs=3,
        learning_rate=0.01,
        head_learning_rate=0.01,
        batch_size=16,
        micro_batch_size=3,
        validation_fraction=0.25,
        n_jobs=1,
    )
    together = clone(learner).fit(as_tokens(X), Y)
    with use_engine("threads"):
        alone = learner.fit(as_tokens(X), Y)
    np.testing.assert_allclose(together.history_["loss"], alone.history_["loss"], rtol=2e-4)
    assert together.predict_topk(as_tokens(X), 3).labels.shape == (120, 3)


class Together:
    """Work of several processes, each of which waits for the others at every step."""

    def step(self, value):
        import torch
        from torch import distributed

        total = torch.tensor([float(value)])
        distributed.all_reduce(total)
        return float(total[0])

    def refuse(self, kind):
        if self.step(0) == 0 and int(os.environ["RANK"]) == 1:
            raise kind("This is wrong.")
        while True:
            self.step(1)

    def count(self, number, steps, folder):
        """Count up to a number with checkpoints; return where the last attempt began, and with how many processes."""
        checkpoint = Checkpoint(b"counting", int(os.environ["RANK"]))
        saved = checkpoint.load()
        begun = 0 if saved is None else int(saved[0][0])
        (folder / f"{os.getpid()}-{os.environ['RANK']}").touch()
        for at in range(begun, steps):
            size = self.step(1)
            time.sleep(0.05)
            checkpoint.save([np.array([at + 1])])
        return number, begun, int(size)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [InputError, KeyError, MemoryError])
def test_an_error_of_one_process_ends_them_all_soon(cluster, kind):
    """Where the others would wait for it, half an hour long."""
    pytest.importorskip("torch", reason="the networks are trained with torch")
    with use_engine(address=cluster.address):
        start = time.monotonic()
        with pytest.raises(kind, match=r"This is wrong\."):
            current_engine().together(Together(), "refuse", (kind,))
        assert time.monotonic() - start < 240, "with the start of the processes, on a machine that is busy"
        assert list(run_blocks(RemoteTask(Worker(), "sleep"), [0.0, 0.1])) == [0.0, 0.1], "the cores are free again"


@pytest.mark.slow
def test_a_network_that_loses_a_node_continues_with_the_remaining_cores(cluster, tmp_path):
    pytest.importorskip("torch", reason="the networks are trained with torch")
    seen = tmp_path / "seen"
    seen.mkdir()

    def kill():
        deadline = time.monotonic() + 120
        blocks = tmp_path / "unfinished" / "0.blocks"
        while not (blocks.exists() and len(list(seen.iterdir())) == 2) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1.0)
        cluster.kill_other_node()

    killer = threading.Thread(target=kill)
    try:
        with use_engine(address=cluster.address), resumable(tmp_path / "unfinished"):
            killer.start()
            found = current_engine().together(Together(), "count", (7, 400, seen))
    finally:
        killer.join()
        cluster.add()
    number, begun, size = found
    assert (number, size) == (7, 1)
    assert 0 < begun < 400, "it went on from where it was"


@pytest.mark.slow
def test_ctrl_c_ends_a_network_on_the_cluster(cluster, tmp_path):
    pytest.importorskip("torch", reason="the networks are trained with torch")
    with use_engine(address=cluster.address):
        before = signal.getsignal(signal.SIGINT)

        def stop():
            deadline = time.monotonic() + 120
            while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=stop).start()
        with pytest.raises(Interrupted, match="Stopped while training on the cluster"):
            current_engine().together(Together(), "count", (7, 100_000, tmp_path))
        assert signal.getsignal(signal.SIGINT) is before
        start = time.monotonic()
        assert list(run_blocks(RemoteTask(Worker(), "sleep"), [0.0, 0.1])) == [0.0, 0.1], "the cores are free again"
        assert time.monotonic() - start < 30


def test_an_interrupted_fit_resumes_with_another_engine(cluster, expected, monkeypatch, tmp_path):
    X, Y, digest = expected
    append = BlockFile.append

    def stop_after_five(block_file, arrays):
        append(block_file, arrays)
        if len(block_file) == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, use_engine(address=cluster.address):
        patched.setattr(BlockFile, "append", stop_after_five)
        with pytest.raises(KeyboardInterrupt), resumable(tmp_path / "kept"):
            recipe("dismec").fit(X, Y)
    assert (tmp_path / "kept" / "0.blocks").exists()
    with resumable(tmp_path / "kept"):
        learner = recipe("dismec").fit(X, Y)
    assert digest_of(learner, tmp_path / "model") == digest
