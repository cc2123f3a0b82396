"""What learns: estimators that rank labels."""

from longtail.learners.base import Learner
from longtail.learners.linear import BlockWeights, OneVsRest
from longtail.learners.popularity import Popularity
from longtail.learners.text import TextLearner

__all__ = ["BlockWeights", "Learner", "OneVsRest", "Popularity", "TextLearner"]
