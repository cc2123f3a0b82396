"""Learners that part the labels into trees."""

from longtail.learners.trees.chunk_weights import ChunkWeights
from longtail.learners.trees.forest import Branches, LabelForest
from longtail.learners.trees.label_tree import LabelTree

__all__ = ["Branches", "ChunkWeights", "LabelForest", "LabelTree"]
