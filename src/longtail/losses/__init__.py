"""Losses, with value, gradient and the equation that defines them."""

from longtail import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
