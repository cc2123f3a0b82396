import errno

import numpy as np
import pytest

from longtail.errors import InputError, Interrupted
from longtail.runtime.block_file import BlockFile, resumable
from longtail.runtime.pool import run_blocks

BLOCKS = [
    [np.array([1, 5], np.int32), np.array([2.5, -1], np.float32)],
    [np.array([], np.int32), np.array([7], np.float32)],
    [np.arange(1000, dtype=np.int32), np.linspace(0, 1, 3, dtype=np.float32)],
]


def fill(block_file, blocks=BLOCKS):
    for block in blocks:
        block_file.append(block)


def check(block_file, blocks=BLOCKS):
    assert len(block_file) == len(blocks)
    for index in (2, 0, 1)[-len(blocks) :] if len(blocks) == 3 else range(len(blocks)):
        for found, wanted in zip(block_file.read(index), blocks[index], strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)


def left_unfinished(directory, blocks=BLOCKS, fingerprint=b"mine"):
    """Leave the file of a run that was interrupted after these blocks."""
    try:
        with resumable(directory), BlockFile(fingerprint) as block_file:
            fill(block_file, blocks)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        return directory / "0.blocks"


def test_blocks_come_back_in_any_order_and_in_part():
    with BlockFile() as block_file:
        fill(block_file)
        check(block_file)
        (first,) = block_file.read(2, 1)
        assert len(first) == 1000


def test_a_second_run_resumes_the_first(tmp_path):
    left_unfinished(tmp_path / "kept", BLOCKS[:2])
    with resumable(tmp_path / "kept"):
        with BlockFile(b"mine") as block_file:
            check(block_file, BLOCKS[:2])
            fill(block_file, BLOCKS[2:])
            check(block_file)
        assert (tmp_path / "kept").exists()
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("cut", [1, 5, 20, 4000])
def test_a_block_that_was_cut_off_is_left_out(tmp_path, cut):
    file = left_unfinished(tmp_path / "kept")
    file.write_bytes(file.read_bytes()[:-cut])
    with resumable(tmp_path / "kept"), BlockFile(b"mine") as block_file:
        check(block_file, BLOCKS[:2])
        fill(block_file, BLOCKS[2:])
        check(block_file)


def test_blocks_after_a_changed_byte_are_not_used(tmp_path):
    file = left_unfinished(tmp_path / "kept")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with resumable(tmp_path / "kept"), BlockFile(b"mine") as block_file:
        assert len(block_file) == 2


def test_blocks_of_another_training_are_refused_and_kept(tmp_path):
    left_unfinished(tmp_path / "kept")
    with pytest.raises(InputError, match="another training"), resumable(tmp_path / "kept"), BlockFile(b"other"):
        pass
    with resumable(tmp_path / "kept"), BlockFile(b"mine") as block_file:
        check(block_file)


def test_block_files_of_one_run_are_distinguished(tmp_path):
    left_unfinished(tmp_path / "kept", fingerprint=b"first")
    left_unfinished(tmp_path / "other", BLOCKS[:1], b"second").rename(tmp_path / "kept" / "1.blocks")
    with resumable(tmp_path / "kept"):
        with BlockFile(b"first") as block_file:
            assert len(block_file) == 3
        with BlockFile(b"second") as block_file:
            assert len(block_file) == 1


def test_nothing_is_left_when_nothing_was_finished(tmp_path):
    with pytest.raises(RuntimeError), resumable(tmp_path / "kept"):
        raise RuntimeError
    assert not (tmp_path / "kept").exists()


def test_a_file_in_the_place_of_the_directory(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is a file"), resumable(tmp_path / "file"):
        pass


def test_files_of_others_are_neither_taken_nor_removed(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "thesis.txt").write_text("x")
    with pytest.raises(InputError, match="other files"), resumable(tmp_path / "kept"):
        pass
    assert (tmp_path / "kept" / "thesis.txt").exists()
    with pytest.raises(InputError, match="is not a directory"), resumable(tmp_path / "missing" / "kept"):
        pass


def test_two_runs_cannot_share_a_file(tmp_path):
    with resumable(tmp_path / "kept"), BlockFile(b"mine") as first:
        fill(first)
        with pytest.raises(InputError, match="in use"), resumable(tmp_path / "kept"), BlockFile(b"mine"):
            pass
        check(first)


def test_a_block_that_changes_under_way_is_noticed(tmp_path):
    with resumable(tmp_path / "kept"), BlockFile(b"mine") as block_file:
        fill(block_file)
        file = tmp_path / "kept" / "0.blocks"
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
        with pytest.raises(InputError, match="was changed"):
            block_file.read(2)


def test_without_a_fingerprint_nothing_is_kept(tmp_path):
    with resumable(tmp_path / "kept"), BlockFile() as block_file:
        fill(block_file)
        assert not list((tmp_path / "kept").iterdir())


def test_zeros_that_a_crash_left_are_no_blocks(tmp_path):
    """The size of a file may be on disk when its content is not."""
    with pytest.raises(ZeroDivisionError), resumable(tmp_path / "unfinished"):  # noqa: PT012
        with BlockFile(b"mine") as block_file:
            block_file.append([np.arange(3, dtype=np.int32)])
        1 / 0  # noqa: B018
    (file,) = (tmp_path / "unfinished").iterdir()
    with open(file, "ab") as end:
        end.write(bytes(4096))
    with resumable(tmp_path / "unfinished"), BlockFile(b"mine") as block_file:
        assert len(block_file) == 1
        np.testing.assert_array_equal(block_file.read(0)[0], np.arange(3))


def test_a_directory_is_for_one_run_at_a_time(tmp_path):
    with resumable(tmp_path / "unfinished"):
        with pytest.raises(InputError, match="in use"), resumable(tmp_path / "unfinished", restart=True):
            pass
        with resumable(tmp_path / "unfinished", discard=False):  # one of several that train together
            pass
        (tmp_path / "unfinished").mkdir(exist_ok=True)
    assert not (tmp_path / "unfinished").exists()


def test_file_systems_without_locks_are_used_all_the_same(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def refuse(*args):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with resumable(tmp_path / "unfinished"), BlockFile(b"mine") as block_file:
        block_file.append([np.arange(3, dtype=np.int32)])


def test_a_stop_while_a_block_is_written_says_what_was_done(monkeypatch):
    append = BlockFile.append

    def stopped(block_file, arrays):
        append(block_file, arrays)
        if len(block_file) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(BlockFile, "append", stopped)
    made = run_blocks(lambda block, stop: [np.array([block])], range(5), n_jobs=1, description="making blocks")
    with (
        BlockFile() as block_file,
        pytest.raises(Interrupted, match=r"^Stopped while making blocks: \d of 5 blocks were"),
    ):
        block_file.append_all(made)
