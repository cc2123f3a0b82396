"""Neural learners over texts: encoders, heads and the classifier that trains them together."""

from longtail import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
