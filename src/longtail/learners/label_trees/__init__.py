"""Learners that partition the labels into trees: Parabel, Bonsai, PLT and others."""

from longtail.learners.label_trees.chunk_weights import ChunkWeights
from longtail.learners.label_trees.forest import Branches, LabelForest
from longtail.learners.label_trees.label_tree import LabelTree
from longtail.learners.label_trees.published import bonsai_trees

__all__ = ["Branches", "ChunkWeights", "LabelForest", "LabelTree", "bonsai_trees"]
