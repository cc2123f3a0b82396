"""Linear learners: one classifier a label."""

from longtail.learners.linear.one_vs_rest import OneVsRest
from longtail.learners.linear.weights import BlockWeights

__all__ = ["BlockWeights", "OneVsRest"]
