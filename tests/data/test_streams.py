"""Compressed streams: round trips, and errors for damaged files."""

from __future__ import annotations

import os
import stat
import sys
import threading

import pytest

from longtail.data.streams import COMPRESSIONS, ByteReader, split_suffix, write_whole
from longtail.errors import InputError, MissingExtraError

TEXT = b"".join(b"line %d of some text that compresses\n" % number for number in range(8_000))
SUFFIXES = ("", *COMPRESSIONS)


def read(path):
    with ByteReader(path) as stream:
        return stream.readall()


@pytest.fixture(params=COMPRESSIONS)
def archive(request, tmp_path):
    path = tmp_path / f"data.txt{request.param}"
    with write_whole(path) as file:
        file.write(TEXT)
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("size", [0, 1, len(TEXT)])
def test_round_trip(tmp_path, suffix, size):
    path = tmp_path / f"data{suffix}"
    with write_whole(path) as file:
        file.write(TEXT[:size])
    assert read(path) == TEXT[:size]


def test_small_reads_and_progress(archive):
    with ByteReader(archive) as stream:
        pieces = []
        while piece := stream.read(1000):
            pieces.append(piece)
        assert b"".join(pieces) == TEXT
        assert stream.consumed == stream.size == archive.stat().st_size


def test_compression_is_detected_from_the_bytes(archive, tmp_path):
    renamed = tmp_path / "data.txt"
    renamed.write_bytes(archive.read_bytes())
    assert read(renamed) == TEXT


@pytest.mark.parametrize("kept", [0.01, 0.5, 0.99])
def test_cut_short(archive, kept):
    data = archive.read_bytes()
    archive.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(InputError, match=r"data\.txt.*truncated"):
        read(archive)


def test_last_bytes_missing(archive):
    archive.write_bytes(archive.read_bytes()[:-1])
    with pytest.raises(InputError, match="truncated"):
        read(archive)


def test_members_one_after_another_and_padding(archive):
    archive.write_bytes(2 * archive.read_bytes() + 8 * b"\0")
    assert read(archive) == 2 * TEXT


def test_other_bytes_after_the_end(archive):
    archive.write_bytes(archive.read_bytes() + b"some other bytes that don't belong")
    with pytest.raises(InputError, match="trailing bytes after its end"):
        read(archive)


def test_damage(archive):
    data = bytearray(archive.read_bytes())
    for place in range(len(data) // 2, len(data) // 2 + 20):
        data[place] ^= 0xFF
    archive.write_bytes(data)
    with pytest.raises(InputError, match="download it again"):
        read(archive)


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_name_and_bytes_disagree(tmp_path, suffix):
    path = tmp_path / f"data{suffix}"
    path.write_bytes(b"plain text")
    with pytest.raises(InputError, match=f"is named {suffix} but contains no {suffix[1:]} data"):
        read(path)


def test_unreadable(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        ByteReader(tmp_path / "nothing")
    with pytest.raises(InputError, match="directory"):
        ByteReader(tmp_path)


def test_zst_needs_its_extra(tmp_path, monkeypatch):
    path = tmp_path / "data.zst"
    with write_whole(path) as file:
        file.write(TEXT)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtraError, match=r"Reading .zst files needs an extra: pip install"):
        read(path)
    with pytest.raises(MissingExtraError, match=r"Writing .zst files"), write_whole(path) as file:
        file.write(TEXT)
    assert path.stat().st_size > 0


def test_a_failed_write_leaves_what_was_there(tmp_path):
    path = tmp_path / "data.txt"
    path.write_bytes(b"old")

    def fail_half_way():
        with write_whole(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_no_place_to_write(tmp_path):
    with pytest.raises(InputError, match="can't be written"), write_whole(tmp_path / "no" / "data.txt"):
        pass
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match="can't be written"), write_whole(tmp_path / "taken"):
        pass
    assert [entry.name for entry in tmp_path.iterdir()] == ["taken"]


def test_split_suffix():
    assert split_suffix("a/b.txt.XZ") == ("a/b.txt", ".xz")
    assert split_suffix("a.gz/b") == ("a.gz/b", "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is always full")
def test_a_device_is_written_to_and_not_replaced():
    with pytest.raises(InputError, match="can't be written: No space left"), write_whole("/dev/full") as file:
        file.write(b"x" * 100_000)
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_a_pipe_gets_what_is_written(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    with write_whole(tmp_path / "pipe") as file:
        file.write(b"hello")
    reader.join()
    assert got == [b"hello"]


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "real.txt").write_bytes(b"old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    with write_whole(tmp_path / "link.txt") as file:
        file.write(b"new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_bytes() == b"new"
    assert len(list(tmp_path.iterdir())) == 2
