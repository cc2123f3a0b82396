"""The registry, the bundled data and the check of downloaded files."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import datasets
from longtail.data import Dataset, save
from longtail.data.registry import REPOSITORY
from longtail.errors import InputError

SHARED = Path(__file__).parents[3] / "shared" / "data"
NAMED = [
    "EURLex-4K", "Wiki10-31K", "AmazonCat-13K", "Amazon-670K", "Delicious-200K", "WikiLSHTC-325K", "Wikipedia-500K",
    "Bibtex", "Delicious", "Mediamill",
]  # fmt: skip


def test_names():
    assert set(datasets.names()) == {"debian-tags", "debian-depends", *NAMED}
    assert len(datasets.names()) == 12


@pytest.mark.parametrize("name", NAMED)
def test_published_statistics_agree_with_themselves(name):
    info = datasets.describe(name)
    assert info.source == REPOSITORY
    assert not info.bundled
    pairs = info.labels_per_row * info.rows("all")
    smaller = info.labels_per_row * info.train_rows
    published = info.rows_per_label * info.labels
    assert min(abs(pairs - published) / published, abs(smaller - published) / published) < 0.35


@pytest.mark.parametrize(
    ("name", "propensity"),
    [("WikiLSHTC-325K", (0.5, 0.4)), ("Wikipedia-500K", (0.5, 0.4)), ("Amazon-670K", (0.6, 2.6)),
     ("AmazonCat-13K", (0.55, 1.5)), ("EURLex-4K", (0.55, 1.5)), ("debian-depends", (0.55, 1.5))],
)  # fmt: skip
def test_propensity_constants(name, propensity):
    assert datasets.describe(name).propensity == propensity


def test_names_are_forgiving():
    assert datasets.describe("eurlex4k") is datasets.describe("EURLex-4K")
    with pytest.raises(InputError, match=r"no data set called 'EURLex-4M' \(did you mean EURLex-4K"):
        datasets.describe("EURLex-4M")
    with pytest.raises(InputError, match="called 'zzz': known are debian-tags, debian-depends, Mediamill"):
        datasets.describe("zzz")


@pytest.mark.parametrize("name", ["debian-tags", "debian-depends"])
def test_bundled(name):
    info = datasets.describe(name)
    train, test = datasets.load(name), datasets.load(f"{name}:test")
    assert (train.n_rows, test.n_rows) == (info.train_rows, info.test_rows)
    assert train.n_labels == test.n_labels == info.labels
    assert train.label_names == test.label_names
    both = train.label_counts + test.label_counts
    assert (both > 0).all()
    assert info.labels_per_row == round(both.sum() / info.rows("all"), 2)
    assert info.rows_per_label == round(both.mean(), 2)
    seen = train.label_counts > 0
    first_unseen = int(seen.sum())
    assert seen[:first_unseen].all()
    for names in (train.label_names[:first_unseen], train.label_names[first_unseen:]):
        assert names == sorted(names)
    assert not set(train.texts) & set(test.texts)


def test_bundled_with_other_names():
    test = datasets.load("debian-tags", "test", label_names=["role::program"])
    assert test.label_names[0] == "role::program"
    assert test.label_counts[0] == 1644


def test_bundled_provenance_and_size():
    files = [file for file in resources.files("longtail.data.bundled").iterdir() if file.is_file()]
    names = {file.name for file in files}
    assert {"debian-tags.SOURCE.txt", "debian-depends.SOURCE.txt", "make_debian.py.txt"} <= names
    assert sum(len(file.read_bytes()) for file in files) < 9_000_000


def test_what_cannot_be_loaded():
    with pytest.raises(InputError, match=r"Wiki10-31K does not come with longtail: get it from http"):
        datasets.load("wiki10-31k")
    with pytest.raises(InputError, match="debian-tags has no split 'dev'"):
        datasets.load("debian-tags", "dev")
    with pytest.raises(InputError, match="did you mean debian-tags"):
        datasets.load("debian-tag")


def bibtex(rows, features=1836, labels=159, per_row=2):
    rng = np.random.default_rng(0)
    return Dataset(
        sp.random_array((rows, features), density=0.001, rng=rng),
        sp.random_array((rows, labels), density=per_row / labels, rng=rng),
    )


@pytest.mark.parametrize(("rows", "split"), [(4880, "train"), (2515, "test"), (7395, "all")])
def test_verify_agrees(tmp_path, rows, split):
    save(bibtex(rows), tmp_path / "file.txt.gz")
    report = datasets.verify("bibtex", tmp_path / "file.txt.gz")
    assert (report.name, report.split, report.rows, report.features, report.labels) == (
        "Bibtex",
        split,
        rows,
        1836,
        159,
    )
    assert report.labels_per_row == pytest.approx(2, abs=0.01)
    assert report.rows_without_labels > 0


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((4879,), "4,879 rows, but 4,880 (train), 2,515 (test) and 7,395 (all) are published."),
        ((4880, 1835), "differs from Bibtex: 1,835 features, but 1,836 are published."),
        ((4880, 1836, 160), "differs from Bibtex: 160 labels, but 159 are published."),
        ((100, 10, 5, 1), "100 rows, but 4,880 (train), 2,515 (test) and 7,395 (all) are published; 10 features, but"),
        ((4880, 1836, 159, 0.5), "0.50 labels per row, but 2.40 are published"),
    ],
)
def test_verify_differs(tmp_path, parts, reason):
    save(bibtex(*parts), tmp_path / "file.txt")
    with pytest.raises(InputError) as caught:
        datasets.verify("Bibtex", tmp_path / "file.txt")
    assert reason in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))


def test_verify_names_the_version(tmp_path):
    (tmp_path / "train.txt").write_text("15449 186104 3956\n" + 15449 * "0 1:1\n")
    with pytest.raises(InputError, match="It looks like the version that X-Transformer and AttentionXML use"):
        datasets.verify("EURLex-4K", tmp_path / "train.txt")


def test_verify_reads_the_whole_file(tmp_path):
    (tmp_path / "train.txt").write_text("4880 1836 159\n" + 4879 * "0 1:1\n" + "0 1:1 1836:1\n")
    with pytest.raises(InputError, match=r"train\.txt:4881: feature '1836' is out of range"):
        datasets.verify("Bibtex", tmp_path / "train.txt")


def test_verify_texts():
    with resources.as_file(resources.files("longtail.data.bundled") / "debian-tags.test.jsonl.xz") as path:
        assert datasets.verify("debian-tags", path).split == "test"
        with pytest.raises(InputError, match=r"differs from Bibtex: .*texts without features"):
            datasets.verify("Bibtex", path)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data sets are not on this machine")
@pytest.mark.parametrize("name", ["Bibtex", "Delicious"])
def test_verify_real_files(name):
    for split in ("train", "test"):
        assert datasets.verify(name, SHARED / name.lower() / f"{split}.txt.xz").split == split
