"""A disk that fills up, for real: a file system of a few MB in memory, or else a limit on the size of files."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys

import numpy as np
import pytest

from longtail import Model, Popularity
from longtail.data import Dataset, generate, load, save
from longtail.data.readers.mapped import write_mapped
from longtail.errors import DiskError, InputError
from longtail.runtime.block_file import BlockFile, resumable, spill_directory
from longtail.runtime.checkpoint import Checkpoint
from longtail.runtime.mmap import spilled

START = "from longtail.cli import main; main()"


@pytest.fixture
def small_disk(tmp_path):
    """A directory on a file system of 2 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = shutil.which("mount") and os.geteuid() == 0
    mounted = (
        mounted
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], capture_output=True, check=False
        ).returncode
    )
    if not mounted:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", "--lazy", place], check=False)


def longtail(*arguments, **options):
    environment = {**os.environ, "LONGTAIL_DEBUG": "0"}
    return subprocess.run(
        [sys.executable, "-c", START, *map(str, arguments)], capture_output=True, text=True, check=False,
        env=environment, **options,
    )  # fmt: skip


def arrays_of(model):
    return {file.name: file.read_bytes() for file in model.glob("*.npy")}


def test_training_resumes_when_there_is_space_again(small_disk, tmp_path):
    save(generate(1500, 700, 2000, random_state=0), tmp_path / "rows.txt")
    Model(Popularity().fit([[1]], [[1]]), recipe="older").save(small_disk / "model")
    arguments = ("train", "dismec", tmp_path / "rows.txt", "--threads", 1, "--set", "prune_below=0", "--out")
    full = longtail(*arguments, small_disk / "model")
    assert full.returncode == 2
    assert full.stderr.splitlines()[-1].startswith(f"error: {small_disk}")
    assert "No space left on device; free some space, or write elsewhere." in full.stderr
    assert full.stderr.endswith("run the same command with --resume to continue.\n")
    assert Model.load(small_disk / "model", verify=True).recipe == "older"
    kept = sum(file.stat().st_size for file in (small_disk / "model.unfinished").iterdir())
    assert kept > 100_000
    again = longtail(*arguments, small_disk / "model", "--resume")
    assert again.returncode == 2
    subprocess.run(["mount", "-o", "remount,size=100m", small_disk], check=True)
    assert longtail(*arguments, small_disk / "model", "--resume").returncode == 0
    assert longtail(*arguments, tmp_path / "whole").returncode == 0
    assert arrays_of(small_disk / "model") == arrays_of(tmp_path / "whole")
    assert [file.name for file in small_disk.iterdir()] == ["model"]


def test_nothing_half_written_stays(small_disk, tmp_path):
    data = generate(5000, 100, 3000, features_per_row=60.0, random_state=0)
    save(data, tmp_path / "rows.txt")
    small = data.take(np.arange(200))
    write_mapped(small, small_disk / "data")
    for out in ("data", "other", "copy.txt"):
        converted = longtail("data", "convert", tmp_path / "rows.txt", small_disk / out)
        assert converted.returncode == 2
        assert "No space left on device" in converted.stderr
    assert [file.name for file in small_disk.iterdir()] == ["data"]
    np.testing.assert_array_equal(load(small_disk / "data").X.data, small.X.data)


def test_the_last_checkpoint_stays_whole(small_disk):
    with pytest.raises(DiskError, match="No space left"), resumable(small_disk / "kept"):  # noqa: PT012
        checkpoint = Checkpoint(b"mine")
        for size in (1000, 50_000, 10**6):
            checkpoint.save([np.full(size, size)])
    with resumable(small_disk / "kept", discard=False):
        assert Checkpoint(b"mine").load()[0].tolist() == [50_000] * 50_000
    assert [file.name for file in (small_disk / "kept").iterdir()] == ["0.blocks"]


def test_blocks_before_a_full_disk_are_found_again(small_disk):
    full = pytest.raises(DiskError, match=r"0\.blocks: can't be written: No space left")
    with full, resumable(small_disk / "kept"), BlockFile(b"mine") as block_file:
        for number in range(100):
            block_file.append([np.full(100_000, number, np.int32)])
    with resumable(small_disk / "kept"), BlockFile(b"mine") as block_file:
        assert 3 <= len(block_file) <= 5
        assert [block_file.read(block)[0][-1] for block in range(len(block_file))] == list(range(len(block_file)))


def test_disk_space_is_allocated_before_writing(small_disk, monkeypatch):
    monkeypatch.setattr("longtail.runtime.mmap.spill_directory", lambda: small_disk)
    assert spilled(1000, np.int32).sum() == 0
    with pytest.raises(DiskError, match="No space left"):
        spilled(10**6, np.int32)


@pytest.mark.slow
def test_a_limit_on_files_is_as_good_as_a_full_disk(tmp_path):
    """Works without root: RLIMIT_FSIZE lets no file grow beyond 700 kB."""
    save(generate(1500, 700, 2000, random_state=0), tmp_path / "rows.txt")

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, 700_000))

    arguments = ("train", "dismec", tmp_path / "rows.txt", "--threads", 1, "--out", tmp_path / "model")
    full = longtail(*arguments, preexec_fn=limit)
    assert full.returncode == 2, full.stderr
    assert (
        "File too large; free some space, or write elsewhere. No model was written. What was finished is kept"
        in full.stderr
    )
    assert longtail(*arguments, "--resume").returncode == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model", "rows.txt"]


def test_a_directory_that_vanishes_is_named(tmp_path):
    gone = pytest.raises(DiskError, match=r"0\.blocks: can't be written: No such file")
    with gone, resumable(tmp_path / "kept"):
        checkpoint = Checkpoint(b"mine")
        checkpoint.save([np.arange(3)])
        shutil.rmtree(tmp_path / "kept")
        checkpoint.save([np.arange(4)])
    with resumable(tmp_path / "other"), BlockFile(b"mine") as block_file:
        block_file.append([np.arange(3, dtype=np.int32)])
        shutil.rmtree(tmp_path / "other")
        block_file.append([np.arange(4, dtype=np.int32)])  # the open file is still there
        assert [len(block_file.read(block)[0]) for block in range(2)] == [3, 4]
        assert spill_directory() is None
    place = tmp_path / "place"
    place.mkdir()
    with pytest.raises((DiskError, InputError)):
        write_mapped(Vanishing(place), place / "data")


class Vanishing:
    """Data whose place goes while they are written."""

    n_rows, n_labels, name, label_names = 2, 1, "gone", None

    def __init__(self, place):
        self.place, self.X = place, Dataset([[1.0], [2.0]], [[1], [1]]).X

    @property
    def Y(self):  # noqa: N802
        shutil.rmtree(self.place)
        return Dataset([[1.0], [2.0]], [[1], [1]]).Y
