"""Tf-idf beside the vectors of an encoder: the parts and their parameters."""

from __future__ import annotations

import pytest

from longtail import Tfidf
from longtail.errors import ParameterError
from longtail.features import TextEmbedding, TfidfEmbedding


@pytest.mark.parametrize(
    ("part", "value", "told"),
    [
        ("tfidf", 5, "tfidf must be a Tfidf, or None, got 5"),
        ("tfidf", TextEmbedding(), "tfidf must be a Tfidf, or None"),
        ("embedding", 5, "embedding must be a TextEmbedding, or None, got 5"),
        ("embedding", "minilm", "embedding must be a TextEmbedding, or None, got 'minilm'"),
        ("tfidf", Tfidf(min_df=0), "min_df must be"),
        ("scale", 0, "scale must be a number above 0"),
    ],
)
def test_wrong_parts_are_refused(part, value, told):
    with pytest.raises(ParameterError, match=told):
        TfidfEmbedding(**{part: value}).fit(["red fish"])
