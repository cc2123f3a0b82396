"""Propensities, the probabilities that true labels were recorded: the model of Jain et al. and estimates from data."""

from longtail import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
