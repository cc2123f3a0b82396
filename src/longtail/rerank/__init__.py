"""Methods that improve the ranking of rare labels around any learner."""

from longtail import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
