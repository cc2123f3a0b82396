"""Directories of mapped arrays: written whole, read back, refused when something is wrong."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.data import Dataset, generate, load, save
from longtail.data.readers import xc as xc_module
from longtail.data.readers.formats import convert
from longtail.data.readers.mapped import MappedWriter, read_mapped, write_mapped
from longtail.data.readers.xc import convert_xc
from longtail.errors import InputError


def same(one, other):
    for matrix in ("X", "Y"):
        for part in ("data", "indices", "indptr"):
            found, wanted = (getattr(getattr(data, matrix), part) for data in (one, other))
            np.testing.assert_array_equal(found, wanted)
            assert found.dtype == wanted.dtype
    assert one.label_names == other.label_names
    assert (one.n_rows, one.n_features, one.n_labels) == (other.n_rows, other.n_features, other.n_labels)


@pytest.fixture
def data():
    made = generate(500, 40, 60, random_state=1)
    return Dataset(made.X, made.Y, label_names=[f"label {number}" for number in range(40)], name="made")


def test_what_is_written_is_read(data, tmp_path):
    save(data, tmp_path / "data")
    found = load(tmp_path / "data")
    same(found, data)
    assert found.name == "made"
    np.testing.assert_array_equal(np.load(tmp_path / "data" / "X.data.npy"), data.X.data)
    assert read_mapped(tmp_path / "data", verify=True).n_rows == 500


@pytest.mark.parametrize("window", [1 << 12, 1 << 22])
def test_text_is_converted_a_window_at_a_time(data, tmp_path, window, monkeypatch):
    monkeypatch.setattr(xc_module, "CONVERTED_AT_ONCE", window)
    save(data, tmp_path / "data.txt.gz")
    assert convert(tmp_path / "data.txt.gz", tmp_path / "data") == 500
    same(load(tmp_path / "data"), load(tmp_path / "data.txt.gz"))


def test_converting_takes_no_more_memory_for_more_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(xc_module, "CONVERTED_AT_ONCE", 1 << 16)
    peaks = []
    for rows in (2_000, 40_000):
        save(generate(rows, 40, 60, random_state=1), tmp_path / f"{rows}.txt")
        convert_xc(tmp_path / f"{rows}.txt", tmp_path / "warm")
        tracemalloc.start()
        convert_xc(tmp_path / f"{rows}.txt", tmp_path / f"{rows}")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0], peaks
    assert (tmp_path / "40000" / "X.data.npy").stat().st_size > 3 * peaks[1]


@given(st.lists(st.tuples(st.sets(st.integers(0, 4)), st.dictionaries(st.integers(0, 6), st.floats(-9, 9, width=16)))))
def test_any_rows_come_back(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("any")
    lines = [f"{len(rows)} 7 5"]
    for labels, features in rows:
        pairs = " ".join(f"{feature}:{value!r}" for feature, value in features.items())
        lines.append(f"{','.join(map(str, labels))} {pairs}")
    (folder / "data.txt").write_text("\n".join(lines) + "\n")
    convert(folder / "data.txt", folder / "data")
    same(load(folder / "data"), load(folder / "data.txt"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("7 0:1", "out of range"),
        ("0 0:1 0:2", "appears twice"),
        ("0 0:x", "is not feature:value"),
        ("0 1:1e99", "finite"),
    ],
)
@pytest.mark.parametrize("at", [3, 4000])
def test_errors_have_their_line_wherever_the_window_is(tmp_path, line, reason, at, monkeypatch):
    monkeypatch.setattr(xc_module, "CONVERTED_AT_ONCE", 1 << 12)
    lines = ["5000 3 2", *["1 0:1 2:0.5"] * 5000]
    lines[at - 1] = line
    (tmp_path / "data.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=reason) as caught:
        convert(tmp_path / "data.txt", tmp_path / "data")
    assert caught.value.line == at
    assert [file.name for file in tmp_path.iterdir()] == ["data.txt"]


@pytest.mark.parametrize(("count", "reason"), [(4, "more follow"), (6, "truncated")])
def test_a_wrong_count_of_rows_leaves_nothing(tmp_path, count, reason):
    (tmp_path / "data.txt").write_text(f"{count} 3 2\n" + "1 0:1\n" * 5)
    with pytest.raises(InputError, match=reason):
        convert(tmp_path / "data.txt", tmp_path / "data")
    assert [file.name for file in tmp_path.iterdir()] == ["data.txt"]


def test_an_error_leaves_the_older_data(data, tmp_path):
    save(data, tmp_path / "data")
    with pytest.raises(ZeroDivisionError), MappedWriter(tmp_path / "data", 3, 2) as writer:  # noqa: PT012
        writer.append(*(np.zeros(0, np.int32) for _ in range(5)))
        raise ZeroDivisionError
    same(load(tmp_path / "data"), data)
    assert [file.name for file in tmp_path.iterdir()] == ["data"]


def test_nothing_else_is_overwritten(data, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("x")
    (tmp_path / "file").write_text("x")
    for name, reason in (("thesis", "not a directory of arrays"), ("file", "is a file"), ("no/data", "is not there")):
        with pytest.raises(InputError, match=reason):
            save(data, tmp_path / name)
    save(data, tmp_path / "data")
    (tmp_path / "data" / "notes").write_text("x")
    with pytest.raises(InputError, match="also holds notes"):
        save(data, tmp_path / "data")
    with pytest.raises(InputError, match="only texts"):
        write_mapped(Dataset(None, [[1]], texts=["a"]), tmp_path / "texts")


def test_damage_is_found(data, tmp_path):
    save(data, tmp_path / "data")
    values, manifest = tmp_path / "data" / "X.data.npy", tmp_path / "data" / "data.json"
    content = bytearray(values.read_bytes())
    content[-1] ^= 1
    values.write_bytes(content)
    with pytest.raises(InputError, match=r"X\.data\.npy: was changed"):
        read_mapped(tmp_path / "data", verify=True)
    values.write_bytes(content[:-4])
    with pytest.raises(InputError, match="bytes, expected"):
        load(tmp_path / "data")
    values.unlink()
    with pytest.raises(InputError, match="is missing"):
        load(tmp_path / "data")
    described = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**described, "rows": 499}))
    with pytest.raises(InputError, match="checksum is wrong"):
        load(tmp_path / "data")
    manifest.write_text(json.dumps({**described, "format_version": 99}))
    with pytest.raises(InputError, match="upgrade"):
        load(tmp_path / "data")
    manifest.write_text("{")
    with pytest.raises(InputError, match="can't be read"):
        load(tmp_path / "data")


def test_indices_that_would_lead_kernels_astray_are_refused(tmp_path):
    with MappedWriter(tmp_path / "data", 3, 2) as writer:
        writer.append(np.array([1]), np.array([7]), np.array([1.0]), np.array([1]), np.array([0]))
        writer.finish("wrong")
    with pytest.raises(InputError, match="outside its 3 columns"):
        load(tmp_path / "data")


def test_names_of_labels_can_be_given(data, tmp_path):
    save(data, tmp_path / "data")
    names = [f"other {number}" for number in range(40)]
    assert load(tmp_path / "data", label_names=names).label_names == names
    with pytest.raises(InputError, match="3 label names are given"):
        load(tmp_path / "data", label_names=["a", "b", "c"])
