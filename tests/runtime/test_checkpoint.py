from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from longtail.errors import InputError
from longtail.runtime.block_file import BlockFile, resumable
from longtail.runtime.checkpoint import Checkpoint


def test_nothing_is_kept_outside_of_resumable():
    checkpoint = Checkpoint(b"mine")
    checkpoint.save([np.arange(3)])
    assert checkpoint.load() is None


def cut_off(path, *states):
    """A run that saves some states and then ends early."""
    with suppress(RuntimeError), resumable(path):
        checkpoint = Checkpoint(b"mine")
        assert checkpoint.load() is None
        for state in states:
            checkpoint.save(state)
        raise RuntimeError


def test_the_newest_state_is_found_by_the_next_run(tmp_path):
    cut_off(tmp_path / "kept", *([np.full(4, number, np.float32), np.arange(number)] for number in range(3)))
    with resumable(tmp_path / "kept"):
        found = Checkpoint(b"mine").load()
    assert [array.tolist() for array in found] == [[2.0] * 4, [0, 1]]
    assert not (tmp_path / "kept").exists()


def test_a_write_that_was_cut_off_leaves_the_state_before(tmp_path):
    cut_off(tmp_path / "kept", [np.arange(3)])
    (tmp_path / "kept" / "new-0.blocks").write_bytes(b"PK cut off")
    with resumable(tmp_path / "kept"):
        assert Checkpoint(b"mine").load()[0].tolist() == [0, 1, 2]


def test_the_state_of_another_training_is_refused(tmp_path):
    cut_off(tmp_path / "kept", [np.arange(3)])
    with pytest.raises(InputError, match="another training"), resumable(tmp_path / "kept"):
        Checkpoint(b"other").load()


def test_a_damaged_state_is_refused(tmp_path):
    cut_off(tmp_path / "kept", [np.arange(1000)])
    file = tmp_path / "kept" / "0.blocks"
    for damaged in (b"", b"junk", file.read_bytes()[:700], file.read_bytes()[:300] + b"x" + file.read_bytes()[301:]):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match="another training"), resumable(tmp_path / "kept"):
            Checkpoint(b"mine").load()


def test_a_block_file_does_not_use_a_checkpoint(tmp_path):
    cut_off(tmp_path / "kept", [np.arange(3)])
    with pytest.raises(InputError, match="another training"), resumable(tmp_path / "kept"):
        BlockFile(b"mine")
