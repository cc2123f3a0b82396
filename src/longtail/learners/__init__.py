"""What learns: estimators that rank labels."""

from longtail.learners.base import Learner

__all__ = ["Learner"]
