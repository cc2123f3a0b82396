"""Learners that part the labels into trees."""

from longtail.learners.label_trees.bonsai import bonsai_trees
from longtail.learners.label_trees.chunk_weights import ChunkWeights
from longtail.learners.label_trees.forest import Branches, LabelForest
from longtail.learners.label_trees.label_tree import LabelTree

__all__ = ["Branches", "ChunkWeights", "LabelForest", "LabelTree", "bonsai_trees"]
