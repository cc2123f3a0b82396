"""Learners with instance trees: FastXML, PfastXML, and others with any gains."""

from longtail.learners.instance_trees.instance_forest import InstanceForest
from longtail.learners.instance_trees.trees import InstanceTrees

__all__ = ["InstanceForest", "InstanceTrees"]
