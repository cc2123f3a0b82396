from __future__ import annotations

import re
import sys
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline

from longtail.errors import InputError, ParameterError
from longtail.features.tfidf import tfidf as tfidf_module
from longtail.features.tfidf.terms import Reading, fill_slots, locate, read_rows
from longtail.features.tfidf.tfidf import Tfidf
from longtail.features.tfidf.vocabulary import Vocabulary
from longtail.features.tfidf.words import as_utf8, character_tables

TRICKY = [
    "Plain words, and MORE Words: and-more words 2nd 3rd x yz",
    "naïve cafe\u0301 cafés ÉCOLE école Straße STRASSE ẞtra ǅungla Ⱥb ȺȾ Ⱦⱥ",
    "ΟΔΥΣΣΕΥΣ Σίσυφος ΣΑΣ ΑΣ. ΑΣ' ΑΣΑ ὈΔΥΣΣΕΎΣ",
    "İstanbul IĞDIR ıssız İİ aİb KELVIN \u212aelvin Å \u212bngstrom",
    "日本語 のテキスト 한국어 텍스트 中文 字 हिन्दी ไทยภาษา",
    "٣٤٥ ४५ ²³ ½¼ Ⅷ ⅧⅨ ①② 12٣ x² m³s",
    "emoji 😀😀 a😀b 👩‍👩‍👧 𝒜𝒷 𝟘𝟙 𐐀𐐁 𐐨𐐩 🄰🄱",
    "nul\0byte a\0b \0\0 tab\tnew\nline\r\x0b\x1c\x85\u2028\u00a0\u200bend",
    "_ __ _a a_ snake_case __init__ -_- a-_-b",
    "lone \ud800surrogate\udfff pair\ud83d",
    "",
    " ",
    "a",
    "é",
    "x" * 7 + " " + "x" * 8 + " " + "x" * 9 + " " + "x" * 16 + " " + "x" * 17 + " " + "é" * 4 + " " + "é" * 5,
    "last words words words and more",
]


def reference(texts: list[str], tfidf: Tfidf) -> tuple[sp.csr_array, list[str]]:
    """scikit-learn's features for the settings that it knows."""
    vectorizer = TfidfVectorizer(
        ngram_range=tfidf.ngram_range,
        sublinear_tf=tfidf.sublinear_tf,
        min_df=tfidf.min_df,
        max_features=tfidf.max_features,
        use_idf=tfidf.idf != "none",
        smooth_idf=tfidf.idf == "smooth",
        lowercase=tfidf.lowercase,
        norm="l2" if tfidf.l2 else None,
    )
    return sp.csr_array(vectorizer.fit_transform(texts)), vectorizer.get_feature_names_out().tolist()


def assert_same_bits(a: sp.csr_array, b: sp.csr_array) -> None:
    assert a.shape == b.shape
    for field in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(a, field), getattr(b, field))


def assert_equals_reference(texts: list[str], tfidf: Tfidf) -> None:
    found = tfidf.fit_transform(texts)
    expected, names = reference(texts, tfidf)
    assert tfidf.feature_names() == names
    assert found.shape == expected.shape
    assert found.dtype == np.float32
    assert found.indices.dtype == np.int32
    np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-6, atol=1e-5)
    assert_same_bits(tfidf.transform(texts), found)
    checked = sp.csr_array((found.data, found.indices, found.indptr), shape=found.shape)
    assert checked.has_canonical_format


@pytest.mark.parametrize("lowercase", [True, False])
def test_character_tables_agree_with_re_for_every_code_point(lowercase: bool) -> None:
    by_byte, by_code_point = character_tables(lowercase)
    word = re.compile(r"\w")
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if lowercase and character in "Σİ":
            continue  # texts with these are lower-cased by Python
        if lowercase:
            character = character.lower()
        packed = int.from_bytes(character.encode("utf-8", "surrogatepass"), "big") if word.match(character) else 0
        assert by_code_point[code] == packed, hex(code)
    np.testing.assert_array_equal(by_byte[:128], by_code_point[:128])


def test_lower_casing_twice_changes_nothing() -> None:
    lowered = "".join(map(chr, range(sys.maxunicode + 1))).lower()
    assert lowered.lower() == lowered


@pytest.mark.parametrize("ngrams", [1, 2, 3, 4])
@pytest.mark.parametrize("lowercase", [True, False])
def test_tricky_unicode(ngrams: int, lowercase: bool) -> None:
    assert_equals_reference(TRICKY, Tfidf(ngram_range=(1, ngrams), min_df=1, idf="smooth", lowercase=lowercase))


def test_tokens_are_those_of_re() -> None:
    for row in TRICKY:
        reading = Reading(*read_rows(*as_utf8([row], True), *character_tables(True), 1, np.zeros(1, np.uint8)))
        vocabulary = Vocabulary()
        vocabulary.add(reading)
        spelled, ends = vocabulary.spell(reading.ids, ngrams=1)
        found = [bytes(spelled[a:b]).decode() for a, b in pairwise(ends)]
        assert found == re.findall(r"(?u)\b\w\w+\b", row.lower())


@pytest.mark.parametrize("ngrams", [1, 3])
def test_text_that_lower_casing_lengthens(ngrams: int) -> None:
    texts = [" ".join(map("".join, product("ȺȾ", repeat=length))) for length in range(2, 9)]
    assert_equals_reference(texts, Tfidf(ngram_range=(1, ngrams), min_df=1, idf="smooth"))


words = st.text(st.sampled_from("aAbBéÉΣσİ_1٣字😀"), min_size=1, max_size=4)
sentences = st.lists(words, max_size=12).map(" ".join)
anything = st.text(st.characters(), max_size=40)


@settings(max_examples=150, deadline=None)
@given(
    texts=st.lists(st.one_of(sentences, anything), min_size=1, max_size=8),
    ngram_range=st.sampled_from([(1, 1), (1, 2), (2, 2), (1, 3), (2, 3)]),
    sublinear_tf=st.booleans(),
    min_df=st.integers(1, 2),
    idf=st.sampled_from(["smooth", "unsmoothed", "none"]),
    lowercase=st.booleans(),
    l2=st.booleans(),
)
def test_any_text_gives_the_features_of_scikit_learn(texts: list[str], **parameters: object) -> None:
    tfidf = Tfidf(**parameters)  # type: ignore[arg-type]
    if tfidf.min_df > len(texts):
        tfidf.min_df = 1
    try:
        reference(texts, tfidf)
    except ValueError:
        with pytest.raises((InputError, ParameterError)):
            tfidf.fit(texts)
        return
    assert_equals_reference(texts, tfidf)


@pytest.fixture(scope="module")
def real_texts() -> list[str]:
    sources = sorted(Path(re.__file__).parent.parent.glob("*.py"))[:60]
    return [source.read_text(encoding="utf-8")[:6000] for source in sources]


@pytest.mark.parametrize("ngrams", [1, 2])
def test_real_text(real_texts: list[str], ngrams: int) -> None:
    assert_equals_reference(real_texts, Tfidf(ngram_range=(1, ngrams), idf="smooth"))


def test_unseen_text(real_texts: list[str]) -> None:
    train, test = real_texts[:40], [*real_texts[40:], *TRICKY]
    tfidf = Tfidf(ngram_range=(1, 2), idf="smooth").fit(train)
    expected = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2).fit(train).transform(test)
    np.testing.assert_allclose(tfidf.transform(test).toarray(), expected.toarray(), rtol=1e-6, atol=1e-5)


def test_plain_idf_is_ln_of_rows_over_rows_with_the_term(real_texts: list[str]) -> None:
    tfidf = Tfidf()
    found = tfidf.fit_transform(real_texts)
    counts = CountVectorizer(min_df=2).fit_transform(real_texts).toarray()
    idf = np.log(len(counts) / (counts > 0).sum(axis=0))
    values = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0) * idf
    values /= np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
    np.testing.assert_allclose(found.toarray(), values, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tfidf.idf_, idf, rtol=1e-6)


def test_terms_of_every_row_weigh_nothing_and_are_not_stored() -> None:
    rows = Tfidf(min_df=1).fit_transform(["same one", "same two", "same"])
    assert rows.nnz == 2
    assert rows.shape == (3, 3)
    assert np.diff(rows.indptr).tolist() == [1, 1, 0]


def test_max_features_keeps_the_most_frequent_as_scikit_learn(real_texts: list[str]) -> None:
    totals = np.sort(CountVectorizer(min_df=2).fit_transform(real_texts).sum(axis=0).A1)[::-1]
    border = int(np.flatnonzero(totals[:-1] > totals[1:])[20]) + 1
    assert_equals_reference(real_texts, Tfidf(idf="smooth", max_features=border))


def test_max_features_breaks_ties_by_term() -> None:
    texts = ["zeta alpha beta", "zeta gamma delta", "beta zeta"]
    assert Tfidf(min_df=1, max_features=3).fit(texts).feature_names() == ["alpha", "beta", "zeta"]


def test_ngrams_whose_words_are_not_features_are_found() -> None:
    texts = ["alpha zeta", "alpha zeta", "alpha"]
    tfidf = Tfidf(ngram_range=(1, 2), min_df=1, max_features=2, idf="none", l2=False)
    rows = tfidf.fit_transform(texts)
    assert tfidf.feature_names() == ["alpha", "alpha zeta"]
    assert rows.toarray().tolist() == [[1, 1], [1, 1], [1, 0]]
    assert_same_bits(tfidf.transform(texts), rows)


def test_min_rows_counts_rows_not_occurrences() -> None:
    assert Tfidf(min_df=2).fit(["aa aa aa bb", "bb cc", "cc"]).feature_names() == ["bb", "cc"]


def test_order_of_long_ngrams_is_alphabetical() -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{word}" for word in rng.integers(0, 10_000, 400)) for _ in range(60)]
    names = Tfidf(ngram_range=(1, 5), min_df=1).fit(texts).feature_names()
    assert len(set(names)) > 80_000
    assert names == sorted(names)


@pytest.mark.parametrize("ngrams", [1, 3])
def test_same_bits_for_any_thread_count_and_chunk_size(
    real_texts: list[str], ngrams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = Tfidf(ngram_range=(1, ngrams), n_jobs=1)
    rows = expected.fit_transform(real_texts)
    for size in (1, 9_000, 50_000):
        monkeypatch.setattr(tfidf_module, "_CHUNK_CHARACTERS", size)
        for threads in (1, 2, 5):
            tfidf = Tfidf(ngram_range=(1, ngrams), n_jobs=threads)
            assert_same_bits(tfidf.fit_transform(real_texts), rows)
            assert_same_bits(tfidf.transform(real_texts), rows)
            assert tfidf.term_bytes_.tobytes() == expected.term_bytes_.tobytes()


def test_empty_texts_are_empty_rows() -> None:
    tfidf = Tfidf(min_df=1, idf="smooth")
    rows = tfidf.fit_transform(["", "word", "!?"])
    assert np.diff(rows.indptr).tolist() == [0, 1, 0]
    assert tfidf.n_rows_ == 3
    assert tfidf.transform([]).shape == (0, 1)
    assert tfidf.transform([""]).nnz == 0
    assert tfidf.transform(["unknown"]).nnz == 0


@pytest.mark.parametrize("mmap_mode", [None, "r"])
def test_state_survives_as_plain_arrays(tmp_path: Path, real_texts: list[str], mmap_mode: str | None) -> None:
    tfidf = Tfidf(ngram_range=(1, 2), max_features=500)
    rows = tfidf.fit_transform(real_texts)
    loaded = Tfidf(**tfidf.get_params())
    for name in Tfidf._stored:
        np.save(tmp_path / f"{name}.npy", getattr(tfidf, name), allow_pickle=False)
        setattr(loaded, name, np.load(tmp_path / f"{name}.npy", mmap_mode=mmap_mode, allow_pickle=False))
    assert_same_bits(loaded.transform(real_texts), rows)
    assert loaded.feature_names() == tfidf.feature_names()


def test_fitting_again_forgets_the_old_terms() -> None:
    tfidf = Tfidf(min_df=1, idf="none")
    tfidf.fit(["red"]).transform(["red"])
    assert tfidf.fit(["blue"]).transform(["red blue"]).toarray().tolist() == [[1]]


def test_scikit_learn_contract(real_texts: list[str]) -> None:
    tfidf = Tfidf(ngram_range=(1, 2), min_df=3, idf="smooth", n_jobs=2)
    copy = clone(tfidf)
    assert copy.get_params() == tfidf.get_params()
    assert tfidf.fit(real_texts) is tfidf
    assert tfidf.get_feature_names_out().tolist() == tfidf.feature_names()
    labels = np.arange(len(real_texts)) % 2
    model = make_pipeline(copy, RidgeClassifier(alpha=1e-6)).fit(real_texts, labels)
    assert (model.predict(real_texts) == labels).mean() > 0.9


def test_terms_with_the_same_hash_are_distinguished() -> None:
    terms = np.array([5 << 56, 6 << 56], np.uint64)
    starts = np.array([0, 1, 2], np.int64)
    hashes = np.array([77 << 32, 77 << 32], np.uint64)
    slots = np.zeros(8, np.uint64)
    fill_slots(slots, hashes, 2)
    assert locate(slots, terms, starts, hashes[0], terms, 0, 1)[1] == 0
    assert locate(slots, terms, starts, hashes[0], terms, 1, 1)[1] == 1
    assert locate(slots, terms, starts, hashes[0], np.array([7 << 56], np.uint64), 0, 1)[1] == -1
    assert locate(slots, terms, starts, hashes[0], terms, 0, 2)[1] == -1


@pytest.mark.parametrize("count", [0, 1, 2, 40, 41, 500])
@pytest.mark.parametrize("largest", [1, 300, 200_000])
def test_row_sort(count: int, largest: int) -> None:
    keys = np.random.default_rng(count).integers(0, largest, count).astype(np.int32)
    expected = np.sort(keys)
    found = tfidf_module._sorted(keys, np.empty_like(keys), count, int(largest).bit_length())
    np.testing.assert_array_equal(found[:count], expected)


def test_a_set_stop_flag_ends_reading_at_once() -> None:
    reading = Reading(*read_rows(*as_utf8(["red fish"], True), *character_tables(True), 1, np.ones(1, np.uint8)))
    assert len(reading.ids) == 0


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one text", "put it in a list"),
        (b"bytes", "put it in a list"),
        (["fine", None], r"texts\[1\] must be a text, got NoneType"),
        (["fine", "fine", 3.5], r"texts\[2\] must be a text, got float"),
        (7, "must be a list of texts, got int"),
        ([], "no texts"),
        (["a", "b", ""], "hold no words"),
        (["one", "two"], "min_df must be lower"),
    ],
)
def test_bad_texts_are_refused(texts: object, message: str) -> None:
    with pytest.raises((InputError, ParameterError), match=message):
        Tfidf().fit(texts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ngram_range", 2),
        ("ngram_range", (0, 1)),
        ("ngram_range", (2, 1)),
        ("ngram_range", (1, 1.5)),
        ("ngram_range", (True, 2)),
        ("min_df", 0),
        ("max_features", 0),
        ("max_features", "many"),
        ("idf", "other"),
        ("idf", None),
        ("lowercase", 1),
        ("sublinear_tf", "yes"),
        ("l2", None),
        ("n_jobs", 0),
    ],
)
def test_bad_parameters_are_refused(name: str, value: object) -> None:
    with pytest.raises(ParameterError, match=name):
        Tfidf(**{name: value}).fit(["red fish", "red fish"])  # type: ignore[arg-type]


def test_other_sequences_of_text_are_taken() -> None:
    expected = Tfidf(min_df=1).fit(["red fish", "blue"])
    for texts in (("red fish", "blue"), np.array(["red fish", "blue"]), iter(["red fish", "blue"])):
        assert Tfidf(min_df=1).fit(texts).feature_names() == expected.feature_names()


def test_transform_before_fit() -> None:
    with pytest.raises(NotFittedError, match="fit"):
        Tfidf().transform(["text"])
    with pytest.raises(NotFittedError, match="fit"):
        Tfidf().feature_names()


def test_a_wrong_range_of_ngrams_is_explained() -> None:
    told = r"ngram_range must be two positive integers, the first at most the second, such as \[1, 2\], got \(2, 1\)"
    with pytest.raises(ParameterError, match=told):
        Tfidf(ngram_range=(2, 1)).fit(["red fish"])


def test_lists_are_ranges_of_ngrams_too() -> None:
    texts = ["red fish", "red fish"]
    assert Tfidf(ngram_range=[1, 2]).fit(texts).feature_names() == Tfidf(ngram_range=(1, 2)).fit(texts).feature_names()  # type: ignore[arg-type]
