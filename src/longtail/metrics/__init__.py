"""Metrics: ranking metrics, plain and propensity-scored, by frequency and label, with intervals and tests."""

from longtail import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
