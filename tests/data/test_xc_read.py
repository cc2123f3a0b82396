"""Reading XC text: golden files, every mistake with its line, and agreement with scikit-learn and Python's float."""

from __future__ import annotations

import io
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from longtail.data.readers import xc
from longtail.data.readers.xc import read_xc
from longtail.data.readers.xc_kernels import order_rows
from longtail.data.streams import COMPRESSIONS, write_whole
from longtail.errors import InputError


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="train.txt"):
        path = tmp_path / name
        with write_whole(path) as file:
            file.write(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


GOLDEN = "6 4 5\n0,3 1:0.5 3:-2\n4\n 0:1e-3 2:.25\n0:7\n\n2,1 3:1 0:2.50\n"
GOLDEN_X = [[0, 0.5, 0, -2], [0] * 4, [1e-3, 0, 0.25, 0], [7, 0, 0, 0], [0] * 4, [2.5, 0, 0, 1]]
GOLDEN_Y = [[1, 0, 0, 1, 0], [0, 0, 0, 0, 1], [0] * 5, [0] * 5, [0] * 5, [0, 1, 1, 0, 0]]


def assert_golden(dataset):
    np.testing.assert_array_equal(dataset.X.toarray(), np.float32(GOLDEN_X))
    np.testing.assert_array_equal(dataset.Y.toarray(), np.float32(GOLDEN_Y))
    for matrix in (dataset.X, dataset.Y):
        assert matrix.dtype == np.float32
        assert matrix.indices.dtype == np.int32
        matrix.check_format(full_check=True)
        assert type(matrix)(matrix, copy=True).has_canonical_format


@pytest.mark.parametrize("suffix", ["", *COMPRESSIONS])
def test_golden(write, suffix):
    dataset = read_xc(write(GOLDEN, "golden.txt" + suffix))
    assert_golden(dataset)
    assert dataset.name == "golden"
    assert dataset.label_names is None


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text[:-1],
        lambda text: text + "\n \n\r\n",
        lambda text: "\ufeff" + text,
        lambda text: text.replace(" ", "\t"),
        lambda text: text.replace(" ", "  ").replace("\n", " \n"),
    ],
    ids=["crlf", "no newline at the end", "blank lines at the end", "byte order mark", "tabs", "more spaces"],
)
def test_tolerated(write, change):
    assert_golden(read_xc(write(change(GOLDEN))))


@pytest.mark.parametrize("chunk", [16, 17, 23, 40, 64])
def test_windows_of_any_size(write, monkeypatch, chunk):
    monkeypatch.setattr(xc, "CHUNK", chunk)
    assert_golden(read_xc(write(GOLDEN)))
    assert_golden(read_xc(write(GOLDEN[:-1])))


@pytest.mark.parametrize("header", ["0 5 3", "2 0 0", "0 0 0"])
def test_nothing_in_it(write, header):
    rows, features, labels = map(int, header.split())
    dataset = read_xc(write(header + "\n" * (rows + 1)))
    assert (dataset.n_rows, dataset.n_features, dataset.n_labels) == (rows, features, labels)


BAD = {
    "empty file": ("", None, "is empty"),
    "no header": ("1,2 3:4\n", 1, "first line must be 'rows features labels', got '1,2 3:4'"),
    "two counts": ("3 4\n", 1, "first line must be"),
    "negative count": ("-1 4 4\n", 1, "first line must be"),
    "huge count": ("1 99999999999 4\n", 1, "at most 2147483647"),
    "utf-16": ("1 2 3\n".encode("utf-16"), 1, "first line must be"),
    "too few rows": ("3 4 5\n0 1:1\n", 1, "the header has 3 rows, but the file has 1"),
    "too many rows": ("1 4 5\n0 1:1\n\n0 2:1\n", None, "the header has 1 rows, but more follow: '0'"),
    "trailing garbage": ("1 4 5\n0 1:1\nthe end\n", 3, "more follow: 'the'"),
    "label out of range": ("1 4 5\n0,5 1:1\n", 2, "label '5' is out of range: the header allows 0 to 4"),
    "huge label": ("1 4 5\n99999999999999999999999 1:1\n", 2, "out of range"),
    "no labels allowed": ("1 4 0\n0 1:1\n", 2, "the header allows none"),
    "feature out of range": ("2 4 5\n1\n0 1:1 4:1\n", 3, "feature '4' is out of range: the header allows 0 to 3"),
    "huge feature": ("1 4 5\n0 18446744073709551617:1\n", 2, "out of range"),
    "nan": ("1 4 5\n0 1:nan\n", 2, "'1:nan' has a value that is not a finite"),
    "inf": ("1 4 5\n0 1:-Inf\n", 2, "not a finite"),
    "infinite as float32": ("1 4 5\n0 1:1e39\n", 2, "not a finite"),
    "just infinite as float32": ("1 4 5\n0 1:340282356779733661637539395458142568448\n", 2, "not a finite"),
    "label twice": ("2 4 5\n1\n3,0,3 1:1\n", 3, "label 3 appears twice"),
    "feature twice": ("2 4 5\n1\n0 2:1 1:1 2:1\n", 3, "feature 2 appears twice"),
    "neighbours twice": ("1 4 5\n0 2:1 2:1\n", 2, "feature 2 appears twice"),
    "comma at the end": ("1 4 5\n0, 1:1\n", 2, "'0,' is not a list of label ids"),
    "comma alone": ("1 4 5\n, 1:1\n", 2, "',' is not"),
    "negative label": ("1 4 5\n-1 1:1\n", 2, "'-1' is not"),
    "label is no integer": ("1 4 5\n1.5 1:1\n", 2, "'1.5' is not a list of label ids"),
    "labels after features": ("1 4 5\n1:1 3\n", 2, "'3' is not feature:value"),
    "labels then colon": ("1 4 5\n1,2:1\n", 2, "is not a list of label ids"),
    "word": ("1 4 5\n0 cat\n", 2, "'cat' is not feature:value"),
    "no value": ("1 4 5\n0 1:\n", 2, "'1:' is not feature:value"),
    "no feature": ("1 4 5\n0 :1\n", 2, "':1' is not feature:value"),
    "two points": ("1 4 5\n0 1:1.2.3\n", 2, "is not feature:value"),
    "sign alone": ("1 4 5\n0 1:-\n", 2, "is not feature:value"),
    "point alone": ("1 4 5\n0 1:.\n", 2, "is not feature:value"),
    "exponent alone": ("1 4 5\n0 1:1e\n", 2, "is not feature:value"),
    "underscore": ("1 4 5\n0 1:1_0\n", 2, "is not feature:value"),
    "hexadecimal": ("1 4 5\n0 1:0x10\n", 2, "is not feature:value"),
    "comment": ("1 4 5\n0 1:1 # a\n", 2, "'#' is not"),
    "return inside": ("1 4 5\n0 1:1\r2:1\n", 2, "is not"),
    "not utf-8": (b"1 4 5\n0 1:\xff\xfe\n", 2, "is not text"),
    "zeros": (b"1 4 5\n\0\0\0\0\n", 2, "is not text"),
    "earlier of two": ("3 4 5\n0,0 1:1\n0 9:1\n1\n", 2, "label 0 appears twice"),
}


@pytest.mark.parametrize(("content", "line", "reason"), BAD.values(), ids=BAD)
def test_mistakes(write, content, line, reason):
    path = write(content)
    with pytest.raises(InputError) as caught:
        read_xc(path)
    assert reason in caught.value.reason
    assert caught.value.path == str(path)
    if line is not None or not content:
        assert caught.value.line == line


def test_mistakes_are_found_in_any_window(write, monkeypatch):
    monkeypatch.setattr(xc, "CHUNK", 32)
    good = "0,1 0:1 2:1\n" * 20
    for bad, reason in (("0 1:x\n", "is not"), ("0 1:1 1:1\n", "twice")):
        with pytest.raises(InputError, match=rf"train\.txt:22: .*{reason}"):
            read_xc(write(f"22 4 5\n{good}{bad}0\n"))


def test_a_line_without_end_is_refused(write, monkeypatch):
    monkeypatch.setattr(xc, "CHUNK", 64)
    with pytest.raises(InputError, match=r"train\.txt:2: is longer than a row of 4 features"):
        read_xc(write("1 4 5\n" + "0" * 10_000))


def test_cut_archive(write):
    path = write("1000 4 5\n" + "0,1 0:0.123 2:1\n" * 1000, "train.txt.gz")
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InputError, match=r"train\.txt\.gz: ends before its gz data"):
        read_xc(path)


@pytest.mark.parametrize("seed", range(3))
def test_same_as_scikit_learn(write, seed):
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(200):
        labels = rng.choice(50, rng.integers(1, 6), replace=False)
        features = np.sort(rng.choice(300, rng.integers(0, 40), replace=False))
        values = rng.standard_normal(len(features)) * 10.0 ** rng.integers(-8, 8, len(features))
        form = rng.choice(["%d:%.5g", "%d:%.17g", "%d:%.3f", "%d:%e"])
        lines.append(
            ",".join(map(str, labels)) + " " + " ".join(form % pair for pair in zip(features, values, strict=True))
        )
    body = "\n".join(lines) + "\n"
    dataset = read_xc(write(f"200 300 50\n{body}"))
    X, labels = load_svmlight_file(
        io.BytesIO(body.encode()), n_features=300, dtype=np.float64, multilabel=True, zero_based=True
    )
    np.testing.assert_array_equal(dataset.X.indptr, X.indptr)
    np.testing.assert_array_equal(dataset.X.indices, X.indices)
    np.testing.assert_array_equal(dataset.X.data, X.data.astype(np.float32))
    found = np.split(dataset.Y.indices, dataset.Y.indptr[1:-1])
    assert [row.tolist() for row in found] == [sorted(int(label) for label in row) for row in labels]


decimals = st.from_regex(r"[+-]?([0-9]{1,25}(\.[0-9]{0,25})?|\.[0-9]{1,25})([eE][+-]?[0-9]{1,3})?", fullmatch=True)
ordinary = st.one_of(
    st.floats(-1e9, 1e9, allow_nan=False).map(repr),
    st.floats(-1e9, 1e9, width=32).map(lambda value: f"{value:.6g}"),
    st.decimals(-10, 10, places=6).map(str),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(ordinary, decimals), min_size=1, max_size=40))
@example(["1.00000005960464477539062500", "1.00000005960464477539062501", "1.000000059604644775390624999"])
@example(["0." + 400 * "0" + "1e400", "1" + 400 * "0" + "e-400", "7.006492321624085e-46", "7.0064923216240854e-46"])
@example(["3.4028235677973362e38", "-0", "9007199254740993", "1e22", "1e23", "16777217", "33554435"])
def test_values_are_those_of_python(tmp_path_factory, values):
    with np.errstate(over="ignore"):
        expected = np.float32([float(value) for value in values])
    finite = np.isfinite(expected)
    pairs = " ".join(f"{place}:{value}" for place, value in enumerate(np.array(values)[finite]))
    path = tmp_path_factory.getbasetemp() / "values.txt"
    path.write_text(f"1 {len(values)} 1\n0 {pairs}\n")
    np.testing.assert_array_equal(read_xc(path).X.data.view(np.uint32), expected[finite].view(np.uint32))


def test_many_values_near_rounding_borders(write):
    rng = np.random.default_rng(0)
    low = rng.integers(1, 0x7F000000, 5000, dtype=np.uint32).view(np.float32)
    middle = (low.astype(np.float64) + np.nextafter(low, np.float32(np.inf)).astype(np.float64)) / 2
    values = np.concatenate([middle, np.nextafter(middle, np.inf), np.nextafter(middle, 0), low.astype(np.float64)])
    text = [f"{value:.17g}" for value in values] + [f"{value:.40g}" for value in values]
    dataset = read_xc(write(f"{len(text)} 1 1\n" + "".join(f"0:{value}\n" for value in text)))
    expected = np.float32([float(value) for value in text])
    np.testing.assert_array_equal(dataset.X.data.view(np.uint32), expected.view(np.uint32))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(GOLDEN) - 1), st.sampled_from(b"0123456789:,.-+eE \t\r\n\0\xffx")),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([24, 1 << 20]),
)
def test_any_bytes_give_a_data_set_or_an_error(tmp_path_factory, changes, chunk):
    content = bytearray(GOLDEN.encode())
    for place, byte in changes:
        content[place] = byte
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xc, "CHUNK", chunk)
        try:
            dataset = read_xc(path)
        except InputError:
            return
    dataset.X.check_format(full_check=True)
    dataset.Y.check_format(full_check=True)


def test_order_rows_is_a_sort():
    rng = np.random.default_rng(0)
    sizes = [0, 1, 2, 5, 50, 1000]
    indptr = np.cumsum([0, *sizes]).astype(np.int64)
    indices = np.concatenate([rng.permutation(5000)[:size] for size in sizes]).astype(np.int32)
    data = rng.standard_normal(len(indices)).astype(np.float32)
    expected = [np.argsort(indices[a:b]) + a for a, b in pairwise(indptr)]
    order = np.concatenate(expected).astype(int)
    wanted = indices[order], data[order]
    found = np.full(2, -1)
    labels = indices.copy()
    order_rows(indptr, indices, data, 0, len(sizes), found)
    order_rows(indptr, labels, np.empty(0, np.float32), 0, len(sizes), found)
    np.testing.assert_array_equal(indices, wanted[0])
    np.testing.assert_array_equal(labels, wanted[0])
    np.testing.assert_array_equal(data, wanted[1])
    assert found.tolist() == [-1, -1]


def test_memory_is_bounded_by_the_result_and_a_few_windows(write, monkeypatch):
    chunk = 1 << 16
    monkeypatch.setattr(xc, "CHUNK", chunk)
    line = "1,2,3 " + " ".join(f"{feature}:0.{feature + 1}" for feature in range(200)) + "\n"
    path = write("1000 200 5\n" + 1000 * line, "train.txt.gz")
    read_xc(path)
    tracemalloc.start()
    dataset = read_xc(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    result = sum(
        array.nbytes for matrix in (dataset.X, dataset.Y) for array in (matrix.data, matrix.indices, matrix.indptr)
    )
    assert peak < 1.3 * result + 40 * chunk
