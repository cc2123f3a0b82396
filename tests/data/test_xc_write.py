"""Writing XC text: what is written reads back as the same bits, in the fewest digits."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import Dataset
from longtail.data.readers import xc
from longtail.data.readers.xc import read_xc, write_xc
from longtail.data.streams import COMPRESSIONS
from longtail.errors import InputError


def assert_same(found, wanted):
    for name in ("X", "Y"):
        left, right = getattr(found, name), getattr(wanted, name)
        assert left.shape == right.shape
        np.testing.assert_array_equal(left.indptr, right.indptr)
        np.testing.assert_array_equal(left.indices, right.indices)
        np.testing.assert_array_equal(left.data.view(np.uint32), right.data.view(np.uint32))


@st.composite
def data_sets(draw):
    rows, features, labels = draw(st.integers(0, 6)), draw(st.integers(1, 8)), draw(st.integers(1, 8))
    values = st.floats(width=32, allow_nan=False, allow_infinity=False)
    X, Y = sp.dok_array((rows, features), dtype=np.float32), sp.dok_array((rows, labels), dtype=np.float32)
    for row in range(rows):
        for feature, value in draw(st.dictionaries(st.integers(0, features - 1), values)).items():
            X[row, feature] = value
        for label in draw(st.sets(st.integers(0, labels - 1))):
            Y[row, label] = 1
    return Dataset(X, Y)


@settings(max_examples=60, deadline=None)
@given(data_sets(), st.sampled_from(["", *COMPRESSIONS]))
def test_round_trip(tmp_path_factory, dataset, suffix):
    path = tmp_path_factory.getbasetemp() / f"round.txt{suffix}"
    write_xc(dataset, path)
    assert_same(read_xc(path), dataset)


def test_every_kind_of_float_comes_back_in_few_digits(tmp_path):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 60_000, dtype=np.uint32)
    bits = bits[np.isfinite(bits.view(np.float32))]
    powers = 2.0 ** np.arange(-149, 128)
    values = np.concatenate(
        [bits.view(np.float32), powers, 10.0 ** np.arange(-45, 39), -powers, [0, -0.0, 3.4028235e38]]
    )
    values = values.astype(np.float32)
    values = values[np.isfinite(values)]
    n = len(values)
    X = sp.csr_array((values, np.zeros(n, np.int32), np.arange(n + 1)), shape=(n, 1))
    dataset = Dataset(X, sp.csr_array((n, 1)))
    write_xc(dataset, tmp_path / "floats.txt")
    assert_same(read_xc(tmp_path / "floats.txt"), dataset)
    written = (tmp_path / "floats.txt").read_text().splitlines()[1:]
    longer = 0
    for line, value in list(zip(written, values, strict=True))[::25]:
        digits = line[3:].lstrip("-").partition("e")[0].replace(".", "").strip("0")
        shortest = np.format_float_scientific(abs(value), unique=True).partition("e")[0].replace(".", "").strip("0")
        longer += len(digits) > len(shortest)
    assert longer < 30  # powers of two: the shortest decimal there is not the nearest of its length


def test_layout(tmp_path):
    values = [[1, 0.5, 100000, 1e-4], [1.5e-5, 12345678, 1e9, -2.5e-8], [0, 0, 0, 0]]
    write_xc(Dataset(values, [[1, 1, 0], [0, 0, 0], [0, 0, 1]]), tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == (
        "3 4 3\n0,1 0:1 1:0.5 2:100000 3:0.0001\n 0:1.5e-5 1:12345678 2:1e9 3:-2.5e-8\n2\n"
    )


def test_pieces_of_any_size(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    dataset = Dataset(sp.random_array((50, 30), density=0.3, rng=rng), sp.random_array((50, 9), density=0.2, rng=rng))
    write_xc(dataset, tmp_path / "whole.txt")
    monkeypatch.setattr(xc, "CHUNK", 100)
    write_xc(dataset, tmp_path / "pieces.txt")
    assert (tmp_path / "whole.txt").read_bytes() == (tmp_path / "pieces.txt").read_bytes()
    assert_same(read_xc(tmp_path / "pieces.txt"), dataset)


def test_texts_alone_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"needs features.*\.jsonl"):
        write_xc(Dataset(None, [[1]], texts=["a"]), tmp_path / "a.txt")
    assert not list(tmp_path.iterdir())
