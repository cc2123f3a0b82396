"""Data sets: readers and writers, hierarchies, splits, synthetic and bundled data."""

from longtail import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
