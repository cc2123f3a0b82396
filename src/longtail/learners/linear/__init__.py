"""Linear learners: one classifier per label (DiSMEC and its weighted forms)."""

from longtail.learners.linear.one_vs_rest import OneVsRest
from longtail.learners.linear.weights import BlockWeights

__all__ = ["BlockWeights", "OneVsRest"]
