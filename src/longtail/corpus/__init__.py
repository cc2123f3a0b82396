"""What comes in: readers and writers, text features, data sets, splits and bundled data."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from longtail.corpus.dataset import Dataset
from longtail.corpus.formats import load, save
from longtail.corpus.generated import generate
from longtail.corpus.hierarchy import Hierarchy, read_hierarchy
from longtail.corpus.jsonl import read_jsonl, write_jsonl
from longtail.corpus.masking import MaskedLabels, mask_by_curve, mask_labels
from longtail.corpus.npz import read_npz, write_npz
from longtail.corpus.splits import iterative_split, random_split
from longtail.corpus.xc import read_xc, write_xc

if TYPE_CHECKING:
    from longtail.corpus.text import Tfidf
    from longtail.corpus.text_embedding import TextEmbedding, TfidfEmbedding
    from longtail.corpus.token_rows import Tokens

__all__ = [
    "Dataset",
    "Hierarchy",
    "MaskedLabels",
    "TextEmbedding",
    "Tfidf",
    "TfidfEmbedding",
    "Tokens",
    "generate",
    "iterative_split",
    "load",
    "mask_by_curve",
    "mask_labels",
    "random_split",
    "read_hierarchy",
    "read_jsonl",
    "read_npz",
    "read_xc",
    "save",
    "write_jsonl",
    "write_npz",
    "write_xc",
]


_LAZY = {"Tfidf": "text", "Tokens": "token_rows", "TextEmbedding": "text_embedding", "TfidfEmbedding": "text_embedding"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:  # bring numba and scikit-learn, which loading data can do without
        return getattr(importlib.import_module(f"longtail.corpus.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'longtail.corpus' has no attribute {name!r}")
