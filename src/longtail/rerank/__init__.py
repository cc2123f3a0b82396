"""Learners that wrap any learner to rank rare labels better."""

from longtail import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
