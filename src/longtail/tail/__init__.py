"""What goes around any learner for the sake of the tail."""

from longtail.tail.centroid_reranker import CentroidReranker
from longtail.tail.centroids import LabelCentroids

__all__ = ["CentroidReranker", "LabelCentroids"]
