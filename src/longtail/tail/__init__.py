"""What goes around any learner for the sake of the tail."""

from longtail.tail.centroid_reranker import CentroidReranker

__all__ = ["CentroidReranker"]
