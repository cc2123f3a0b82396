"""Learners: estimators that rank labels, and what they share."""

from longtail import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
