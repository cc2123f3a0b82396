"""Costs per label from propensities and counts: the correction for the tail that any learner takes as a parameter."""

from longtail import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
