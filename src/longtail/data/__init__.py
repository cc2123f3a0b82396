"""Data sets: readers and writers, hierarchies, splits, synthetic and bundled data."""

from longtail.data.dataset import Dataset
from longtail.data.hierarchy import Hierarchy, read_hierarchy
from longtail.data.masking import MaskedLabels, mask_by_curve, mask_labels
from longtail.data.readers.formats import load, save
from longtail.data.readers.jsonl import read_jsonl, write_jsonl
from longtail.data.readers.npz import read_npz, write_npz
from longtail.data.readers.xc import read_xc, write_xc
from longtail.data.splits import iterative_split, random_split
from longtail.data.synthetic import generate

__all__ = [
    "Dataset",
    "Hierarchy",
    "MaskedLabels",
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
