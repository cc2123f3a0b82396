"""The systems of the papers by name: each a learner composed with its published constants."""

from longtail.recipes.catalogue import find, recipe, recipes
from longtail.recipes.settings import configure
from longtail.recipes.systems import Recipe

__all__ = ["Recipe", "configure", "find", "recipe", "recipes"]
